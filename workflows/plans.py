"""Build what each phase is asked to do from what the run knows. Pure; nothing is decided here.

Kept out of the workflow files so that those only sequence, and so that a test can read every
configuration without a server.
"""

import zlib
from datetime import timedelta

from activities.admit import AdmitResult, ParsedExperiment
from activities.inject import FAULT_ITEM, FaultItem, InjectInput, SplitSpec
from activities.preflight import PreflightResult
from canary.config import (
    EffectConfig,
    GuardConfig,
    JudgeConfig,
    ObserveConfig,
    SettleConfig,
    TriggerConfig,
)
from faults.catalog import template_info
from remediation.actions import Action, ReplicaFacts
from slo.objective import Objective
from workflows.remediation_models import RemediationRunInput

# Source: ours, 2026-12: room for retries on another worker beside each planned duration.
SLACK = timedelta(minutes=2)
# Source: ours, 2026-12: twenty polls of the guard at each share of a ramp.
RAMP_SECONDS = 10.0
# Source: ours, 2026-12: from the fault's start to the first page and one poll, on a busy machine.
END_MARGIN_SECONDS = 5.0


def expects_effect(parsed: ParsedExperiment) -> bool:
    """Tell whether requests must be seen touched; only `null` expects none."""
    return template_info(parsed.spec.fault.template).expects_effect


def has_remedy(parsed: ParsedExperiment) -> bool:
    """Tell whether a remedy may act while the fault holds."""
    remediation = parsed.spec.remediation
    asked = parsed.policy is not None and remediation is not None and remediation.under_fault
    return asked and parsed.spec.hypothesis == "recovers"


def hold_limit(parsed: ParsedExperiment) -> timedelta:
    """Return how long a lease may be renewed in all; far past the plan, it is not the guard."""
    spec = parsed.spec
    seconds = spec.fault.duration + spec.recovery.within
    if spec.remediation is not None:
        seconds += spec.remediation.recover_within
    return timedelta(seconds=seconds) + timedelta(minutes=10)


def limit(config: ObserveConfig) -> timedelta:
    """Return the total for an observation: its own limit and room to move."""
    return timedelta(seconds=config.max_seconds) + SLACK


def steady(parsed: ParsedExperiment) -> ObserveConfig:
    """Watch until the objectives are seen to hold, before anything is broken."""
    wanted = parsed.spec.steady_state
    return ObserveConfig(
        mode="steady",
        objectives=parsed.objectives,
        settle=SettleConfig(min_requests=wanted.min_requests, window_seconds=wanted.window),
        max_seconds=wanted.window,
    )


def stages(parsed: ParsedExperiment) -> tuple[float, ...]:
    """Return the shares of the chaos arm, in order; the last is the one that is compared."""
    chaos = parsed.spec.arms.chaos
    return chaos.ramp or (chaos.share,)


def injection(
    parsed: ParsedExperiment, admitted: AdmitResult, run_id: str, lease_id: str, stage: int
) -> InjectInput:
    """Split the traffic at a stage's share, and attach the fault to the chaos replicas."""
    spec = parsed.spec
    return InjectInput(
        run_id=run_id,
        lease_id=lease_id,
        stage=stage,
        split=SplitSpec(
            experiment=run_id,
            salt=f"{run_id}/{stage}",
            share=stages(parsed)[stage],
            control=admitted.control,
            chaos=admitted.chaos,
            unit=spec.arms.unit,
        ),
        fault=FaultItem(
            template=spec.fault.template,
            parameters=spec.fault.parameters.model_dump(mode="json"),
            replicas=admitted.chaos,
            max_seconds=spec.fault.duration,
            seed=zlib.crc32(run_id.encode()),
            match=spec.fault.match.model_dump(exclude_none=True),
        ),
    )


def guard(parsed: ParsedExperiment) -> GuardConfig:
    """Return the guard, which watches as long as the fault holds."""
    wanted = parsed.spec.guard
    return GuardConfig(
        abort_burn_rate=wanted.abort_burn_rate,
        budget_share=wanted.budget_share,
        window_seconds=wanted.window,
        min_requests=wanted.min_requests,
    )


