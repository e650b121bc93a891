"""Counts per route in buckets of one second, rolled up to minutes.

The guard reads the seconds, burn-rate windows the minutes when there is no Prometheus. A bucket
counts what an SLI counts: probes and clients that left of their own will are not valid events; what
each request ended as is counted apart. Buckets without traffic are not stored and not invented.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

SECONDS_KEPT = 3_600
"""One-second buckets kept: an hour."""

MINUTES_KEPT = 30 * 24 * 60
"""One-minute buckets kept: 30 days, the longest burn window's budget."""


@dataclass(slots=True)
class Bucket:
    """Requests that ended in one second or minute that starts at `t` (unix seconds)."""

    t: int
    total: int = 0
    bad: int = 0
    by_outcome: dict[str, int] = field(default_factory=dict)

    def add(self, valid: bool, bad: bool, outcome: str) -> None:
        """Count one request."""
        self.total += valid
        self.bad += valid and bad
        self.by_outcome[outcome] = self.by_outcome.get(outcome, 0) + 1

    def view(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "t": self.t,
            "total": self.total,
            "bad": self.bad,
            "by_outcome": dict(self.by_outcome),
        }


class Series:
    """Buckets of one width, oldest first, bounded."""

    def __init__(self, width: int, kept: int) -> None:
        self._width = width
        self._kept = kept
        self._buckets: OrderedDict[int, Bucket] = OrderedDict()

    def add(self, at: float, valid: bool, bad: bool, outcome: str) -> None:
        """Count a request that ended `at` (unix seconds, never going back)."""
        start = int(at // self._width) * self._width
        bucket = self._buckets.get(start)
        if bucket is None:
            bucket = self._buckets[start] = Bucket(start)
            while next(iter(self._buckets)) <= start - self._kept * self._width:
                self._buckets.popitem(last=False)
        bucket.add(valid, bad, outcome)

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

    def add(self, at: float, valid: bool, bad: bool, outcome: str) -> None:
        """Count a finished request in both."""
        self.seconds.add(at, valid, bad, outcome)
        self.minutes.add(at, valid, bad, outcome)
