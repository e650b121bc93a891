"""Which run a person means: by run id, the beginning of one, or workflow id.

Asked of Temporal and not of the record, so that a run can be aborted without the database.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from temporalio.client import Client, WorkflowExecutionStatus

from workflows import ids

LOOK_AGAIN_SECONDS = 1.5
"""Pause before a second look. Source: ours: the server lists a new run after up to a second."""


@dataclass(frozen=True)
class Listed:
    """One run as the server lists it."""

    workflow_id: str
    temporal_run_id: str
    closed_at: datetime | None = None
    """None: it is open."""

    @property
    def run_id(self) -> str:
        """The id that people use."""
        name = self.workflow_id.split("/")[1] if self.workflow_id.count("/") == 2 else ""
        return ids.run_id(name, self.temporal_run_id)


def matching(given: str, listed: Sequence[Listed]) -> list[Listed]:
    """Return the runs that `given` may mean: one of that very id, else all that begin so."""
    same = [run for run in listed if given in (run.run_id, run.workflow_id)]
    if same or not given:
        return same
    return [
        run for run in listed if run.run_id.startswith(given) or run.workflow_id.startswith(given)
    ]


def choose(given: str, listed: Sequence[Listed]) -> Listed:
    """Return the one run that `given` means; an open one before those that ended.

    Raises:
        ValueError: none or several; the message lists those that can be named.
    """
    found = matching(given, listed)
    chosen = [run for run in found if run.closed_at is None] or found
    if len(chosen) == 1:
        return chosen[0]
    if chosen:
        names = ", ".join(run.run_id for run in chosen)
        raise ValueError(f"{len(chosen)} runs are named {given!r}: say which of {names}")
    now = ", ".join(run.run_id for run in listed if run.closed_at is None)
    raise ValueError(f"no run is named {given!r}; open now: {now or 'none'}")


async def find(client: Client, given: str) -> Listed:
    """Ask the server which run is meant.

    Raises:
        ValueError: none or several.
    """
    listed = await _experiments(client)
    if not matching(given, listed):
        await asyncio.sleep(LOOK_AGAIN_SECONDS)
        listed = await _experiments(client)
    return choose(given, listed)


async def _experiments(client: Client) -> list[Listed]:
    return [
        Listed(
            workflow_id=run.id,
            temporal_run_id=run.run_id,
            closed_at=None if run.status is WorkflowExecutionStatus.RUNNING else run.close_time,
        )
        async for run in client.list_workflows('WorkflowType = "FaultExperiment"')
    ]
