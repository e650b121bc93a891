"""One process under its guard: start it, know its real pid, signal it, wait for its end.

The guard (`api.stack.reaper`) is our child; the process itself is the guard's grandchild, so that
nothing it starts outlives us. Signals meant as a *crash* go to the process itself, a polite stop
goes to the guard, which passes it on and cleans up behind it.

The hard part: tags. Two guards that share one kill each other's processes, and the remains of the
last start may still be dying when the next begins; so each start has a tag of its own below the
stack's.
"""

import asyncio
import os
import signal
import subprocess
import time
from contextlib import suppress

import psutil

from api.stack import reaper
from api.stack.blueprint import ROOT, ProcessSpec

_PID_LIMIT_SECONDS = 15.0
"""Source: ours, 2026-12: a guard needs 0.1 s to start, ten times that on a busy machine."""

_PID_PAUSE_SECONDS = 0.01


class Guarded:
    """A started process. `exited` is set, with `code`, once it and all it started are gone."""

    def __init__(self, spec: ProcessSpec, tag: str) -> None:
        """Start it; must be called on a running event loop."""
        self.spec = spec
        self.code: int | None = None
        self.exited = asyncio.Event()
        self.started = time.monotonic()
        self._command: int | None = None
        spec.log.parent.mkdir(parents=True, exist_ok=True)
        with spec.log.open("ab") as log:
            self.log_offset = log.tell()
            self._guard = subprocess.Popen(
                _argv(spec, tag),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(spec.environment),
                cwd=ROOT,
                start_new_session=True,  # a Ctrl-C reaches the supervisor only
            )
        self._pidfd = os.pidfd_open(self._guard.pid)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pidfd, self._on_exit)

    @property
    def guard_pid(self) -> int:
        """Pid of the guard."""
        return self._guard.pid

    @property
    def command_pid(self) -> int | None:
        """Pid of the process itself, once `find_command` found it, until its end."""
        return None if self.exited.is_set() else self._command

    async def find_command(self) -> int | None:
        """Wait until the guard has started the process; None if it ended before."""
        deadline = time.monotonic() + _PID_LIMIT_SECONDS
        while self._command is None and not self.exited.is_set():
            self._command = _grandchild(self._guard.pid)
            if self._command is None:
                if time.monotonic() > deadline:
                    break
                await asyncio.sleep(_PID_PAUSE_SECONDS)
        return self.command_pid

    async def signal(self, number: int) -> None:
        """Send a signal to the process itself, past its guard."""
        pid = await self.find_command()
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    async def stop(self) -> int:
        """Ask it to end, kill what does not, and return its exit code."""
        if not self.exited.is_set():
            self._guard.send_signal(signal.SIGTERM)
            if self._command is not None:  # a stopped process cannot hear the request
                with suppress(ProcessLookupError):
                    os.kill(self._command, signal.SIGCONT)
            await self.exited.wait()
        return self.code or 0

    def seconds(self) -> float:
        """Return how long ago it was started."""
        return time.monotonic() - self.started

    def output(self) -> str:
        """Return what it has written since this start."""
        with self.spec.log.open("rb") as log:
            log.seek(self.log_offset)
            return log.read().decode("utf-8", "replace")

    def _on_exit(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.code = self._guard.wait()
        self.exited.set()


def _argv(spec: ProcessSpec, tag: str) -> list[str]:
    if not spec.guards_itself:
        return reaper.guarded_argv(spec.argv, tag, grace_s=spec.policy.grace_seconds)
    head, separator, more = _split(spec.argv)
    return [*head, "--tag", tag, "--parent", str(os.getpid()), *separator, *more]


def _split(argv: tuple[str, ...]) -> tuple[list[str], list[str], list[str]]:
    """Cut a command line at its `--`, since our options belong before it."""
    if "--" not in argv:
        return list(argv), [], []
    at = argv.index("--")
    return list(argv[:at]), ["--"], list(argv[at + 1 :])


def _grandchild(guard: int) -> int | None:
    """Return the process that the inner guard started first; orphans it adopts come later."""
    try:
        for inner in psutil.Process(guard).children():
            started = sorted(inner.children(), key=lambda child: (child.create_time(), child.pid))
            if started:
                return int(started[0].pid)
    except psutil.Error:
        return None
    return None


def describe_exit(code: int) -> str:
    """Say how a process ended."""
    if code > 128:
        with suppress(ValueError):
            return f"was killed by {signal.Signals(code - 128).name}"
    return f"exited with {code}"
