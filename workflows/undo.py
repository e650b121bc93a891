"""Undo that a cancel cannot interrupt and a failure cannot stop.

Three holes were found by experiment in the usual saga: `except Exception` misses a cancel that
lands in a timer; a bare shield lets the workflow close around the undo; and a revert pushed after
its act is lost when the act worked but its answer did not come. So: push before the act, shield
and join in a loop, and go on past a revert that failed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

Step = Callable[[], Awaitable[object]]
T = TypeVar("T")


async def join(task: "asyncio.Task[T]") -> None:
    """Wait for `task` to its end, whatever cancels arrive meanwhile. Never raises its error."""
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            continue
        except Exception:
            return


async def protect(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end in spite of cancels; return its result or raise its error."""
    task = asyncio.create_task(work)
    await join(task)
    return task.result()


class UndoStack:
    """Reverts, run last in first out, each exactly once."""

    def __init__(self) -> None:
        """Start with nothing to undo."""
        self._steps: list[tuple[str, Step]] = []
        self.failed: list[str] = []

    def push(self, name: str, step: Step) -> None:
        """Remember a revert. Call it before the act; the revert accepts "was never applied"."""
        self._steps.append((name, step))

    def __bool__(self) -> bool:
        """Tell whether anything is left to undo."""
        return bool(self._steps)

    async def run_now(self, name: str) -> bool:
        """Run one revert ahead of its turn; tell whether it worked. Unknown names do nothing."""
        for index, (known, step) in enumerate(self._steps):
            if known == name:
                del self._steps[index]
                return await self._run(known, step)
        return True

    async def unwind(self) -> list[str]:
        """Run every revert to its end; return the names of those that failed, also early."""
        while self._steps:
            name, step = self._steps.pop()
            await self._run(name, step)
        return self.failed

    async def _run(self, name: str, step: Step) -> bool:
        task = asyncio.ensure_future(step())
        await join(task)
        if task.cancelled() or task.exception() is not None:
            self.failed.append(name)
            return False
        return True
