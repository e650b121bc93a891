"""Counts of valid and bad events over the last seconds, by the time at which requests ended."""

from collections import deque


class TrailingWindow:
    """Valid and bad events that ended in the last `seconds`; memory is rate times seconds."""

    __slots__ = ("_events", "bad", "seconds", "total")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.total = 0
        self.bad = 0
        self._events: deque[tuple[float, bool]] = deque()

    def add(self, at: float, is_bad: bool) -> None:
        """Count one event that ended at `at`, unix seconds, and forget the too old."""
        events = self._events
        events.append((at, is_bad))
        self.total += 1
        self.bad += is_bad
        edge = at - self.seconds
        while events and events[0][0] <= edge:
            self.total -= 1
            self.bad -= events.popleft()[1]

    def forget(self, now: float) -> None:
        """Drop the events that ended `seconds` before `now` or earlier."""
        edge = now - self.seconds
        events = self._events
        while events and events[0][0] <= edge:
            self.total -= 1
            self.bad -= events.popleft()[1]
