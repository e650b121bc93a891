"""Apply a trial remedy on part of the traffic, and take it back.

A remedy hangs on the root run's lease, so it ends with it whoever dies; a hold-out share of units
stays on the old setting, which is what the remedy is judged against.
"""

import asyncio
from datetime import timedelta

import structlog
from pydantic import BaseModel, FiniteFloat
from temporalio import activity

from activities.errors import passing
from activities.lease import AUDIT_SECONDS
from activities.ports import AuditLog, GatewayControl, Json, Now
from audit.canonical import parse_stamp
from audit.events import decision
from remediation.actions import Action, fingerprint
from remediation.plan import Plan, PlanInput, plan
from targets.errors import TargetError

INTENDED = "remedy_intended"
"""Kind of the event before a trial: what the cooldown of later runs rests on."""

log = structlog.get_logger()


class PlanRemediationInput(BaseModel, frozen=True):
    """What is known, for one more plan."""

    run_id: str
    route: str
    given: PlanInput
    """`seconds_since` is filled in here."""


class ApplyRemedyInput(BaseModel, frozen=True):
    """One trial."""

    run_id: str
    route: str
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
        """Turn a diagnosis into ordered actions; a repeat returns what was recorded first."""
        now, cooldown = self._now(), timedelta(seconds=input.given.policy.limits.cooldown)
        seconds_since = {
            str(event.payload["fingerprint"]): (now - parse_stamp(event.at)).total_seconds()
            for event in await self._audit.events_since(INTENDED, now - cooldown)
            if event.payload.get("route") == input.route and event.run_id != input.run_id
        }
        given = input.given.model_copy(update={"seconds_since": seconds_since})
        payload = decision("plan/1", given, plan(given))
        key = f"decision:plan:{len(given.tried)}"
        stored = await self._audit.append(input.run_id, key, "decision", payload, now)
        return Plan.model_validate(stored.stored["result"])

    @activity.defn(name="apply_remedy")
    async def apply(self, input: ApplyRemedyInput) -> ApplyRemedyResult:
        """Attach the remedy to the lease.

        Raises:
            ApplicationError: `LeaseClosed` when the lease is over (never retried).
        """
        spec = {
            "threshold_ratio": input.action.threshold_ratio,
            "holdout_share": input.action.holdout_share,
            "salt": input.salt,
            "replicas": ["*"],
        }
        key = f"remedy:{input.item_id}"
        told = {"route": input.route, "fingerprint": fingerprint(input.action), **spec}
        await self._audit.append(input.run_id, f"{key}:intended", INTENDED, told, self._now())
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
