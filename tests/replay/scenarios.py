"""The runs whose histories are kept: each scenario plays one, and hands back what was recorded.

The same scenarios are recorded to files (for replays) and run live (for transcripts), so that a
story told twice cannot drift apart. `freeze` stops the clock of the SIMULATED gateway once the
fault is in place, so that a person's act always lands while it is held.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowFailureError, WorkflowHandle, WorkflowHistory

from activities.sweep import SweepInput
from tests.workflows.conftest import World, errors, experiment, mended, open_server, open_world
from workflows import ids, queues
from workflows.state import AbortInput

Histories = dict[str, WorkflowHistory]
Scenario = Callable[[World], Awaitable[Histories]]
PATIENCE_SECONDS = 20.0


async def null_passes(world: World) -> Histories:
    return await to_the_end(world, experiment())


async def broken_arm_fails(world: World) -> Histories:
    return await to_the_end(world, experiment(fault=errors(0.2)))


async def remedy_helps(world: World) -> Histories:
    return await to_the_end(world, mended())


async def remedy_does_not_help(world: World) -> Histories:
    world.gateway.remedy_does_nothing = True
    return await to_the_end(world, mended())


async def bad_document(world: World) -> Histories:
    fault = {"template": "gateway/error", "parameters": {"stal": 1}, "duration": "5m"}
    return await to_the_end(world, experiment(fault=fault))


async def aborted_while_observing(world: World) -> Histories:
    handle = await _start_and_freeze(world)
    await handle.execute_update("abort", AbortInput(by="a person", reason="enough"))
    return await _collect(world, handle)


async def cancelled_while_holding(world: World) -> Histories:
    handle = await _start_and_freeze(world)
    await handle.cancel()
    return await _collect(world, handle)


async def held(world: World) -> Histories:
    """A run cut off while its fault is in place: what a new worker finds after a deploy."""
    handle = await _start_and_freeze(world)
    history = await handle.fetch_history()
    await handle.execute_update("abort", AbortInput(by="the scenario"))
    await handle.result()
    return {"FaultExperiment": history}


async def sweep_finds_nothing(world: World) -> Histories:
    handle = await world.client.start_workflow(
        "LeaseSweep", SweepInput(), id=ids.SWEEP_WORKFLOW, task_queue=queues.MAIN
    )
    await handle.result()
    return {"LeaseSweep": await handle.fetch_history()}


SCENARIOS: dict[str, Scenario] = {
    "null-passes": null_passes,
    "broken-arm-fails": broken_arm_fails,
    "remedy-helps": remedy_helps,
    "remedy-does-not-help": remedy_does_not_help,
    "bad-document": bad_document,
    "aborted-while-observing": aborted_while_observing,
    "cancelled-while-holding": cancelled_while_holding,
    "held": held,
    "sweep-finds-nothing": sweep_finds_nothing,
}


async def play(name: str) -> Histories:
    """Run a scenario on a server and in a folder of its own."""
    return await play_with(SCENARIOS[name])


async def play_with(scenario: Scenario) -> Histories:
    """Run one; the world must be as before when it is over."""
    with tempfile.TemporaryDirectory() as folder:
        async with open_server() as server, open_world(server, Path(folder)) as world:
            histories = await scenario(world)
            world.gateway.assert_steady()
    return histories


async def to_the_end(world: World, document: dict[str, Any]) -> Histories:
    """Start a run and let it end."""
    return await _collect(world, await world.start(document))


async def _collect(world: World, handle: WorkflowHandle[Any, Any]) -> Histories:
    """Wait for the end, however it ends, and fetch the history and that of a remediation."""
    with contextlib.suppress(WorkflowFailureError):
        await handle.result()
    found = {"FaultExperiment": await handle.fetch_history()}
    children = [
        event.child_workflow_execution_started_event_attributes.workflow_execution.workflow_id
        for event in found["FaultExperiment"].events
        if event.HasField("child_workflow_execution_started_event_attributes")
    ]
    for child in children:
        child_handle = world.client.get_workflow_handle(child)
        found["RemediationRun"] = await child_handle.fetch_history()
    return found


async def _start_and_freeze(world: World) -> WorkflowHandle[Any, Any]:
    """Start a null experiment, and return once its fault is held and watched, time standing."""
    handle = await world.start(experiment())
    async with asyncio.timeout(PATIENCE_SECONDS):
        while "attach fault" not in world.gateway.acts:
            await asyncio.sleep(0.001)
        world.gateway.step_seconds = 0.0
        while not await _is_watched(handle):
            await asyncio.sleep(0.02)
    return handle


async def _is_watched(handle: WorkflowHandle[Any, Any]) -> bool:
    described = await handle.describe()
    pending = {
        activity.activity_type.name for activity in described.raw_description.pending_activities
    }
    return {"hold_fault", "observe"} <= pending
