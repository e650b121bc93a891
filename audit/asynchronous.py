"""The audit store for asynchronous code: the same methods, each run in a thread.

A loop that waits for a disk stops heartbeating, so nothing of the store may run on it. A caller
that is cancelled stops waiting, but the unit in its thread still runs to its end: it was written or
it was not, and since every act is idempotent by its key, the next try finds out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from audit.store import AuditStore

P = ParamSpec("P")
R = TypeVar("R")


def _in_thread(
    method: Callable[Concatenate[AuditStore, P], R],
) -> Callable[Concatenate[AsyncAuditStore, P], Coroutine[Any, Any, R]]:
    @wraps(method)
    async def call(self: AsyncAuditStore, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(method, self.store, *args, **kwargs)

    return call


class AsyncAuditStore:
    """`AuditStore` with every method awaitable. `store` is the blocking one."""

    def __init__(self, store: AuditStore) -> None:
        self.store = store

    upgrade = _in_thread(AuditStore.upgrade)
    close = _in_thread(AuditStore.close)

    open_run = _in_thread(AuditStore.open_run)
    append = _in_thread(AuditStore.append)
    finish_run = _in_thread(AuditStore.finish_run)
    history = _in_thread(AuditStore.history)
    run = _in_thread(AuditStore.run)
    children = _in_thread(AuditStore.children)
    engines = _in_thread(AuditStore.engines)
    events = _in_thread(AuditStore.events)
    events_since = _in_thread(AuditStore.events_since)

    put_segment = _in_thread(AuditStore.put_segment)
    load_segments = _in_thread(AuditStore.load_segments)
    streams = _in_thread(AuditStore.streams)

    acquire_hold = _in_thread(AuditStore.acquire_hold)
    renew_hold = _in_thread(AuditStore.renew_hold)
    release_hold = _in_thread(AuditStore.release_hold)
    quarantine_hold = _in_thread(AuditStore.quarantine_hold)
    clear_quarantine = _in_thread(AuditStore.clear_quarantine)
    list_holds = _in_thread(AuditStore.list_holds)
    hold = _in_thread(AuditStore.hold)

    set_stop = _in_thread(AuditStore.set_stop)
    clear_stop = _in_thread(AuditStore.clear_stop)
    stop_state = _in_thread(AuditStore.stop_state)

    verify_chain = _in_thread(AuditStore.verify_chain)
    verify_holds = _in_thread(AuditStore.verify_holds)
