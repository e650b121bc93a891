"""Which audit database a command reads when no stack runs, and that reading makes none."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from api.cli import run
from audit.store import AuditStore

READERS = (["history"], ["show", "aa"], ["replay", "--all"], ["holds", "list"])


@pytest.fixture(autouse=True)
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """State directory of a stack that was taken down; the working directory is another one."""
    directory = tmp_path / "stack"
    directory.mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("BURNPROOF_STACK_DIR", str(directory))
    monkeypatch.delenv("BURNPROOF_AUDIT_URL", raising=False)
    return directory


def a_trail(file: Path, *runs: str) -> AuditStore:
    store = AuditStore(f"sqlite:///{file}")
    store.upgrade()
    for name in runs:
        who = {"requested_by": "me", "trigger": "cli"}
        store.open_run(name, "w", "n", "FaultExperiment", {}, **who, at=datetime.now(UTC))
    return store


def test_the_trail_of_a_stack_that_is_down_is_read(
    stack: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_trail(stack / "audit.db", "aa-null-12345678")
    assert run(["history"]) == 0
    assert "aa-null-12345678" in capsys.readouterr().out
    assert not list(Path.cwd().iterdir())


@pytest.mark.parametrize("command", READERS, ids=" ".join)
def test_reading_makes_no_database_and_says_where_it_looked(
    command: list[str], stack: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command) == 3
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert f"no audit database at {stack / 'audit.db'} or {Path.cwd() / 'burnproof.db'}" in said
    assert "BURNPROOF_AUDIT_URL=sqlite:///" in said
    assert not [*Path.cwd().iterdir(), *stack.iterdir()]


def test_a_database_that_was_named_is_the_only_one_that_is_looked_for(
    stack: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a_trail(stack / "audit.db", "aa-null-12345678")
    monkeypatch.setenv("BURNPROOF_AUDIT_URL", f"sqlite:///{stack / 'other.db'}")
    assert run(["history"]) == 3
    assert f"no audit database at {stack / 'other.db'}: " in capsys.readouterr().err
    assert not (stack / "other.db").exists()


def test_an_empty_history_says_where_it_looked(
    stack: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_trail(stack / "audit.db")
    assert run(["history"]) == 0
    assert capsys.readouterr().err == f"no runs yet in {stack / 'audit.db'}\n"
