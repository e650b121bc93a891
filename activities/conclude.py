"""End a run: free or quarantine its hold, decide the outcome, write the record.

Freeing needs the removal proof; without one the hold is quarantined, so nobody acts on that target
until a person has looked. The outcome is a pure decision over what the phases reported, stored with
its whole input so that it can be replayed.
"""

from typing import Annotated

from pydantic import BaseModel, Field
from temporalio import activity

from activities.admit import ParsedExperiment, open_record
from activities.approvals import ApprovalEvent, record_approvals
from activities.lease import RemovalProof
from activities.ports import AuditLog, Holds, Now
from audit.events import decision
from faults.outcome import OutcomeInput, OutcomeReport, decide_outcome


class SettleHoldInput(BaseModel, frozen=True):
    """What became of a run's clean-up."""

    run_id: str
    proof: RemovalProof | None = None
    failed: tuple[str, ...] = ()
    nothing_injected: bool = False


class SettleHoldResult(BaseModel, frozen=True):
    """The targets whose holds were settled, and how."""

    freed: tuple[str, ...] = ()
    quarantined: tuple[str, ...] = ()


class ConcludeInput(BaseModel, frozen=True):
    """Everything that the outcome rests on."""

    run_id: str
    workflow_id: str
    parsed: ParsedExperiment
    decision: OutcomeInput
    approvals: Annotated[tuple[ApprovalEvent, ...], Field(exclude_if=lambda told: not told)] = ()
    """What was heard while the run waited for consent; known already unless it ended there."""


class Conclusion:
    """Settle the hold and conclude the run."""

    def __init__(self, audit: AuditLog, holds: Holds, now: Now, engine: str = "") -> None:
        """Take the ports, and the engine that stands in each record."""
        self._audit = audit
        self._holds = holds
        self._now = now
        self._engine = engine

    @activity.defn(name="settle_hold")
    async def settle_hold(self, input: SettleHoldInput) -> SettleHoldResult:
        """Free every hold of the run when clean-up is proven; quarantine it otherwise."""
        freed, quarantined = [], []
        proven = input.nothing_injected or (input.proof is not None and input.proof.is_proven())
        for hold in await self._holds.list_holds():
            if hold.run_id != input.run_id or hold.state != "held":
                continue
            if proven and not input.failed:
                proof = {"by": "run", "nothing_injected": input.nothing_injected}
                if input.proof is not None:
                    proof["removal"] = input.proof.model_dump(mode="json")
                await self._holds.release_hold(hold.target, input.run_id, proof, self._now())
                freed.append(str(hold.target))
            else:
                reason = "not proven clean: " + (", ".join(input.failed) or "no removal receipt")
                await self._holds.quarantine_hold(hold.target, input.run_id, reason, self._now())
                quarantined.append(str(hold.target))
        return SettleHoldResult(freed=tuple(freed), quarantined=tuple(quarantined))

    @activity.defn(name="conclude")
    async def conclude(self, input: ConcludeInput) -> OutcomeReport:
        """Decide and record; a repeat returns what was recorded first."""
        report = decide_outcome(input.decision)
        payload = decision("outcome/1", input.decision, report)
        now = self._now()
        await open_record(
            self._audit, input.run_id, input.workflow_id, input.parsed, now, self._engine
        )
        await record_approvals(self._audit, input.run_id, input.approvals, self._now)
        stored = await self._audit.append(
            input.run_id, "decision:outcome", "decision", payload, now
        )
        report = OutcomeReport.model_validate(stored.stored["result"])
        await self._audit.finish_run(input.run_id, report.outcome, report.exit_code, now)
        return report
