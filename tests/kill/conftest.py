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
ALONE = ("test_everything_dies", "test_observers", "test_replay")
"""Come last: they have stacks of their own, or need all lanes, or a quiet machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of this folder that share the lanes before the others."""
    items.sort(key=lambda item: HERE in item.path.parents and item.path.stem in ALONE)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with World(tmp_path_factory.mktemp("kill"), LANES) as found:
        yield found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def started(
    request: pytest.FixtureRequest, world: World
) -> AsyncIterator[side_by_side.Started]:
    """Start every collected test that shares the lanes."""
    items = [item for item in request.session.items if item.path.stem not in ALONE]
    tasks = {
        name: asyncio.create_task(body(world), name=name)
        for name, body in side_by_side.bodies(items).items()
    }
    yield tasks
    await side_by_side.end(tasks)
