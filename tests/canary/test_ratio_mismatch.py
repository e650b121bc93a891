"""The check of the split."""

import random
from math import comb, exp

import pytest

from canary.ratio_mismatch import RatioMismatch, log_e


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_the_e_value_has_mean_one_when_the_split_is_right(share):
    mean = sum(
        comb(30, k) * share**k * (1 - share) ** (30 - k) * exp(log_e(k, 30 - k, share))
        for k in range(31)
    )
    assert mean == pytest.approx(1.0, rel=1e-9)


def mismatch(actual, wanted, count=2000):
    rng, check = random.Random(5), RatioMismatch(wanted)
    check.start = 0.0
    for index in range(1, count + 1):
        check.add(float(index), rng.random() < actual)
    check.advance(count + 1.0)
    return check


def test_a_split_that_does_what_it_was_told_is_quiet():
    assert not mismatch(0.2, 0.2).alarm


def test_a_split_that_does_not_is_an_alarm():
    assert mismatch(0.3, 0.2).alarm


def test_units_count_only_when_all_accepted_before_them_have_ended():
    check = RatioMismatch(0.5)
    check.start = 10.0
    for accepted in (9.0, 10.0, 11.0, 12.0, 13.0):
        check.add(accepted, False)
    check.advance(12.0)
    assert (check.control, check.chaos) == (1, 0)
    check.advance(99.0)
    assert check.control == 3
