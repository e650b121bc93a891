"""A deploy that cannot replay the runs it finds, in the middle of a fault."""

import pytest
from temporalio.client import WorkflowExecutionStatus

from tests.kill.documents import lasting
from tests.kill.runs import SLACK_SECONDS, Run, now
from tests.kill.side_by_side import side_by_side
from tests.kill.workers import until
from tests.kill.world import Lane, World

pytestmark = [
    pytest.mark.kill,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(900),
]


@side_by_side
async def test_a_bad_deploy_lets_the_fault_lapse_keeps_the_run_and_the_good_worker_ends_it(
    world: World,
) -> None:
    async def strike(lane: Lane, lease: float) -> None:
        good = lane.worker()
        run = await Run.start(lane, lasting(lane.name, f"bad-deploy-{lease:g}", lease))
        await run.fault_touches()
        bad = lane.worker(bad=True)
        await bad.ready()
        await good.kill()
        killed = now()
        off = await run.fault_is_off(lease + 10 + SLACK_SECONDS)
        world.measured(f"bad deploy, fault off (lease {lease:g} s)", off - killed)
        assert off - killed <= lease + 10
        await until(lambda: bad.says("ondeterminism"), "the bad worker refuses the history", 60)
        described = await run.handle.describe()
        assert described.status is WorkflowExecutionStatus.RUNNING
        hold = lane.store.hold(lane.hold)
        assert hold is not None
        assert (hold.state, hold.run_id) == ("held", run.run_id)
        await bad.kill()
        lane.worker()
        result = await run.result()
        assert (result["outcome"], result["exit_code"]) == ("INCONCLUSIVE", 2), result
        assert "withdrawn" in run.kinds()
        await run.left_clean("INCONCLUSIVE")

    await world.each({f"{s:g} s": lambda lane, s=s: strike(lane, s) for s in (6.0, 20.0)})


@side_by_side
async def test_while_it_is_wedged_the_sweep_leaves_a_live_run_alone(world: World) -> None:
    async def strike(lane: Lane) -> None:
        good = lane.worker()
        run = await Run.start(lane, lasting(lane.name, "wedged-and-swept"))
        await run.fault_touches()
        bad = lane.worker(bad=True)
        await bad.ready()
        await good.kill()
        await run.fault_is_off(16 + SLACK_SECONDS)
        await lane.sweep()
        hold = lane.store.hold(lane.hold)
        assert hold is not None
        assert (hold.state, hold.run_id) == ("held", run.run_id)
        assert run.freed() == []
        await bad.kill()
        lane.worker()
        assert (await run.result())["outcome"] == "INCONCLUSIVE"
        await run.left_clean("INCONCLUSIVE")

    await world.each({"swept": strike})
