"""The circuit breaker of one replica: a pure state machine over its latest requests.

It opens on evidence, not on a raw ratio: the one-sided 99.9 % lower Clopper-Pearson bound of the
bad share must exceed the threshold. (A raw 4 % ratio against a 5 % threshold trips by chance in
most runs of a few minutes.) After a pause it is half open: a small share of units goes through,
and it closes only when the probes' 97.5 % upper bound is below the threshold. What was hard:
healing. A probe window as short as the opening window can never prove a 1 % threshold, which needs
368 good probes, so probes are kept for longer; and an answer that says nothing about the replica
(the client left, a 400) is neither good nor bad: it is not counted, and it holds no slot.

The bounds are compared without inverting a beta function: the lower bound exceeds t exactly when
P(X >= bad | n, t) is below the error level, so one binomial tail decides.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

OPEN_ERROR_LEVEL = 0.001
"""One-sided error level of opening. Source: ours, 2026-11: trips by chance in at most 1.3 % of
4-minute runs at 4 % bad over a 5 % threshold."""

CLOSE_ERROR_LEVEL = 0.025
"""One-sided error level of closing. Source: ours, 2026-11, with the burn windows' 97.5 % bounds."""

PROBE_SHARE = 0.05
"""Share of units let through while half open, ratio. Source: ours, 2026-11."""

MAX_PROBES = 4_000
"""Latest probes kept while half open: enough to prove a threshold of 0.2 %."""


class BreakerState(StrEnum):
    """Whether the replica gets its traffic."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


def tail_at_least(bad: int, total: int, ratio: float) -> float:
    """Return P(X >= bad) for X ~ Binomial(total, ratio), ratio in (0, 1)."""
    if bad <= 0:
        return 1.0
    if bad <= total * ratio:  # the other tail is the short one
        return 1.0 - tail_at_most(bad - 1, total, ratio)
    odds = ratio / (1.0 - ratio)
    term = whole = _mass(bad, total, ratio)
    for k in range(bad, total):
        term *= odds * (total - k) / (k + 1)
        whole += term
        if term < whole * _NEGLIGIBLE:
            break
    return min(1.0, whole)


def tail_at_most(bad: int, total: int, ratio: float) -> float:
    """Return P(X <= bad) for X ~ Binomial(total, ratio), ratio in (0, 1)."""
    if bad >= total:
        return 1.0
    if bad > total * ratio:
        return 1.0 - tail_at_least(bad + 1, total, ratio)
    odds = (1.0 - ratio) / ratio
    term = whole = _mass(bad, total, ratio)
    for k in range(bad, 0, -1):
        term *= odds * k / (total - k + 1)
        whole += term
        if term < whole * _NEGLIGIBLE:
            break
    return min(1.0, whole)


_NEGLIGIBLE = 1e-17


def _mass(k: int, total: int, ratio: float) -> float:
    """Return P(X = k)."""
    ways = math.lgamma(total + 1) - math.lgamma(k + 1) - math.lgamma(total - k + 1)
    return math.exp(ways + k * math.log(ratio) + (total - k) * math.log1p(-ratio))


@dataclass(slots=True)
class Window:
    """The latest results of a replica, True for bad, with a running count."""

    size: int
    results: deque[bool] = field(default_factory=deque)
    bad: int = 0

    def add(self, bad: bool) -> None:
        """Add one result and forget the one that fell out."""
        self.results.append(bad)
        self.bad += bad
        if len(self.results) > self.size:
            self.bad -= self.results.popleft()

    @property
    def total(self) -> int:
        """Results held."""
        return len(self.results)

    def copy(self) -> "Window":
        """Return an independent copy."""
        return Window(self.size, deque(self.results), self.bad)


@dataclass(slots=True)
class Breaker:
    """One replica under one threshold. Times are seconds on any clock that never goes back."""

    threshold_ratio: float
    minimum: int
    window: Window
    open_seconds: float = 5.0
    state: BreakerState = BreakerState.CLOSED
    probes: Window = field(default_factory=lambda: Window(MAX_PROBES))
    opened_at: float = 0.0

    @classmethod
    def fresh(cls, threshold_ratio: float, window: int, minimum: int, pause: float) -> Self:
        """Make a closed breaker without history."""
        return cls(threshold_ratio, minimum, Window(window), pause)

    def tightened(self, threshold_ratio: float, now: float) -> "Breaker":
        """Make a breaker with another threshold that knows this one's latest requests."""
        other = Breaker(threshold_ratio, self.minimum, self.window.copy(), self.open_seconds)
        other._judge_window(now)
        return other

    def tick(self, now: float) -> BreakerState:
        """Let the pause end. Return the state that holds now."""
        if self.state is BreakerState.OPEN and now - self.opened_at >= self.open_seconds:
            self.state = BreakerState.HALF_OPEN
            self.probes = Window(MAX_PROBES)
        return self.state

    def probe_round(self, now: float) -> int:
        """Return the round of probing, one a pause; each lets other units through.

        Else a route with a handful of long conversations might have none that may probe, for ever.
        """
        return int((now - self.opened_at) / self.open_seconds)

    def observe(self, bad: bool, now: float) -> None:
        """Count one finished request that says something about the replica."""
        self.tick(now)
        self.window.add(bad)
        if self.state is BreakerState.CLOSED:
            if bad:  # only a bad result can raise the bound
                self._judge_window(now)
        elif self.state is BreakerState.HALF_OPEN:
            self.probes.add(bad)
            self._judge_probes(now)

    def _judge_window(self, now: float) -> None:
        window = self.window
        if window.total < self.minimum:
            return
        if tail_at_least(window.bad, window.total, self.threshold_ratio) < OPEN_ERROR_LEVEL:
            self._open(now)

    def _judge_probes(self, now: float) -> None:
        bad, total = self.probes.bad, self.probes.total
        if tail_at_least(bad, total, self.threshold_ratio) < OPEN_ERROR_LEVEL:
            self._open(now)
        elif tail_at_most(bad, total, self.threshold_ratio) < CLOSE_ERROR_LEVEL:
            self.state = BreakerState.CLOSED
            self.window = Window(self.window.size)  # the past that opened it must not reopen it

    def _open(self, now: float) -> None:
        self.state = BreakerState.OPEN
        self.opened_at = now
        self.probes = Window(MAX_PROBES)

    @property
    def badness(self) -> float:
        """Bad share of the latest evidence, ratio; 0 without any."""
        latest = self.probes if self.probes.total else self.window
        return latest.bad / latest.total if latest.total else 0.0
