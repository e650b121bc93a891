"""One world for the whole folder; its cases run side by side on its lanes."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.kill.side_by_side import bodies, first
from tests.kill.world import World

LANES = 6
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of this folder that share the world before those that need quiet."""
    ours = [item for item in items if HERE in item.path.parents]
    others = [item for item in items if HERE not in item.path.parents]
    items[:] = [*others, *first(ours)]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[World]:
    async with World(tmp_path_factory.mktemp("kill"), LANES) as found:
        for name, body in bodies(request.session.items).items():
            found.start(name, body(found))
        yield found
