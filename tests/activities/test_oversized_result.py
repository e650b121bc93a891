"""Temporal retries a result above its limit until time is over; ours ends the run, cleaned up."""

from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from canary.report import ObserveReport
from tests.workflows.conftest import experiment, open_server, open_world


class Bloat(Interceptor):
    """Makes 3 MB of the report of the comparison."""

    def __init__(self) -> None:
        self.bloated = 0

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        outer = self

        class Blow(ActivityInboundInterceptor):
            async def execute_activity(self, input: ExecuteActivityInput) -> Any:
                result = await self.next.execute_activity(input)
                if isinstance(result, ObserveReport) and result.mode == "compare":
                    outer.bloated += 1
                    return result.model_copy(update={"why": "x" * 3_000_000})
                return result

        return Blow(next)


async def test_a_result_of_three_megabytes_ends_the_run_once_with_its_clean_up_done(
    tmp_path: Path,
) -> None:
    bloat = Bloat()
    async with open_server() as server, open_world(server, tmp_path, bloat) as world:
        handle = await world.start(experiment())
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
        assert isinstance(failed.value.cause, ApplicationError)
        assert failed.value.cause.type == "PayloadTooLarge"
        assert bloat.bloated == 1, "it was tried again"
        world.gateway.assert_steady()
        kinds = world.kinds()
        assert kinds.index("injected") < kinds.index("withdrawn")
        assert [hold.state for hold in world.store.list_holds()] == ["free"]
        assert world.store.history()[0].outcome == "CONFIGURATION", "our machinery, not the target"