def comparison_seconds(parsed: ParsedExperiment) -> float:
    """Return the limit on the comparison: it must end before the fault ends by itself."""
    spec = parsed.spec
    ramped = RAMP_SECONDS * (len(stages(parsed)) - 1)
    left = spec.fault.duration - ramped - END_MARGIN_SECONDS
    return max(1.0, min(spec.observe_seconds, left))


def ramp(parsed: ParsedExperiment, lease_id: str, since: float) -> ObserveConfig:
    """Watch one stage of the ramp: only the guard may end it early."""
    return ObserveConfig(
        mode="compare",
        objectives=parsed.objectives,
        guard=guard(parsed),
        accepted_after=since,
        lease_id=lease_id,
        max_seconds=RAMP_SECONDS,
    )


def comparison(parsed: ParsedExperiment, lease_id: str, since: float) -> ObserveConfig:
    """Compare the arms, guard the budget, and watch for the signal that calls for a remedy."""
    spec = parsed.spec
    remedy = has_remedy(parsed)
    trigger = None
    if parsed.policy is not None and remedy:
        when = parsed.policy.when
        trigger = TriggerConfig(
            compliance_below=when.compliance_below,
            window_seconds=when.window,
            min_requests=when.min_requests,
        )
    fault = spec.fault
    return ObserveConfig(
        mode="compare",
        objectives=parsed.objectives,
        judge=JudgeConfig(
            share=spec.arms.chaos.share,
            unit=spec.arms.unit,
            alpha=spec.judge.alpha,
            max_requests=spec.judge.max_requests,
            metrics=spec.judge.metrics,
            margin_errors=spec.judge.margin_errors,
            fail_ratio_errors=spec.judge.fail_ratio_errors,
            latency_fail_ratio=spec.judge.latency_fail_ratio,
            latency_pass={str(name): ratio for name, ratio in spec.judge.latency_pass.items()},
            stop_on_pass=spec.judge.stop_on_pass and not remedy,
            stop_on_fail=not remedy,
        ),
        guard=guard(parsed),
        trigger=trigger,
        effect=EffectConfig(
            item_id=FAULT_ITEM,
            expects_effect=expects_effect(parsed),
            probability=getattr(fault.parameters, "probability", 1.0),
        ),
        accepted_after=since,
        lease_id=lease_id,
        max_seconds=comparison_seconds(parsed),
    )


def remedy_trial(given: RemediationRunInput, action: Action, since: float) -> ObserveConfig:
    """Compare treated units with the hold-out: that it is worse proves the remedy."""
    return ObserveConfig(
        mode="remedy",
        objectives=given.objectives,
        judge=JudgeConfig(
            groups="treatment",
            share=action.holdout_share,
            unit="conversation",
            alpha=action.verify.alpha,
            metrics=("slo_bad",),
            stop_on_pass=False,
        ),
        guard=given.guard,
        accepted_after=since,
        lease_id=given.lease_id,
        max_seconds=min(action.verify.within, given.recover_within),
    )


def met_again(
    objectives: tuple[Objective, ...],
    settle: SettleConfig,
    since: float,
    seconds: float,
    under_fault: tuple[str, GuardConfig] | None = None,
) -> ObserveConfig:
    """Watch until the objectives are met by requests accepted after `since`.

    `under_fault` is the lease that must stay open meanwhile, and the guard.
    """
    lease_id, guard = under_fault or (None, None)
    return ObserveConfig(
        mode="recovery",
        objectives=objectives,
        settle=settle,
        guard=guard,
        accepted_after=since,
        lease_id=lease_id,
        max_seconds=seconds,
    )


def replica_facts(
    admitted: AdmitResult, preflight: PreflightResult | None
) -> tuple[ReplicaFacts, ...]:
    """Return the replicas with the breaker threshold that was in force before the fault."""
    if preflight is None:
        return ()
    return tuple(
        ReplicaFacts(name=name, total=0, bad=0, threshold_ratio=preflight.breaker_threshold_ratio)
        for name in admitted.control + admitted.chaos
    )


def settle_rule(parsed: ParsedExperiment) -> SettleConfig:
    """Return when an objective counts as met again."""
    recovery = parsed.spec.recovery
    return SettleConfig(min_requests=recovery.min_requests, window_seconds=recovery.window)
