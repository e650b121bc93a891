"""The body of an answer that a fault changes: its steps carried out, in a task of its own.

The shaper says what happens (`gateway.steps`), this module lets it happen: it writes, waits, cuts.
While it waits, the replica is read only up to a bound. A wait ends when its item does.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from typing import Protocol

from gateway.fault_hooks import hold_back
from gateway.flight import Cause
from gateway.http1.client import ClientConnection
from gateway.steps import Close, Cut, Send, Shaper, Step, Wait

log = logging.getLogger("gateway.shaped")

HELD_BYTES = 64 * 1024
"""Bytes of the replica's answer that wait here before it is held."""


class Answering(Protocol):
    """Whose body it is."""

    client: ClientConnection

    def begin_shaped(self, length: int | None = None) -> None:
        """Send the head, once."""

    def write_framed(self, raw: bytes, pieces: list[bytes], *, done: bool) -> None:
        """Write bytes of the body."""

    def read(self) -> None:
        """Read for the record what has been written."""

    def finish_body(self) -> None:
        """The body is written to its end."""

    def break_off(self, cause: Cause) -> None:
        """End the client's connection here."""

    def set_reading(self, *, on: bool) -> None:
        """Let the replica send, or hold it."""


class ShapedBody:
    """Feeds a shaper and does what it says."""

    def __init__(self, owner: Answering, shaper: Shaper) -> None:
        self._owner = owner
        self._shaper = shaper
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._is_over = False
        self._is_lost = False
        self._begun = False
        self._more = asyncio.Event()
        self._room = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def push(self, pieces: list[bytes], *, done: bool) -> None:
        """Take bytes of the replica's body."""
        self._waiting.extend(pieces)
        self._bytes += sum(map(len, pieces))
        self._is_over = done
        if self._bytes > HELD_BYTES:
            self._owner.set_reading(on=False)
        self._more.set()

    def lose(self) -> None:
        """The replica's connection broke: what came before passes, then the client's breaks too."""
        self._is_lost = True
        self._more.set()

    def resume(self) -> None:
        """The client takes bytes again."""
        self._room.set()

    def stop(self) -> None:
        """Do nothing more."""
        if self._task is not asyncio.current_task():
            self._task.cancel()

    async def _run(self) -> None:
        try:
            await self._shape()
        except Exception:
            log.exception("a fault could not act")
            self._owner.break_off(Cause.LOST)

    async def _shape(self) -> None:
        while True:
            while not (self._waiting or self._is_over or self._is_lost):
                self._more.clear()
                await self._more.wait()
            if self._waiting:
                piece = self._waiting.popleft()
                if not await self._follow(self._shaper.feed(piece)):
                    return
                self._bytes -= len(piece)
                if not self._waiting and not self._owner.client.paused:
                    self._owner.set_reading(on=True)
            else:
                await self._end()
                return

    async def _end(self) -> None:
        """Give what was held back, and end as the replica's answer ended.

        What was held back to here leaves with its length, if the replica's answer said one.
        """
        steps = list(self._shaper.end()) if not self._begun else self._shaper.end()
        length = None
        if isinstance(steps, list) and not self._is_lost:
            sizes = [len(step.data) for step in steps if isinstance(step, Send)]
            length = sum(sizes) if len(sizes) == len(steps) else None
        self._owner.begin_shaped(length)
        if not await self._follow(steps):
            return
        if self._is_lost:
            self._owner.break_off(Cause.LOST)
        else:
            self._close()

    async def _follow(self, steps: Iterable[Step]) -> bool:
        """Carry out steps; False if one of them was an end."""
        for step in steps:
            self._begun = True
            self._owner.begin_shaped()
            if isinstance(step, Send):
                await self._send(step.data)
            elif isinstance(step, Wait):
                await hold_back(step.item, step.seconds)
            elif isinstance(step, Cut):
                self._owner.break_off(Cause.LOST)
                return False
            elif isinstance(step, Close):
                self._close()
                return False
        return True

    async def _send(self, data: bytes) -> None:
        while self._owner.client.paused:
            self._room.clear()
            await self._room.wait()
        self._owner.write_framed(b"", [data] if data else [], done=False)
        self._owner.read()  # the shaper may ask for what was read so far

    def _close(self) -> None:
        self._owner.write_framed(b"", [], done=True)
        self._owner.finish_body()
