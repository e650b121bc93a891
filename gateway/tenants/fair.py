"""Who goes next on a route that is full: a virtual clock of tokens for each tenant.

Each tenant has a clock that moves on by the tokens of its requests over its weight. When a place is
free, the waiting tenant whose clock is furthest behind goes. A tenant that comes back from a rest
starts where the others are, so rest is never saved up. Between two tenants that both wait all the
time, the tokens served over their weights never differ by more than the largest request of each,
and by what requests in flight turned out to need beyond what was expected of them. Nobody who waits
can be passed by for ever, since each pass moves the passing clock.

Pure: no clock, no loop. Limits on waiting are the caller's; here each queue is bounded by length.

Source: Goyal, Vin and Cheng, SIGCOMM 1996 (start-time fair queuing); Sheng et al., OSDI 2024
(tokens as the cost of a request, corrected when it ends).
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum


class Turn(Enum):
    """What becomes of a request that comes."""

    NOW = "now"
    LATER = "later"
    NEVER = "never"
    """Its tenant has as many waiting as may wait."""


@dataclass(eq=False, slots=True)
class Lane:
    """One tenant on one route."""

    weight: float
    clock: float = 0.0
    """Tokens over weight, with the head start of those who rested."""
    waiting_since: int = 0
    queue: "OrderedDict[Place, None]" = field(default_factory=OrderedDict)


@dataclass(eq=False, slots=True)
class Place:
    """One request's place: waiting, served, or neither."""

    lane: Lane
    cost: float
    """Tokens expected, at least 1."""
    go: Callable[[], None]
    """What is to be called when it has waited and its turn has come."""
    is_served: bool = False


class Gate:
    """One route's places."""

    def __init__(self, places: int, queue: int) -> None:
        """Open it.

        Args:
            places: requests served at once.
            queue: requests of one lane that may wait.
        """
        self.places = places
        self.queue = queue
        self.served = 0
        self._backlogged: dict[Lane, None] = {}
        self._floor = 0.0
        self._joined = 0

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return sum(len(lane.queue) for lane in self._backlogged)

    def come(self, place: Place) -> Turn:
        """Take a request in."""
        lane = place.lane
        if not self._backlogged and self.served < self.places:
            lane.clock = max(lane.clock, self._floor)
            self._serve(place)
            return Turn.NOW
        if len(lane.queue) >= self.queue:
            return Turn.NEVER
        if not lane.queue:
            lane.clock = max(lane.clock, self._floor)
            self._joined += 1
            lane.waiting_since = self._joined
            self._backlogged[lane] = None
        lane.queue[place] = None
        return Turn.LATER

    def leave(self, place: Place, used: float) -> None:
        """End a request, served or waiting. `used`: the tokens that it came to."""
        lane = place.lane
        if place.is_served:
            place.is_served = False
            self.served -= 1
            lane.clock += (max(used, 1.0) - place.cost) / lane.weight
        elif place in lane.queue:
            del lane.queue[place]
            if not lane.queue:
                del self._backlogged[lane]

    def next(self) -> Iterator[Place]:
        """Serve those whose turn it is now, and name them: the caller lets them go on."""
        while self._backlogged and self.served < self.places:
            lane = min(self._backlogged, key=lambda lane: (lane.clock, lane.waiting_since))
            place, _ = lane.queue.popitem(last=False)
            if not lane.queue:
                del self._backlogged[lane]
            self._serve(place)
            yield place

    def _serve(self, place: Place) -> None:
        lane = place.lane
        self._floor = max(self._floor, lane.clock)
        lane.clock += place.cost / lane.weight
        place.is_served = True
        self.served += 1
