"""Whatever the other tests of this folder left: struck runs replay like the others."""

import pytest

from tests.kill.documents import experiment
from tests.kill.runs import Command, Run
from tests.kill.world import Lane, World

pytestmark = [
    pytest.mark.kill,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(420),
]

STRUCK_LANES = 2
"""Each of their runs was replayed when it ended; here the command does all of a trail again."""


async def test_replay_of_every_run_of_a_lane_is_equal(world: World) -> None:
    async def strike(lane: Lane) -> None:
        lane.worker()
        run = await Run.start(lane, experiment(lane.name, "replays"))
        assert (await run.result())["outcome"] == "PASS"
        one = Command(lane, "replay", "--all")
        assert await one.code() == 0, one.output()
        assert "DIFFERENT" not in one.output()
        assert f"{run.run_id}: equal" in one.output()

    await world.each({str(index): strike for index in range(STRUCK_LANES)})
