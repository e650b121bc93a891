"""Remove, on a schedule, what outlived its lease; the work is in `activities.sweep`."""

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.sweep import SweepInput, SweepResult
    from workflows import policies


@workflow.defn(name="LeaseSweep", failure_exception_types=[ApplicationError])
class LeaseSweep:
    """Sweep once.

    Holds: nothing.
    Undo: nothing.
    Messages: none.
    Ends with: `SweepResult`: what was freed, closed, left.
    """

    @workflow.run
    async def run(self, input: SweepInput) -> SweepResult:
        """Run the sweep."""
        result: SweepResult = await workflow.execute_activity(
            "sweep", input, result_type=SweepResult, **policies.READ
        )
        return result
