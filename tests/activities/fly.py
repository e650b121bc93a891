"""A loop whose clock flies: when nothing is left to run, time jumps to the next timer.

Minutes of waiting take milliseconds, and the order of events is that of the real loop. Nothing in
such a test may wait for a thread or a socket: time would fly past it.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Jump(selectors.SelectSelector):
    """Never waits: adds the wait to the loop's clock instead."""

    def __init__(self) -> None:
        super().__init__()
        self.elapsed = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("everything waits for something that no timer will bring")
        self.elapsed += max(timeout, 0.0)
        return super().select(0)


class FlyingLoop(asyncio.SelectorEventLoop):
    """The loop; `time()` starts at 0."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.elapsed


def fly(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end on a flying loop."""
    with asyncio.Runner(loop_factory=FlyingLoop) as runner:
        return runner.run(work)


def now() -> float:
    """Seconds since the loop began."""
    return asyncio.get_running_loop().time()
