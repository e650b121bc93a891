"""The experiment document: what is asked, in the words of its author.

One frozen model tree. It is strict where a person writes (`faults.parse` forbids unknown keys and
durations without unit) and lenient on the wire (unknown fields of a newer version are ignored).
Here are only the bounds that make sense by themselves; whether the experiment *may run* against a
given target is decided in `faults.blast_radius`. What was hard: every key here must be acted upon
by somebody, since a key that is read and ignored is a promise broken in silence.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, JsonValue, model_validator

from faults.catalog import Fault
from faults.durations import Seconds
from faults.numbers import Count, Name, Number, Probability, Share

_ALIASED = ConfigDict(frozen=True, serialize_by_alias=True)

Metric = Literal["errors", "slo_bad", "ttft", "e2e", "interruptions", "hidden_errors"]
"""What the two arms are compared in."""


Quantile = Literal["p50", "p90", "p95", "p98", "p99"]
LatencyRatio = Annotated[FiniteFloat, Field(strict=True, gt=1, le=100)]


def _default_latency_pass() -> dict[Quantile, LatencyRatio]:
    return {"p50": 1.25, "p95": 1.875}


class Metadata(BaseModel):
    """Who asked for what, under which name."""

    model_config = _ALIASED

    name: Name
    """Name of the experiment: 1 to 100 letters, digits, `.`, `_`, `/`, `-`."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Free labels, kept in the audit trail."""
    requested_by: Annotated[str, Field(alias="requestedBy", max_length=200)] = ""
    """Who asked; the client fills it in. From the Temporal UI it is a claim, not a proof."""
    trigger: Annotated[str, Field(max_length=200)] = ""
    """What started the run: `cli`, `ui`, `schedule`, `ci`; the client fills it in."""


class From(BaseModel, frozen=True):
    """Among which routes the target is chosen."""

    labels: Annotated[dict[str, str], Field(min_length=1)]
    """Labels that a route must all have; at least one, so that nothing is chosen by accident."""


class Target(BaseModel):
    """What is broken: a route by name, or the riskiest route among some."""

    model_config = _ALIASED

    route: Name | None = None
    """Name of the route. Either this or `select`."""
    select: Literal["highest-risk"] | None = None
    """Choose the route most at risk of missing its objective."""
    from_: Annotated[From | None, Field(alias="from")] = None
    """Among which routes to choose; needed with `select`."""

    def labels(self) -> dict[str, str]:
        """Return the labels that a selected route must have; empty when it is named."""
        return dict(self.from_.labels) if self.from_ is not None else {}

    @model_validator(mode="after")
    def _one_way_to_choose(self) -> Self:
        if (self.route is None) == (self.select is None):
            raise ValueError("needs either `route` or `select`, and not both")
        if (self.select is None) != (self.from_ is None):
            raise ValueError("`select` and `from` go together")
        return self


class ChaosArm(BaseModel, frozen=True):
    """The arm that gets the fault."""

    share: Share
    """Share of units in the chaos arm, in (0, 1)."""
    ramp: tuple[Share, ...] = ()
    """Rising shares on the way to `share`, which is the last of them; empty: at once."""
    replicas: tuple[Name, ...] = ()
    """Replicas that serve the arm; empty: one is chosen."""

    @model_validator(mode="after")
    def _ramp_rises_to_share(self) -> Self:
        steps = self.ramp
        if steps and (list(steps) != sorted(set(steps)) or steps[-1] != self.share):
            raise ValueError(f"ramp must rise and end at share ({self.share:g})")
        if len(set(self.replicas)) != len(self.replicas):
            raise ValueError("replicas names one twice")
        return self


class Arms(BaseModel, frozen=True):
    """How traffic is split for the comparison."""

    chaos: ChaosArm
    unit: Literal["conversation", "request"] = "conversation"
    """What is assigned to an arm, and counts at most once a metric."""


class Guard(BaseModel, frozen=True):
    """When the harm is too great to go on: the run aborts and fails."""

    abort_burn_rate: Annotated[Number, Field(gt=0, le=10_000)] = 20.0
    """Abort when the burn rate is surely above this (1 = exactly the budget)."""
    budget_share: Probability = 0.05
    """Abort when this share of the 30-day error budget, at the observed rate, is spent."""
    window: Annotated[Seconds, Field(ge=1, le=600)] = 30.0
    """Trailing window of the burn rate, 1 s to 10 min."""
    min_requests: Annotated[Count, Field(ge=1, le=1_000_000)] = 100
    """Fewest requests in the window for the guard to judge."""


