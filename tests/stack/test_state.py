"""The state file is believed only as far as it is true."""

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from api.stack.errors import StackBusy, StackError
from api.stack.options import EngineKind, StackOptions, default_directory
from api.stack.ports import FIRST, LAST, Ports, is_free
from api.stack.state import (
    DirectoryLock,
    ProcessState,
    StackState,
    load_state,
    save_state,
    started_ticks,
    write_token,
)


def state(directory: Path, **more: object) -> StackState:
    given: dict[str, object] = {
        "directory": directory,
        "tag": "burnproof-x",
        "supervisor_pid": os.getpid(),
        "supervisor_started": started_ticks(os.getpid()),
        "started_at": 1.5,
        "phase": "ready",
        "engine": EngineKind.SIMULATED,
        "temporal_address": "127.0.0.1:20001",
        "temporal_ui_url": "",
        "gateway_url": "http://127.0.0.1:20002",
        "admin_token_file": directory / "gateway-token",
        "audit_url": f"sqlite:///{directory}/audit.db",
        "route": "chat",
        "model": "tiny-chat",
        "replicas": {"a": "http://127.0.0.1:20003"},
        "ports": {"gateway": 20002},
        "processes": (ProcessState(name="gateway", state="ready", log=directory / "g.log"),),
        "events_log": directory / "events.log",
        **more,
    }
    return StackState.model_validate(given)


def test_a_saved_state_is_loaded_again_and_says_how_to_reach_the_stack(tmp_path: Path) -> None:
    saved = state(tmp_path)
    save_state(saved)
    assert load_state(tmp_path) == saved
    assert saved.environment() == {
        "BURNPROOF_TEMPORAL_ADDRESS": "127.0.0.1:20001",
        "BURNPROOF_TEMPORAL_NAMESPACE": "default",
        "BURNPROOF_TEMPORAL_UI_URL": "",
        "BURNPROOF_GATEWAY_URL": "http://127.0.0.1:20002",
        "BURNPROOF_GATEWAY_ADMIN_TOKEN_FILE": str(tmp_path / "gateway-token"),
        "BURNPROOF_AUDIT_URL": f"sqlite:///{tmp_path}/audit.db",
        "BURNPROOF_WORKER_ENGINE": "simulated",
    }
    assert [p.name for p in tmp_path.iterdir()] == ["state.json"]


def test_a_state_written_by_a_newer_version_with_more_in_it_is_still_read(tmp_path: Path) -> None:
    save_state(state(tmp_path))
    path = tmp_path / "state.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "colour": "green"}))
    assert load_state(tmp_path) == state(tmp_path)


def test_no_file_is_no_stack(tmp_path: Path) -> None:
    assert load_state(tmp_path) is None
    assert load_state(tmp_path / "absent") is None


def test_a_state_whose_supervisor_is_gone_is_not_believed(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    ticks = started_ticks(gone.pid) or 1
    gone.wait()
    save_state(state(tmp_path, supervisor_pid=gone.pid, supervisor_started=ticks))
    assert load_state(tmp_path) is None
    assert load_state(tmp_path, running=False) is not None


def test_a_pid_that_now_belongs_to_another_process_is_not_the_supervisor(tmp_path: Path) -> None:
    ours = started_ticks(os.getpid())
    assert ours is not None
    save_state(state(tmp_path, supervisor_started=ours - 1))
    assert load_state(tmp_path) is None


def test_a_stack_that_was_taken_down_does_not_run_though_its_supervisor_lives_on(
    tmp_path: Path,
) -> None:
    save_state(state(tmp_path, phase="stopped"))
    assert load_state(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 2}', "\x00"])
def test_a_file_that_is_no_state_is_refused_with_the_way_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(StackError, match=r"no state file of this version.*remove it"):
        load_state(tmp_path)


def test_the_lock_has_one_owner_and_names_it(tmp_path: Path) -> None:
    first = DirectoryLock(tmp_path)
    with pytest.raises(StackBusy, match="just starting or stopping"):
        DirectoryLock(tmp_path)
    save_state(state(tmp_path))
    with pytest.raises(StackBusy, match=f"supervisor pid {os.getpid()}, engine SIMULATED"):
        DirectoryLock(tmp_path)
    first.release()
    DirectoryLock(tmp_path).release()


def test_each_token_is_fresh_and_for_its_owner_only(tmp_path: Path) -> None:
    first = write_token(tmp_path).read_text()
    path = write_token(tmp_path)
    assert path.read_text() != first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_two_stacks_get_the_same_port_and_a_freed_one_is_given_again() -> None:
    one, two = Ports(), Ports()
    try:
        port = one.take()
        assert FIRST <= port <= LAST
        assert is_free(port)
        assert two.take(preferred=port) != port
        one.release()
        assert two.take(preferred=port) == port
    finally:
        one.release()
        two.release()


def test_the_state_directory_is_the_named_one_else_below_the_users_state(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("BURNPROOF_STACK_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_directory() == tmp_path / "burnproof" / "stack"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_directory() == tmp_path / ".local" / "state" / "burnproof" / "stack"
    monkeypatch.setenv("BURNPROOF_STACK_DIR", str(tmp_path / "mine"))
    assert default_directory() == StackOptions().directory == tmp_path / "mine"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"env": {"wroker": {}}}, "no process is called 'wroker'"),
        ({"replica_args": {"c": ("--slots", "1")}}, "no replica is called 'c'"),
        ({"rate": float("nan")}, "the rate must be"),
    ],
)
def test_options_that_name_what_is_not_there_are_refused(
    given: dict[str, object], words: str
) -> None:
    with pytest.raises(StackError, match=words):
        StackOptions(engine=EngineKind.SIMULATED, **given)  # type: ignore[arg-type]
