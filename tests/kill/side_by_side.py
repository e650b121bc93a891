"""Tests that start together, each of which then waits for its own end.

A case mostly waits: for a lease to end, for a window of traffic, for a time-out of the server. One
after another they would leave both cores idle for a quarter of an hour.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

import pytest

Body = Callable[[Any], Coroutine[Any, Any, None]]
Started = dict[str, asyncio.Task[None]]
_BODY = "side_by_side_body"


def side_by_side(body: Body) -> Callable[[Started, pytest.FixtureRequest], Awaitable[None]]:
    """Make a test whose body the fixture `started` has begun beside those of the others."""

    async def test(started: Started, request: pytest.FixtureRequest) -> None:
        await started[request.node.nodeid]

    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(test, name, getattr(body, name))
    setattr(test, _BODY, body)
    return test


def bodies(items: Iterable[pytest.Item]) -> dict[str, Body]:
    """Return the bodies of the collected tests, by node id, in their order."""
    found = {item.nodeid: _body(item) for item in items}
    return {name: body for name, body in found.items() if body is not None}


async def end(started: Started) -> None:
    """Cancel what still runs; wait for all."""
    for task in started.values():
        task.cancel()
    await asyncio.gather(*started.values(), return_exceptions=True)


def _body(item: pytest.Item) -> Body | None:
    return getattr(getattr(item, "function", None), _BODY, None)
