"""What one observation ends with: frozen models that travel, are stored, and are replayed.

No float here may be infinite or NaN: missing data is None, and logarithms of e-values are capped.
Floats that come from `log`, `exp` or a beta quantile carry nine significant digits, so that two
machines with different mathematics libraries write the same bytes.
"""

from enum import StrEnum
from math import isfinite
from typing import Annotated

from pydantic import BaseModel, Field, FiniteFloat

from canary.config import Mode
from slo.verdict import Verdict

LOG10_CAP = 300.0
"""Largest reported size of log10(e). Source: ours; 10**300 is still a finite float."""


def rounded(value: float) -> float:
    """Return the value with nine significant digits.

    Raises:
        ValueError: the value is not finite.
    """
    if not isfinite(value):
        raise ValueError("a report holds finite numbers only")
    return float(f"{value:.9g}")


def capped_log10(log_e: float) -> float:
    """Turn a natural logarithm, which may be infinite, into a capped log10."""
    return rounded(max(-LOG10_CAP, min(LOG10_CAP, log_e / 2.302585092994046)))


class StopReason(StrEnum):
    """Why an observation ended."""

    VERDICT = "verdict"
    GUARD = "guard"
    TRIGGER = "trigger"
    SETTLED = "settled"
    LIMIT_REQUESTS = "limit_requests"
    LIMIT_TIME = "limit_time"
    LEASE_LOST = "lease_lost"
    GAP = "gap"


class Classification(StrEnum):
    """What the evidence says about one metric."""

    PASS = "PASS"
    HIGH = "HIGH"
    """The chaos-like group is worse."""
    NODATA = "NODATA"
    """One group has no units."""
    UNDECIDED = "UNDECIDED"
    """There is data, and it proves neither."""


class PassReport(BaseModel, frozen=True):
    """One non-inferiority test of a metric."""

    name: str
    margin: FiniteFloat
    log10_e: FiniteFloat


class MetricReport(BaseModel, frozen=True):
    """One metric of a comparison. Logarithms to base 10."""

    name: str
    classification: Classification
    log10_e_fail: FiniteFloat
    log10_e_fail_max: FiniteFloat
    """Largest value on the way: the one that counts."""
    log10_e_pass: FiniteFloat | None
    """Smallest of the pass tests; None when one has not begun."""
    passes: tuple[PassReport, ...] = ()
    n_control: int
    n_chaos: int
    bad_control: int | None = None
    """Units with a bad event; None for latencies."""
    bad_chaos: int | None = None
    driving_quantile: FiniteFloat | None = None
    """For latencies: the quantile with the largest e-value."""


class JudgeReport(BaseModel, frozen=True):
    """The comparison of two groups."""

    judge: str
    verdict: Verdict
    metrics: tuple[MetricReport, ...]
    log10_e_total: FiniteFloat
    """Family e-value now: the mean over the metrics."""
    log10_e_total_max: FiniteFloat
    anytime_p: FiniteFloat
    log10_srm_e: FiniteFloat
    srm_alarm: bool
    units_control: int
    units_chaos: int
    coverage: FiniteFloat | None
    """Smallest share, over the groups, of requests that could be judged; None without any."""
    dispersion: FiniteFloat | None
    """Variance over mean of bad control units in blocks of 100; None when it cannot be told."""
    pass_since: FiniteFloat | None
    """Since when, unix seconds, the pass has held without a break."""
    fail_seq: int | None
    """Sequence of the record at which the family e-value crossed."""
    inconclusive_reasons: tuple[str, ...] = ()


class SloReport(BaseModel, frozen=True):
    """One objective over the whole observation."""

    objective: str
    total: int
    bad: int
    compliance: FiniteFloat | None
    burn: FiniteFloat | None
    burn_low: FiniteFloat | None
    burn_high: FiniteFloat | None
    state: str
    """value, no_traffic, no_data or invalid."""
    decision: str = "inconclusive"
    """burning, fine or inconclusive against burn rate 1."""


class EffectReport(BaseModel, frozen=True):
    """Whether the fault was seen in the records."""

    item_id: str
    exposed: int
    touched: int
    state: str
    """seen, none, too_little or not_expected."""


class SettleReport(BaseModel, frozen=True):
    """The trailing window at the end."""

    state: str
    """settled, waiting (proven, older requests in flight), unsettled or too_little."""
    windows: tuple[SloReport, ...] = ()


class GuardReport(BaseModel, frozen=True):
    """What breached, and with what proof."""

    objective: str
    kind: str
    """burn_rate or budget_share."""
    value_low: FiniteFloat
    """Lower bound of what was measured."""
    limit: FiniteFloat
    seq: int


class TriggerReport(BaseModel, frozen=True):
    """The window that called for a remedy."""

    objective: str
    total: int
    bad: int
    compliance: FiniteFloat
    seq: int
    at: FiniteFloat


class ObserveReport(BaseModel, frozen=True):
    """The end of one observation."""

    mode: Mode
    reason: StopReason | None
    """None: the pages ended before the observation did."""
    verdict: Verdict
    why: str
    judge: JudgeReport | None = None
    slo: tuple[SloReport, ...] = ()
    effect: EffectReport | None = None
    settle: SettleReport | None = None
    guard: GuardReport | None = None
    trigger: TriggerReport | None = None
    first_seq: int | None = None
    last_seq: int | None = None
    started_at: FiniteFloat | None = None
    ended_at: FiniteFloat | None = None
    requests: int = 0
    """Records read, probes included."""
    counted: int = 0
    """Records that passed the filters (no probe, accepted after the given instant)."""
    in_flight_at_end: int = 0
    mixed: Annotated[tuple[str, ...], Field(exclude_if=lambda mixed: not mixed)] = ()
    """Of several gateways, which made the last page one of unlike parts; a sentence each."""
