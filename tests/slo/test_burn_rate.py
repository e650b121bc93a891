"""Burn rates: against vectors computed without our code, and by their properties."""

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slo.burn_rate import (
    BurnDecision,
    BurnState,
    aligned,
    burn_of,
    clopper_pearson,
    counter_increase,
    decide_with_coverage,
)

VECTORS = json.loads((Path(__file__).parent / "vectors" / "burn.json").read_text())
ONE = Fraction(1)


@pytest.mark.parametrize("vector", VECTORS, ids=[item["note"] for item in VECTORS])
def test_a_window_agrees_with_its_vector(vector):
    given_ = vector["input"]
    burn = burn_of(given_["bad"], given_["total"], given_["objective"])
    threshold = Fraction(given_["threshold"])
    assert burn.state is BurnState.VALUE
    assert burn.rate == Fraction(vector["burn"])
    assert burn.low == pytest.approx(vector["low"], rel=1e-9, abs=1e-12)
    assert burn.high == pytest.approx(vector["high"], rel=1e-9)
    assert burn.fires(threshold) is vector["fires"]
    assert burn.decide(threshold) == vector["decision"]


def test_a_float_objective_is_taken_as_it_was_written():
    assert burn_of(144, 10_000, 0.999).rate == Fraction(72, 5)
    assert not burn_of(144, 10_000, 0.999).fires(Fraction(72, 5))


@pytest.mark.parametrize(
    ("bad", "total", "state"),
    [
        (0, 0, BurnState.NO_TRAFFIC),
        (None, 10, BurnState.NO_DATA),
        (0, None, BurnState.NO_DATA),
        (3, 2, BurnState.INVALID),
        (-1, 2, BurnState.INVALID),
        (0, -1, BurnState.INVALID),
    ],
)
def test_a_window_without_a_value_proves_nothing(bad, total, state):
    burn = burn_of(bad, total, "0.99")
    assert burn.state is state
    assert burn.rate is None
    assert not burn.fires(Fraction(0))
    assert burn.decide(ONE) is BurnDecision.INCONCLUSIVE


def test_an_objective_of_one_burns_at_the_first_error_and_is_never_fine():
    assert burn_of(1, 1000, "1").decide(Fraction(1000)) is BurnDecision.BURNING
    assert burn_of(1, 1000, "1").fires(Fraction(1000))
    assert burn_of(0, 1000, "1").decide(ONE) is BurnDecision.INCONCLUSIVE
    assert burn_of(0, 1000, "1").rate is None


@pytest.mark.parametrize("objective", ["1.01", "-0.1", 98.5])
def test_an_objective_that_is_no_ratio_is_refused(objective):
    with pytest.raises(ValueError, match="ratio"):
        burn_of(1, 10, objective)


def test_the_interval_of_no_events_is_everything():
    assert clopper_pearson(0, 0) == (0.0, 1.0)
    with pytest.raises(ValueError, match="count"):
        clopper_pearson(2, 1)


COUNTS = st.integers(1, 3000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
OBJECTIVES = st.sampled_from(["0.9", "0.985", "0.99", "0.999"])


@given(COUNTS, OBJECTIVES)
def test_burn_and_both_bounds_rise_with_errors(counts, objective):
    bad, total = counts
    if bad == total:
        bad -= 1
    less, more = burn_of(bad, total, objective), burn_of(bad + 1, total, objective)
    assert less.rate < more.rate
    assert less.low < more.low
    assert less.high <= more.high


@given(COUNTS, OBJECTIVES)
def test_the_interval_holds_the_point(counts, objective):
    burn = burn_of(*counts, objective)
    assert burn.low <= float(burn.rate) * (1 + 1e-9)
    assert burn.high >= float(burn.rate) * (1 - 1e-9)


@given(COUNTS, OBJECTIVES, st.integers(0, 100))
def test_missing_samples_never_help(counts, objective, used):
    burn = burn_of(*counts, objective)
    decision = decide_with_coverage(burn, ONE, used, 100)
    assert decision is (burn.decide(ONE) if used >= 80 else BurnDecision.INCONCLUSIVE)


def test_a_counter_that_restarts_counts_from_zero():
    assert counter_increase([100, 160, 220, 15, 75]) == 60 + 60 + 15 + 60
    assert counter_increase([5]) == 0


def test_a_missing_sample_is_dropped_from_both_series():
    assert aligned([1, None, 3, 4], [0, 1, None, 2]) == ([1, 4], [0, 2])
