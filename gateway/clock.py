"""Time for records: unix seconds that never go back while the process lives.

Deadlines use the loop's monotonic clock; records want unix time. Reading the wall clock for each
would let a clock step reorder the journal, so unix time is the wall clock at start plus the
monotonic time since. After a step it is off by the step until the next start, and says nothing
wrong about durations.
"""

import time


class Clock:
    """Maps the monotonic clock to unix time."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def mono(self) -> float:
        """Return seconds on the monotonic clock (the event loop's own)."""
        return time.monotonic()

    def unix(self, mono: float | None = None) -> float:
        """Return unix seconds, of now or of a monotonic time."""
        return self._offset + (time.monotonic() if mono is None else mono)
