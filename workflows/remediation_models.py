"""Payloads of RemediationRun."""

from pydantic import BaseModel, FiniteFloat

from canary.config import GuardConfig, SettleConfig
from canary.report import ObserveReport
from remediation.actions import ReplicaFacts
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
    recover_within: FiniteFloat
    """Seconds from a remedial act until the objectives are met again."""
    settle: SettleConfig
    guard: GuardConfig
    """The root's guard goes on watching while a remedy is tried."""
    replicas: tuple[ReplicaFacts, ...] = ()
    """Replicas and the breaker threshold in force: a remedy that cannot help is not tried."""


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
    met_again: bool = False
    lease_lost: bool = False
    escalated: bool = False
    why: str
    trials: tuple[Trial, ...] = ()
    recovery: ObserveReport | None = None
