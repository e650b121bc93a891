"""Put the arms and the fault in place, and report what was seen there.

Both hang on the run's lease, so whatever happens to the worker they end with it. The receipt is
what the gateway observed after acting, not what was asked. A second attempt finds the items there
and says so (`first` is false): one injection, however often the answer was lost.
"""

from typing import Annotated, Any

from pydantic import BaseModel, Field, FiniteFloat
from temporalio import activity

from activities.ports import AuditLog, GatewayControl, Now


class SplitSpec(BaseModel, frozen=True):
    """How units are divided into arms."""

    experiment: str
    salt: str
    share: FiniteFloat
    control: tuple[str, ...]
    chaos: tuple[str, ...]
    unit: str


class FaultItem(BaseModel, frozen=True):
    """A fault as the gateway takes it."""

    template: str
    parameters: dict[str, Any]
    replicas: tuple[str, ...]
    max_seconds: FiniteFloat
    seed: int
    match: Annotated[dict[str, str], Field(exclude_if=lambda match: not match)] = {}
    """Rule → pattern; what matches not is not met. Not sent when there is none."""


class InjectInput(BaseModel, frozen=True):
    """What to attach to which lease."""

    run_id: str
    lease_id: str
    stage: int = 0
    """Step of the ramp; the split of the step before is replaced."""
    split: SplitSpec
    fault: FaultItem


class InjectResult(BaseModel, frozen=True):
    """What the gateway saw."""

    at: FiniteFloat
    first: bool
    receipt: dict[str, Any]


FAULT_ITEM = "fault"


def split_item(stage: int) -> str:
    """Return the id of the split at one step of the ramp."""
    return f"split-{stage}"


class Injection:
    """Inject."""

    def __init__(self, gateway: GatewayControl, audit: AuditLog, now: Now) -> None:
        """Take the ports."""
        self._gateway = gateway
        self._audit = audit
        self._now = now

    @activity.defn(name="inject")
    async def inject(self, input: InjectInput) -> InjectResult:
        """Attach split, then fault. Writes the intention down first: no trail, no fault.

        Raises:
            ApplicationError: `LeaseClosed` when the lease is over (never retried), or another
                target error.
        """
        intention = input.model_dump(mode="json")
        await self._audit.append(
            input.run_id,
            f"inject:{input.stage}:intended",
            "inject_intended",
            intention,
            self._now(),
        )
        if input.stage:
            await self._gateway.detach(input.lease_id, split_item(input.stage - 1))
        split = await self._gateway.attach(
            input.lease_id,
            split_item(input.stage),
            "split",
            input.split.model_dump(mode="json"),
        )
        fault = await self._gateway.attach(
            input.lease_id, FAULT_ITEM, "fault", input.fault.model_dump(mode="json")
        )
        receipt = {"split": split, "fault": fault}
        await self._audit.append(
            input.run_id, f"injected:{input.stage}", "injected", receipt, self._now()
        )
        return InjectResult(
            at=max(float(split["at"]), float(fault["at"])),
            first=bool(fault["first"]),
            receipt=receipt,
        )
