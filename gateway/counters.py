"""Counts per route in buckets of one second, rolled up to minutes.

The guard reads the seconds, burn-rate windows the minutes when there is no Prometheus. A bucket
counts what an SLI counts: probes and clients that left of their own will are not valid events; what
each request ended as is counted apart. Buckets without traffic are not stored and not invented.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from slo.objective import Indicator, is_hidden_error, is_interrupted
from slo.records import Outcome, RequestRecord

SECONDS_KEPT = 3_600
"""One-second buckets kept: an hour."""

MINUTES_KEPT = 30 * 24 * 60
"""One-minute buckets kept: 30 days, the longest burn window's budget."""


@dataclass(slots=True)  # not frozen: one is made for each request, and frozen ones cost thrice
class Ended:
    """What one finished request counts as. Only a valid event is bad, begun, or either kind."""

    outcome: str
    valid: bool
    bad: bool = False
    begun: bool = False
    interrupted: bool = False
    hidden: bool = False

    @classmethod
    def of(cls, record: RequestRecord, indicator: Indicator) -> "Ended":
        """Sort a record by what counts as bad on its route."""
        outcome = record.outcome
        if not indicator.is_valid(record):
            return cls(outcome.value, False)
        begun = record.ttft_s is not None
        bad = indicator.is_bad(record)
        if outcome is Outcome.OK:
            return cls(outcome.value, True, bad, begun)
        return cls(outcome.value, True, bad, begun, is_interrupted(record), is_hidden_error(record))


@dataclass(slots=True)
class Bucket:
    """Requests that ended in one second or minute that starts at `t` (unix seconds)."""

    t: int
    total: int = 0
    bad: int = 0
    begun: int = 0
    """Valid events with a first token: those that can be interrupted."""
    interrupted: int = 0
    hidden: int = 0
    """Valid events that failed though no error status said so."""
    by_outcome: dict[str, int] = field(default_factory=dict)

    def add(self, ended: "Ended") -> None:
        """Count one request."""
        self.total += ended.valid
        self.bad += ended.bad
        self.begun += ended.begun
        self.interrupted += ended.interrupted
        self.hidden += ended.hidden
        self.by_outcome[ended.outcome] = self.by_outcome.get(ended.outcome, 0) + 1

    def view(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "t": self.t,
            "total": self.total,
            "bad": self.bad,
            "begun": self.begun,
            "interrupted": self.interrupted,
            "hidden": self.hidden,
            "by_outcome": dict(self.by_outcome),
        }


class Series:
    """Buckets of one width, oldest first, bounded."""

    def __init__(self, width: int, kept: int) -> None:
        self._width = width
        self._kept = kept
        self._buckets: OrderedDict[int, Bucket] = OrderedDict()

    def add(self, at: float, ended: Ended) -> None:
        """Count a request that ended `at` (unix seconds, never going back)."""
        start = int(at // self._width) * self._width
        bucket = self._buckets.get(start)
        if bucket is None:
            bucket = self._buckets[start] = Bucket(start)
            while next(iter(self._buckets)) <= start - self._kept * self._width:
                self._buckets.popitem(last=False)
        bucket.add(ended)

    def since(self, at: float) -> list[dict[str, Any]]:
        """Return the buckets that end after `at` (unix seconds)."""
        found = []
        for bucket in reversed(self._buckets.values()):
            if bucket.t + self._width <= at:
                break
            found.append(bucket.view())
        return found[::-1]

    def sums(self, at: float) -> dict[str, int]:
        """Return the valid and bad events of the buckets that end after `at` (unix seconds)."""
        buckets = self.since(at)
        return {
            "total": sum(each["total"] for each in buckets),
            "bad": sum(each["bad"] for each in buckets),
        }


class Counters:
    """Seconds and minutes of one route."""

    def __init__(self) -> None:
        self.seconds = Series(1, SECONDS_KEPT)
        self.minutes = Series(60, MINUTES_KEPT)

    def add(self, at: float, ended: Ended) -> None:
        """Count a finished request in both."""
        self.seconds.add(at, ended)
        self.minutes.add(at, ended)
