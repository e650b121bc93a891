"""Remove what outlived its run, prove it, and free the hold.

The second line of defence: leases end by themselves at the target, and the sweep is what turns "it
must be gone by now" into proof. A hold is freed only when its run is closed (Temporal says so) and
the gateway shows nothing of it. A run that Temporal cannot be asked about is left alone.
"""

from typing import Any

import structlog
from pydantic import BaseModel
from temporalio import activity

from activities.names import lease_of
from activities.ports import AuditLog, GatewayControl, Holds, Now, Runs
from audit.records import Hold, HoldState

log = structlog.get_logger()

SYSTEM_RUN = "system"
TERMINATED_WHY = (
    "the run ended without its own clean-up (terminated); the sweep proved the target clean"
)


class SweepInput(BaseModel, frozen=True):
    """Nothing to say: everything is looked at."""


class SweepResult(BaseModel, frozen=True):
    """What the sweep did."""

    freed: tuple[str, ...] = ()
    closed_leases: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class Sweeper:
    """Sweep."""

    def __init__(
        self, gateway: GatewayControl, audit: AuditLog, holds: Holds, runs: Runs, now: Now
    ) -> None:
        """Take the ports."""
        self._gateway = gateway
        self._audit = audit
        self._holds = holds
        self._runs = runs
        self._now = now

    @activity.defn(name="sweep")
    async def sweep(self, input: SweepInput) -> SweepResult:
        """Look at every lease and hold; free what dead runs left.

        Raises:
            ApplicationError: a retryable target error when the gateway cannot be asked.
        """
        closed = await self._close_orphans()
        freed: list[str] = []
        left: list[str] = []
        for hold in await self._holds.list_holds():
            if hold.state is not HoldState.HELD or hold.run_id is None:
                continue
            (freed if await self.free(hold) else left).append(str(hold.target))
        return SweepResult(freed=tuple(freed), closed_leases=tuple(closed), left=tuple(left))

    async def free(self, hold: Hold) -> bool:
        """Free one hold if its run is closed and the target is proven clean; tell whether it is."""
        owner = hold.run_id
        if owner is None:
            return False
        run = await self._audit.run(owner)
        if run is not None and await self._is_open(run.workflow_id):
            return False
        receipts = await self._close_all(owner)
        if any(one.get("still_touching") or one.get("state") == "open" for one in receipts):
            return False
        proof = {"by": "sweep", "receipts": receipts}
        await self._holds.release_hold(hold.target, owner, proof, self._now(), by_sweep=True)
        if run is not None and not run.outcome:
            await self._close_record(owner, proof)
        return True

    async def _close_all(self, run_id: str) -> list[dict[str, Any]]:
        """Close every lease of a run; its own also when the gateway shows it closed, or never did.

        The receipt of a repeated close says what the lease still touches, and a close ahead of a
        late opening makes that opening fail.
        """
        shown = await self._gateway.open_leases()
        others = {lease["lease_id"] for lease in shown if lease.get("run_id") == run_id}
        ids = [lease_of(run_id), *sorted(others - {lease_of(run_id)})]
        return [await self._gateway.close_lease(lease_id) for lease_id in ids]

    async def _is_open(self, workflow_id: str) -> bool:
        try:
            return await self._runs.is_open(workflow_id)
        except Exception as error:  # not knowing is treated as open: never act against a live run
            log.warning("cannot ask whether a run is open", workflow=workflow_id, error=repr(error))
            return True

    async def _close_orphans(self) -> list[str]:
        closed = []
        for lease in await self._gateway.open_leases():
            run = await self._audit.run(lease["run_id"])
            if run is None or await self._is_open(run.workflow_id):
                continue  # a stranger's lease ends by itself; a live run's is its own
            await self._gateway.close_lease(lease["lease_id"])
            closed.append(str(lease["lease_id"]))
        return closed

    async def _close_record(self, run_id: str, proof: dict[str, Any]) -> None:
        now = self._now()
        result = {"outcome": "INCONCLUSIVE", "exit_code": 2, "reasons": [TERMINATED_WHY]}
        await self._audit.append(run_id, "swept", "swept", {"proof": proof, **result}, now)
        await self._audit.finish_run(run_id, "INCONCLUSIVE", 2, now)
