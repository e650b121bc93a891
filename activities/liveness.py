"""Ask Temporal about runs: does its code still answer, is it still open.

The difference matters: a run can be open and wedged (a bad deploy), and then its fault must lapse.
A server that cannot be asked is no answer, which counts as silence for a lease but as "open" for a
sweep: neither keeps a fault alive, and neither acts against a live run.
"""

from datetime import timedelta

from temporalio.client import Client, WorkflowExecutionStatus, WorkflowQueryRejectedError
from temporalio.common import QueryRejectCondition
from temporalio.service import RPCError, RPCStatusCode

from activities.ports import Answer


class TemporalRuns:
    """The port `Runs` on a Temporal client."""

    def __init__(self, client: Client) -> None:
        """Take the client."""
        self._client = client

    async def answers(self, workflow_id: str, run_id: str, seconds: float) -> Answer:
        """Query `alive`; a closed run is CLOSED, no answer in time is SILENT."""
        handle = self._client.get_workflow_handle(workflow_id, run_id=run_id)
        try:
            await handle.query(
                "alive",
                reject_condition=QueryRejectCondition.NOT_OPEN,
                rpc_timeout=timedelta(seconds=seconds),
            )
        except WorkflowQueryRejectedError:
            return Answer.CLOSED
        except Exception:  # a failed query, a time-out, a lost server: no sign of life
            return Answer.SILENT
        return Answer.ALIVE

    async def is_open(self, workflow_id: str) -> bool:
        """Tell whether the latest run of that id is open.

        Raises:
            RPCError: the server cannot be asked.
        """
        handle = self._client.get_workflow_handle(workflow_id)
        try:
            found = await handle.describe(rpc_timeout=timedelta(seconds=5))
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise
        return found.status is WorkflowExecutionStatus.RUNNING
