import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from faults.sampling import decide_touch, draw_delay, pareto_delay, uniform

IDS = [f"request-{number}" for number in range(100_000)]


def test_a_seed_and_a_request_give_one_draw_in_every_process():
    # Figures of the first implementation: another value would change every recorded run.
    assert uniform(7, "request-1", "touch") == 0.32684257181142606
    assert uniform("7", "request-1", "touch") == uniform(7, "request-1", "touch")


def test_the_share_of_touched_requests_is_the_probability():
    touched = sum(decide_touch(1, request, 0.04) for request in IDS)
    assert stats.binomtest(touched, len(IDS), 0.04).pvalue > 1e-4


def test_no_probability_touches_none_and_certainty_touches_all():
    assert not any(decide_touch(1, request, 0.0) for request in IDS[:1000])
    assert all(decide_touch(1, request, 1.0) for request in IDS[:1000])


def test_a_larger_probability_touches_the_same_requests_and_more():
    small = {request for request in IDS[:10_000] if decide_touch(1, request, 0.1)}
    large = {request for request in IDS[:10_000] if decide_touch(1, request, 0.2)}
    assert small < large


def test_who_is_touched_says_nothing_about_how_long():
    touched = [uniform(1, r, "delay") for r in IDS if decide_touch(1, r, 0.1)]
    assert stats.kstest(touched, "uniform").pvalue > 1e-4


def test_two_seeds_choose_independently():
    both = sum(decide_touch(1, r, 0.5) and decide_touch(2, r, 0.5) for r in IDS)
    assert stats.binomtest(both, len(IDS), 0.25).pvalue > 1e-4


@given(st.floats(0, 1, exclude_max=True), st.floats(0.5, 10), st.floats(0.001, 60))
def test_a_delay_lies_between_base_and_cap(u, alpha, base):
    assert base <= pareto_delay(u, alpha, base, 300.0) <= 300.0


@pytest.mark.parametrize("alpha", [1.3, 1.5, 1.8])
def test_quantiles_are_those_of_the_pareto_distribution(alpha):
    for u in (0.0, 0.5, 0.9, 0.99, 0.999):
        expected = stats.pareto.ppf(u, alpha, scale=0.05)
        assert pareto_delay(u, alpha, 0.05, math.inf) == pytest.approx(expected, rel=1e-12)


def test_the_tail_index_is_recovered_from_the_draws():
    draws = [draw_delay(3, request, alpha=1.5, base=0.05, cap=1e9) for request in IDS]
    estimate = len(draws) / sum(math.log(draw / 0.05) for draw in draws)
    assert abs(estimate - 1.5) <= 3 * 1.5 / math.sqrt(len(draws))


def test_the_cap_cuts_and_nothing_else():
    assert pareto_delay(0.999999, 1.5, 0.05, 1.0) == 1.0
    assert pareto_delay(0.5, 1.5, 0.05, 1.0) == pareto_delay(0.5, 1.5, 0.05, 30.0)


@pytest.mark.parametrize("bad", [(1.0, 1, 1, 1), (-0.1, 1, 1, 1), (0.5, 0, 1, 1), (0.5, 1, 0, 1)])
def test_a_draw_outside_its_bounds_is_an_error(bad):
    with pytest.raises(ValueError, match="no delay"):
        pareto_delay(*bad)
