"""One world for the whole folder; its cases run side by side on its lanes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.kill import side_by_side
from tests.kill.world import World

LANES = 8
HERE = Path(__file__).parent
LANES_OF_A_STACK = 3
OWN_STACK = "test_everything_dies"
LAST = (OWN_STACK, "test_observers", "test_replay")
"""Come last: they have stacks of their own, or want a quiet machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of this folder that share the lanes before the others."""
    items.sort(key=lambda item: HERE in item.path.parents and item.path.stem in LAST)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with World(tmp_path_factory.mktemp("kill"), LANES) as found:
        yield found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def started(
    request: pytest.FixtureRequest, world: World, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[side_by_side.Started]:
    """Start every collected test: those on the lanes, then those with a stack of their own.

    A stack that starts takes a core, and the clocks of the lanes would tell: it waits until it can
    have the place of some lanes.
    """

    async def alone(body: side_by_side.Body) -> None:
        async with world.instead_of(LANES_OF_A_STACK):
            await body(tmp_path_factory.mktemp("own"))

    found = side_by_side.bodies(request.session.items)
    shared = [name for name in found if OWN_STACK not in name]
    tasks = {name: asyncio.create_task(found[name](world), name=name) for name in shared}
    await asyncio.sleep(0)  # they queue for a lane before the others do
    for name in found.keys() - set(shared):
        tasks[name] = asyncio.create_task(alone(found[name]), name=name)
    yield tasks
    await side_by_side.end(tasks)
