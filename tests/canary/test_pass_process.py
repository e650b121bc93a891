"""The proof of a pass for events: an e-process at its margin, at every share."""

from itertools import product
from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canary.pass_process import DifferencePass

SHARES = st.sampled_from([0.05, 0.2, 0.5, 0.8])


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("base", [0.0, 0.05, 0.3])
def test_the_mean_is_one_exactly_at_the_margin(share, base):
    margin, mean = 0.1, 0.0
    process = DifferencePass(share, margin)
    chances = {
        "good": share * (1 - base - margin) + (1 - share) * (1 - base),
        "chaos": share * (base + margin),
        "control": (1 - share) * base,
    }
    for units in product(chances, repeat=5):
        weight = 1.0
        for unit in units:
            weight *= chances[unit]
        if weight:
            mean += weight * exp(process.log_e(5, units.count("chaos"), units.count("control")))
    assert mean == pytest.approx(1.0, rel=1e-9)


@given(SHARES, st.integers(1, 3000), st.integers(0, 30), st.integers(0, 30))
def test_good_units_help_and_bad_chaos_units_hurt(share, good, chaos, control):
    process = DifferencePass(share, 0.01)
    here = process.log_e(good + chaos + control, chaos, control)
    assert process.log_e(good + 1 + chaos + control, chaos, control) > here
    assert process.log_e(good + chaos + control, chaos + 1, control) < here


@pytest.mark.parametrize(("share", "least", "most"), [(0.5, 700, 720), (0.2, 700, 720)])
def test_a_clean_chaos_group_passes_after_about_seven_hundred_units(share, least, most):
    process = DifferencePass(share, 0.01)
    total = next(n for n in range(1, 10**5) if process.log_e(n, 0, 0) >= log(100))
    assert least <= total * share <= most


def test_no_units_say_nothing():
    assert DifferencePass(0.2, 0.01).log_e(0, 0, 0) == 0.0
