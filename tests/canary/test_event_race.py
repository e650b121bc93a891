"""The race of labels: an e-process at every share, and what it sees."""

from itertools import product
from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canary.event_race import BETTER_RATIOS, WORSE_RATIOS, LabelRace

SHARES = st.sampled_from([0.05, 0.2, 0.5, 0.8])


def raced(share, chaos, control, **options):
    race = LabelRace(share, **options)
    for _ in range(chaos):
        race.add(True)
    for _ in range(control):
        race.add(False)
    return race.log_e()


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("base_ratio", [1.0, 1.25])
@pytest.mark.parametrize("ratios", [WORSE_RATIOS, BETTER_RATIOS])
def test_the_e_value_has_mean_one_under_its_null(share, base_ratio, ratios):
    null = share * base_ratio / (share * base_ratio + 1 - share)
    mean = 0.0
    for labels in product([True, False], repeat=9):
        chaos = sum(labels)
        weight = null**chaos * (1 - null) ** (9 - chaos)
        mean += weight * exp(raced(share, chaos, 9 - chaos, ratios=ratios, base_ratio=base_ratio))
    assert mean == pytest.approx(1.0, rel=1e-9)


@given(SHARES, st.integers(0, 40), st.integers(0, 40))
def test_a_chaos_event_raises_it_and_a_control_event_lowers_it(share, chaos, control):
    here = raced(share, chaos, control)
    assert raced(share, chaos + 1, control) > here
    assert raced(share, chaos, control + 1) < here


@given(SHARES, st.integers(0, 300), st.integers(0, 300))
def test_the_sides_never_prove_both(share, chaos, control):
    worse = raced(share, chaos, control)
    better = raced(share, chaos, control, ratios=BETTER_RATIOS)
    assert min(worse, better) < log(100)


def test_ten_thousand_events_do_not_overflow():
    assert 1000 < raced(0.5, 10_000, 0) < 1e5
    assert raced(0.5, 0, 10_000) < 0


def test_no_events_say_nothing():
    assert raced(0.2, 0, 0) == 0.0
