"""Which audit database a command reads when no stack runs, and that reading makes none."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from api.cli import run
from api.columns import lines
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


LONG = f"{'x' * 48}-12345678"


def test_a_pipe_gets_every_run_whole_and_json_has_all_of_it(
    stack: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    store = a_trail(stack / "audit.db", LONG)
    store.finish_run(LONG, "CLEANUP_FAILED", 4, datetime.now(UTC))
    assert run(["history"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == [LONG, "CLEANUP_FAILED"]
    assert run(["history", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["run_id"], row["outcome"], row["exit_code"]) == (LONG, "CLEANUP_FAILED", 4)


@pytest.mark.parametrize("width", [60, 80])
def test_a_narrow_terminal_leaves_out_columns_and_never_cuts_run_or_outcome(width: int) -> None:
    titles = ("run", "outcome", "opened (UTC)", "by")
    short = ("aa-null-12345678", "PASS", "2026-11-30 23:00", "b" * 90)
    assert lines([titles, (LONG, "CLEANUP_FAILED", *short[2:])], 2, width)[1] == (
        f"{LONG}  CLEANUP_FAILED"
    )
    shown = lines([titles, short], 2, width)
    assert max(len(line) for line in shown) <= width
    assert shown[1].startswith("aa-null-12345678  PASS     2026-11-30 23:00")


def test_a_name_of_several_runs_lists_them_with_time_and_outcome(
    stack: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = a_trail(stack / "audit.db", "aa-null-11111111", "aa-null-22222222")
    store.finish_run("aa-null-11111111", "PASS", 0, datetime.now(UTC))
    assert run(["show", "aa-null"]) == 3
    said = capsys.readouterr().err
    year = f"{datetime.now(UTC):%Y-}"
    assert "2 runs named 'aa-null', say which:" in said
    assert any(
        line.startswith(f"  aa-null-11111111  {year}") and line.endswith("  PASS")
        for line in said.splitlines()
    )
    assert any(line.endswith("  open") for line in said.splitlines())
