"""One world for the whole folder; its cases run side by side on its lanes."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.kill.world import World

LANES = 4


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with World(tmp_path_factory.mktemp("kill"), LANES) as found:
        yield found
