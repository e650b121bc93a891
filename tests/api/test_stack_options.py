"""What `up` refuses and says, and what every other command says where no stack runs."""

from pathlib import Path

import pytest

from api.cli import run
from api.commands.stack import follow_up
from api.stack.options import StackOptions

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
