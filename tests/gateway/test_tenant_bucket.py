"""A quota holds whatever comes: burst, plus rate times time, plus what was in flight."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tenants.bucket import Bucket

TOKENS = st.floats(0, 5_000)
STEPS = st.lists(
    st.tuples(st.floats(0, 30), TOKENS, TOKENS, st.integers(0, 6)), min_size=1, max_size=60
)
"""For each request: seconds until it comes, what it sets aside, what it uses, and how many other
requests end before it does."""


@given(st.floats(0.1, 500), st.floats(1, 5_000), STEPS)
def test_no_more_is_used_than_quota_and_burst_and_what_was_in_flight(rate, burst, steps):
    bucket, now, used, beyond = Bucket(rate, burst, burst, 0.0), 0.0, 0.0, 0.0
    flying: list[tuple[float, float]] = []
    for gap, reserve, actual, others in steps:
        now += gap
        if bucket.take(reserve, now) == 0.0:
            flying.append((min(reserve, burst), actual))
            # Only what is in flight now may still use more than it set aside: no debt is older.
            beyond = sum(max(0.0, each - aside) for aside, each in flying)
        while len(flying) > others:
            aside, each = flying.pop(0)
            bucket.settle(aside, each, now)
            used += each
        promised = used + sum(aside for aside, _ in flying)
        assert promised <= (burst + rate * now + beyond) * (1 + 1e-9)
    assert bucket.level <= burst


@given(st.floats(0.1, 500), st.floats(1, 5_000), STEPS)
def test_nobody_is_let_in_while_tokens_are_owed(rate, burst, steps):
    bucket, now = Bucket(rate, burst, burst, 0.0), 0.0
    for gap, reserve, actual, _ in steps:
        now += gap
        if bucket.take(reserve, now) == 0.0:
            assert bucket.level >= 0.0
            bucket.settle(min(reserve, burst), actual, now)


@given(st.floats(0.1, 500), st.floats(1, 5_000), st.floats(-5_000, 5_000), st.floats(0, 10_000))
def test_after_the_seconds_that_it_says_the_same_request_is_let_in(rate, burst, level, tokens):
    bucket = Bucket(rate, burst, min(level, burst), 100.0)
    seconds = bucket.take(tokens, 100.0)
    if seconds:
        assert bucket.take(tokens, 100.0 + 0.99 * seconds - 1e-9) > 0.0
        assert bucket.take(tokens, 100.0 + math.ceil(seconds + 0.001)) == 0.0


@given(st.floats(0.1, 500), st.floats(1, 5_000), TOKENS)
def test_what_was_set_aside_and_not_used_comes_back(rate, burst, reserve):
    bucket = Bucket(rate, burst, burst, 0.0)
    assert bucket.take(reserve, 0.0) == 0.0
    bucket.settle(min(reserve, burst), 0.0, 0.0)
    assert bucket.level == pytest.approx(burst)


def test_a_debt_outlives_new_limits():
    bucket = Bucket(10.0, 100.0, 100.0, 0.0)
    bucket.take(100.0, 0.0)
    bucket.settle(100.0, 600.0, 0.0)
    bucket.limit(50.0, 20.0, 0.0)
    assert bucket.level == -500.0
    assert bucket.take(20.0, 0.0) == pytest.approx(520 / 50)


def test_a_clock_that_goes_back_gives_no_tokens():
    bucket = Bucket(10.0, 100.0, 0.0, 50.0)
    bucket.fill(40.0)
    bucket.fill(50.0)
    assert bucket.level == 0.0
