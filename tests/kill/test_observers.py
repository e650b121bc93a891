"""A hundred observers at work, and the undo of one run starts as if they were not there."""

from datetime import UTC, datetime
from typing import Any

import pytest
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import WorkflowHandle

from activities.observe import ObserveInput
from api import client as facade
from canary.config import ObserveConfig, SettleConfig
from slo.openslo import parse_openslo
from tests.kill.documents import lasting, slo
from tests.kill.runs import Run, at
from tests.kill.workers import until
from tests.kill.world import Lane, World
from workflows import queues

pytestmark = [
    pytest.mark.kill,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(420),
]

CROWD = 100
SLOTS = 100
"""Observations at once in one worker, by default; the run under test has one of them."""


def endless(index: int) -> ObserveInput:
    """Watch a route without traffic for requests that never come."""
    return ObserveInput(
        run_id="crowd",
        stream=f"crowd-{index}",
        route="hung",
        config=ObserveConfig(
            mode="steady",
            objectives=(parse_openslo(slo(0.9)),),
            settle=SettleConfig(min_requests=1_000_000, window_seconds=30),
            max_seconds=600,
        ),
    )


async def observing(handle: WorkflowHandle[Any, Any]) -> int:
    """Return how many of the crowd's observations have a slot."""
    described = await handle.describe()
    started = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
    return sum(one.state == started for one in described.raw_description.pending_activities)


async def test_a_hundred_observers_do_not_hold_up_a_withdrawal(world: World) -> None:
    async def strike(lane: Lane) -> None:
        lane.env["BURNPROOF_WORKER_POLL_SECONDS"] = "2"
        lane.worker()
        run = await Run.start(lane, lasting(lane.name, "crowded", 20.0))
        await run.fault_touches()
        lane.store.open_run(
            "crowd",
            "crowd",
            "crowd",
            "Crowd",
            {},
            requested_by="test",
            trigger="test",
            at=datetime.now(UTC),
        )
        crowd = await lane.client.start_workflow(
            "Crowd",
            [endless(index) for index in range(CROWD)],
            id="crowd",
            task_queue=queues.MAIN,
        )

        async def all_slots_taken() -> bool:
            return await observing(crowd) >= SLOTS - 1

        try:
            await until(all_slots_taken, "a crowd of observers", 100)
            assert (await facade.abort(lane.client, run.handle.id, "ada", "crowded")).accepted
            result = await run.result()
            assert await all_slots_taken()
        finally:
            await crowd.terminate()
            lane.env["BURNPROOF_WORKER_POLL_SECONDS"] = "0.4"
        assert result["outcome"] == "INCONCLUSIVE", result
        waited = await schedule_to_start(run, "withdraw")
        world.measured("withdraw: schedule to start beside 100 observers", waited)
        assert waited <= 2.0
        await run.left_clean("INCONCLUSIVE")

    await world.each({"crowd": strike})


async def schedule_to_start(run: Run, activity_type: str) -> float:
    """Return the seconds from scheduling to start, by the server's own times."""
    history = await run.handle.fetch_history()
    for event in history.events:
        scheduled = event.activity_task_scheduled_event_attributes
        if scheduled.activity_type.name != activity_type:
            continue
        for later in history.events:
            started = later.activity_task_started_event_attributes
            if started.scheduled_event_id == event.event_id:
                return at(later.event_time) - at(event.event_time)
    raise AssertionError(f"{activity_type} was never started")
