"""The breaker opens on evidence, heals on evidence, and is not moved by what says nothing (C90)."""

import random
from math import ceil, log

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binom

from gateway.breaker import Breaker, BreakerState, tail_at_least, tail_at_most

CLOSED, OPEN, HALF = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN


def fresh(threshold: float = 0.05) -> Breaker:
    return Breaker.fresh(threshold, window=200, minimum=100, pause=5.0)


def feed(breaker: Breaker, results: str, now: float = 0.0) -> Breaker:
    """Feed `.` for good and `x` for bad."""
    for each in results:
        breaker.observe(each == "x", now)
    return breaker


@given(st.integers(1, 4_000), st.data(), st.sampled_from([0.002, 0.01, 0.05, 0.3]))
def test_the_tails_are_those_of_the_binomial(total: int, data, ratio: float):
    bad = data.draw(st.integers(0, total))
    assert tail_at_least(bad, total, ratio) == pytest.approx(
        binom.sf(bad - 1, total, ratio), rel=1e-6
    )
    assert tail_at_most(bad, total, ratio) == pytest.approx(binom.cdf(bad, total, ratio), rel=1e-6)


@given(st.integers(100, 200), st.data(), st.sampled_from([0.01, 0.05, 0.2]))
def test_it_opens_exactly_when_the_lower_bound_exceeds_the_threshold(total, data, threshold):
    bad = data.draw(st.integers(0, total // 3))
    breaker = feed(fresh(threshold), "." * (total - bad) + "x" * bad)
    first = total - bad
    opened = False
    for k in range(1, bad + 1):  # it looks after each of them
        n = first + k
        opened |= n >= 100 and beta.ppf(0.001, k, n - k + 1) > threshold
    assert (breaker.state is OPEN) == opened


@pytest.mark.parametrize(
    ("results", "state"),
    [
        ("x" * 99, CLOSED),
        ("x" * 100, OPEN),
        ("." * 100, CLOSED),
        ("." * 190 + "x" * 8, CLOSED),
        ("." * 170 + "x" * 25, OPEN),
    ],
    ids=["too-few", "all-bad", "all-good", "four-percent", "an-eighth"],
)
def test_a_sequence_leads_to_its_state(results: str, state: BreakerState):
    assert feed(fresh(), results).state is state


def test_four_percent_bad_over_a_five_percent_threshold_seldom_trips():
    """4 minutes at 12 requests a second, 60 times: at 1.3 % of runs, 5 or more come in 1 of 900."""
    random_ = random.Random(7)
    tripped = 0
    for _ in range(60):
        breaker = fresh()
        for _ in range(2_880):
            breaker.observe(random_.random() < 0.04, 0.0)
        tripped += breaker.state is not CLOSED
    assert tripped <= 4


def test_four_percent_bad_over_a_one_percent_threshold_trips_within_seconds():
    """At 12 requests a second to the replica: median within 18 s, nine of ten within 45 s."""
    random_ = random.Random(7)
    counts = []
    for _ in range(60):
        base = fresh()
        for _ in range(200):
            base.observe(random_.random() < 0.04, 0.0)
        breaker = base.tightened(0.01, now=0.0)
        count = 0
        while breaker.state is CLOSED:
            breaker.observe(random_.random() < 0.04, 0.0)
            count += 1
        counts.append(count)
    counts.sort()
    assert counts[30] <= 18 * 12
    assert counts[54] <= 45 * 12


def test_tightening_judges_what_is_already_known():
    known = feed(fresh(), "." * 180 + "x" * 12)
    assert known.state is CLOSED
    assert known.tightened(0.01, now=3.0).state is OPEN
    assert known.state is CLOSED  # the base breaker is another one


def test_it_pauses_then_probes_and_closes_only_when_enough_probes_were_good():
    breaker = feed(fresh(), "x" * 100, now=10.0)
    assert breaker.tick(14.9) is OPEN
    assert breaker.tick(15.0) is HALF
    needed = ceil(log(0.025) / log(0.95))
    feed(breaker, "." * (needed - 1), now=16.0)
    assert breaker.state is HALF
    feed(breaker, ".", now=16.0)
    assert breaker.state is CLOSED
    assert breaker.window.total == 0  # the past that opened it cannot open it again


def test_a_one_percent_threshold_can_heal_although_its_window_is_shorter_than_its_proof():
    breaker = feed(fresh(0.01), "x" * 100)
    breaker.tick(5.0)
    feed(breaker, "." * 367, now=6.0)
    assert breaker.state is HALF
    assert feed(breaker, "." * 2, now=6.0).state is CLOSED


def test_bad_probes_open_it_again_and_the_pause_starts_anew():
    breaker = feed(fresh(), "x" * 100, now=0.0)
    breaker.tick(5.0)
    feed(breaker, "..xxxx", now=7.0)
    assert breaker.state is OPEN
    assert breaker.tick(11.9) is OPEN
    assert breaker.tick(12.0) is HALF
    assert breaker.probes.total == 0


def test_failures_while_open_do_not_prolong_the_pause():
    breaker = feed(fresh(), "x" * 100, now=0.0)
    feed(breaker, "xxxxx", now=4.0)
    assert breaker.tick(5.0) is HALF


@given(st.text("x.", max_size=600))
def test_it_is_never_stuck_good_probes_close_it_from_any_past(past: str):
    breaker = feed(fresh(), past, now=0.0)
    breaker.tick(100.0)
    feed(breaker, "." * 1_000, now=100.0)
    assert breaker.state is CLOSED
