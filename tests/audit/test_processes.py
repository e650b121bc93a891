"""Several processes on one database, and one that is killed while it writes."""

import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from audit.engine import Database
from audit.store import AuditStore
from tests.audit.conftest import NOW, open_run

ROOT = Path(__file__).resolve().parents[2]


def writers(command: str, url: str, processes: int, units: int) -> subprocess.CompletedProcess:
    argv = [sys.executable, "-m", "tests.audit.writers", command, url]
    return subprocess.run(
        [*argv, str(processes), str(units)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def test_twenty_processes_that_read_then_write_lose_nothing(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE counted (n INTEGER PRIMARY KEY, name TEXT)")
    done = writers("count", f"sqlite:///{path}", 20, 50)
    assert (done.returncode, done.stderr) == (0, "")
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*), max(n) FROM counted").fetchone() == (1000, 1000)


def test_without_beginning_as_a_writer_the_same_unit_fails_at_once(path: Path) -> None:
    """The reason for BEGIN IMMEDIATE, seen: the busy time-out of 5 s is not waited for."""
    with (
        closing(sqlite3.connect(path, timeout=5, isolation_level=None)) as late,
        closing(sqlite3.connect(path, timeout=5, isolation_level=None)) as early,
    ):
        late.execute("CREATE TABLE counted (n INTEGER)")
        late.execute("BEGIN")
        late.execute("SELECT count(*) FROM counted").fetchall()
        early.execute("INSERT INTO counted VALUES (1)")
        started = time.monotonic()
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            late.execute("INSERT INTO counted VALUES (2)")
        assert time.monotonic() - started < 2


def test_processes_that_append_to_one_run_make_one_chain(store: AuditStore, path: Path) -> None:
    open_run(store)
    done = writers("append", f"sqlite:///{path}", 5, 20)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(store.events("run-1")) == 101
    assert store.verify_chain("run-1") == []


def test_a_lock_held_past_the_time_out_is_waited_for_by_running_the_unit_again(path: Path) -> None:
    database = Database(f"sqlite:///{path}", busy_seconds=0.05, retry_seconds=20)
    calls: list[int] = []
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")

        threading.Timer(0.5, lambda: other.execute("COMMIT")).start()
        started = time.monotonic()
        database.write(lambda connection: calls.append(1))
        assert time.monotonic() - started >= 0.4
    assert calls == [1]
    database.dispose()


def test_a_lock_that_never_goes_is_an_error_in_the_end(path: Path) -> None:
    database = Database(f"sqlite:///{path}", busy_seconds=0.05, retry_seconds=0.3)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(OperationalError, match="locked"):
            database.write(lambda connection: None)
        assert database.read(lambda c: c.exec_driver_sql("SELECT 1").scalar()) == 1
    database.dispose()


def test_a_unit_that_fails_leaves_nothing(store: AuditStore) -> None:
    def unit(connection):
        connection.exec_driver_sql("INSERT INTO stop_flag VALUES (1, 1, '', '', NULL, 1)")
        raise RuntimeError("half-way")

    with pytest.raises(RuntimeError):
        store._database.write(unit)
    assert not store.stop_state().stopped


@pytest.mark.parametrize("after", [1, 4, 9])
def test_a_writer_killed_at_any_time_leaves_a_valid_record(
    store: AuditStore, path: Path, after: int
) -> None:
    open_run(store)
    argv = [sys.executable, "-c", "import sys; from tests.audit.writers import forever;"]
    argv[-1] += "forever(sys.argv[1], '', 0)"
    with subprocess.Popen(
        [*argv, f"sqlite:///{path}"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        for _ in range(after):
            said = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
    assert writer.returncode == -signal.SIGKILL
    assert store.verify_chain("run-1") == []
    assert len(store.events("run-1", "note")) > said, "what was acknowledged is there"
    assert len(store.load_segments("run-1", "stream")) == len(store.events("run-1", "segment"))
    store.append("run-1", "after", "note", {}, NOW)
    assert store.verify_chain("run-1") == []
