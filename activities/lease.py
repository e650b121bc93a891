"""Hold a fault alive while its run lives, and withdraw it with proof.

`hold_fault` is a dead-man's switch turned round: it renews the lease only while the run's own code
answers, so a run that was terminated, or wedged by a bad deploy, lets the fault lapse at the
target. `withdraw` closes the lease (so nothing can be attached again), waits until no request is
still touched, and looks from inside the path. It must never depend on the audit database: what it
saw is its result, and is written down when that is possible.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import structlog
from pydantic import BaseModel, FiniteFloat
from temporalio import activity

from activities.errors import passing
from activities.heartbeats import heartbeats
from activities.ports import Answer, AuditLog, GatewayControl, Holds, Json, Now, Runs, Sleep
from slo.records import Page
from targets.errors import TargetError, TargetNotFound, TargetRejected

# Source: design: a run that stays silent for 10 s gets no more renewals.
SILENCE_LIMIT_SECONDS = 10.0
ANSWER_SECONDS = 3.0
# Source: ours, 2026-12: a database that hangs must not eat into a lease of 20 s, nor into undo.
AUDIT_SECONDS = 3.0
# Source: ours, 2026-12: the longest stall a template allows (60 s) ends at removal, not by waiting.
DRAIN_SECONDS = 20.0
PROBE_SECONDS = 5.0

log = structlog.get_logger()


class OpenLeaseInput(BaseModel, frozen=True):
    """A lease to open."""

    run_id: str
    lease_id: str
    route: str
    seconds: FiniteFloat


class OpenLeaseResult(BaseModel, frozen=True):
    """The lease as the gateway shows it."""

    state: str
    now: FiniteFloat


class HoldFaultInput(BaseModel, frozen=True):
    """What to keep alive, and for whom."""

    run_id: str
    lease_id: str
    hold: str
    seconds: FiniteFloat
    renew_seconds: FiniteFloat = 5.0


class HoldFaultResult(BaseModel, frozen=True):
    """Why the renewing ended."""

    ended: str
    renewals: int


class WithdrawInput(BaseModel, frozen=True):
    """A lease to close, and where to look for proof."""

    run_id: str
    lease_id: str
    route: str
    model: str
    replicas: tuple[str, ...]


class RemovalProof(BaseModel, frozen=True):
    """What was seen after the lease was closed."""

    at: FiniteFloat
    """Gateway clock at the proof, unix seconds."""
    lease_state: str
    still_touching: int
    active_items: tuple[str, ...] = ()
    probes: dict[str, int] = {}
    """Status of a one-token completion by replica; 0: no answer."""
    still_exposed: tuple[str, ...] = ()
    """Faults that the journal shows on those probes: the look from inside the path."""
    lapsed_before: bool = False

    def is_proven(self) -> bool:
        """Tell whether nothing of the lease can act any more."""
        acting = self.still_touching or self.active_items or self.still_exposed
        return self.lease_state != "open" and not acting


@dataclass
class Renewals:
    """How often a lease was renewed, and when the run last showed life, unix seconds."""

    answered_at: float
    count: int = 0


class Leases:
    """Open, hold and withdraw."""

    def __init__(
        self,
        gateway: GatewayControl,
        audit: AuditLog,
        holds: Holds,
        runs: Runs,
        now: Now,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Take the ports."""
        self._gateway = gateway
        self._audit = audit
        self._holds = holds
        self._runs = runs
        self._now = now
        self._sleep = sleep

    @activity.defn(name="open_lease")
    async def open_lease(self, input: OpenLeaseInput) -> OpenLeaseResult:
        """Open the run's one lease at the gateway; nothing is broken yet.

        Raises:
            ApplicationError: `LeaseClosed`, `TargetStopped` or `TargetRejected` (never retried), or
                a retryable target error.
        """
        seen = await self._gateway.open_lease(
            input.lease_id, input.run_id, input.route, input.seconds
        )
        state = await self._gateway.state()
        await self._audit.append(input.run_id, "lease", "lease_opened", seen, self._now())
        return OpenLeaseResult(state=str(seen["state"]), now=float(state["now"]))

    @activity.defn(name="hold_fault")
    async def hold_fault(self, input: HoldFaultInput) -> HoldFaultResult:
        """Renew lease and hold while the run answers; return why it stopped."""
        info = activity.info()
        workflow_id, workflow_run_id = info.workflow_id, info.workflow_run_id
        assert workflow_id is not None and workflow_run_id is not None, "called by a workflow"
        # The run was alive when it asked for this: a worker that is lost before the first answer
        # must not look like a run that never answered.
        renewals = Renewals(answered_at=info.scheduled_time.timestamp())
        if info.heartbeat_details:
            renewals.answered_at = float(info.heartbeat_details[0])
        async with heartbeats(lambda: renewals.answered_at):
            ended = await self._hold(input, (workflow_id, workflow_run_id), renewals)
        return HoldFaultResult(ended=ended, renewals=renewals.count)

    async def _hold(self, input: HoldFaultInput, run: tuple[str, str], renewals: Renewals) -> str:
        clock = asyncio.get_running_loop().time
        began = clock()
        # Credit moves with the beat to another worker: a fresh ten seconds at each move would keep
        # the fault of a wedged run alive.
        silent_before = self._now().timestamp() - renewals.answered_at
        last_answer = began - max(0.0, silent_before)
        if clock() - last_answer <= SILENCE_LIMIT_SECONDS:
            await self._renew(input, renewals)
        while True:
            answer = await self._runs.answers(*run, ANSWER_SECONDS)
            if answer is Answer.CLOSED:
                return "run_closed"
            if answer is Answer.ALIVE:
                last_answer = clock()
                renewals.answered_at = self._now().timestamp()
            elif clock() - max(last_answer, began) > SILENCE_LIMIT_SECONDS:
                log.warning("run is silent, letting its lease lapse", run=input.run_id)
                return "run_silent"
            if clock() - last_answer > SILENCE_LIMIT_SECONDS:
                await self._sleep(min(1.0, input.renew_seconds))
                continue
            over = await self._renew(input, renewals)
            if over is not None:
                return over
            await self._sleep(input.renew_seconds)

    async def _renew(self, input: HoldFaultInput, renewals: Renewals) -> str | None:
        """Renew the lease once; say why it is over, or nothing."""
        try:
            await self._gateway.renew_lease(input.lease_id, input.seconds)
        except (TargetRejected, TargetNotFound) as gone:
            return gone.code or "lease_closed"
        except TargetError as error:
            log.warning("lease not renewed", run=input.run_id, error=str(error))
            return None
        renewals.count += 1
        await self._renew_hold(input)
        return None

    async def _renew_hold(self, input: HoldFaultInput) -> None:
        try:
            async with asyncio.timeout(AUDIT_SECONDS):
                await self._holds.renew_hold(input.hold, input.run_id, input.seconds, self._now())
        except Exception as error:  # the hold stays held when it cannot be renewed
            log.warning("hold not renewed", run=input.run_id, error=repr(error)[:200])

    @activity.defn(name="withdraw")
    async def withdraw(self, input: WithdrawInput) -> RemovalProof:
        """Close the lease and prove that nothing of it acts any more.

        Raises:
            ApplicationError: `NotWithdrawn` while the proof is missing (retried).
        """
        try:
            async with heartbeats(lambda: "withdrawing"):
                receipt, proof = await self._close(input)
        except TargetError as error:
            raise passing("NotWithdrawn", str(error)) from error
        if not proof.is_proven():
            raise passing("NotWithdrawn", f"the gateway still shows the lease: {proof}")
        await self._note(input.run_id, receipt, proof)
        return proof

    async def _close(self, input: WithdrawInput) -> tuple[Json, RemovalProof]:
        clock = asyncio.get_running_loop().time
        deadline = clock() + DRAIN_SECONDS
        receipt = await self._gateway.close_lease(input.lease_id)
        while receipt.get("still_touching") and clock() < deadline:
            await self._sleep(0.2)
            receipt = await self._gateway.close_lease(input.lease_id)
        probes = {}
        for replica in input.replicas:
            seen = await self._gateway.probe(input.model, replica, PROBE_SECONDS)
            probes[replica] = int(seen["status"])
        active = await self._active_items(input.lease_id)
        exposed = await self._exposed_probes(input.route, float(receipt["at"]))
        return receipt, RemovalProof(
            at=float((await self._gateway.state())["now"]),
            lease_state=str(receipt["state"]),
            still_touching=int(receipt.get("still_touching", 0)),
            active_items=active,
            probes=probes,
            still_exposed=exposed,
            lapsed_before=str(receipt["state"]) in {"lapsed", "dropped"},
        )

    async def _active_items(self, lease_id: str) -> tuple[str, ...]:
        for lease in await self._gateway.open_leases():
            if lease.get("id", lease.get("lease_id")) == lease_id:
                return tuple(sorted(lease.get("items", {})))
        return ()

    async def _exposed_probes(self, route: str, since: float) -> tuple[str, ...]:
        """Return the faults that probes accepted since the close still met."""
        met: set[str] = set()
        page = Page.from_json(await self._gateway.journal(route, tail_seconds=DRAIN_SECONDS))
        while True:
            for record in page.records:
                if record.probe and record.accepted >= since:
                    met.update(record.exposed, record.touched)
            if not page.more:
                return tuple(sorted(met))
            raw = await self._gateway.journal(route, after=page.next, cursors=page.cursors)
            page = Page.from_json(raw)

    async def _note(self, run_id: str, receipt: Json, proof: RemovalProof) -> None:
        payload: dict[str, Any] = {"receipt": receipt, "proof": proof.model_dump(mode="json")}
        try:
            async with asyncio.timeout(AUDIT_SECONDS):
                await self._audit.append(run_id, "withdrawn", "withdrawn", payload, self._now())
        except Exception as error:  # withdrawal never depends on the audit database
            log.error("withdrawal not yet on the trail", run=run_id, error=repr(error)[:200])
