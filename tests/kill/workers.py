"""Workers as processes that a case can stop at an exact point of a run, kill, freeze and replace.

They are forked from one preloaded process (`tests.kill.nursery`), since loading a worker anew costs
seconds of a core that other cases need.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from api.stack import reaper
from tests.kill.nursery import REACHED

ROOT = Path(__file__).resolve().parents[2]

Json = dict[str, Any]


async def until(
    condition: Callable[[], bool | Awaitable[bool]], what: str, seconds: float = 60.0
) -> float:
    """Poll until it holds; return the seconds it took, or fail."""
    begin = time.monotonic()
    while True:
        held = condition()
        if not isinstance(held, bool):
            held = await held
        if held:
            return time.monotonic() - begin
        assert time.monotonic() - begin < seconds, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(0.05)


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


@dataclass(frozen=True)
class Point:
    """A place in a run: just before or just after the work of an activity."""

    activity: str
    when: str
    stream: str = ""

    def __str__(self) -> str:
        return f"{self.when} {self.activity} {self.stream}".strip().replace(" ", "-")


class Nursery:
    """Starts real workers by forking one process that has imported everything."""

    def __init__(self, directory: Path, tag: str) -> None:
        self._directory = directory
        self._count = 0
        with (directory / "nursery.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.kill.nursery"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, reaper.TAG_VARIABLE: tag, "OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,
            )
        self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode().strip()
        assert line, (self._directory / "nursery.log").read_text()
        return line

    def fork(self, env: Json, point: Point | None, bad: bool) -> "Worker":
        """Start a worker; does not wait until it is ready."""
        self._count += 1
        log = self._directory / f"worker-{self._count}.log"
        gate = None
        if point is not None:
            gate = {"activity": point.activity, "when": point.when, "stream": point.stream}
        order = {"log": str(log), "env": env, "gate": gate, "bad": bad}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        return Worker(int(self._read()), log)

    def close(self) -> None:
        """End it and its children."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class Worker:
    """One worker process."""

    def __init__(self, pid: int, log: Path) -> None:
        self.pid = pid
        self.log = log

    def says(self, words: str) -> bool:
        """Tell whether it has written these words."""
        written = self.log.read_text() if self.log.exists() else ""
        assert words in written or is_alive(self.pid), f"worker died: {written[-3000:]}"
        return words in written

    async def ready(self) -> None:
        """Wait until it works."""
        await until(lambda: self.says("worker ready"), "worker ready")

    async def reached(self) -> None:
        """Wait until its gate is reached."""
        await until(lambda: self.says(REACHED), "the gate", 90)

    def release(self) -> None:
        """Let the gated activity go on."""
        Path(f"{self.log}.release").touch()

    async def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal; wait for its end."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
        await until(lambda: not is_alive(self.pid), f"end of worker {self.pid}", 30)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal and go on."""
        os.kill(self.pid, number)
