"""The doctor says what is missing and the command that mends it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from api.stack import doctor, vllm_environment
from api.stack.blueprint import Blueprint
from api.stack.doctor import Finding, examine
from api.stack.errors import StackError
from api.stack.options import EngineKind, StackOptions
from api.stack.state import save_state, write_token
from tests.stack.helpers import burnproof
from tests.stack.test_state import state

needs_stub = "#!/bin/sh\nexit 0\n"


def found(directory: Path, engine: EngineKind = EngineKind.SIMULATED) -> dict[str, Finding]:
    return {finding.name: finding for finding in examine(directory, engine)}


@pytest.fixture
def vllm_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "vllm"
    monkeypatch.setenv("BURNPROOF_VLLM_HOME", str(home))
    return home


def pretend_installed(home: Path, digest: str) -> Path:
    python = home / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(needs_stub)
    python.chmod(0o755)
    (home / "installed").write_text(digest)
    return python


def test_a_machine_without_vllm_lacks_it_for_vllm_only(tmp_path: Path, vllm_home: Path) -> None:
    missing = found(tmp_path, EngineKind.VLLM)["vllm"]
    assert not missing.is_ok
    assert missing.mend.endswith("deploy/vllm/install.sh")
    assert found(tmp_path)["vllm"].is_ok
    assert not vllm_home.exists()


def test_vllm_is_found_where_the_install_script_puts_it(vllm_home: Path, tmp_path: Path) -> None:
    digest = vllm_environment.recipe_digest()
    assert digest is not None
    python = pretend_installed(vllm_home, digest)
    assert vllm_environment.installed_python() == python
    # The script agrees on the digest, or it would begin a download here.
    script = tmp_path / "deploy" / "install.sh"
    shutil.copytree(vllm_environment.INSTALL.parent, script.parent)
    said = subprocess.run(
        ["bash", str(script)], capture_output=True, text=True, timeout=20, check=False
    )
    assert "already installed" in said.stderr
    assert said.stdout.strip() == str(python)


def test_an_environment_of_another_recipe_is_not_taken_for_ours(vllm_home: Path) -> None:
    pretend_installed(vllm_home, "0123456789ab")
    assert vllm_environment.installed_python() is None


def test_too_little_disk_and_memory_are_said_with_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(doctor.DISK_GIB, EngineKind.SIMULATED, 1e9)
    monkeypatch.setitem(doctor.MEMORY_GIB, EngineKind.SIMULATED, 1e9)
    findings = found(tmp_path)
    for name in ("disk", "memory"):
        assert not findings[name].is_ok
        assert "1e+09 needed" in findings[name].detail
        assert findings[name].mend


def test_a_missing_temporal_binary_is_mended_by_make_setup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    temporal = found(tmp_path)["temporal"]
    assert (temporal.is_ok, temporal.mend) == (False, "make setup")


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    database = found(tmp_path / "file" / "below")["database"]
    assert not database.is_ok
    assert "mkdir -p" in database.mend


def test_a_token_that_others_can_read_is_said_with_its_cure(tmp_path: Path) -> None:
    save_state(state(tmp_path))
    token = write_token(tmp_path)
    assert found(tmp_path)["gateway token"].is_ok
    token.chmod(0o644)
    finding = found(tmp_path)["gateway token"]
    assert (finding.is_ok, finding.mend) == (False, f"chmod 600 {token}")
    token.unlink()
    assert not found(tmp_path)["gateway token"].is_ok


def test_a_broken_state_file_is_said_with_its_cure(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{")
    finding = found(tmp_path)["stack"]
    assert (finding.is_ok, finding.mend) == (False, f"rm {tmp_path / 'state.json'}")


def test_the_command_prints_a_line_a_check_and_exits_3_when_something_is_missing(
    tmp_path: Path, vllm_home: Path
) -> None:
    well = burnproof("doctor", "--engine", "simulated", directory=tmp_path / "stack")
    assert well.returncode == 0, well.stdout
    assert "SIMULATED" in well.stdout
    assert "missing" not in well.stdout
    ill = burnproof("doctor", directory=tmp_path / "stack")
    assert ill.returncode == 3
    lines = ill.stdout.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("missing  vllm"))
    assert lines[at + 1].strip() == "mend: bash deploy/vllm/install.sh"


def test_settings_of_another_stack_in_the_environment_do_not_reach_our_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BURNPROOF_GATEWAY_ADMIN_TOKEN", "somebody else's")
    monkeypatch.setenv("BURNPROOF_WORKER_POLL_SECONDS", "0.2")
    options = StackOptions(directory=tmp_path, engine=EngineKind.SIMULATED)
    names = ["temporal", "temporal-ui", "gateway", "engine-a", "engine-b"]
    plan = Blueprint(options, dict(zip(names, range(20001, 20006), strict=True)), tmp_path / "t")
    worker = plan.processes()["worker"].environment
    assert "BURNPROOF_GATEWAY_ADMIN_TOKEN" not in worker
    assert worker["BURNPROOF_GATEWAY_URL"] == "http://127.0.0.1:20003"
    assert worker["BURNPROOF_WORKER_POLL_SECONDS"] == "0.2"
    assert worker["BURNPROOF_WORKER_ENGINE"] == "simulated"


def test_each_of_several_gateways_has_its_own_port_files_and_share_of_the_traffic(
    tmp_path: Path,
) -> None:
    options = StackOptions(
        directory=tmp_path, engine=EngineKind.SIMULATED, gateways=2, rate=30, seed=5
    )
    names = [*options.gateway_names(), "temporal", "temporal-ui", "engine-a", "engine-b"]
    plan = Blueprint(options, dict(zip(names, range(20001, 20007), strict=True)), tmp_path / "t")
    plan.write_gateway_configs()
    one, two = (json.loads((tmp_path / f"{name}.json").read_text()) for name in names[:2])
    assert (one["port"], two["port"]) == (20001, 20002)
    assert one["journal_dir"] != two["journal_dir"]
    assert one["routes"] == two["routes"]
    processes = plan.processes()
    assert processes["gateway-2"].argv[-1] == str(tmp_path / "gateway-2.json")
    url = "http://127.0.0.1:20001,http://127.0.0.1:20002"
    assert processes["worker"].environment["BURNPROOF_GATEWAY_URL"] == url
    for name, port, seed in (("traffic", 20001, "5"), ("traffic-2", 20002, "6")):
        argv = processes[name].argv
        assert argv[argv.index("--url") + 1] == f"http://127.0.0.1:{port}"
        assert argv[argv.index("--rate") + 1] == "15"
        assert argv[argv.index("--seed") + 1] == seed
    with pytest.raises(StackError, match="gateways must lie in"):
        StackOptions(directory=tmp_path, gateways=5)
