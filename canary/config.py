"""What one observation is asked to look for: plain, frozen models and their defaults.

Nothing is decided here. Every field is part of the recorded input of a decision, so fields are
only ever added, with a default that keeps old recordings meaning what they meant.
"""

from typing import Literal

from pydantic import BaseModel, Field, FiniteFloat

from slo.objective import Objective

Mode = Literal["steady", "compare", "remedy", "recovery"]
MetricName = Literal["errors", "slo_bad", "ttft", "e2e", "interruptions", "hidden_errors"]
JUDGE_VERSION: Literal["burnproof-judge/1"] = "burnproof-judge/1"


class JudgeConfig(BaseModel, frozen=True):
    """How two groups are compared; one-sided: is the chaos-like group worse?"""

    judge: Literal["burnproof-judge/1"] = JUDGE_VERSION
    groups: Literal["arms", "treatment"] = "arms"
    """arms: control against chaos. treatment: treated stands for control, holdout for chaos."""
    share: FiniteFloat = Field(gt=0, lt=1)
    """Probability in (0, 1) that a unit is put into the chaos-like group."""
    unit: Literal["conversation", "request"] = "conversation"
    """conversation: at most one event for each unit and metric."""
    alpha: FiniteFloat = Field(default=0.01, gt=0, lt=0.5)
    """Chance of a false alarm over the whole run, and of a false pass, each. In (0, 0.5)."""
    max_requests: int = Field(default=20_000, gt=0)
    """Units in the smaller group after which the comparison ends undecided."""
    margin_errors: FiniteFloat = Field(default=0.01, gt=0, lt=1)
    """A pass proves that the bad ratio is less than this much higher, absolute."""
    fail_ratio_errors: FiniteFloat = Field(default=1.0, ge=1)
    """A fail proves that bad events are more than this many times as frequent."""
    latency_fail_ratio: FiniteFloat = Field(default=1.25, ge=1)
    """A fail proves that latencies are more than this many times as long."""
    latency_pass: dict[str, FiniteFloat] = {"p50": 1.25, "p95": 1.875}
    """A pass proves that each quantile is less than this many times as long."""
    metrics: tuple[MetricName, ...] = Field(default=("errors", "slo_bad", "ttft"), min_length=1)
    stop_on_pass: bool = True
    stop_on_fail: bool = True
    """False: go on after a proven difference, until another stop (a remedy's trigger)."""


class GuardConfig(BaseModel, frozen=True):
    """When to abort: proven burn above a rate, or a proven share of the budget spent."""

    abort_burn_rate: FiniteFloat = Field(gt=0)
    """Multiples of the budget rate."""
    budget_share: FiniteFloat = Field(gt=0)
    """Share of the objective's whole budget, at the observed request rate."""
    window_seconds: FiniteFloat = Field(default=30.0, gt=0)
    min_requests: int = Field(default=100, gt=0)


class TriggerConfig(BaseModel, frozen=True):
    """When a remedy is due: the route's compliance, as a point estimate, is below a ratio."""

    compliance_below: FiniteFloat = Field(gt=0, lt=1)
    window_seconds: FiniteFloat = Field(default=60.0, gt=0)
    min_requests: int = Field(default=1000, gt=0)


class SettleConfig(BaseModel, frozen=True):
    """When an objective counts as met: proven over a trailing window."""

    min_requests: int = Field(gt=0)
    window_seconds: FiniteFloat = Field(gt=0)


class EffectConfig(BaseModel, frozen=True):
    """Which fault item should have been seen to touch requests."""

    item_id: str
    expects_effect: bool
    probability: FiniteFloat = Field(gt=0, le=1)
    """Probability in (0, 1] that an exposed request is touched."""


class ObserveConfig(BaseModel, frozen=True):
    """Everything one observation is told beside its pages."""

    mode: Mode
    objectives: tuple[Objective, ...] = Field(min_length=1)
    judge: JudgeConfig | None = None
    guard: GuardConfig | None = None
    trigger: TriggerConfig | None = None
    settle: SettleConfig | None = None
    effect: EffectConfig | None = None
    accepted_after: FiniteFloat | None = None
    """Only requests accepted after this instant count, unix seconds. The guard counts all."""
    lease_id: str | None = None
    """This lease must be open, and its fault items active, on every page."""
    max_seconds: FiniteFloat = Field(gt=0)
    """Limit on the observation, seconds of the gateway's clock from the first page."""
