"""Read what a run found out: what failed, what the outcome rests on, what a watcher sees. Pure."""

from pydantic import TypeAdapter
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    ChildWorkflowError,
    FailureError,
    is_cancelled_exception,
)

from activities.errors import LEASE_CLOSED, TARGET_STOPPED
from activities.preflight import TOO_LITTLE
from canary.report import ObserveReport, StopReason
from faults.outcome import EffectState, OutcomeInput, PhaseSummary
from workflows import plans
from workflows.state import Facts, FaultExperimentView

CONFIGURATION_KINDS = frozenset(
    {
        "InvalidExperiment",
        "NotAdmitted",
        "TargetBusy",
        "Quarantined",
        "NotMeasurable",
        "NotApproved",
    }
)

REFUSED_KINDS = frozenset({"TargetBusy", "Quarantined", "NotApproved", "Stopped"})
"""Refusals that tell of the circumstances, and of no mistake in document or machinery."""


def root_cause(error: BaseException) -> BaseException:
    """Return what our own code raised: the first cause that is no wrapper of Temporal's.

    Not the innermost: an activity that says `TargetBusy` chains the library's error below it.
    """
    while isinstance(error, (ActivityError, ChildWorkflowError)) and error.cause is not None:
        error = error.cause
    return error


def root_message(error: BaseException) -> str:
    """Return the text of the root cause."""
    cause = root_cause(error)
    return cause.message if isinstance(cause, FailureError) else str(cause)


def note_failure(facts: Facts, error: Exception) -> None:
    """Write down why the body ended: a cancel, a refusal, or what broke."""
    if is_cancelled_exception(error):
        facts.cancelled = True
        return
    cause = root_cause(error)
    if isinstance(cause, ApplicationError) and cause.type == TOO_LITTLE:
        facts.too_little = root_message(error)
        return
    if isinstance(cause, ApplicationError) and cause.type == TARGET_STOPPED:
        facts.stopped = root_message(error)
        return
    # Before anybody renewed it, a lease that is over is a failure of ours, not of time.
    if isinstance(cause, ApplicationError) and cause.type == LEASE_CLOSED and facts.lease_held:
        facts.lease_end = root_message(error)
        return
    known = isinstance(cause, FailureError)
    facts.failure = root_message(error) or repr(cause)
    facts.failure_kind = (
        (cause.type or "Infrastructure")
        if isinstance(cause, ApplicationError)
        else ("Infrastructure" if known else "Bug")
    )


def summary(report: ObserveReport | None) -> PhaseSummary | None:
    """Reduce a report to what the outcome rests on."""
    if report is None:
        return None
    return PhaseSummary(
        verdict=report.verdict.value,
        reason=(report.reason or StopReason.LIMIT_TIME).value,
        effect_state=_effect_state(report),
        why=report.why,
    )


def _effect_state(report: ObserveReport) -> EffectState | None:
    if report.effect is None:
        return None
    state: EffectState = TypeAdapter(EffectState).validate_python(report.effect.state)
    return state


def outcome_input(facts: Facts, failed: tuple[str, ...]) -> OutcomeInput:
    """Gather everything that the outcome rests on."""
    parsed = facts.parsed
    assert parsed is not None, "an experiment that was not parsed is not concluded"
    remedy = facts.remedy
    last = remedy.trials[-1].report if remedy is not None and remedy.trials else None
    is_configuration = facts.failure_kind in CONFIGURATION_KINDS
    return OutcomeInput(
        hypothesis=parsed.spec.hypothesis,
        expects_effect=plans.expects_effect(parsed),
        remedy_under_fault=plans.has_remedy(parsed),
        steady=_steady(facts),
        compare=summary(facts.compare),
        remedy=summary(last),
        no_remedy=remedy.why if remedy is not None and last is None else "",
        met_again=_met_again(facts),
        recovery=summary(facts.recovery),
        aborted_by=_aborted_by(facts),
        failure=facts.failure if facts.failure and not is_configuration else None,
        configuration_error=facts.failure if is_configuration else None,
        refused=facts.failure_kind in REFUSED_KINDS,
        cleanup_failed=failed,
        lease_lost=_lease_lost(facts),
        lease_end=facts.lease_end,
    )


def _steady(facts: Facts) -> PhaseSummary | None:
    """Tell of the steady state; too little traffic to be safe is neither a pass nor an error."""
    if facts.too_little:
        return PhaseSummary(
            verdict="INCONCLUSIVE", reason="too_little_traffic", why=facts.too_little
        )
    return summary(facts.steady)


def _met_again(facts: Facts) -> PhaseSummary | None:
    """Tell whether the objective was met again under the fault; too late is a no."""
    remedy = facts.remedy
    if remedy is None:
        return None
    if remedy.recovery is None and remedy.effective:
        return PhaseSummary(verdict="FAIL", reason=StopReason.LIMIT_TIME, why=remedy.why)
    return summary(remedy.recovery)


def _aborted_by(facts: Facts) -> str | None:
    if facts.abort is not None:
        why = f" ({facts.abort.reason})" if facts.abort.reason else ""
        return f"{facts.abort.by}{why}"
    if facts.stopped:
        return f"the global stop ({facts.stopped})"
    return "a cancel in Temporal" if facts.cancelled else None


def _lease_lost(facts: Facts) -> bool:
    """Tell whether the fault ended by itself while the run needed it."""
    if facts.lease_end or (facts.remedy is not None and facts.remedy.lease_lost):
        return True
    return facts.proof is not None and facts.proof.lapsed_before


def view(facts: Facts, bare: FaultExperimentView) -> FaultExperimentView:
    """Fill a view with what is known."""
    receipts = {}
    if facts.preflight is not None:
        receipts["preflight"] = facts.preflight.model_dump(mode="json")
    if facts.proof is not None:
        receipts["withdrawn"] = facts.proof.model_dump(mode="json")
    reports = {
        name: report
        for name, report in (
            ("steady", facts.steady),
            ("compare", facts.compare),
            ("recovery", facts.recovery),
        )
        if report is not None
    }
    if facts.remedy is not None:
        for trial in facts.remedy.trials:
            reports[trial.item_id] = trial.report
        if facts.remedy.recovery is not None:
            reports["met-again"] = facts.remedy.recovery
    return bare.model_copy(
        update={
            "route": facts.admitted.route if facts.admitted is not None else "",
            "receipts": receipts,
            "reports": reports,
        }
    )
