"""When each request is sent: open loop by a Poisson process, or closed loop by a fixed crowd.

Open loop: conversations arrive by themselves, whether or not the target keeps up, as users do; a
slow target then meets a growing crowd. Requests of one conversation follow each other, so
lateness within one is the target's doing and not counted; a send that leaves later than planned
by more than 50 ms is "late" and blames this process: with many late sends the load was not what
was asked for.

A failed request does not end its conversation: the asked rate has to hold under a fault too, else
the fault thins out its own evidence.

The hard part is the end. A stop lets requests in flight finish for a while, ends sleepers at
once, and cuts what is left; every request that was sent gets exactly one record.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from traffic.client import Client
from traffic.profiles import ChatProfile, Conversation, arrival_gaps
from traffic.records import ClientRecord, Outcome, Tally

LATE_SECONDS = 0.05
"""Delay of a send above which it counts as late. Source: ours; many timer ticks."""

_BACKOFF_SECONDS = 0.05
"""Pause of a closed-loop user whose connection failed, so that a dead target is not hammered."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to send, and when to stop."""

    seed: int
    run_id: str
    """Prefix of ids and conversation keys: two drives must not share conversations."""
    rate: float = 0.0
    """Requests a second (open loop); 0 means closed loop."""
    concurrency: int = 0
    """Users in the closed loop."""
    duration_seconds: float = 60.0
    max_requests: int = 1_000_000
    max_open: int = 2_000
    """Open conversations above which an arrival is skipped and counted."""
    drain_seconds: float = 5.0
    """How long requests in flight may go on after the planned end."""
    single: bool = False
    """No conversation key: each request is its own unit."""
    body: bytes | None = None
    """Send exactly these bytes each time, instead of the profile's."""


class Driver:
    """One drive."""

    def __init__(
        self,
        plan: Plan,
        profile: ChatProfile,
        client: Client,
        sink: Callable[[ClientRecord], None],
    ) -> None:
        self._plan = plan
        self._profile = profile
        self._client = client
        self._sink = sink
        self._words = random.Random(plan.seed + 1)
        self._stop = asyncio.Event()
        self._drain_seconds = plan.drain_seconds
        self._drawn = 0
        self._sent = 0
        self._tasks: set[asyncio.Task[object]] = set()
        self._sending: set[asyncio.Task[object]] = set()
        self._failure: BaseException | None = None
        self.tally = Tally()
        self.stopped_by = ""

    def stop(self, reason: str, drain_seconds: float | None = None) -> None:
        """End the drive; the first reason stays, the shortest drain wins."""
        self.stopped_by = self.stopped_by or reason
        if drain_seconds is not None:
            self._drain_seconds = min(self._drain_seconds, drain_seconds)
        self._stop.set()

    async def run(self) -> Tally:
        """Drive until the plan's end or a stop, and return the sums."""
        timer = asyncio.get_running_loop().call_later(
            self._plan.duration_seconds, self.stop, "duration"
        )
        if self._plan.rate > 0:
            self._spawn(self._arrive())
        else:
            for _ in range(self._plan.concurrency):
                self._spawn(self._user())
        await self._stop.wait()
        timer.cancel()
        await self._wind_down()
        return self.tally

    async def _arrive(self) -> None:
        """Start conversations by a Poisson process."""
        mean = 1.0 if self._plan.single else self._profile.lengths.mean()
        due = time.monotonic()
        for gap in arrival_gaps(self._plan.seed, self._plan.rate / mean):
            due += gap
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if len(self._tasks) > self._plan.max_open:
                self.tally.skipped += 1
                continue
            self._spawn(self._converse(self._draw(), due))

    async def _user(self) -> None:
        """Hold one conversation after the other."""
        while not self._stop.is_set():
            if not await self._converse(self._draw(), time.monotonic()):
                await asyncio.sleep(_BACKOFF_SECONDS)

    def _draw(self) -> Conversation:
        self._drawn += 1
        unit = f"{self._plan.run_id}-c{self._drawn}"
        conversation = self._profile.conversation(unit, self._words)
        if self._plan.single:
            return Conversation("", conversation.prompts[:1], (0.0,))
        return conversation

    async def _converse(self, conversation: Conversation, due: float) -> bool:
        """Send a conversation's requests; False if the last one found no connection."""
        answers: list[str] = []
        connected = True
        for number, pause in enumerate(conversation.pauses):
            if pause > 0:
                due = time.monotonic() + pause
                await asyncio.sleep(pause)
            elif number:
                due = time.monotonic()
            if self._stop.is_set():
                break
            prompts = conversation.prompts[: number + 1]
            body = self._plan.body or self._profile.body(prompts, answers)
            self.tally.units += number == 0
            text, connected = await self._send(conversation.unit, body, due)
            answers.append(text)
        return connected

    async def _send(self, unit: str, body: bytes, due: float) -> tuple[str, bool]:
        self._sent += 1
        identity = f"{self._plan.run_id}-{self._sent}"
        if self._sent >= self._plan.max_requests:
            self.stop("max_requests")
        if time.monotonic() - due > LATE_SECONDS:
            self.tally.late_sends += 1
        task = asyncio.current_task()
        assert task is not None
        self._sending.add(task)
        try:
            answer = await self._client.send(identity, unit, body)
        finally:
            self._sending.discard(task)
        if answer.simulated is not None:
            self.tally.simulated = answer.simulated
        self.tally.add(answer.record)
        self._sink(answer.record)
        return answer.text, answer.record.outcome is not Outcome.TRANSPORT

    def _spawn(self, work: Coroutine[None, None, object]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # A bug of ours: end now and let `run` raise it, never drive on with a part missing.
            self._failure = task.exception()
            self.stop("failure")

    async def _wind_down(self) -> None:
        for task in self._tasks - self._sending:
            task.cancel()
        deadline = time.monotonic() + self._drain_seconds
        while self._tasks and (left := deadline - time.monotonic()) > 0:
            # In slices, since a second, harder stop may shorten the drain.
            await asyncio.wait(self._tasks, timeout=min(left, 0.05))
            deadline = min(deadline, time.monotonic() + self._drain_seconds)
        for task in self._tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._failure is not None:
            raise self._failure
