"""`burnproof up` as a person uses it: it answers, it shows, it ends, and it leaves nothing."""

import json
import os
import pty
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from api.stack.state import load_state
from api.stack.vllm_environment import recipe_digest
from tests.stack.helpers import (
    BURNPROOF,
    GONE_LIMIT_S,
    ROOT,
    UP_LIMIT_S,
    Up,
    burnproof,
    nothing_left,
    wait_for,
)

pytestmark = [pytest.mark.kill, pytest.mark.timeout(300)]

BARE = ("--traffic", "none", "--no-ui")


@pytest.fixture
def starts(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    made: list[Up] = []

    def start(*more: str) -> Up:
        up = Up(tmp_path / f"stack-{len(made)}", more)
        made.append(up)
        up.start()
        return up

    yield start
    for up in made:
        up.clean()


def complete(url: str, **headers: str) -> httpx.Response:
    body = {
        "model": "tiny-chat",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 4,
    }
    with httpx.Client(trust_env=False) as http:
        return http.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=10)


def test_a_stack_answers_shows_itself_refuses_a_second_one_and_goes_down_without_a_trace(
    starts: Callable[..., Up],
) -> None:
    up = starts()
    state = up.wait_ready()

    answer = complete(state.gateway_url)
    assert answer.status_code == 200
    assert answer.json()["system_fingerprint"] == "SIMULATED"
    assert [p.state for p in state.processes] == ["ready"] * 6
    assert set(state.replicas) == {"a", "b"}
    with httpx.Client(trust_env=False) as http:
        assert http.get(state.temporal_ui_url).status_code == 200

    token = state.admin_token_file
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert len(token.read_text().strip()) >= 32

    shown = burnproof("status", directory=up.directory)
    assert shown.returncode == 0, shown.stderr
    for word in ("SIMULATED", "temporal", "engine-b", "traffic", state.gateway_url, "none"):
        assert word in shown.stdout
    assert "unknown" not in shown.stdout

    parsed = json.loads(burnproof("status", "--json", directory=up.directory).stdout)
    assert parsed["stack"]["supervisor_pid"] == up.process.pid
    assert parsed["now"]["problems"] == {}

    second = burnproof("up", "--engine", "simulated", directory=up.directory)
    assert second.returncode == 3
    assert f"already runs from {up.directory} (supervisor pid {up.process.pid}" in second.stderr
    assert "burnproof down" in second.stderr
    assert nothing_left(state) is False  # the first one was not disturbed

    down = burnproof("down", directory=up.directory)
    assert down.returncode == 0, down.stderr
    assert "SIMULATED" in down.stdout
    assert "left-over" not in down.stdout
    assert up.process.wait(5) == 0
    assert nothing_left(state)
    assert load_state(up.directory) is None
    assert "SIMULATED" in up.output()
    assert "stopped: no process is left" in up.output()
    again = burnproof("down", directory=up.directory)
    assert (again.returncode, again.stdout[:13]) == (0, "no stack runs")


def test_kill_9_of_the_supervisor_leaves_nothing_within_five_seconds(
    starts: Callable[..., Up],
) -> None:
    up = starts(*BARE)
    state = up.wait_ready()
    up.process.kill()
    up.process.wait()
    wait_for(lambda: nothing_left(state), GONE_LIMIT_S, "nothing left")
    assert load_state(up.directory) is None
    status = burnproof("status", directory=up.directory)
    assert status.returncode == 3
    assert "no stack runs" in status.stderr


def test_a_closed_terminal_ends_everything_and_a_terminal_shows_bars(tmp_path: Path) -> None:
    directory = tmp_path / "stack"
    ours, theirs = pty.openpty()
    shown = bytearray()
    own_it = "import os, sys; os.login_tty(0); os.execv(sys.argv[1], sys.argv[1:])"
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            own_it,
            *BURNPROOF,
            "up",
            "--engine",
            "simulated",
            *BARE,
            "--state-dir",
            str(directory),
        ],
        cwd=ROOT,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(theirs)
    stop = threading.Event()

    def read() -> None:
        os.set_blocking(ours, False)
        while not stop.is_set():
            try:
                shown.extend(os.read(ours, 65536))
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:
                return

    reader = threading.Thread(target=read)
    reader.start()
    try:
        wait_for(lambda: b"Ctrl-C stops" in shown, UP_LIMIT_S, "ready")
        state = load_state(directory)
        assert state is not None
    finally:
        stop.set()
        reader.join()
        os.close(ours)  # the kernel hangs up on the session
    assert process.wait(15) == 0
    assert nothing_left(state)
    text = shown.decode()
    assert re.search(r"engine-a.*ready after", text)
    assert "━" in text
    assert "SIMULATED" in text


def test_a_ctrl_c_while_it_starts_ends_what_was_started(starts: Callable[..., Up]) -> None:
    up = starts(*BARE)

    def two_run() -> bool:
        state = load_state(up.directory)
        return state is not None and sum(p.pid is not None for p in state.processes) >= 2

    wait_for(two_run, UP_LIMIT_S, "two processes")
    state = up.state()
    os.kill(up.process.pid, signal.SIGINT)
    assert up.process.wait(15) == 0
    assert nothing_left(state)
    assert state.phase == "starting"


def test_an_engine_that_does_not_start_is_one_clear_error_with_the_end_of_its_log(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "stack"
    given = ["up", "--engine", "simulated", *BARE, "--engine-arg=--slots=0"]
    failed = burnproof(*given, directory=directory)
    log = directory / "logs" / "engine-a.log"
    assert failed.returncode == 3
    assert "engine-" in failed.stderr
    assert "exited with 3 before it was ready" in failed.stderr
    assert "slots must be at least 1" in failed.stderr
    assert str(log.parent) in failed.stderr
    assert "Traceback" not in failed.stderr
    state = load_state(directory, running=False)
    assert state is not None
    assert state.phase == "stopped"
    assert nothing_left(state)


def test_vllm_runs_in_its_own_environment_and_its_last_words_reach_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = recipe_digest()
    assert digest is not None
    monkeypatch.setenv("BURNPROOF_VLLM_HOME", str(tmp_path / "vllm"))
    python = tmp_path / "vllm" / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@"; echo PYTHONPATH=$PYTHONPATH; exit 9\n')
    python.chmod(0o755)
    (tmp_path / "vllm" / "installed").write_text(digest)
    failed = burnproof("up", *BARE, directory=tmp_path / "stack")
    assert failed.returncode == 3
    assert "already installed" in failed.stdout
    assert "exited with 9 before it was ready" in failed.stderr
    assert "-m vllm.entrypoints.openai.api_server --model" in failed.stderr
    assert "PYTHONPATH=\n" in failed.stderr
    assert "SIMULATED" not in failed.stdout + failed.stderr
    state = load_state(tmp_path / "stack", running=False)
    assert state is not None
    assert nothing_left(state)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--replicas", "3"], "3 replicas of vLLM do not fit"),
        (["--engine", "simulated", "--replicas", "0"], "replicas must lie in [1, 26], not 0"),
        (["--engine", "simulated", "--rate", "0"], "the rate must be a number"),
        (["--engine", "gpt"], "gpt"),
    ],
)
def test_options_that_cannot_work_are_refused_before_anything_starts(
    tmp_path: Path, given: list[str], words: str
) -> None:
    refused = burnproof("up", *given, directory=tmp_path / "stack")
    assert refused.returncode == 3
    assert words in refused.stderr
    assert not (tmp_path / "stack").exists()
