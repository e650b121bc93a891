"""The program in docs/audit.md, which uses nothing of ours, run on a record."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from audit.store import AuditStore
from tests.audit.conftest import NOW, open_run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "audit.md"


def program() -> str:
    blocks = PAGE.read_text(encoding="utf-8").split("```python\n")[1:]
    (found,) = [block.split("```")[0] for block in blocks if "hashlib" in block]
    return found.replace("sqlite3.connect(path)", "connection")


def check(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        names = {"connection": connection, "run_id": "run-1"}
        exec(program(), names)
    return names["before"]


def test_a_stranger_comes_to_the_same_head(store: AuditStore, path: Path) -> None:
    open_run(store)
    store.append("run-1", 'ü "quoted"', "note", {"text": "\U0001f600 ü", "n": 0.1}, NOW)
    store.finish_run("run-1", "PASS", 0, NOW)
    run = store.run("run-1")
    assert run is not None
    assert check(path) == run.head_hash


def test_a_stranger_sees_a_change(store: AuditStore, path: Path) -> None:
    open_run(store)
    store.finish_run("run-1", "FAIL", 1, NOW)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE events SET payload = replace(payload, 'FAIL', 'PASS')")
        connection.commit()
    with pytest.raises(AssertionError, match="event 2 was changed"):
        check(path)