class Judge(BaseModel, frozen=True):
    """How the two arms are compared. The margins are explained in docs/experiments.md."""

    alpha: Annotated[FiniteFloat, Field(strict=True, ge=1e-6, le=0.2)] = 0.01
    """Probability of a false FAIL (and, per metric, of a false PASS)."""
    max_requests: Annotated[Count, Field(ge=100, le=10_000_000)] = 20_000
    """Units per arm after which an open comparison ends INCONCLUSIVE."""
    metrics: Annotated[tuple[Metric, ...], Field(min_length=1)] = ("errors", "slo_bad", "ttft")
    """What is compared; all must pass, one is enough to fail."""
    margin_errors: Annotated[FiniteFloat, Field(strict=True, gt=0, lt=0.5)] = 0.01
    """PASS shows that the chaos arm's bad ratio is less than this above the control's."""
    fail_ratio_errors: Annotated[FiniteFloat, Field(strict=True, ge=1, le=100)] = 1.0
    """FAIL shows that bad events are more than this many times as frequent."""
    latency_fail_ratio: Annotated[FiniteFloat, Field(strict=True, ge=1, le=100)] = 1.25
    """FAIL shows that latencies are more than this many times as long."""
    latency_pass: Annotated[dict[Quantile, LatencyRatio], Field(min_length=1)] = Field(
        default_factory=_default_latency_pass
    )
    """PASS shows that each of these quantiles is less than this many times the control's."""
    stop_on_pass: Annotated[bool, Field(strict=True)] = True
    """End observing as soon as PASS is shown."""

    @model_validator(mode="after")
    def _each_metric_once(self) -> Self:
        if len(set(self.metrics)) != len(self.metrics):
            raise ValueError("metrics names one twice")
        return self


class SteadyState(BaseModel, frozen=True):
    """What must hold before anything is broken."""

    window: Annotated[Seconds, Field(ge=1, le=3600)] = 30.0
    """Time over which the SLOs must be met, 1 s to 1 h."""
    min_requests: Annotated[Count, Field(ge=1, le=1_000_000)] = 50
    """Fewest requests in the window."""
    deadline: Annotated[Seconds, Field(ge=0.1, le=300)] = 10.0
    """Longest a one-token completion may take on each replica, 0.1 s to 5 min."""


class Remediation(BaseModel, frozen=True):
    """What is done about it."""

    policy: dict[str, JsonValue]
    """The remediation policy; in a file: the document itself or its file name."""
    under_fault: Annotated[bool, Field(strict=True)] = True
    """Remedy while the fault still holds, so that cure and end of the fault differ; only `true`."""
    recover_within: Annotated[Seconds, Field(ge=5, le=3600)] = 180.0
    """Longest from the remedial act until the SLOs are met again, 5 s to 1 h."""

    @model_validator(mode="after")
    def _only_under_the_fault(self) -> Self:
        if not self.under_fault:
            raise ValueError("under_fault must be true: after the fault nothing is left to remedy")
        return self


class Recovery(BaseModel, frozen=True):
    """What must hold after the fault was withdrawn."""

    within: Annotated[Seconds, Field(ge=5, le=3600)] = 180.0
    """Longest until the SLOs are met again, 5 s to 1 h. Source: B16, 3 minutes."""
    min_requests: Annotated[Count, Field(ge=1, le=1_000_000)] = 200
    """Fewest requests in the window."""
    window: Annotated[Seconds, Field(ge=1, le=3600)] = 20.0
    """Trailing window over which the SLOs must be met, 1 s to 1 h."""


class LeaseSpec(BaseModel, frozen=True):
    """The dead-man's switch of this run."""

    seconds: Annotated[FiniteFloat, Field(strict=True, gt=0, le=60)] = 20.0
    """How long the fault outlives everything that held it, in seconds; 6 to 60 are admitted."""
    withdraw_within: Annotated[Seconds, Field(ge=5, le=86_400)] = 900.0
    """How long withdrawal is tried before it is called failed and the target is quarantined."""


class Approval(BaseModel, frozen=True):
    """Whether a person must consent before anything is broken."""

    required: Annotated[bool, Field(strict=True)] = False
    """Wait for `approve` by somebody else than who asked."""
    within: Annotated[Seconds, Field(ge=1, le=604_800)] = 3600.0
    """Longest wait, 1 s to 7 days; then the run ends without a fault."""


class Observe(BaseModel, frozen=True):
    """How long is watched."""

    max: Annotated[Seconds, Field(ge=1, le=86_400)] | None = None
    """Longest comparison; default: the fault's duration."""


class ExperimentSpec(BaseModel):
    """One experiment, complete: files that it named are already inside."""

    model_config = _ALIASED

    api_version: Annotated[Literal["burnproof/v1"], Field(alias="apiVersion")]
    """Version of this form of document."""
    kind: Literal["Experiment"]
    """What the document is."""
    metadata: Metadata
    target: Target
    slos: Annotated[tuple[dict[str, JsonValue], ...], Field(min_length=1, max_length=8)]
    """OpenSLO v1 documents, at least one; in a file: documents or file names."""
    hypothesis: Literal["withstands", "recovers"]
    """`withstands`: nothing may get worse. `recovers`: it may, but is met again in time."""
    arms: Arms
    fault: Fault
    """Template, parameters and duration; the duration is an upper limit."""
    guard: Guard = Guard()
    judge: Judge = Judge()
    steady_state: SteadyState = SteadyState()
    remediation: Remediation | None = None
    recovery: Recovery = Recovery()
    lease: LeaseSpec = LeaseSpec()
    approval: Approval = Approval()
    observe: Observe = Observe()

    @property
    def observe_seconds(self) -> float:
        """Longest comparison in seconds."""
        return self.fault.duration if self.observe.max is None else self.observe.max

    @model_validator(mode="after")
    def _watch_no_longer_than_the_fault(self) -> Self:
        if self.observe_seconds > self.fault.duration:
            raise ValueError("observe.max is longer than fault.duration: it would watch no fault")
        return self

    def document(self) -> dict[str, Any]:
        """Return the wire form: JSON types only, durations in seconds; reads back equal."""
        return self.model_dump(mode="json")
