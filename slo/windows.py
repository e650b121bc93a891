"""The multi-window burn-rate rules, as data, and what follows from them by arithmetic.

A rule fires when its long *and* its short window burn above its threshold: the long one keeps a
blip from paging, the short one ends the page soon after recovery. Everything here is exact.

Hard part: rules that can never fire. Burn cannot exceed 1 / (1 - objective), so 14.4 is out of
reach of every objective up to 93.06 %; and a window that holds fewer than `min_requests` requests
can never be shown to be fine. Both are found here, before anything is broken on purpose.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import floor, log

from slo.burn_rate import CONFIDENCE, Burn, BurnDecision, BurnState

PERIOD_SECONDS = 30 * 86_400
"""The budget's period, seconds. Source: SRE workbook, chapter 5."""


@dataclass(frozen=True, slots=True)
class BurnRule:
    """One row of the table. Windows in seconds, threshold in multiples of the budget rate."""

    severity: str
    long_seconds: int
    short_seconds: int
    threshold: Fraction

    def budget_share(self, period_seconds: int = PERIOD_SECONDS) -> Fraction:
        """Return the share of the budget spent when a steady burn is detected."""
        return self.threshold * self.long_seconds / period_seconds


SRE_RULES = (
    BurnRule("page", 3_600, 300, Fraction(72, 5)),
    BurnRule("page", 21_600, 1_800, Fraction(6)),
    BurnRule("ticket", 86_400, 7_200, Fraction(3)),
    BurnRule("ticket", 259_200, 21_600, Fraction(1)),
)
"""2 %, 5 %, 10 % and 10 % of a 30-day budget.

Source: SRE workbook, chapter 5, table 5-8 for the first, second and fourth; the third row is in the
workbook's list of rules and in sloth's `google-30d` windows.
"""


def can_fire(threshold: Fraction, budget: Fraction) -> bool:
    """Say whether a burn above the threshold is possible at all."""
    return threshold * budget < 1


def min_requests(threshold: Fraction, budget: Fraction) -> int:
    """Return the least traffic at which a window without errors is proven fine.

    Raises:
        ValueError: the threshold cannot be reached, so that no traffic decides it.
    """
    if not can_fire(threshold, budget) or budget <= 0:
        raise ValueError(f"a burn of {threshold} is out of reach of a budget of {budget}")
    tail = (1.0 - CONFIDENCE) / 2.0
    return floor(log(tail) / log(1.0 - float(threshold * budget))) + 1


def fires(rule: BurnRule, long: Burn, short: Burn) -> bool:
    """Say whether the point estimates of both windows are above the threshold."""
    return long.fires(rule.threshold) and short.fires(rule.threshold)


def decide(rule: BurnRule, long: Burn, short: Burn) -> BurnDecision:
    """Say what both windows prove together: burning needs both, fine needs one."""
    parts = (long.decide(rule.threshold), short.decide(rule.threshold))
    if parts == (BurnDecision.BURNING, BurnDecision.BURNING):
        return BurnDecision.BURNING
    if BurnDecision.FINE in parts and all(b.state is BurnState.VALUE for b in (long, short)):
        return BurnDecision.FINE
    return BurnDecision.INCONCLUSIVE


def detection_seconds(
    rule: BurnRule, budget: Fraction, error_ratio: Fraction, baseline: Fraction = Fraction(0)
) -> Fraction | None:
    """Return how long a steady error ratio burns before the long window fires; None: never."""
    limit = rule.threshold * budget
    if error_ratio <= limit:
        return None
    return max(Fraction(0), rule.long_seconds * (limit - baseline) / (error_ratio - baseline))


def exhaustion_seconds(
    budget: Fraction, error_ratio: Fraction, period_seconds: int = PERIOD_SECONDS
) -> Fraction | None:
    """Return how long a steady error ratio takes to spend the whole budget; None: never."""
    return None if error_ratio <= 0 else period_seconds * budget / error_ratio


def reset_seconds(rule: BurnRule, budget: Fraction, error_ratio: Fraction) -> Fraction:
    """Return how long after recovery the short window stops firing."""
    if error_ratio <= 0:
        return Fraction(0)
    return max(Fraction(0), rule.short_seconds * (1 - rule.threshold * budget / error_ratio))


def scaled(
    rule: BurnRule, length_seconds: Fraction, period_seconds: int = PERIOD_SECONDS
) -> tuple[Fraction, Fraction]:
    """Return the long and short window of an experiment of this length, seconds.

    Threshold and budget shares stay what they are. Such windows get few requests: widen them to
    hold `min_requests`, and call them inconclusive below that.
    """
    factor = Fraction(length_seconds) / period_seconds
    return rule.long_seconds * factor, rule.short_seconds * factor
