"""A cancel, or an abort, at every step, once and twice. The world is always put back.

The main story is run once to learn its steps; then once more for each step with a cancel sent just
as the activity of that step starts. This is what catches an undo that a cancel can interrupt, and a
cancel that a successful activity swallows. (A cancel sent from inside an activity that is about to
return makes the time-skipping server lose that activity, so it is sent at the start only.)
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import CancelledError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from tests.workflows.conftest import World, mended, open_world
from workflows.state import AbortInput

# The steps of the main story, in order; `test_these_are_the_steps` keeps the list honest.
STEPS = (
    "parse_experiment",
    "admit",
    "preflight",
    "observe",
    "open_lease",
    "hold_fault",
    "inject",
    "observe",
    "plan_remediation",
    "apply_remedy",
    "observe",
    "observe",
    "withdraw",
    "observe",
    "settle_hold",
    "conclude",
)


class Strike(Interceptor):
    """Does something when the n-th activity starts."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.seen: list[str] = []
        self.act: Any = None

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        outer = self

        class Watch(ActivityInboundInterceptor):
            async def execute_activity(self, input: ExecuteActivityInput) -> Any:
                index = len(outer.seen)
                outer.seen.append(input.fn.__self__.__class__.__name__ + "." + input.fn.__name__)
                if index == outer.at:
                    await outer.act()
                return await self.next.execute_activity(input)

        return Watch(next)


async def run_with(strike: Strike, world: World, act: str) -> WorkflowHandle[Any, Any]:
    started: asyncio.Future[WorkflowHandle[Any, Any]] = asyncio.get_running_loop().create_future()

    async def hit() -> None:
        handle = await started
        if act == "abort":
            await handle.signal("abort", AbortInput(by="a person", reason="enough"))
        for _ in range({"cancel": 1, "cancel twice": 2, "abort": 0}[act]):
            await handle.cancel()

    strike.act = hit
    handle = await world.start(mended())
    started.set_result(handle)
    return handle


async def test_these_are_the_steps(time_skipping: WorkflowEnvironment, tmp_path: Path) -> None:
    strike = Strike(-1)
    async with open_world(time_skipping, tmp_path, strike) as world:
        handle = await world.start(mended())
        await handle.result()
        history = await handle.fetch_history()
        names = [
            event.activity_task_scheduled_event_attributes.activity_type.name
            for event in history.events
            if event.HasField("activity_task_scheduled_event_attributes")
        ]
    assert len(strike.seen) == len(STEPS), strike.seen
    assert set(names) <= set(STEPS)


@pytest.mark.parametrize("act", ["cancel", "cancel twice", "abort"])
@pytest.mark.parametrize("at", range(len(STEPS)), ids=[f"{i}-{n}" for i, n in enumerate(STEPS)])
async def test_the_world_is_put_back(
    time_skipping: WorkflowEnvironment, tmp_path: Path, at: int, act: str
) -> None:
    strike = Strike(at)
    async with open_world(time_skipping, tmp_path, strike) as world:
        handle = await run_with(strike, world, act)
        try:
            result = await handle.result()
        except WorkflowFailureError as failed:
            assert isinstance(failed.cause, CancelledError), failed.cause
            result = None
        world.gateway.assert_steady()
        assert all(hold.state == "free" for hold in world.store.list_holds())
        rows = world.store.history()
        if not rows or rows[0].kind != "FaultExperiment":
            return  # struck before admission: nothing was opened
        too_late = STEPS[at] in {"settle_hold", "conclude"}
        assert rows[0].outcome == ("PASS" if too_late else "INCONCLUSIVE"), rows[0]
        assert rows[0].finished_at is not None
        kinds = world.kinds()
        assert kinds.count("injected") <= 1
        if "injected" in kinds:
            assert kinds.index("injected") < kinds.index("withdrawn")
        if result is not None:
            assert result["outcome"] == rows[0].outcome
