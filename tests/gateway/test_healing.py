"""C90: a breaker heals in every way that a replica can, and in no way that it cannot.

A route without sockets, under a clock that the test moves. Twenty requests a second; the replica
`b` breaks, then is well again, and must get its traffic back; or it stays ill, and must not.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

import pytest

from gateway.breaker import BreakerState
from gateway.config import RouteConfig
from gateway.flight import Flight
from gateway.items import BreakerSpec, Running, SplitSpec
from gateway.routes import RouteState

RATE = 20.0
"""Requests a second."""
PAUSE = 5.0
WELL_SECONDS = 1200.0
"""Longest healing here: 368 good probes at a twentieth of ten requests a second need 736 s."""


@dataclass
class World:
    """A route and its traffic."""

    replicas: str = "ab"
    conversations: Callable[[int], str] = lambda number: f"c{number}"
    threshold: float = 0.05
    now: float = 0.0
    served: list[str] = field(default_factory=list)
    route: RouteState = field(init=False)
    _numbers: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        config = {
            "name": "chat",
            "replicas": [{"name": n, "url": f"http://{n}"} for n in self.replicas],
            "breaker": {"threshold_ratio": self.threshold, "open_seconds": PAUSE},
        }
        self.route = RouteState(RouteConfig.model_validate(config))

    def ask(self, outcome: Callable[[str], bool | None]) -> str:
        """Serve one request; the outcome of a replica is bad, good, or says nothing (None)."""
        number = next(self._numbers)
        self.now += 1 / RATE
        flight = Flight(f"k{number}", self.now, self.now, self.conversations(number))
        self.route.enter(flight)
        flight.replica = self.route.choose(flight, self.now).replica
        assert flight.replica in self.replicas  # there is always a target
        result = outcome(flight.replica)
        if result is not None:
            self.route.observe(flight.replica, result, self.now, flight.accepted_mono)
        self.route.leave(flight)
        self.served.append(flight.replica)
        return flight.replica

    def for_seconds(self, seconds: float, outcome: Callable[[str], bool | None]) -> None:
        for _ in range(int(seconds * RATE)):
            self.ask(outcome)

    @property
    def state(self) -> BreakerState:
        return self.route.base["b"].tick(self.now)

    def heals(self, outcome: Callable[[str], bool | None]) -> bool:
        """Whether `b` is closed again within the time, and then gets its share.

        A single error then opens nothing: what was before the healing is forgotten.
        """
        for _ in range(int(WELL_SECONDS * RATE)):
            self.ask(outcome)
            if self.state is BreakerState.CLOSED:
                self.served.clear()
                self.route.observe("b", True, self.now, self.now)
                self.for_seconds(30, outcome)
                return self.served.count("b") / len(self.served) > 0.3
        return False


def ill(replica: str) -> bool:
    return replica == "b"


def all_ill(_: str) -> bool:
    return True


def well(_: str) -> bool:
    return False


def broken(world: World) -> World:
    world.for_seconds(60, well)
    world.for_seconds(60, ill)
    assert world.state is not BreakerState.CLOSED
    world.served.clear()
    return world


def at_once() -> World:
    return broken(World())


def at_a_tight_threshold() -> World:
    """One percent needs 368 good probes, more than the window that opens it holds."""
    return broken(World(threshold=0.01))


def after_failed_probes() -> World:
    world = broken(World())
    world.for_seconds(120, ill)  # each failure starts the pause anew, and nothing worse
    return world


def after_silence() -> World:
    world = broken(World())
    world.now += 86_400
    return world


def with_a_handful_of_conversations() -> World:
    """Three that never end: in one round of probing there may be none of them that probes."""
    return broken(World(conversations=lambda number: f"c{number % 3}"))


def with_one_conversation_for_each_replica() -> World:
    world = World()
    keys = {}
    for number in range(1000):
        flight = Flight(f"k{number}", 0.0, 0.0, f"c{number}")
        world.route.enter(flight)
        keys.setdefault(world.route.choose(flight, 0.0).replica, f"c{number}")
        world.route.leave(flight)
    return broken(World(conversations=lambda number: keys["ab"[number % 2]]))


def without_conversations() -> World:
    return broken(World(conversations=lambda number: ""))


def when_every_breaker_was_open() -> World:
    world = World()
    world.for_seconds(60, all_ill)
    return world


def in_a_split() -> World:
    world = World()
    spec = SplitSpec(experiment="e", salt="s", share=0.5, control=("a",), chaos=("b",))
    world.route.put(Running("S", spec, 0.0), 0.0)
    return broken(world)


def after_a_remedy() -> World:
    """A tightened threshold opened it, and the remedy has ended."""
    world = World()
    world.for_seconds(60, well)
    spec = BreakerSpec(threshold_ratio=0.01, holdout_share=0.2, salt="s", replicas=("*",))
    remedy = Running("B", spec, 0.0)
    world.route.put(remedy, world.now)
    world.for_seconds(60, ill)
    world.route.take_off(remedy)
    return world


WAYS = (
    *(at_once, at_a_tight_threshold, after_failed_probes, after_silence),
    *(with_a_handful_of_conversations, with_one_conversation_for_each_replica),
    *(without_conversations, when_every_breaker_was_open, in_a_split, after_a_remedy),
)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.replace("_", " "))
def test_a_replica_that_is_well_again_gets_its_traffic_back(way: Callable[[], World]):
    assert way().heals(well)


def test_answers_that_say_nothing_hold_no_slot_and_heal_nothing():
    world = at_once()
    world.for_seconds(120, lambda replica: None if replica == "b" else False)
    assert world.state is BreakerState.HALF_OPEN
    assert "b" in world.served
    numbers = count()
    assert world.heals(lambda _: None if next(numbers) % 2 else False)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.replace("_", " "))
def test_a_replica_that_stays_ill_never_gets_its_traffic_back(way: Callable[[], World]):
    world = way()
    world.for_seconds(30, ill)
    world.served.clear()
    for _ in range(int(100 * RATE)):
        world.ask(ill)
        assert world.state is not BreakerState.CLOSED
    assert world.served.count("b") / len(world.served) < 0.06


def test_a_replica_that_is_only_better_does_not_get_its_traffic_back():
    """A fifth of its answers is still bad, at a threshold of a twentieth."""
    world, numbers = at_once(), count()
    for _ in range(int(300 * RATE)):
        world.ask(lambda replica: replica == "b" and next(numbers) % 5 == 0)
        assert world.state is not BreakerState.CLOSED


def test_a_lone_replica_is_served_through_and_heals_by_its_own_traffic():
    world = World(replicas="b")
    world.for_seconds(60, ill)
    assert world.state is not BreakerState.CLOSED
    assert world.route.all_open > 0
    assert world.heals(well)


def test_the_states_after_a_known_sequence():
    """Five hundred errors, the pause, a refusal for too many requests, then good answers."""
    world = World(replicas="b")
    seen = [world.state]
    for outcome, seconds in ((ill, 5.0), (ill, 1.0), (well, PAUSE), (ill, 2.0), (well, 60.0)):
        world.for_seconds(seconds, outcome)
        seen.append(world.state)
    closed, open_, half = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN
    assert seen == [closed, open_, open_, half, open_, closed]
