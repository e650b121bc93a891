"""Apply a trial remedy on part of the traffic, and take it back.

A remedy hangs on the root run's lease, so it ends with it whoever dies; a hold-out share of units
stays on the old setting, which is what the remedy is judged against.
"""

import asyncio

import structlog
from pydantic import BaseModel, FiniteFloat
from temporalio import activity

from activities.errors import passing
from activities.lease import AUDIT_SECONDS
from activities.ports import AuditLog, GatewayControl, Json, Now
from audit.events import decision
from remediation.actions import Action
from remediation.plan import Plan, PlanInput, plan
from targets.errors import TargetError

log = structlog.get_logger()


class PlanRemediationInput(BaseModel, frozen=True):
    """What is known, for one more plan."""

    run_id: str
    given: PlanInput


class ApplyRemedyInput(BaseModel, frozen=True):
    """One trial."""

    run_id: str
    lease_id: str
    item_id: str
    trial: int
    action: Action
    salt: str


class ApplyRemedyResult(BaseModel, frozen=True):
    """What the gateway saw."""

    at: FiniteFloat
    receipt: Json


class RevertRemedyInput(BaseModel, frozen=True):
    """A trial to take back."""

    run_id: str
    lease_id: str
    item_id: str
    why: str


class RevertRemedyResult(BaseModel, frozen=True):
    """What is left of it (nothing)."""

    state: str


class Remedies:
    """Plan, apply, revert."""

    def __init__(self, gateway: GatewayControl, audit: AuditLog, now: Now) -> None:
        """Take the ports."""
        self._gateway = gateway
        self._audit = audit
        self._now = now

    @activity.defn(name="plan_remediation")
    async def plan(self, input: PlanRemediationInput) -> Plan:
        """Turn a diagnosis into ordered actions, and put the decision on the trail."""
        found = plan(input.given)
        payload = decision("plan/1", input.given, found)
        key = f"decision:plan:{input.given.tried}"
        await self._audit.append(input.run_id, key, "decision", payload, self._now())
        return found

    @activity.defn(name="apply_remedy")
    async def apply(self, input: ApplyRemedyInput) -> ApplyRemedyResult:
        """Attach the remedy to the lease.

        Raises:
            ApplicationError: `TargetRejected` when the lease is closed (never retried).
        """
        spec = {
            "threshold_ratio": input.action.threshold_ratio,
            "holdout_share": input.action.holdout_share,
            "salt": input.salt,
            "replicas": ["*"],
        }
        key = f"remedy:{input.item_id}"
        await self._audit.append(
            input.run_id, f"{key}:intended", "remedy_intended", spec, self._now()
        )
        receipt = await self._gateway.attach(input.lease_id, input.item_id, "breaker", spec)
        await self._audit.append(input.run_id, key, "remedy_applied", receipt, self._now())
        return ApplyRemedyResult(at=float(receipt["at"]), receipt=receipt)

    @activity.defn(name="revert_remedy")
    async def revert(self, input: RevertRemedyInput) -> RevertRemedyResult:
        """Detach the remedy; one that was never applied, or went with its lease, is reverted.

        Raises:
            ApplicationError: `NotReverted` while the gateway does not confirm (retried).
        """
        try:
            receipt = await self._gateway.detach(input.lease_id, input.item_id)
        except TargetError as error:
            raise passing("NotReverted", str(error)) from error
        payload = {"why": input.why, "receipt": receipt}
        key = f"remedy:{input.item_id}:reverted"
        try:
            async with asyncio.timeout(AUDIT_SECONDS):
                await self._audit.append(input.run_id, key, "remedy_reverted", payload, self._now())
        except Exception as error:  # an undo never depends on the audit database
            log.error("revert not on the trail", run=input.run_id, error=repr(error)[:200])
        return RevertRemedyResult(state=str(receipt["state"]))
