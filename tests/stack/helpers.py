"""Start `burnproof up` as a person does, and look at what it leaves."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from api.stack import reaper
from api.stack.ports import all_free
from api.stack.state import StackState, load_state

BURNPROOF = [sys.executable, "-m", "api.stack"]
"""The stack's commands alone: `burnproof` loads all the others first, which costs seconds."""

ROOT = Path(__file__).resolve().parents[2]
UP_LIMIT_S = 100.0
"""Five seconds on a quiet machine."""
GONE_LIMIT_S = 5.0


def wait_for(condition: Callable[[], bool], limit_s: float, what: str) -> float:
    """Wait until it holds; return the seconds it took, or fail."""
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > limit_s:
            raise AssertionError(f"{what}: not within {limit_s:g} s")
        time.sleep(0.02)
    return time.monotonic() - begin


def burnproof(*arguments: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run one command of ours to its end."""
    return subprocess.run(
        [*BURNPROOF, *arguments, "--state-dir", str(directory)],
        capture_output=True,
        text=True,
        timeout=UP_LIMIT_S,
        cwd=ROOT,
        check=False,
        env={**os.environ, "COLUMNS": "160"},
    )


@dataclass
class Up:
    """One running `burnproof up` on the simulated engine, with its output in a file."""

    directory: Path
    more: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] = field(init=False)

    def start(self) -> None:
        """Start it; does not wait."""
        self.directory.mkdir(parents=True, exist_ok=True)
        argv = [*BURNPROOF, "up", "--engine", "simulated", *self.more]
        with self.output_file.open("wb") as output:
            self.process = subprocess.Popen(
                [*argv, "--state-dir", str(self.directory)],
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output_file(self) -> Path:
        """What it printed."""
        return self.directory / "up.out"

    def output(self) -> str:
        """Return what it printed."""
        return self.output_file.read_text("utf-8")

    def state(self) -> StackState:
        """Return its state; it must run."""
        state = load_state(self.directory)
        assert state is not None, self.output()
        return state

    def wait_ready(self) -> StackState:
        """Wait until all is up."""

        def is_ready() -> bool:
            assert self.process.poll() is None, self.output()
            state = load_state(self.directory)
            return state is not None and state.phase == "ready"

        wait_for(is_ready, UP_LIMIT_S, "ready")
        return self.state()

    def clean(self) -> None:
        """End whatever a failed test left."""
        self.process.kill()
        self.process.wait()
        old = load_state(self.directory, running=False)
        if old is not None:
            wait_for(lambda: not reaper.tagged_pids(old.tag), GONE_LIMIT_S * 2, "clean-up")


def guards(state: StackState) -> set[int]:
    """Return the pids of guards and processes that the state names and that are alive."""
    pids = {pid for p in state.processes for pid in (p.pid, p.guard_pid) if pid is not None}
    return {pid for pid in pids if is_alive(pid)}


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def nothing_left(state: StackState) -> bool:
    """Tell whether no process of the stack lives and its ports are free."""
    return (
        not reaper.tagged_pids(state.tag) and not guards(state) and all_free(state.ports.values())
    )
