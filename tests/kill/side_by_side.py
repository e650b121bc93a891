"""Tests that share the world start together, and each then waits for its own cases.

A case mostly waits: for a lease to end, for a window of traffic, for a time-out of the server. One
after another they would leave both cores idle for a quarter of an hour.
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import pytest

from tests.kill.world import World

Body = Callable[[World], Coroutine[Any, Any, None]]
_BODY = "side_by_side_body"


def side_by_side(body: Body) -> Callable[[World, pytest.FixtureRequest], Awaitable[None]]:
    """Make a test whose cases run beside those of all others that were collected."""

    async def test(world: World, request: pytest.FixtureRequest) -> None:
        await world.started[request.node.nodeid]

    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(test, name, getattr(body, name))
    setattr(test, _BODY, body)
    return test


def bodies(items: Sequence[pytest.Item]) -> dict[str, Body]:
    """Return the bodies of the collected tests, by node id, in their order."""
    found = {item.nodeid: getattr(_function(item), _BODY, None) for item in items}
    return {name: body for name, body in found.items() if body is not None}


def first(items: list[pytest.Item]) -> list[pytest.Item]:
    """Put the tests that share the world first: what needs quiet comes after them."""
    return sorted(items, key=lambda item: not hasattr(_function(item), _BODY))


def _function(item: pytest.Item) -> Any:
    return getattr(item, "function", None)
