"""Where one request goes: pure choices, no I/O, no clock, no chance.

Every draw is a keyed hash of a salt and the randomisation unit, so that a unit keeps its arm, its
replica and its treatment for as long as the salt lives, on every gateway and after every restart.
Draws of different purpose are told apart by a domain word: without it the units of the hold-out
would all lie in one arm. What this does not do: look at health. It is handed the set of replicas
that may be used, and says so when it had to leave the one it would have picked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from gateway.config import ANY_MODEL, RouteConfig

Arm = Literal["control", "chaos", ""]
Treatment = Literal["treated", "holdout", ""]

_SCALE = float(2**64)


def unit_hash(key: str) -> str:
    """Name a randomisation unit: 16 hex digits that do not give the key away at a glance."""
    raw = key.encode("utf-8", "surrogateescape")
    return blake2b(raw, digest_size=8, person=b"burnproof-unit").hexdigest()


def point(domain: str, salt: str, unit: str) -> float:
    """Draw a number in [0, 1) that depends on nothing but its three words."""
    text = f"{len(domain)}:{domain}{len(salt)}:{salt}{unit}".encode("utf-8", "surrogateescape")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") / _SCALE


@dataclass(frozen=True, slots=True)
class Split:
    """An experiment's two arms on one route."""

    item_id: str
    experiment: str
    salt: str
    share: float
    """Share of units in the chaos arm, ratio in (0, 1)."""
    control: tuple[str, ...]
    chaos: tuple[str, ...]
    by_conversation: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """The picked replica and what the record must say about the pick."""

    arm: Arm
    assigned: str
    replica: str
    all_open: bool = False
    """No replica was allowed, so the least bad one serves."""

    @property
    def fallback(self) -> bool:
        """Whether another replica serves than the one picked first."""
        return self.assigned != self.replica


def match_route(routes: Sequence[RouteConfig], model: str | None) -> RouteConfig | None:
    """Find the route of a model; a request that names none goes to the any-model or first route."""
    for route in routes:
        if model is not None and model in route.models:
            return route
    for route in routes:
        if ANY_MODEL in route.models:
            return route
    return routes[0] if model is None and routes else None


def arm_of(split: Split, unit: str) -> Arm:
    """Assign a unit to its arm for the life of the split's salt."""
    return "chaos" if point("arm", split.salt, unit) < split.share else "control"


def treatment_of(salt: str, holdout_share: float, unit: str) -> Treatment:
    """Assign a unit to the treated or the hold-out group of a remedy."""
    return "holdout" if point("treatment", salt, unit) < holdout_share else "treated"


def pick_in_arm(split: Split, arm: Arm, unit: str) -> str:
    """Pick the unit's replica inside its arm: an even, sticky spread over the arm's replicas."""
    members = split.chaos if arm == "chaos" else split.control
    return members[int(point("replica", split.salt, unit) * len(members))]


def pick_free(replicas: Sequence[str], load: Mapping[str, int], unit: str, *, sticky: bool) -> str:
    """Pick a replica when no split is on.

    A conversation keeps its replica (its prefix cache is there) by rendezvous hashing, so that the
    loss of one replica moves only that one's conversations; a lone request goes where the fewest
    are outstanding.
    """
    if sticky:
        return max(replicas, key=lambda name: point("sticky", name, unit))
    return min(replicas, key=lambda name: (load.get(name, 0), point("spread", name, unit)))


@dataclass(frozen=True, slots=True)
class Health:
    """What the breakers say for one unit: the replicas it may use, and how bad each one is."""

    allowed: frozenset[str]
    badness: Mapping[str, float]
    load: Mapping[str, int]


def settle(arm: Arm, assigned: str, replicas: Sequence[str], health: Health) -> Choice:
    """Keep the assigned replica if it is allowed; else the least loaded allowed one.

    With none allowed the least bad replica serves: a breaker may never take a route's last target.
    """
    if assigned in health.allowed:
        return Choice(arm, assigned, assigned)
    usable = [name for name in replicas if name in health.allowed]
    if usable:
        return Choice(arm, assigned, min(usable, key=lambda name: health.load.get(name, 0)))
    least_bad = min(replicas, key=lambda name: (health.badness.get(name, 0.0), name != assigned))
    return Choice(arm, assigned, least_bad, all_open=True)
