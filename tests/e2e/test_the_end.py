"""The supervisor is killed: no process of the real engine outlives it. Comes last, by its name."""

import os
import signal
from pathlib import Path

import pytest

from api.stack import reaper
from tests.e2e.conftest import GONE_SECONDS, RealStack
from tests.stack.helpers import is_alive, nothing_left, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.kill]


def below(pid: int) -> set[int]:
    """Return a process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, waiting = {pid}, [pid]
    while waiting:
        for child in children.get(waiting.pop(), []):
            found.add(child)
            waiting.append(child)
    return found


def test_kill_9_of_the_supervisor_leaves_no_process_of_vllm(real: RealStack) -> None:
    state = real.state
    family = below(state.supervisor_pid)
    engines = {pid for pid in family if "vllm" in _command(pid).lower()}
    assert len(engines) >= 4, "two replicas, each with a core of its own beside its server"
    os.kill(state.supervisor_pid, signal.SIGKILL)
    wait_for(lambda: not any(is_alive(pid) for pid in family), GONE_SECONDS, "every process gone")
    assert not reaper.tagged_pids(state.tag)
    assert nothing_left(state)


def _command(pid: int) -> str:
    """Return what a process calls itself, which vLLM's children change."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
