"""serve.py: the command and the environment of one replica, and that it becomes its guard."""

import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SERVE = REPOSITORY / "deploy" / "vllm" / "serve.py"

ENGINE = """#!/bin/sh
printf '%s\\n' "$*" > "$NOTES/argv"
printf '%s %s' "$OMP_NUM_THREADS" "$BURNPROOF_STACK_ID" > "$NOTES/environment"
setsid sleep 60 &
echo "$$ $!" > "$NOTES/pids.part" && mv "$NOTES/pids.part" "$NOTES/pids"
wait
"""


def printed(*arguments: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, SERVE, "--port", "8101", "--python", "/x/python", "--print", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_the_command_serves_the_committed_model_on_this_machine_only() -> None:
    argv = printed()["argv"]
    assert isinstance(argv, list)
    after = dict(pairwise(argv))
    assert argv[:3] == ["/x/python", "-m", "vllm.entrypoints.openai.api_server"]
    assert after["--host"] == "127.0.0.1"
    assert after["--port"] == "8101"
    assert after["--served-model-name"] == "tiny-chat"
    assert Path(after["--model"], "model.safetensors").is_file()
    assert (after["--max-model-len"], after["--max-num-seqs"]) == ("2048", "32")
    assert after["--dtype"] == "float32"
    assert {"--enforce-eager", "--enable-lora"} <= set(argv)


def test_more_options_follow_ours_so_that_they_win() -> None:
    argv = printed("--", "--max-num-seqs", "4")["argv"]
    assert isinstance(argv, list)
    assert argv[-2:] == ["--max-num-seqs", "4"]


def test_nothing_is_fetched_or_reported_and_one_thread_computes() -> None:
    environment = printed()["environment"]
    assert isinstance(environment, dict)
    assert environment["HF_HUB_OFFLINE"] == environment["VLLM_NO_USAGE_STATS"] == "1"
    assert environment["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize(("arguments", "value"), [((), "0"), (("--separate-worker",), "1")])
def test_a_worker_process_of_its_own_is_there_only_when_asked_for(
    arguments: tuple[str, ...], value: str
) -> None:
    environment = printed(*arguments)["environment"]
    assert isinstance(environment, dict)
    assert environment["VLLM_ENABLE_V1_MULTIPROCESSING"] == value


@pytest.mark.kill
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_replica_ends_with_the_process_that_was_started(
    tmp_path: Path, how: signal.Signals
) -> None:
    engine = tmp_path / "engine"
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    command = [sys.executable, SERVE, "--port", "8101", "--tag", "t", "--python", engine]
    guard = subprocess.Popen(
        [*command, "--parent", str(os.getpid())],
        env={**os.environ, "NOTES": str(tmp_path)},
        start_new_session=True,
    )
    try:
        wait_for((tmp_path / "pids").exists)
        assert "--port 8101" in (tmp_path / "argv").read_text()
        assert (tmp_path / "environment").read_text().startswith("1 t/")
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        guard.send_signal(how)
        guard.wait(3)
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    finally:
        guard.kill()
        guard.wait()


def wait_for(condition, limit_s: float = 3.0) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not true within {limit_s} s"
        time.sleep(0.01)
