"""What a person may say to a FaultExperiment, and what a watcher may ask it.

A base class and not a part of the workflow file, so that the loop itself fits a few screens. The
handlers only set facts or cancel the body; what follows from that is the workflow's own ending.
"""

import asyncio
from datetime import datetime

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.approvals import ApprovalEvent, ApprovalKind
    from workflows import endings
    from workflows.state import (
        AbortInput,
        ApproveInput,
        Facts,
        FaultExperimentView,
        MessageResult,
        Phase,
    )

MOST_REFUSALS = 20
"""Refused approvals that a run remembers. Source: ours, 2026-12; anybody may send any number."""


class Conversation:
    """Handlers of `abort` and `approve` (updates and signals alike), `view` and `alive`."""

    _facts: Facts
    _body: "asyncio.Task[None] | None"
    _approval: ApproveInput | None
    _phase: Phase
    _since: datetime
    _notes: list[str]
    _outcome: str
    _name: str
    _run_id: str

    def _abort(self, command: AbortInput) -> MessageResult:
        if self._body is not None and self._body.done():
            return MessageResult(accepted=False, message="the run is already ending")
        if self._facts.abort is None:
            self._facts.abort = command
            if self._body is not None:  # else it has not begun, and looks before its first step
                self._body.cancel()
        return MessageResult(accepted=True, message="withdrawing now")

    @workflow.update(name="abort")
    def abort(self, command: AbortInput) -> MessageResult:
        """Stop, withdraw, end INCONCLUSIVE."""
        return self._abort(command)

    @workflow.signal(name="abort")
    def abort_signal(self, command: AbortInput) -> None:
        """Do the same for UIs that cannot send updates."""
        self._abort(command)

    def _approve(self, command: ApproveInput) -> MessageResult:
        parsed = self._facts.parsed
        if self._phase is not Phase.WAITING_FOR_APPROVAL:
            return MessageResult(accepted=False, message="the run does not wait for approval")
        if not command.by:
            return self._refuse(command, "say who approves: by")
        if parsed is not None and command.by == parsed.spec.metadata.requested_by:
            return self._refuse(command, "who asked cannot approve")
        if self._approval is None:
            self._hear("approved", command)
            self._approval = command
        return MessageResult(accepted=True, message="approved")

    def _refuse(self, command: ApproveInput, why: str) -> MessageResult:
        refused = sum(told.kind == "approval_refused" for told in self._facts.approvals)
        if refused < MOST_REFUSALS:
            self._hear("approval_refused", command, why)
        return MessageResult(accepted=False, message=why)

    def _hear(self, kind: ApprovalKind, command: ApproveInput, why: str = "") -> None:
        """Keep what was said of consent until an activity writes it down."""
        at = workflow.now().isoformat()
        told = ApprovalEvent(kind=kind, at=at, by=command.by, note=command.note, why=why)
        self._facts.approvals.append(told)

    @workflow.update(name="approve")
    def approve(self, command: ApproveInput) -> MessageResult:
        """Consent to a fault that needs it; never by the one who asked."""
        return self._approve(command)

    @workflow.signal(name="approve")
    def approve_signal(self, command: ApproveInput) -> None:
        """Do the same for UIs that cannot send updates."""
        self._approve(command)

    @workflow.query(name="view")
    def view(self) -> FaultExperimentView:
        """Show where the run stands."""
        return endings.view(
            self._facts,
            FaultExperimentView(
                run_id=self._run_id,
                name=self._name,
                phase=self._phase,
                since=self._since.isoformat(),
                outcome=self._outcome,
                notes=tuple(self._notes),
            ),
        )

    @workflow.query(name="alive")
    def alive(self) -> str:
        """Answer: that is the sign of life that renewals of the lease depend on."""
        return self._phase
