"""What a FaultExperiment knows at each moment: its phases, messages, view and result."""

from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from activities.admit import AdmitResult, ParsedExperiment
from activities.approvals import ApprovalEvent
from activities.lease import RemovalProof
from activities.preflight import PreflightResult
from canary.report import ObserveReport
from workflows.remediation_models import RemediationRunResult


class Phase(StrEnum):
    """Where a run stands."""

    PARSING = "parsing"
    ADMITTING = "admitting"
    WAITING_FOR_APPROVAL = "waiting for approval"
    PREFLIGHT = "preflight"
    STEADY_STATE = "steady state"
    INJECTING = "injecting"
    OBSERVING = "observing"
    REMEDIATING = "remediating"
    WITHDRAWING = "withdrawing"
    RECOVERING = "recovering"
    RECORDING = "recording"
    DONE = "done"


class AbortInput(BaseModel, frozen=True):
    """A person's stop. A name typed in the Temporal UI is claimed, not proven."""

    by: str = "unknown"
    reason: str = ""


class ApproveInput(BaseModel, frozen=True):
    """A person's consent to a fault that needs it."""

    by: str = ""
    note: str = ""


class MessageResult(BaseModel, frozen=True):
    """What the run says to a message."""

    accepted: bool
    message: str


class FaultExperimentView(BaseModel, frozen=True):
    """What a watcher sees."""

    run_id: str
    name: str
    phase: Phase
    since: str
    route: str = ""
    receipts: dict[str, Any] = {}
    reports: dict[str, ObserveReport] = {}
    outcome: str = ""
    notes: tuple[str, ...] = ()


class FaultExperimentResult(BaseModel, frozen=True):
    """How a run ended."""

    run_id: str
    outcome: str
    exit_code: int
    reasons: tuple[str, ...] = ()


class Facts:
    """What the body of a run found out, kept apart so that the ending can read it after a crash."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.parsed: ParsedExperiment | None = None
        self.admitted: AdmitResult | None = None
        self.preflight: PreflightResult | None = None
        self.steady: ObserveReport | None = None
        self.compare: ObserveReport | None = None
        self.remedy: RemediationRunResult | None = None
        self.proof: RemovalProof | None = None
        self.recovery: ObserveReport | None = None
        self.admission_tried = False
        self.lease_pushed = False
        self.abort: AbortInput | None = None
        self.approvals: list[ApprovalEvent] = []
        self.cancelled = False
        self.too_little = ""
        self.lease_held = False
        self.lease_end = ""
        self.stopped = ""
        self.failure_kind = ""
        self.failure = ""
