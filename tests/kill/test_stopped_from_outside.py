"""Cancel and terminate at each step, twice during undo, and a parent without its child."""

import pytest
from temporalio.client import WorkflowExecutionStatus

from api import client as facade
from tests.kill.documents import experiment, lasting, mended
from tests.kill.runs import SLACK_SECONDS, Run, now
from tests.kill.side_by_side import side_by_side
from tests.kill.test_worker_dies import STEPS, document
from tests.kill.workers import Point, until
from tests.kill.world import Lane, World
from workflows import ids

pytestmark = [
    pytest.mark.kill,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(900),
]

AFTER_THE_FAULT = ("withdraw", "recovery", "settle_hold", "conclude")
BEFORE_THE_FAULT = ("preflight", "steady", "open_lease")


def is_at(point: Point, words: tuple[str, ...]) -> bool:
    return any(word in str(point) for word in words)


@side_by_side
async def test_a_cancel_at_any_step_withdraws_and_ends_inconclusive(world: World) -> None:
    async def strike(lane: Lane, point: Point) -> None:
        worker = lane.worker(point)
        run = await Run.start(lane, document(lane, point, 6.0))
        await worker.reached()
        await run.handle.cancel()
        cancelled = now()
        worker.release()
        result = await run.result()
        off = run.off_at()
        if off is not None and not is_at(point, AFTER_THE_FAULT):
            world.measured("cancelled, fault off", off - cancelled)
            assert off - cancelled <= 10.0
        done = is_at(point, ("settle_hold", "conclude"))
        assert done or "Cancelled" in result["outcome"], result
        injected = 0 if is_at(point, BEFORE_THE_FAULT) else 1
        await run.left_clean("PASS" if done else "INCONCLUSIVE", injected=injected)

    await world.each({str(p): lambda lane, p=p: strike(lane, p) for p in STEPS})


@side_by_side
async def test_two_cancels_while_it_is_withdrawn_do_not_stop_the_withdrawal(world: World) -> None:
    async def strike(lane: Lane, when: str) -> None:
        worker = lane.worker(Point("withdraw", when))
        run = await Run.start(lane, lasting(lane.name, f"cancelled-three-times-{when}"))
        await run.fault_touches()
        await run.handle.cancel()
        await worker.reached()
        await run.handle.cancel()
        await run.handle.cancel()
        worker.release()
        await run.result()
        described = await run.handle.describe()
        assert described.status is WorkflowExecutionStatus.CANCELED
        await run.left_clean("INCONCLUSIVE")

    cases = {w: lambda lane, w=w: strike(lane, w) for w in ("before", "after")}
    await world.each(cases)


@side_by_side
async def test_an_abort_by_a_person_withdraws_at_once_and_is_named(world: World) -> None:
    async def strike(lane: Lane) -> None:
        lane.worker()
        run = await Run.start(lane, lasting(lane.name, "aborted", 20.0))
        await run.fault_touches()
        said = await facade.abort(lane.client, run.handle.id, "ada", "enough")
        aborted = now()
        assert said.accepted
        result = await run.result()
        off = run.off_at()
        assert off is not None
        world.measured("aborted, fault off", off - aborted)
        assert off - aborted <= 5.0
        assert (result["outcome"], result["exit_code"]) == ("INCONCLUSIVE", 2), result
        assert any("ada" in reason for reason in result["reasons"]), result
        await run.left_clean("INCONCLUSIVE")

    await world.each({"abort": strike})


@side_by_side
async def test_a_terminated_run_loses_its_fault_and_the_sweep_proves_and_closes_it(
    world: World,
) -> None:
    async def strike(lane: Lane, point: Point, lease: float) -> None:
        worker = lane.worker(point)
        run = await Run.start(lane, {**document(lane, point, lease)})
        await worker.reached()
        await run.handle.terminate("by the test")
        ended = now()
        worker.release()
        opened = any(act["act"] == "open" for act in run.acts())
        if opened:
            off = await run.fault_is_off(lease + 20)
            if not is_at(point, AFTER_THE_FAULT):
                world.measured(f"terminated, fault off (lease {lease:g} s)", off - ended)
            bound = 30.0 if lease == 20.0 else lease + 10.0
            assert off - ended <= bound
        hold = lane.store.hold(lane.hold)
        assert hold is not None
        settled = is_at(point, ("settle_hold", "conclude"))
        assert settled or (hold.state, hold.run_id) == ("held", run.run_id) or run.freed()
        await lane.sweep()
        await until(lambda: bool(run.freed()), "the hold freed by the sweep", 30)
        concluded = "conclude" in str(point)
        if settled and not concluded:
            record = lane.store.run(run.run_id)
            assert record is not None
            assert record.outcome in {None, "INCONCLUSIVE"}
            return
        injected = 0 if is_at(point, BEFORE_THE_FAULT) else 1
        by = "run" if settled else "sweep"
        await run.left_clean("PASS" if concluded else "INCONCLUSIVE", injected=injected, by=by)
        assert settled or "swept" in run.kinds()

    cases = {str(p): lambda lane, p=p: strike(lane, p, 6.0) for p in STEPS}
    long = Point("observe", "before", "compare")
    cases["long lease"] = lambda lane: strike(lane, long, 20.0)
    await world.each(cases)


@side_by_side
async def test_the_hold_of_a_terminated_run_is_taken_over_by_the_next_only_with_proof(
    world: World,
) -> None:
    async def strike(lane: Lane) -> None:
        lane.worker()
        first = await Run.start(lane, lasting(lane.name, "first", 20.0))
        await first.fault_touches()
        await first.handle.terminate("by the test")
        second = await Run.start(lane, experiment(lane.name, "second"))
        result = await second.result()
        assert result["outcome"] == "PASS", result
        assert [proof["proof"]["by"] for proof in first.freed()] == ["sweep"]
        acts = first.acts()
        off, on = acts[-1], second.acts()[0]
        assert (off["act"], on["act"]) == ("close", "open")
        assert off["at"] <= on["at"]
        await second.left_clean("PASS")

    await world.each({"next": strike})


@side_by_side
async def test_a_terminated_parent_takes_its_childs_remedy_with_it(world: World) -> None:
    async def strike(lane: Lane) -> None:
        worker = lane.worker(Point("observe", "before", "remedy-1"))
        run = await Run.start(lane, mended(lane.name, "orphans"))
        await worker.reached()
        child = lane.client.get_workflow_handle(ids.remediation(run.run_id))
        await run.handle.terminate("by the test")
        ended = now()
        worker.release()

        async def closed() -> bool:
            return (await child.describe()).status is not WorkflowExecutionStatus.RUNNING

        await until(closed, "the end of the child", 60)
        off = await run.fault_is_off(16 + SLACK_SECONDS)
        world.measured("parent terminated, fault off (lease 6 s)", off - ended)
        assert off - ended <= 16
        remedies = [act for act in run.acts() if act.get("item_id") == "remedy-1"]
        assert [act["act"] for act in remedies] == ["attach", "detach"]
        assert "remedy_reverted" in run.kinds()
        routes = {route["name"]: route for route in await lane.admin.routes()}
        breaker = routes[lane.name]["breaker"]
        assert breaker["threshold_ratio"] == breaker["base_threshold_ratio"] == 0.9
        await lane.sweep()
        await until(lambda: bool(run.freed()), "the hold freed by the sweep", 30)
        await run.left_clean("INCONCLUSIVE", by="sweep")

    await world.each({"parent": strike})
