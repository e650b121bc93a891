"""Payloads of RemediationRun."""

from pydantic import BaseModel, FiniteFloat

from canary.config import SettleConfig
from canary.report import ObserveReport
from remediation.policy import RemediationPolicy
from slo.objective import Objective


class RemediationRunInput(BaseModel, frozen=True):
    """A burning route under a root run's hold and lease."""

    root_run_id: str
    lease_id: str
    route: str
    objectives: tuple[Objective, ...]
    policy: RemediationPolicy
    compliance: FiniteFloat
    requests: int
    triggered_at: FiniteFloat
    """Seconds, the gateway's clock: the limit on recovery counts from here."""
    recover_within: FiniteFloat
    settle: SettleConfig


class Trial(BaseModel, frozen=True):
    """One remedy that was tried."""

    item_id: str
    action: str
    effective: bool
    kept: bool
    why: str
    report: ObserveReport


class RemediationRunResult(BaseModel, frozen=True):
    """What became of it."""

    effective: bool
    met_again: bool
    lease_lost: bool = False
    escalated: bool = False
    why: str
    trials: tuple[Trial, ...] = ()
    recovery: ObserveReport | None = None
