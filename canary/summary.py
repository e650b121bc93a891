"""From counts to the report's rows, and to one sentence that says why.

Nothing is decided here: the sentence reads the finished report.
"""

from fractions import Fraction

from canary.report import (
    Classification,
    JudgeReport,
    ObserveReport,
    SettleReport,
    SloReport,
    StopReason,
    rounded,
)
from canary.settle import Settle
from slo.burn_rate import Burn, burn_of
from slo.objective import Objective
from slo.verdict import Verdict

_BUDGET_RATE = Fraction(1)


def slo_report(objective: Objective, bad: int, total: int) -> SloReport:
    """Return the row of one objective."""
    return _row(objective.name, burn_of(bad, total, objective.exact_ratio))


def settle_report(settle: Settle, objectives: tuple[Objective, ...]) -> SettleReport:
    """Return the trailing windows as they stand."""
    rows = zip(objectives, settle.burns(), strict=True)
    windows = tuple(_row(objective.name, burn) for objective, burn in rows)
    return SettleReport(state=settle.state(), windows=windows)


def _row(name: str, burn: Burn) -> SloReport:
    bad, total = burn.bad or 0, burn.total or 0
    return SloReport(
        objective=name,
        total=total,
        bad=bad,
        compliance=rounded(1.0 - bad / total) if total else None,
        burn=None if burn.rate is None else rounded(float(burn.rate)),
        burn_low=None if burn.low is None else rounded(burn.low),
        burn_high=None if burn.high is None else rounded(burn.high),
        state=burn.state.value,
        decision=burn.decide(_BUDGET_RATE).value,
    )


def explain(report: ObserveReport) -> str:
    """Return one sentence: what the verdict rests on."""
    if report.reason is StopReason.GAP:
        lost = "Journal records were lost or the gateway restarted: nothing can be said."
        return " ".join([lost, *report.mixed])
    if report.reason is StopReason.LEASE_LOST:
        ended = "The lease or its fault ended before the observation did."
        return " ".join([ended, *report.mixed])
    if report.guard is not None and report.reason is StopReason.GUARD:
        guard = report.guard
        what = "burn rate" if guard.kind == "burn_rate" else "spent share of the error budget"
        return (
            f"The guard stopped it: the {what} of {guard.objective} is proven to be at least "
            f"{guard.value_low:.3g}, above {guard.limit:g}."
        )
    if report.verdict is Verdict.FAIL and report.judge is not None:
        return _harm(report, report.judge)
    if report.trigger is not None and report.reason is StopReason.TRIGGER:
        fired = report.trigger
        return (
            f"A remedy is due: compliance with {fired.objective} is {fired.compliance:.2%} "
            f"over {fired.total} requests."
        )
    if report.judge is not None:
        return _comparison(report, report.judge)
    return _objectives(report)


def _harm(report: ObserveReport, judge: JudgeReport) -> str:
    high = [item.name for item in judge.metrics if item.classification is Classification.HIGH]
    odds = f"10^{judge.log10_e_total_max:.1f} to 1"
    if report.mode == "remedy":
        return f"The hold-out is worse in {', '.join(high)} ({odds}): the remedy helps."
    return f"The chaos arm is worse in {', '.join(high)} ({odds})."


def _comparison(report: ObserveReport, judge: JudgeReport) -> str:
    units = f"{judge.units_control} and {judge.units_chaos} units"
    if report.verdict is Verdict.PASS:
        return f"Every metric is proven to be within its margin ({units})."
    reasons = " ".join(judge.inconclusive_reasons) or "The observation ended first."
    return f"Neither harm nor its absence is proven ({units}). {reasons}"


def _objectives(report: ObserveReport) -> str:
    if report.settle is not None:
        total = min((row.total for row in report.settle.windows), default=0)
        words = {
            "settled": "The objectives are proven to be met",
            "waiting": "The objectives look met, but older requests were still in flight",
            "unsettled": "The objectives are not proven to be met",
            "too_little": "There was too little traffic to tell whether the objectives are met",
        }
        return f"{words[report.settle.state]} ({total} requests in the last window)."
    rows = [f"{row.objective} {row.decision} ({row.bad} bad of {row.total})" for row in report.slo]
    return f"Against the budget rate: {', '.join(rows)}."
