"""The command's edges: exit codes, one line a problem, and no traceback."""

import json
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from api.cli import run
from api.live import print_result
from audit.store import AuditStore
from workflows.state import FaultExperimentResult

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


def test_it_says_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"burnproof {version('burnproof')}\n"


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


@pytest.mark.parametrize(
    ("labels", "path"),
    [
        ("{api_key: hunter2-abc}", "metadata.labels.api_key"),
        ("{to: 'https://ci:hunter2-abc@hooks.example'}", "metadata.labels.to"),
        ("{note: 'Bearer hunter2-abc'}", "metadata.labels.note"),
    ],
)
def test_a_secret_in_an_experiment_is_refused_by_its_path_and_not_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], labels: str, path: str
) -> None:
    shutil.copytree(EXAMPLE.parent, tmp_path / "story")
    file = tmp_path / "story" / "experiment.yaml"
    file.write_text(file.read_text().replace("metadata:", f"metadata:\n  labels: {labels}", 1))
    for command in (["validate", str(file)], ["run", str(file)]):
        assert run(command) == 3
        said = capsys.readouterr().err
        assert said.startswith(f"{file}:")
        assert f"{path}: looks like a secret" in said
        assert "hunter2" not in said


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


def test_an_unknown_run_is_exit_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    AuditStore(f"sqlite:///{tmp_path / 'audit.db'}").upgrade()
    assert run(["show", "nothing"]) == 3
    assert "burnproof history" in capsys.readouterr().err


def test_replaying_nothing_is_not_a_success(tmp_path: Path) -> None:
    AuditStore(f"sqlite:///{tmp_path / 'audit.db'}").upgrade()
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


def test_a_device_without_an_end_is_refused_at_the_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = tmp_path / "experiment.yaml"
    named.write_text(EXAMPLE.read_text().replace("slos/chat.yaml", "/dev/zero"))
    assert run(["validate", str(named)]) == 3
    assert (
        "/dev/zero: the file is too large; at most 1,000,000 bytes are read"
        in capsys.readouterr().err
    )


def test_a_name_that_looks_like_markup_breaks_no_command_that_lists_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = AuditStore(f"sqlite:///{tmp_path / 'audit.db'}")
    store.upgrade()
    who = {"requested_by": "[/me] \x1b[2J", "trigger": "[bold]"}
    store.open_run("r-1", "w", "n", "FaultExperiment", {}, **who, at=datetime.now(UTC))
    assert run(["history"]) == 0
    assert "[/me]" in capsys.readouterr().out
    assert run(["show", "r-1"]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_a_verdict_is_printed_whatever_its_reasons_hold() -> None:
    said = StringIO()
    result = FaultExperimentResult(
        run_id="r-1", outcome="FAIL", exit_code=1, reasons=("burn of [/slo] is \x1b[2J high",)
    )
    print_result(Console(file=said), result, is_simulated=False)
    assert "FAIL (exit 1)" in said.getvalue()
    assert "burn of [/slo] is \ufffd[2J high" in said.getvalue()


@pytest.mark.parametrize(
    "url",
    [
        "nothing://me:do-not-show-this@h/audit",
        "postgresql://me:do@not-show:this@h/audit",
        "sqlite://me:do-not-show-this@h/audit",
        "do-not-show-this",
    ],
)
def test_a_wrong_database_address_is_one_line_without_what_it_holds(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BURNPROOF_AUDIT_URL", url)
    assert run(["history"]) == 3
    said = capsys.readouterr().err
    assert said.startswith("burnproof: BURNPROOF_AUDIT_URL is no database address")
    assert "show" not in said
    assert len(said.splitlines()) == 1


def test_a_wrong_gateway_address_is_one_line_that_names_the_setting(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BURNPROOF_GATEWAY_URL", "http://me:do-not-show-this@127.0.0.1:port")
    monkeypatch.setenv("BURNPROOF_GATEWAY_ADMIN_TOKEN", "a-token")
    assert run(["plan", str(EXAMPLE)]) == 3
    said = capsys.readouterr().err
    assert said.startswith("burnproof: BURNPROOF_GATEWAY_URL is no address")
    assert "do-not-show-this" not in said


def test_settings_mask_a_password_wherever_an_address_holds_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BURNPROOF_GATEWAY_URL", "http://me:do-not-show-this@127.0.0.1:1")
    monkeypatch.setenv("BURNPROOF_AUDIT_URL", "postgresql://me@h/audit?password=do-not-show-this")
    assert run(["settings", "show"]) == 0
    assert "do-not-show-this" not in capsys.readouterr().out


def test_a_stop_that_misses_the_gateway_is_still_put_on_the_trail_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BURNPROOF_GATEWAY_ADMIN_TOKEN_FILE", str(tmp_path / "not-there"))
    assert run(["stop", "--all", "--reason", " "]) == 3
    said = capsys.readouterr()
    assert "not reached: gateway: cannot read" in said.err
    assert "not reached: Temporal: no Temporal server" in said.err
    assert "not everything is stopped" in said.err
    assert said.out == ""
    assert AuditStore(f"sqlite:///{tmp_path / 'audit.db'}").stop_state().stopped


@pytest.mark.parametrize(
    ("line", "bad", "path", "said"),
    [
        ("share:", "0.9", "arms.chaos.share", "0.9 of the traffic is more than the 0.5 allowed"),
        ("duration:", "2h", "fault.duration", "is outside"),
        ("abort_burn_rate:", "9000", "guard.abort_burn_rate", "can never fire"),
    ],
)
def test_a_bound_that_needs_no_stack_is_told_with_file_line_and_path(
    line: str, bad: str, path: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(EXAMPLE.parent, tmp_path / "story")
    file = tmp_path / "story" / "experiment.yaml"
    text, count = re.subn(rf"{line} [^,}}\n]+", f"{line} {bad}", file.read_text(), count=1)
    assert count == 1
    file.write_text(text)
    number = next(n for n, row in enumerate(text.splitlines(), 1) if f"{line} {bad}" in row)
    assert run(["validate", str(file)]) == 3
    told = capsys.readouterr().err
    assert told.startswith(f"{file}:{number}: {path}: ")
    assert said in told


def test_ctrl_c_while_the_libraries_load_ends_with_the_documented_code_and_no_traceback() -> None:
    code = (
        "import os, signal, sys\n"
        "class Press:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'api.cli': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Press())\n"
        "from api.entry import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")
