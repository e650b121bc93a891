"""Stages sum to the whole, say what they rest on, and leave unknown what nobody knows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.canary.build import record
from tests.topology.build import trace
from topology.stages import (
    EngineTimes,
    Part,
    Stage,
    Timing,
    attribute,
    mean_timing,
    timing_of_record,
    timing_of_trace,
)

SECONDS = st.floats(0, 100)
MAYBE = st.none() | SECONDS


def by_stage(parts: tuple[Part, ...]) -> dict[Stage, float | None]:
    return {part.stage: part.seconds for part in parts}


@st.composite
def timings(draw: st.DrawFn) -> Timing:
    sent, wait, answer, tail = (draw(SECONDS) for _ in range(4))
    has_first, has_sent, has_last = (draw(st.booleans()) for _ in range(3))
    return Timing(
        e2e_s=sent + wait + answer + tail,
        sent_s=sent if has_sent else None,
        first_token_s=sent + wait if has_first else None,
        last_event_s=sent + wait + answer if has_last else None,
        stall_s=draw(SECONDS),
        stall_rests_on="x",
    )


@given(timings(), st.none() | st.builds(EngineTimes, MAYBE, MAYBE, MAYBE, st.just("engine")))
def test_stages_sum_to_the_whole_and_none_is_negative(timing: Timing, engine: EngineTimes | None):
    parts = attribute(timing, engine)
    assert [part.stage for part in parts] == list(Stage)
    known = [part.seconds for part in parts if part.seconds is not None]
    assert min(known) >= 0
    assert sum(known) == pytest.approx(timing.e2e_s, abs=1e-6)
    assert all(part.rests_on for part in parts)


def test_with_all_figures_every_stage_is_known():
    engine = EngineTimes(0.05, 0.1, 0.16, "engine")
    stages = by_stage(attribute(timing_of_trace(trace(), 2.0), engine))
    assert stages == pytest.approx(
        {
            Stage.GATEWAY: 0.01 + 0.05,
            Stage.NETWORK: 0.03,
            Stage.QUEUE: 0.05,
            Stage.PREFILL: 0.1,
            Stage.DECODE: 0.25,
            Stage.STALL: 0.0,
            Stage.UNKNOWN: 0.01,  # between the engine's front and its queue
        }
    )


def test_a_first_token_of_other_requests_than_queue_and_prefill_counts_nothing_twice():
    engine = EngineTimes(0.05, 0.1, 0.12, "engine")
    stages = by_stage(attribute(timing_of_trace(trace(), 2.0), engine))
    assert stages[Stage.NETWORK] == pytest.approx(0.19 - 0.15)
    assert stages[Stage.UNKNOWN] == pytest.approx(0.0)


def test_without_the_engines_figures_the_wait_is_unknown():
    stages = by_stage(attribute(timing_of_trace(trace(), 2.0), None))
    assert (stages[Stage.NETWORK], stages[Stage.QUEUE], stages[Stage.PREFILL]) == (None,) * 3
    assert stages[Stage.UNKNOWN] == pytest.approx(0.19)


def test_figures_that_do_not_fit_into_the_wait_are_not_used_and_it_is_said():
    parts = attribute(timing_of_trace(trace(), 2.0), EngineTimes(1.0, 1.0, 2.0, "engine"))
    queue = next(part for part in parts if part.stage is Stage.QUEUE)
    assert queue.seconds is None
    assert "do not fit into a wait of 0.19 s" in queue.rests_on


def test_figures_that_are_a_little_too_long_are_shrunk_and_it_is_said():
    parts = attribute(timing_of_trace(trace(), 2.0), EngineTimes(0.1, 0.1, None, "engine"))
    stages = by_stage(parts)
    assert stages[Stage.QUEUE] == pytest.approx(0.095)
    assert stages[Stage.NETWORK] is None
    assert stages[Stage.UNKNOWN] == pytest.approx(0.0)
    assert "shrunk by 5.0%" in parts[2].rests_on


def test_every_silence_of_a_trace_above_the_limit_is_a_stall():
    slow = trace(chunks=[0.2, 2.5, 2.6, 5.0], content=[1, 1, 1, 0], e2e_s=5.1)
    stages = by_stage(attribute(timing_of_trace(slow, 2.0), None))
    assert stages[Stage.STALL] == pytest.approx(2.3 + 2.4)
    assert stages[Stage.DECODE] == pytest.approx(0.1)
    assert stages[Stage.GATEWAY] == pytest.approx(0.01 + 0.1)


def test_the_silence_before_an_end_that_was_not_the_answers_own_is_a_stall_too():
    cut = trace(outcome="timeout", e2e_s=10.45)
    stages = by_stage(attribute(timing_of_trace(cut, 2.0), None))
    assert stages[Stage.STALL] == pytest.approx(10.0)
    assert stages[Stage.GATEWAY] == pytest.approx(0.01)


def test_the_silence_before_the_first_token_is_a_wait_and_no_stall():
    role_first = trace(chunks=[0.1, 5.0], content=[0, 1], first_token_s=5.0, e2e_s=5.2)
    stages = by_stage(attribute(timing_of_trace(role_first, 2.0), None))
    assert stages[Stage.STALL] == 0.0


def test_a_request_without_a_first_token_was_all_wait():
    none = trace(first_token_s=None, chunks=[], content=[], outcome="transport", e2e_s=3.0)
    stages = by_stage(attribute(timing_of_trace(none, 2.0), None))
    assert stages[Stage.UNKNOWN] == pytest.approx(2.99)
    assert stages[Stage.DECODE] == 0.0


def test_of_a_record_only_the_longest_silence_is_known_and_it_says_so():
    timing = timing_of_record(record(1, ttft_s=0.1, max_gap_s=4.0, e2e_s=9.0), 2.0)
    parts = attribute(timing, None)
    stages = by_stage(parts)
    assert (stages[Stage.STALL], stages[Stage.GATEWAY]) == (4.0, None)
    assert stages[Stage.DECODE] == pytest.approx(4.9)
    assert "lower bound" in parts[5].rests_on


def test_a_mean_leaves_out_requests_without_a_first_token_and_nothing_has_no_mean():
    good = timing_of_record(record(1, ttft_s=0.1, e2e_s=1.0), 2.0)
    none = timing_of_record(record(2, ttft_s=None, e2e_s=50.0), 2.0)
    mean = mean_timing([good, good, none], (0.02, 7))
    assert mean is not None
    assert (mean.e2e_s, mean.sent_s, mean.requests) == (1.0, 0.02, 2)
    assert "7 sampled requests" in attribute(mean, None)[0].rests_on
    own = mean_timing([timing_of_trace(trace(sent_s=0.01), 2.0)] * 2, (9.0, 1))
    assert own is not None
    assert own.sent_s == 0.01
    assert mean_timing([none]) is None
    assert mean_timing([]) is None
