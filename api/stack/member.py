"""One process over its whole life in the stack: started, ready, crashed, started again, stopped.

A member has one keeper task that starts the process, waits until it is ready, waits for its end,
and decides whether it comes back. A first start that fails is an error for whoever waits in
`start`; a later one is a crash like any other. The pause before a restart doubles from crash to
crash and begins anew after a good while.
"""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Literal

from api.stack.blueprint import ProcessSpec
from api.stack.errors import ProcessFailed
from api.stack.events import EventKind, EventLog
from api.stack.guarded import Guarded, describe_exit
from api.stack.readiness import Check
from api.stack.state import ProcessState

FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 10.0
FORGIVEN_AFTER_SECONDS = 60.0
"""Up for so long, and the crashes before are forgotten. Source: ours, 2026-12."""

Status = Literal["waiting", "starting", "ready", "down", "failed", "stopped"]


class Member:
    """One process of a stack."""

    def __init__(
        self,
        spec: ProcessSpec,
        tag: str,
        check: Check,
        log: EventLog,
        changed: Callable[[], None],
    ) -> None:
        self.spec = spec
        self.restarts = 0
        self.status: Status = "waiting"
        self.restart_on_exit = True
        self._tag = f"{tag}/{spec.name}"
        self._check = check
        self._log = log
        self._changed = changed
        self._process: Guarded | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._ready_after: float | None = None
        self._failure: ProcessFailed | None = None
        self._wanted = False

    @property
    def process(self) -> Guarded | None:
        """The process now or last; None before the first start."""
        return self._process

    @property
    def has_been_ready(self) -> bool:
        """Tell whether it was ready at least once."""
        return self._ready_after is not None

    def snapshot(self) -> ProcessState:
        """Return what the state file says of it."""
        process = self._process
        alive = process is not None and not process.exited.is_set()
        return ProcessState(
            name=self.spec.name,
            state=self.status,
            pid=process.command_pid if process is not None else None,
            guard_pid=process.guard_pid if process is not None and alive else None,
            restarts=self.restarts,
            port=self.spec.port,
            ready_after_seconds=self._ready_after,
            log=self.spec.log,
        )

    async def start(self) -> None:
        """Start it unless it runs, and wait until it is ready.

        Raises:
            ProcessFailed: it ended, or was not ready in time.
        """
        if self._keeper is not None and self._is_over():
            await asyncio.wait({self._keeper})
        if self._keeper is None or self._keeper.done():
            self._ready.clear()
            self._failure = None
            self._wanted = True
            self._keeper = asyncio.create_task(self._keep(), name=f"keep {self.spec.name}")
        await self.wait_ready()

    async def wait_ready(self) -> None:
        """Wait until it is ready.

        Raises:
            ProcessFailed: it is down and will not come back.
        """
        keeper = self._keeper
        if keeper is None:
            raise ProcessFailed(self.spec.name, "was not started", self.spec.log)
        ready = asyncio.create_task(self._ready.wait())
        try:
            await asyncio.wait({ready, keeper}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        if self._failure is not None:
            raise self._failure
        if not self._ready.is_set():
            raise ProcessFailed(self.spec.name, "is down", self.spec.log)

    async def kill(self, number: signal.Signals) -> None:
        """Send a signal past the guard; SIGKILL waits until it and all it started are gone."""
        process = self._process
        if process is None:
            return
        await process.signal(number)
        if number is signal.SIGKILL:
            await process.exited.wait()
            if self._process is process:  # its successor may be under way already
                self._ready.clear()

    async def stop(self) -> None:
        """End it and keep it down."""
        self._wanted = False
        if self._process is not None:
            await self._process.stop()
        if self._keeper is not None and not self._keeper.done():
            self._keeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeper
            # A start that was under way when we came may have made a process since.
            if self._process is not None:
                await self._process.stop()
        self._ready.clear()
        if self.status != "waiting":
            self._set("stopped")

    async def _keep(self) -> None:
        """Start, watch and start again, until stopped or given up."""
        pause = FIRST_PAUSE_SECONDS
        while self._is_wanted():
            came_up = await self._start_once()
            process = self._process
            if process is None:
                return
            await process.exited.wait()
            self._ready.clear()
            if not self._is_wanted():
                return
            words = describe_exit(process.code or 0)
            self._set("down")
            self._log.say(self.spec.name, EventKind.EXITED, f"{words} after {_age(process)}")
            if self._failure is not None:
                self._set("failed")
                return
            if not self._may_return():
                return
            pause = FIRST_PAUSE_SECONDS if came_up and _long(process) else pause
            text = f"in {pause:g} s (restart {self.restarts + 1})"
            self._log.say(self.spec.name, EventKind.RESTARTING, text)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
            self.restarts += 1

    def _is_over(self) -> bool:
        """Tell whether it has ended and its keeper is only about to notice."""
        gone = self._process is not None and self._process.exited.is_set()
        return gone and not self.restart_on_exit

    def _is_wanted(self) -> bool:
        return self._wanted

    def _may_return(self) -> bool:
        limit = self.spec.policy.max_restarts
        if not self.restart_on_exit:
            return False
        if limit is not None and self.restarts >= limit:
            self._set("failed")
            self._log.say(
                self.spec.name,
                EventKind.GAVE_UP,
                f"crashed after {limit} restarts and stays down; see {self.spec.log}",
            )
            return False
        return True

    async def _start_once(self) -> bool:
        """Start it and wait until it is ready; end it where that fails. Tell whether it came up."""
        process = self._process = Guarded(self.spec, self._tag)
        self._set("starting")
        self._log.say(self.spec.name, EventKind.STARTING, f"guard {process.guard_pid}")
        pid = await process.find_command()
        self._changed()
        limit = self.spec.policy.ready_seconds
        outcome = await _first(self._check(process), process.exited.wait(), limit)
        if outcome == "done" and not process.exited.is_set():
            self._ready_after = round(process.seconds(), 3)
            self._set("ready")
            self._ready.set()
            self._log.say(self.spec.name, EventKind.READY, f"pid {pid}, after {_age(process)}")
            return True
        if outcome == "late":
            what = f"was not ready within {limit:g} s"
            await process.stop()
        else:
            await process.exited.wait()
            what = f"{describe_exit(process.code or 0)} before it was ready"
        if self.restarts == 0 and not self.has_been_ready:
            self._failure = ProcessFailed(self.spec.name, what, self.spec.log)
        return False

    def _set(self, status: Status) -> None:
        self.status = status
        self._changed()


async def _first(
    check: Coroutine[Any, Any, None], exited: Coroutine[Any, Any, Any], limit: float
) -> Literal["done", "exited", "late"]:
    """Wait for the check, the exit or the limit; the losers are cancelled and collected."""
    ready, gone = asyncio.ensure_future(check), asyncio.ensure_future(exited)
    try:
        done, _ = await asyncio.wait(
            {ready, gone}, timeout=limit, return_when=asyncio.FIRST_COMPLETED
        )
        if ready in done:
            await ready  # a bug in a check shall show, not pass for an exit
            return "done"
        return "exited" if gone in done else "late"
    finally:
        for task in (ready, gone):
            task.cancel()
        await asyncio.gather(ready, gone, return_exceptions=True)


def _age(process: Guarded) -> str:
    return f"{process.seconds():.1f} s"


def _long(process: Guarded) -> bool:
    return process.seconds() > FORGIVEN_AFTER_SECONDS
