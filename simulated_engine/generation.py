"""One answer in the making: waits for its turn, then for each token.

It joins the scheduler (who may run), the pace (when a token is due) and the metrics (what is
counted). Tokens are due on an absolute time line, since timers fire a little late and relative
waits would add the lateness up: with half a millisecond a token that doubled the time of an
answer.
"""

import asyncio
import math
import random
import time

from simulated_engine.language import natural_length
from simulated_engine.metrics import Metrics, Timing
from simulated_engine.options import EngineOptions
from simulated_engine.requests import CompletionRequest
from simulated_engine.scheduler import Scheduler, Sequence, State

_SHORTEST_SLEEP_SECONDS = 0.0005
"""Waits up to this are skipped.

Source: libuv timers count whole milliseconds; uvloop rounds half of one down to 0 and spins."""


class Pace:
    """Draws the time to the first token and between tokens, seconds."""

    def __init__(self, options: EngineOptions) -> None:
        self._ttft = options.ttft_seconds
        self._prefill = options.prefill_token_seconds
        self._itl = options.itl_seconds
        self._sigma = options.jitter
        self._random = random.Random(options.seed)

    def first(self, prompt_tokens: int) -> float:
        """Return the time from being scheduled to the first token."""
        return (self._ttft + self._prefill * prompt_tokens) * self._factor()

    def next(self) -> float:
        """Return the time from one token to the next."""
        return self._itl * self._factor()

    def _factor(self) -> float:
        if self._sigma == 0:
            return 1.0
        # A lognormal of mean 1: exp(mu + sigma^2 / 2) = 1.
        return math.exp(self._random.gauss(-(self._sigma**2) / 2, self._sigma))


class Generation:
    """One running answer. `end` must be called, whatever happens."""

    def __init__(
        self, request: CompletionRequest, adapter: str, pace: Pace, scheduler: Scheduler
    ) -> None:
        self._pace = pace
        self._scheduler = scheduler
        self._turn: asyncio.Event | None = None
        self._sequence = Sequence(request.prompt_tokens, adapter, self._wake)
        self.request = request
        self.timing = Timing(arrived=time.monotonic())
        wanted = request.max_tokens
        natural = wanted if request.ignore_eos else natural_length(request.prompt)
        self.length = min(wanted, natural)
        """Tokens the answer will have."""
        self.finish_reason = "length" if wanted <= natural else "stop"
        self._due = 0.0

    def start(self) -> None:
        """Queue up."""
        self._scheduler.submit(self._sequence)

    async def token(self, metrics: Metrics) -> None:
        """Wait until the next token is there."""
        # Asked anew after each wait: a preemption meanwhile takes the turn or moves the due time.
        while True:
            if self._sequence.state is State.WAITING:
                await self._wait_for_turn()
            elif (wait := self._due - time.monotonic()) > _SHORTEST_SLEEP_SECONDS:
                await asyncio.sleep(wait)
            elif self._scheduler.grow(self._sequence):
                break
        self._count(metrics)
        self._due += self._pace.next()

    def is_due(self) -> bool:
        """Say whether the next token would come without a wait."""
        return (
            self._sequence.state is State.RUNNING
            and self._due - time.monotonic() <= _SHORTEST_SLEEP_SECONDS
        )

    def end(self, metrics: Metrics, finished: bool) -> None:
        """Leave the engine; only a finished answer enters the per-request series."""
        self._scheduler.finish(self._sequence)
        if self._sequence.adapter:
            metrics.note_adapters()
        if finished:
            metrics.finished(
                self.finish_reason,
                (self.request.prompt_tokens, self.request.max_tokens),
                self._sequence.preemptions,
                self.timing,
            )

    def _wake(self) -> None:
        now = time.monotonic()
        if not self.timing.scheduled:
            self.timing.scheduled = now
        # A preempted request computes its cache anew: the next token costs a first token again.
        self._due = now + self._pace.first(self.request.prompt_tokens)
        if self._turn is not None:
            self._turn.set()

    async def _wait_for_turn(self) -> None:
        self._turn = asyncio.Event()
        await self._turn.wait()
        self._turn = None

    def _count(self, metrics: Metrics) -> None:
        timing, now = self.timing, time.monotonic()
        timing.tokens += 1
        if timing.tokens == 1:
            timing.first_token = now
            metrics.prefilled(self.request.prompt_tokens, timing)
            metrics.generated(None)
        else:
            metrics.generated(now - timing.last_token)
        timing.last_token = now
