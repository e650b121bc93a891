"""The engine's own figures: means between two readings, its span, and what is not there."""

import pytest

from topology.engine import (
    FIRST_TOKEN,
    HITS,
    PREFILL,
    QUERIES,
    QUEUE,
    cache_between,
    times_between,
    times_of_span,
)


def samples(count: float, queue: float, prefill: float, first: float) -> dict[str, float]:
    sums = {QUEUE: queue, PREFILL: prefill, FIRST_TOKEN: first}
    found = {f"{name}_sum": value for name, value in sums.items()}
    return found | {f"{name}_count": count for name in sums}


def test_means_are_of_the_requests_between_two_readings():
    times = times_between(samples(10, 5, 5, 5), samples(14, 6, 7, 9))
    assert times is not None
    assert (times.queue_s, times.prefill_s, times.first_token_s) == (0.25, 0.5, 1.0)
    assert times.requests == 4
    assert "4 requests" in times.rests_on


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {}),
        (samples(3, 1, 1, 1), samples(3, 1, 1, 1)),
        (samples(9, 9, 9, 9), samples(2, 1, 1, 1)),
        (samples(1, 1, 1, 1), samples(2, float("nan"), float("nan"), float("nan"))),
    ],
    ids=["no metrics", "no request ended", "the engine was started again", "not a number"],
)
def test_without_a_rise_there_are_no_figures(before: dict[str, float], after: dict[str, float]):
    assert times_between(before, after) is None


def test_the_use_of_the_prefix_cache_is_that_between_two_readings():
    use = cache_between({QUERIES: 100, HITS: 20}, {QUERIES: 300, HITS: 170})
    assert use is not None
    assert (use.queries, use.hits, use.hit_ratio) == (200, 150, 0.75)
    idle = cache_between({QUERIES: 1, HITS: 0}, {QUERIES: 1, HITS: 0})
    assert idle is not None
    assert idle.hit_ratio == 0
    assert cache_between({}, {}) is None


def test_a_span_of_vllm_gives_the_times_of_its_request():
    times = times_of_span(
        {
            "gen_ai.latency.time_in_queue": 0.1,
            "gen_ai.latency.time_in_model_prefill": 0.2,
            "gen_ai.latency.time_to_first_token": 0.4,
            "gen_ai.request.id": "x",
        }
    )
    assert times is not None
    assert (times.queue_s, times.prefill_s, times.first_token_s) == (0.1, 0.2, 0.4)
    assert times_of_span({"gen_ai.latency.time_in_queue": True}) is None
    assert times_of_span({}) is None
