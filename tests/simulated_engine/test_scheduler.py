from hypothesis import given
from hypothesis import strategies as st

from simulated_engine.scheduler import Scheduler, Sequence, State

KV, SLOTS = 40, 3


def queued(scheduler, prompt, admitted=None):
    sequence = Sequence(
        prompt, "", lambda: admitted.append(sequence) if admitted is not None else None
    )
    scheduler.submit(sequence)
    return sequence


def test_requests_beyond_the_slots_wait_and_start_in_order():
    scheduler, admitted = Scheduler(SLOTS, KV), []
    sequences = [queued(scheduler, 1, admitted) for _ in range(6)]
    assert admitted == sequences[:SLOTS]
    scheduler.finish(sequences[1])
    scheduler.finish(sequences[0])
    assert admitted == sequences[:5]
    assert (scheduler.running, scheduler.waiting) == (3, 1)


def test_a_small_request_does_not_overtake_a_big_one_that_waits_for_memory():
    scheduler = Scheduler(SLOTS, KV)
    first = queued(scheduler, 30)
    big, small = queued(scheduler, 20), queued(scheduler, 1)
    assert (big.state, small.state) == (State.WAITING, State.WAITING)
    scheduler.finish(first)
    assert (big.state, small.state) == (State.RUNNING, State.RUNNING)


def test_the_youngest_gives_way_when_the_cache_is_full_and_comes_back_first():
    scheduler = Scheduler(SLOTS, KV)
    old, young = queued(scheduler, 20), queued(scheduler, 20)
    late = queued(scheduler, 20)
    assert scheduler.grow(old)
    assert young.state is State.WAITING
    assert (scheduler.preemptions_total, young.preemptions) == (1, 1)
    scheduler.finish(old)
    assert young.state is State.RUNNING
    assert late.state is State.RUNNING


def test_a_request_that_is_itself_the_youngest_gives_way():
    scheduler = Scheduler(SLOTS, KV)
    old, young = queued(scheduler, 20), queued(scheduler, 20)
    assert scheduler.grow(young) is False
    assert young.state is State.WAITING
    assert old.state is State.RUNNING


def test_a_paused_engine_admits_nothing_until_resumed():
    scheduler = Scheduler(SLOTS, KV)
    scheduler.pause()
    held = queued(scheduler, 1)
    assert held.state is State.WAITING
    scheduler.resume()
    assert held.state is State.RUNNING


@given(
    st.lists(st.tuples(st.sampled_from(["new", "grow", "end"]), st.integers(0, 20)), max_size=80)
)
def test_no_order_of_events_breaks_the_limits_or_loses_a_request(events):
    scheduler, alive = Scheduler(SLOTS, KV), []
    for act, number in events:
        running = [one for one in alive if one.state is State.RUNNING]
        if act == "new":
            alive.append(queued(scheduler, 1 + number))
        elif act == "grow" and running:
            one = running[number % len(running)]
            if one.tokens < KV:
                scheduler.grow(one)
        elif act == "end" and alive:
            scheduler.finish(alive.pop(number % len(alive)))
        held = sum(one.tokens for one in alive if one.state is State.RUNNING)
        assert held <= KV
        assert scheduler.kv_usage_ratio() == held / KV
        assert scheduler.running <= SLOTS
        assert scheduler.running + scheduler.waiting == len(alive)
        assert scheduler.running > 0 or not alive, "someone must run while anyone is there"
    for one in alive:
        scheduler.finish(one)
    assert (scheduler.running, scheduler.waiting, scheduler.kv_usage_ratio()) == (0, 0, 0.0)
