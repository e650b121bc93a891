"""The burn-rate rules and their arithmetic."""

from fractions import Fraction
from math import log

import pytest

from slo.burn_rate import BurnDecision, burn_of
from slo.windows import (
    SRE_RULES,
    can_fire,
    decide,
    detection_seconds,
    exhaustion_seconds,
    fires,
    min_requests,
    reset_seconds,
    scaled,
)

PAGE = SRE_RULES[0]
BUDGET = Fraction(1, 1000)


def test_the_rules_spend_two_five_ten_and_ten_per_cent():
    shares = [rule.budget_share() for rule in SRE_RULES]
    assert shares == [Fraction(1, 50), Fraction(1, 20), Fraction(1, 10), Fraction(1, 10)]
    assert all(rule.long_seconds == 12 * rule.short_seconds for rule in SRE_RULES)


@pytest.mark.parametrize(
    ("threshold", "objective", "least"),
    [("14.4", "0.999", 255), ("6", "0.999", 613), ("1", "0.999", 3688), ("1", "0.99", 368)],
)
def test_the_least_traffic_is_the_first_that_proves_no_errors_fine(threshold, objective, least):
    limit = Fraction(threshold)
    assert min_requests(limit, 1 - Fraction(objective)) == least
    assert burn_of(0, least, objective).decide(limit) is BurnDecision.FINE
    assert burn_of(0, least - 1, objective).decide(limit) is BurnDecision.INCONCLUSIVE


def test_a_threshold_out_of_reach_is_refused():
    assert not can_fire(Fraction(20), Fraction(1, 20))
    assert can_fire(Fraction(199, 10), Fraction(1, 20))
    with pytest.raises(ValueError, match="out of reach"):
        min_requests(Fraction(20), Fraction(1, 20))


def test_a_recovered_short_window_ends_the_page():
    long, recovered = burn_of(200, 10_000, "0.999"), burn_of(0, 800, "0.999")
    assert fires(PAGE, long, burn_of(20, 800, "0.999"))
    assert not fires(PAGE, long, recovered)
    assert decide(PAGE, long, recovered) is BurnDecision.FINE


def test_a_silent_short_window_is_neither_burning_nor_fine():
    long, silent = burn_of(200, 10_000, "0.999"), burn_of(0, 0, "0.999")
    assert not fires(PAGE, long, silent)
    assert decide(PAGE, long, silent) is BurnDecision.INCONCLUSIVE
    assert decide(PAGE, burn_of(0, 10_000, "0.999"), silent) is BurnDecision.INCONCLUSIVE


def test_an_outage_is_detected_by_arithmetic():
    assert detection_seconds(PAGE, BUDGET, Fraction(1)) == Fraction(5184, 100)
    assert reset_seconds(PAGE, BUDGET, Fraction(1)) == 300 - Fraction(432, 100)
    assert exhaustion_seconds(BUDGET, Fraction(1)) == 2592
    half = Fraction(1, 20), Fraction(1, 2000)
    assert float(detection_seconds(PAGE, BUDGET, *half)) == pytest.approx(1010.909, rel=1e-6)
    assert detection_seconds(PAGE, BUDGET, Fraction(72, 5000)) is None
    assert exhaustion_seconds(BUDGET, Fraction(0)) is None


def test_windows_of_an_hour_keep_the_budget_shares():
    long, short = scaled(PAGE, Fraction(3600))
    assert (long, short) == (5, Fraction(5, 12))
    assert PAGE.threshold * long / 3600 == PAGE.budget_share()


def test_the_least_traffic_follows_the_binomial():
    least = min_requests(Fraction(1), Fraction(3, 200))
    assert least > log(0.025) / log(1 - 0.015) > least - 1
