"""Beat each second beside the work, so that a slow target does not look like a dead worker.

A read of a gateway may take its whole time-out, which is as long as the server waits for a beat; an
activity that only beats between two reads is given to another worker while it is still at work. The
beat runs on the same loop, so a loop that is blocked still falls silent: that is what it is for.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from temporalio import activity

BEAT_SECONDS = 1.0


@asynccontextmanager
async def heartbeats(details: Callable[[], Any]) -> AsyncIterator[None]:
    """Beat at once and then each second, with what `details` says at that moment."""
    task = asyncio.create_task(_beat(details))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _beat(details: Callable[[], Any]) -> None:
    while True:
        activity.heartbeat(details())
        await asyncio.sleep(BEAT_SECONDS)
