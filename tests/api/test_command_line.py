"""The command's edges: exit codes, one line a problem, and no traceback."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from api.cli import run

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "aa-null" / "experiment.yaml"


@pytest.fixture(autouse=True)
def _no_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURNPROOF_STACK_DIR", str(tmp_path / "no-stack"))
    monkeypatch.setenv("BURNPROOF_AUDIT_URL", f"sqlite:///{tmp_path / 'audit.db'}")
    monkeypatch.setenv("BURNPROOF_TEMPORAL_ADDRESS", "127.0.0.1:1")


@pytest.mark.parametrize(
    "arguments",
    [["rum"], ["run"], ["history", "--limit", "0"], ["replay"], ["stop"], ["run", "--nope", "x"]],
    ids=" ".join,
)
def test_a_usage_error_is_exit_3_and_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 3
    said = capsys.readouterr().err
    assert said.startswith("burnproof: ")
    assert "Traceback" not in said


def test_a_good_file_is_valid_and_nothing_is_touched(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", str(EXAMPLE)]) == 0
    assert "valid (aa-null, null)" in capsys.readouterr().out


def test_a_typo_is_one_line_with_file_path_and_the_nearest_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "experiment.yaml"
    text = EXAMPLE.read_text().replace("hypothesis:", "hypotesis:")
    broken.write_text(text.replace("slos/chat.yaml", str(EXAMPLE.parent / "slos" / "chat.yaml")))
    assert run(["validate", str(broken)]) == 3
    lines = capsys.readouterr().err.splitlines()
    assert any(
        str(broken) in line and "hypotesis" in line and 'did you mean "hypothesis"' in line
        for line in lines
    ), lines


def test_a_typo_in_a_policy_is_one_line_with_the_policys_own_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(EXAMPLE.parent.parent / "stall-the-chat-stream", tmp_path / "story")
    policy = tmp_path / "story" / "policies" / "chat.yaml"
    policy.write_text(policy.read_text().replace("threshold:", "treshold:"))
    assert run(["validate", str(tmp_path / "story" / "experiment.yaml")]) == 3
    said = capsys.readouterr().err
    assert f"{policy}:" in said
    assert 'did you mean "threshold"' in said


def test_a_server_that_is_not_there_is_exit_3_with_the_command_that_starts_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["run", str(EXAMPLE)]) == 3
    assert "burnproof up" in capsys.readouterr().err


def test_an_unknown_run_is_exit_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "nothing"]) == 3
    assert "burnproof history" in capsys.readouterr().err


def test_replaying_nothing_is_not_a_success() -> None:
    assert run(["replay", "--all"]) == 3


def test_settings_are_shown_without_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BURNPROOF_GATEWAY_ADMIN_TOKEN", "do-not-show-this")
    monkeypatch.setenv("BURNPROOF_AUDIT_URL", "postgresql://me:do-not-show-this@127.0.0.1/audit")
    assert run(["settings", "show"]) == 0
    shown = capsys.readouterr().out
    assert "do-not-show-this" not in shown
    assert json.loads(shown)["temporal"]["address"] == "127.0.0.1:1"


def test_help_does_not_load_the_heavy_libraries() -> None:
    code = (
        "import sys, api.cli; heavy = {'scipy', 'sqlalchemy', 'temporalio', 'alembic'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert said.stdout.strip() == "[]"
