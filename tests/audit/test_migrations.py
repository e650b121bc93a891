import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from audit.engine import Database
from audit.errors import SchemaNotReady
from audit.migrations import require_current, upgrade
from audit.store import AuditStore
from audit.tables import metadata
from tests.audit.conftest import open_run
from tests.audit.test_processes import ROOT


def schema(path: Path) -> list[tuple]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()


def test_an_upgrade_from_nothing_gives_the_tables_of_the_code(path: Path) -> None:
    database = Database(f"sqlite:///{path}")
    found = database.read(lambda c: compare_metadata(MigrationContext.configure(c), metadata))
    database.dispose()
    assert found == []


def test_a_second_upgrade_changes_nothing_and_keeps_what_is_stored(
    store: AuditStore, path: Path
) -> None:
    open_run(store)
    before = schema(path)
    store.upgrade()
    upgrade(f"sqlite:///{path}")
    assert schema(path) == before
    assert store.verify_chain("run-1") == []


def test_processes_that_start_at_once_upgrade_once(tmp_path: Path, path: Path) -> None:
    fresh = tmp_path / "fresh.db"
    argv = [sys.executable, "-m", "tests.audit.writers", "migrate", f"sqlite:///{fresh}", "4", "0"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert schema(fresh) == schema(path)


def test_threads_that_start_at_once_upgrade_once(tmp_path: Path, path: Path) -> None:
    fresh, errors = tmp_path / "fresh.db", []

    def work() -> None:
        try:
            upgrade(f"sqlite:///{fresh}")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert schema(fresh) == schema(path)


def test_an_upgrade_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    fresh = tmp_path / "fresh.db"
    with closing(sqlite3.connect(fresh)) as connection:
        connection.execute("CREATE TABLE stop_flag (in_the_way INTEGER)")
    with pytest.raises(Exception, match="stop_flag already exists"):
        upgrade(f"sqlite:///{fresh}")
    assert [name for name, _ in schema(fresh)] == ["stop_flag"]


@pytest.mark.parametrize("revision", ["0000", "9999"])
def test_another_revision_is_refused_with_both_names(path: Path, revision: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
    connection.close()
    database = Database(f"sqlite:///{path}")
    with pytest.raises(SchemaNotReady, match=f"at revision {revision}, this code needs 0001"):
        require_current(database)
    database.dispose()


def test_the_head_in_the_code_is_that_of_the_scripts() -> None:
    from alembic.script import ScriptDirectory

    from audit import migrations

    assert ScriptDirectory.from_config(migrations._config()).get_heads() == [migrations.HEAD]
