"""What `up` refuses and says, and what every other command says where no stack runs."""

from pathlib import Path

import pytest

from api.cli import run
from api.commands.stack import follow_up
from api.stack.options import StackOptions
from faults.catalog import CATALOG

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "aa-null" / "experiment.yaml"


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """State directory from which no stack runs."""
    monkeypatch.setenv("BURNPROOF_STACK_DIR", str(tmp_path / "stack"))
    monkeypatch.delenv("BURNPROOF_GATEWAY_ADMIN_TOKEN_FILE", raising=False)
    monkeypatch.delenv("BURNPROOF_GATEWAY_ADMIN_TOKEN", raising=False)
    return tmp_path / "stack"


def test_without_a_stack_one_line_says_where_it_was_looked_for(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", str(EXAMPLE)]) == 3
    said = capsys.readouterr().err
    assert said.startswith(f"burnproof: no stack runs from {directory}: `burnproof up`, or set ")
    assert "BURNPROOF_STACK_DIR" in said
    assert len(said.splitlines()) == 1


def test_the_command_for_another_terminal_names_a_state_directory_that_is_not_the_default(
    directory: Path,
) -> None:
    assert follow_up(StackOptions()) == "burnproof run FILE"
    elsewhere = StackOptions(directory=directory.parent / "my stack")
    named = f"BURNPROOF_STACK_DIR='{directory.parent}/my stack'"
    assert follow_up(elsewhere) == f"{named} burnproof run FILE"


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--max-tokens", "0", "a request must ask for 1 token at least, not 0"),
        ("--rate", "0", "the rate must be a number of requests a second above 0, not 0"),
        ("--rate", "inf", "the rate must be a number of requests a second above 0, not inf"),
    ],
)
def test_up_refuses_traffic_that_asks_for_nothing(
    option: str, value: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["up", "--engine", "simulated", option, value]) == 3
    assert capsys.readouterr().err == f"burnproof: {said}\n"


def test_a_table_in_a_pipe_is_not_wrapped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert run(["faults", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(CATALOG) + 1
    assert not any("\u2026" in line for line in lines)


@pytest.mark.parametrize("command", [[], ["faults"], ["holds"]], ids=" ".join)
def test_a_command_without_arguments_ends_with_its_help(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command) == 3
    said = capsys.readouterr()
    assert "Usage: burnproof" in said.out + said.err
    assert "burnproof: \n" not in said.err
