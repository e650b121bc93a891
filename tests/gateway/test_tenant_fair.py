"""A full route is shared by weight, nobody starves, and no place stays empty while one waits."""

import random
from collections import Counter, defaultdict, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tenants.fair import Gate, Lane, Place, Turn


def place(lane: Lane, cost: float = 1.0) -> Place:
    return Place(lane, cost, lambda: None)


def test_a_free_route_lets_everybody_in_at_once():
    gate, lane = Gate(2, 0), Lane(1.0)
    first = place(lane)
    assert [gate.come(first), gate.come(place(lane))] == [Turn.NOW, Turn.NOW]
    assert gate.come(place(lane)) is Turn.NEVER
    gate.leave(first, 1.0)
    assert gate.come(place(lane)) is Turn.NOW


def test_a_quiet_tenant_goes_next_however_many_of_a_noisy_one_wait():
    gate, noisy, quiet = Gate(1, 100), Lane(1.0), Lane(1.0)
    served = place(noisy)
    gate.come(served)
    waiting = [place(noisy) for _ in range(50)]
    assert {gate.come(each) for each in waiting} == {Turn.LATER}
    one = place(quiet)
    assert gate.come(one) is Turn.LATER
    gate.leave(served, 1.0)
    order = []
    for _ in range(2):
        (now,) = gate.next()
        order.append(now)
        gate.leave(now, 1.0)
    assert one in order


def test_a_long_rest_saves_nothing_up():
    gate, busy, rested = Gate(1, 100), Lane(1.0), Lane(1.0)
    for _ in range(1000):
        each = place(busy, 50.0)
        assert gate.come(each) is Turn.NOW
        gate.leave(each, 50.0)
    first = place(busy)
    gate.come(first)
    for lane in (busy, rested):
        for _ in range(50):
            gate.come(place(lane))
    gate.leave(first, 1.0)
    taken = Counter[Lane]()
    for _ in range(40):
        (now,) = gate.next()
        taken[now.lane] += 1
        gate.leave(now, 1.0)
    assert abs(taken[busy] - taken[rested]) <= 51  # the one request of 50 tokens, and one more
    assert taken[busy] and taken[rested]


COSTS = st.floats(1, 100)
WEIGHTS = st.floats(0.1, 10)


@given(
    st.lists(WEIGHTS, min_size=2, max_size=5),
    st.integers(1, 6),
    st.integers(0, 2**32),
    st.booleans(),
)
def test_tenants_that_always_wait_get_their_weights_within_the_bound(weights, places, seed, exact):
    """The bound of the module: the largest request of each, and what was mistaken in flight."""
    draw = random.Random(seed)
    gate = Gate(places, 1000)
    lanes = [Lane(weight) for weight in weights]
    tokens: dict[Lane, float] = defaultdict(float)
    flying: deque[Place] = deque()

    def more(lane: Lane) -> None:
        each = place(lane, draw.uniform(1, 100))
        if gate.come(each) is Turn.NOW:
            flying.append(each)

    for lane in lanes:
        for _ in range(10 + places):
            more(lane)
    begun = False
    for _ in range(300):
        ended = flying.popleft()
        used = ended.cost if exact else draw.uniform(1, 100)
        gate.leave(ended, used)
        if begun:
            tokens[ended.lane] += used - ended.cost
        for now in gate.next():
            flying.append(now)
            tokens[now.lane] += now.cost
            more(now.lane)
        begun = True
        shares = [tokens[lane] / lane.weight for lane in lanes]
        mistakes = 0 if exact else places * 100
        for share, lane in zip(shares, lanes, strict=True):
            for other_share, other in zip(shares, lanes, strict=True):
                # The clocks may differ by one request of each at the start, and again at the end.
                bound = (2 * 100 + mistakes) * (1 / lane.weight + 1 / other.weight)
                assert abs(share - other_share) <= bound


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_weights_are_met_in_the_long_run(weight: float):
    gate, heavy, light = Gate(4, 1000), Lane(weight), Lane(1.0)
    draw, tokens, flying = random.Random(7), Counter[Lane](), deque[Place]()

    def more(lane: Lane) -> None:
        each = place(lane, 50.0)
        if gate.come(each) is Turn.NOW:
            flying.append(each)

    for _ in range(20):
        more(heavy)
        more(light)
    for _ in range(20_000):
        ended = flying.popleft()
        used = draw.uniform(1, 400 if ended.lane is heavy else 100)
        tokens[ended.lane] += used
        gate.leave(ended, used)
        for now in gate.next():
            flying.append(now)
            more(now.lane)
    assert tokens[heavy] / tokens[light] == pytest.approx(weight, rel=0.02)


@given(
    st.integers(1, 5),
    st.integers(0, 5),
    st.lists(st.tuples(st.sampled_from("acgx"), st.integers(0, 3), COSTS), max_size=120),
)
def test_no_place_stays_empty_while_one_waits_and_every_count_comes_back_to_zero(
    places, queue, acts
):
    gate = Gate(places, queue)
    lanes = [Lane(1.0 + n) for n in range(4)]
    inside: list[Place] = []
    waiting: list[Place] = []
    for act, number, cost in acts:
        if act in "ac":  # somebody comes
            each = place(lanes[number], cost)
            turn = gate.come(each)
            own = sum(other.lane is each.lane for other in waiting)
            assert (turn is Turn.NOW) == (len(inside) < places and not waiting)
            assert (turn is Turn.NEVER) == (turn is not Turn.NOW and own >= queue)
            if turn is not Turn.NEVER:
                (inside if turn is Turn.NOW else waiting).append(each)
        else:  # somebody ends, or gives up waiting
            group = inside if act == "g" else waiting
            if group:
                gate.leave(group.pop(number % len(group)), cost)
            for now in gate.next():
                waiting.remove(now)
                inside.append(now)
        assert (gate.served, gate.waiting) == (len(inside), len(waiting))
        assert gate.served <= places
        assert not waiting or gate.served == places
    while inside:
        gate.leave(inside.pop(), 1.0)
        for now in gate.next():
            waiting.remove(now)
            inside.append(now)
    assert (gate.served, gate.waiting, waiting) == (0, 0, [])


@given(st.integers(1, 4), st.floats(1, 1000), st.integers(2, 30))
def test_nobody_is_passed_by_for_ever(places, cost, crowd):
    """A request of any size goes before the others have had more than its tenant's share."""
    gate, noisy = Gate(places, 10_000), [Lane(1.0) for _ in range(crowd)]
    one = Lane(1.0)
    inside = deque[Place]()
    for lane in noisy:
        for _ in range(40 + places):
            each = place(lane, 10.0)
            if gate.come(each) is Turn.NOW:
                inside.append(each)
    late = place(one, cost)
    assert gate.come(late) is Turn.LATER
    passed = 0
    while not late.is_served:
        gate.leave(inside.popleft(), 10.0)
        (now,) = gate.next()
        if now is not late:
            passed += 1
            inside.append(now)
            gate.come(place(now.lane, 10.0))
        assert passed <= 2 * crowd  # each of the others goes at most twice before it
