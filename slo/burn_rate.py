"""Burn rates of an error budget, with what little traffic can prove.

Burn = (bad / total) / (1 - objective). The point value is an exact fraction: binary floats say
14.399999999999986 where the answer is 14.4, and a threshold would then depend on rounding. The
interval is Clopper and Pearson's, which holds its coverage at 0 of n and at n of n. A window is
*burning* when the lower bound is above the threshold, *fine* when the upper bound is below it,
else *inconclusive*: no errors in 100 requests prove nothing at 99.9 %.

No window is read here and no alert is sent; `slo/windows.py` has the table of windows.

Hard part: four kinds of nothing. No counter (no_data), a counter that says zero (no_traffic),
counters that contradict one another (invalid) and a good window are four states, and only the last
may ever be fine.

Source: Clopper and Pearson, Biometrika 26 (1934); SRE workbook, chapter 5 (burn rate).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from itertools import pairwise

CONFIDENCE = 0.95
"""Two-sided confidence of the interval; 0.025 in each tail. Source: ours, the usual choice."""

MIN_COVERAGE = Fraction(4, 5)
"""Least share of the expected samples. Source: ours, 2026-12: below, gaps decide the result."""


class BurnState(StrEnum):
    """Whether a window has a burn rate at all."""

    VALUE = "value"
    NO_TRAFFIC = "no_traffic"
    """Measured, and no request came."""
    NO_DATA = "no_data"
    """Not measured."""
    INVALID = "invalid"
    """Counts that cannot be: negative, or more bad than total."""


class BurnDecision(StrEnum):
    """What a window proves against a threshold."""

    BURNING = "burning"
    FINE = "fine"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Burn:
    """One window. Rates in multiples of the budget rate."""

    state: BurnState
    bad: int | None
    total: int | None
    rate: Fraction | None
    """Exact; None without data, and when the objective is 1 (then see `low` and `fires`)."""
    low: float | None
    """Lower Clopper-Pearson bound; None when the window is not a value, or the objective is 1."""
    high: float | None
    budget: Fraction
    """1 - objective."""

    def fires(self, threshold: Fraction) -> bool:
        """Say whether the point estimate is above the threshold, strictly and exactly."""
        if self.state is not BurnState.VALUE or self.bad is None or self.total is None:
            return False
        return self.bad > threshold * self.budget * self.total

    def decide(self, threshold: Fraction) -> BurnDecision:
        """Say what is proven against the threshold."""
        if self.state is not BurnState.VALUE:
            return BurnDecision.INCONCLUSIVE
        if self.budget == 0:
            return BurnDecision.BURNING if self.bad else BurnDecision.INCONCLUSIVE
        if self.low is not None and self.low > threshold:
            return BurnDecision.BURNING
        if self.high is not None and self.high < threshold:
            return BurnDecision.FINE
        return BurnDecision.INCONCLUSIVE


def exact(number: float | str | Fraction) -> Fraction:
    """Return the number as it was written: 0.999 is 999/1000, not its binary neighbour."""
    return Fraction(repr(number)) if isinstance(number, float) else Fraction(number)


def clopper_pearson(bad: int, total: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the exact two-sided interval of a ratio; (0, 1) for no events.

    Raises:
        ValueError: the counts cannot be.
    """
    if not 0 <= bad <= total:
        raise ValueError(f"{bad} of {total} is not a count of events")
    if total == 0:
        return 0.0, 1.0
    from scipy.special import betaincinv  # most commands never need it: 0.7 s of start-up

    tail = (1.0 - confidence) / 2.0
    low = 0.0 if bad == 0 else float(betaincinv(bad, total - bad + 1, tail))
    high = 1.0 if bad == total else float(betaincinv(bad + 1, total - bad, 1.0 - tail))
    return low, high


def burn_of(bad: int | None, total: int | None, objective: float | str | Fraction) -> Burn:
    """Return the burn of one window.

    Args:
        bad: bad events, or None when they were not measured.
        total: valid events, or None when they were not measured.
        objective: ratio in [0, 1]; text and fractions are taken exactly.

    Raises:
        ValueError: the objective is outside [0, 1].
    """
    ratio = exact(objective)
    if not 0 <= ratio <= 1:
        raise ValueError(f"objective {objective} is not a ratio in [0, 1]")
    budget = 1 - ratio
    if bad is None or total is None:
        return Burn(BurnState.NO_DATA, bad, total, None, None, None, budget)
    if bad < 0 or total < 0 or bad > total:
        return Burn(BurnState.INVALID, bad, total, None, None, None, budget)
    if total == 0:
        return Burn(BurnState.NO_TRAFFIC, bad, total, None, None, None, budget)
    if budget == 0:
        return Burn(BurnState.VALUE, bad, total, None, None, None, budget)
    low, high = clopper_pearson(bad, total)
    share = float(budget)
    rate = Fraction(bad, total) / budget
    return Burn(BurnState.VALUE, bad, total, rate, low / share, high / share, budget)


def decide_with_coverage(burn: Burn, threshold: Fraction, used: int, expected: int) -> BurnDecision:
    """Decide a window that holds `used` of the `expected` samples; too few prove nothing."""
    if expected <= 0 or Fraction(used, expected) < MIN_COVERAGE:
        return BurnDecision.INCONCLUSIVE
    return burn.decide(threshold)


def counter_increase(samples: Sequence[int]) -> int:
    """Return the increase of a counter that restarts from 0 when its process does."""
    increase = 0
    for previous, current in pairwise(samples):
        increase += current - previous if current >= previous else current
    return increase


def aligned(total: Sequence[int | None], bad: Sequence[int | None]) -> tuple[list[int], list[int]]:
    """Drop each timestamp at which either series has no sample, from both."""
    pairs = [(t, b) for t, b in zip(total, bad, strict=True) if t is not None and b is not None]
    return [t for t, _ in pairs], [b for _, b in pairs]
