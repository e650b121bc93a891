"""May this experiment run here? Decided before anything is broken.

`admit` is given the experiment, the replicas that it resolved to, the limits of this installation
and the traffic seen, and returns problems (it must not run) and warnings (it may, and this is what
to expect). It holds nothing and asks nobody. What was hard is the guard: a guard that cannot fire
looks exactly like a guard. Since no more than every request can be bad, a burn rate has a ceiling
of 1/(1 − objective), and the proof of it from few requests an even lower one; both are computed
here, and a guard above them is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Final, Literal

from pydantic import BaseModel, Field, FiniteFloat

from faults.catalog import BlastClass, StreamStallFault, template_info
from faults.durations import format_duration
from faults.experiment import ExperimentSpec
from faults.feasibility import LEAST_RATE, ExpectedPlan, expected_plan
from faults.parse import objectives
from slo.errors import SpecErrors
from slo.objective import Objective

_TAIL: Final = 0.025
"""One tail of the burn interval. Source: 95 % Clopper-Pearson, as the guard uses it."""

_CLASSES: Final = tuple(BlastClass)


class Limits(BaseModel, frozen=True):
    """What this installation allows at most."""

    chaos_share: FiniteFloat = 0.5
    """Share of traffic in the chaos arm, ratio in [0, 1]."""
    chaos_replica_share: FiniteFloat = 0.5
    """Share of the replicas that may be broken, ratio in [0, 1]."""
    min_duration: FiniteFloat = 10.0
    """Shortest fault, seconds."""
    max_duration: FiniteFloat = 3600.0
    """Longest fault, seconds."""
    min_lease: FiniteFloat = 6.0
    """Shortest lease, seconds. Source: renewed every 5 s at most, and one of them may fail."""
    max_lease: FiniteFloat = 60.0
    """Longest lease, seconds."""
    blast: BlastClass = BlastClass.BREAKS
    """Worst class of fault."""


class AdmitInput(BaseModel, frozen=True):
    """Everything that admission rests on."""

    spec: ExperimentSpec
    objectives: tuple[Objective, ...] = ()
    """What its SLOs say; empty: they are read from the experiment."""
    control: tuple[str, ...]
    """Replicas of the control arm."""
    chaos: tuple[str, ...]
    """Replicas of the chaos arm."""
    limits: Limits = Limits()
    rate: FiniteFloat | None = Field(default=None, ge=0)
    """Requests per second of the route; None: not known."""
    bad_ratio: FiniteFloat = Field(default=0.0, ge=0, le=1)
    """Share of bad requests before the fault, ratio in [0, 1]."""
    requests_per_unit: FiniteFloat = Field(default=1.0, ge=1)
    """Mean requests of a conversation."""


class Finding(BaseModel, frozen=True):
    """One thing that speaks against running, or that is good to know."""

    code: str
    level: Literal["problem", "warning"]
    path: str
    """Key of the experiment that it is about."""
    message: str


class AdmitReport(BaseModel, frozen=True):
    """Whether the experiment may run, why not, and what to expect."""

    admitted: bool
    problems: tuple[Finding, ...]
    warnings: tuple[Finding, ...]
    plan: ExpectedPlan

    @property
    def refusals(self) -> tuple[str, ...]:
        """The problems, one line each."""
        return tuple(f"{item.path}: {item.message}" for item in self.problems)


def admit(given: AdmitInput) -> AdmitReport:
    """Return whether the experiment may run here; any problem forbids it."""
    if given.rate is not None and given.rate < LEAST_RATE:
        given = given.model_copy(update={"rate": 0.0})
    spec = given.spec
    plan = expected_plan(spec, given.rate, given.bad_ratio, given.requests_per_unit)
    findings = [*_radius(given), *_replicas(given), *_match(given), *_lengths(given)]
    try:
        promised = given.objectives or objectives(spec)
    except SpecErrors as errors:
        promised = ()
        findings += [_problem("slo", e.path, f"cannot be evaluated: {e}") for e in errors.errors]
    for objective in promised:
        findings += [*_guard(given, objective), *_recovery(given, objective)]
    findings += [*_signals(spec, promised), *_power(given, plan)]
    problems = tuple(item for item in findings if item.level == "problem")
    warnings = tuple(item for item in findings if item.level == "warning")
    return AdmitReport(admitted=not problems, problems=problems, warnings=warnings, plan=plan)


def static_problems(spec: ExperimentSpec) -> tuple[Finding, ...]:
    """Return what forbids the experiment on any target and under any traffic."""
    given = AdmitInput(spec=spec, control=(), chaos=())
    findings = [*_radius(given), *_match(given), *_lengths(given)]
    for objective in objectives(spec):
        findings += _ceiling(spec, objective)
    findings += _power(given, expected_plan(spec, None))
    return tuple(item for item in findings if item.level == "problem")


def _problem(code: str, path: str, message: str) -> Finding:
    return Finding(code=code, level="problem", path=path, message=message)


def _warning(code: str, path: str, message: str) -> Finding:
    return Finding(code=code, level="warning", path=path, message=message)


def _radius(given: AdmitInput) -> Iterator[Finding]:
    share, limits = given.spec.arms.chaos.share, given.limits
    if share > limits.chaos_share:
        message = f"{share:g} of the traffic is more than the {limits.chaos_share:g} allowed here"
        yield _problem("share", "arms.chaos.share", message)
    info = template_info(given.spec.fault.template)
    if _CLASSES.index(info.blast) > _CLASSES.index(limits.blast):
        message = f'{info.id} {info.blast}, and at most "{limits.blast}" is allowed here'
        yield _problem("blast", "fault.template", message)


def _replicas(given: AdmitInput) -> Iterator[Finding]:
    path, control, chaos = "arms.chaos.replicas", given.control, given.chaos
    both = sorted(set(control) & set(chaos))
    if both:
        yield _problem("arms", path, f"{', '.join(both)} would serve both arms")
    if not control or not chaos:
        yield _problem("arms", path, "one replica at least is needed for each arm")
        return
    total = len(set(control) | set(chaos))
    part = len(set(chaos)) / total
    if part > given.limits.chaos_replica_share:
        allowed = given.limits.chaos_replica_share
        message = f"{len(set(chaos))} of {total} replicas is more than the {allowed:g} allowed here"
        yield _problem("replicas", path, message)
    share = given.spec.arms.chaos.share
    if {"ttft", "e2e"} & set(given.spec.judge.metrics) and not math.isclose(part, share):
        message = (
            f"the chaos arm gets {share:g} of the traffic on {part:.3g} of the replicas: unequal "
            f"load alone makes latencies differ; equal at share {part:.3g}"
        )
        yield _warning("unequal_load", "arms.chaos.share", message)


def _match(given: AdmitInput) -> Iterator[Finding]:
    arm = given.spec.fault.match.arm
    if arm is not None and not fnmatchcase("chaos", arm):
        message = f'"{arm}" never matches: the fault is on the replicas of the arm "chaos"'
        yield _problem("match", "fault.match.arm", message)


def _lengths(given: AdmitInput) -> Iterator[Finding]:
    limits, duration = given.limits, given.spec.fault.duration
    if not limits.min_duration <= duration <= limits.max_duration:
        bounds = f"{format_duration(limits.min_duration)} to {format_duration(limits.max_duration)}"
        message = f"{format_duration(duration)} is outside {bounds}"
        yield _problem("duration", "fault.duration", message)
    seconds = given.spec.lease.seconds
    if not limits.min_lease <= seconds <= limits.max_lease:
        message = f"{seconds:g} s is outside {limits.min_lease:g} to {limits.max_lease:g} s"
        yield _problem("lease", "lease.seconds", message)


def _ceiling(spec: ExperimentSpec, objective: Objective) -> Iterator[Finding]:
    """Check the guard against all requests being bad: no traffic can have more."""
    rate, budget = spec.guard.abort_burn_rate, Decimal(1) - Decimal(repr(objective.objective_ratio))
    if Decimal(repr(rate)) * budget >= 1:
        message = (
            f"can never fire for {objective.name}: {_limit_text(rate, objective)}, and no more "
            f"than all requests can be bad; the rate must be below {Decimal(1) / budget:.4g}"
        )
        yield _problem("guard_cannot_fire", "guard.abort_burn_rate", message)


def _limit_text(rate: float, objective: Objective) -> str:
    ratio = objective.objective_ratio
    limit = Decimal(repr(rate)) * (Decimal(1) - Decimal(repr(ratio)))
    return f"{rate:g} × (1 − {ratio:g}) = {limit:.4g}"


def _guard(given: AdmitInput, objective: Objective) -> Iterator[Finding]:
    guard, path = given.spec.guard, "guard.abort_burn_rate"
    budget = Decimal(1) - Decimal(repr(objective.objective_ratio))
    limit = Decimal(repr(guard.abort_burn_rate)) * budget
    told = _limit_text(guard.abort_burn_rate, objective)
    impossible = list(_ceiling(given.spec, objective))
    if impossible:
        yield from impossible
        return
    held = max(guard.min_requests, int((given.rate or 0.0) * guard.window))
    provable = Decimal(repr(_TAIL ** (1 / held)))
    if limit >= provable:
        message = (
            f"can never fire for {objective.name} on {held} requests: {told}, and even if all are "
            f"bad only {provable:.4g} is proven; the rate must be below {provable / budget:.4g}, "
            f"or guard.window longer"
        )
        yield _problem("guard_cannot_fire", path, message)
        return
    if given.rate and given.rate * guard.window < guard.min_requests:
        message = (
            f"{format_duration(guard.window)} hold about {given.rate * guard.window:.0f} requests, "
            f"fewer than the {guard.min_requests} that it needs: no burn rate aborts the run"
        )
        yield _warning("guard_blind", "guard.window", message)
    share = Decimal(repr(given.spec.arms.chaos.share))
    if share <= limit:
        message = (
            f"if the whole chaos arm fails, {objective.name} burns at {share / budget:.4g}: the "
            f"guard fires only when the harm spreads beyond the arm"
        )
        yield _warning("guard_needs_spread", path, message)


def _recovery(given: AdmitInput, objective: Objective) -> Iterator[Finding]:
    """Check that "met again" can be proven by as many requests as its window holds."""
    if not given.rate:
        return
    budget = 1 - objective.objective_ratio
    needed = max(math.ceil(math.log(_TAIL) / math.log1p(-budget)), given.spec.recovery.min_requests)
    window = given.spec.recovery.window
    held = given.rate * window
    if held < needed:
        message = (
            f"{format_duration(window)} hold about {held:.0f} requests; to prove that "
            f"{objective.name} is met takes {needed} without a bad one: make it "
            f"{format_duration(math.ceil(needed / given.rate))} or longer"
        )
        yield _warning("recovery_window", "recovery.window", message)


def _signals(spec: ExperimentSpec, promised: tuple[Objective, ...]) -> Iterator[Finding]:
    for objective in promised:
        if objective.objective_ratio < 0.5:
            bad = f"{1 - objective.objective_ratio:.3g} of all requests are bad"
            hint = "a target is the share of good ones, not of errors"
            message = f"{objective.name} is still met when {bad}: {hint}"
            yield _warning("lenient_objective", "slos", message)
    if isinstance(spec.fault, StreamStallFault):
        stall = spec.fault.parameters.stall
        gaps = [
            o.indicator.max_gap_seconds if o.indicator.event == "request" else None
            for o in promised
        ]
        if promised and all(gap is None or stall <= gap for gap in gaps):
            message = f"no SLO counts a silence of {format_duration(stall)} as bad"
            yield _warning("unseen_fault", "fault.parameters.stall", message)
    remedy = spec.remediation
    if remedy is not None and remedy.under_fault and spec.hypothesis == "withstands":
        message = "it fails as soon as it breaks, so no remedy is tried; say `recovers`"
        yield _warning("remedy_unused", "remediation.under_fault", message)


def _power(given: AdmitInput, plan: ExpectedPlan) -> Iterator[Finding]:
    judge, share = given.spec.judge, given.spec.arms.chaos.share
    smaller = math.ceil(plan.total_units * min(share, 1 - share))
    if smaller > judge.max_requests:
        message = (
            f"{judge.max_requests:,} units in the smaller arm are too few for a PASS, which takes "
            f"about {smaller:,} ({plan.limited_by})"
        )
        yield _problem("too_few_units", "judge.max_requests", message)
    if given.rate == 0:
        message = "no traffic was seen: without it the run ends INCONCLUSIVE"
        yield _warning("no_traffic", "target", message)
    elif plan.seconds is not None and not plan.enough:
        message = (
            f"at {given.rate:.3g} requests/s a PASS takes about "
            f"{format_duration(math.ceil(plan.seconds))}, longer than the "
            f"{format_duration(plan.limit_seconds)} watched: INCONCLUSIVE is likely"
        )
        yield _warning("too_little_traffic", "fault.duration", message)


__all__ = [
    "AdmitInput",
    "AdmitReport",
    "ExpectedPlan",
    "Finding",
    "Limits",
    "admit",
    "expected_plan",
]
