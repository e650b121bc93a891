"""One route as it runs: its breakers, what leases have put on it, and its requests in flight.

This is the only mutable state that the data path reads. It sequences pure choices (`routing.py`,
`breaker.py`) and decides nothing itself. The order is fixed: tenant, admission, breaker, split,
fault hooks.
A split names the replica a unit belongs to; the breakers may then send it elsewhere, and the
record says so. Faults are looked up by the replica that serves, not by the arm: leaving the
replica is what makes a request safe.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from gateway.breaker import PROBE_SHARE, Breaker, BreakerState
from gateway.config import ReplicaConfig, RouteConfig
from gateway.flight import Flight
from gateway.items import EVERY_REPLICA, BreakerSpec, FaultSpec, Running, RunningFault, SplitSpec
from gateway.routing import (
    Choice,
    Health,
    Split,
    arm_of,
    pick_free,
    pick_in_arm,
    point,
    settle,
    treatment_of,
    unit_hash,
)
from slo.objective import Indicator

MAX_UNITS = 200_000
"""Units remembered per split to tell a first request; the longest unseen is forgotten first."""


class UnknownReplica(ValueError):
    """An item names a replica that the route does not have."""


@dataclass(eq=False)
class RouteState:
    """The running state of one route."""

    config: RouteConfig
    indicator: Indicator = field(init=False)
    """What counts as bad here when nobody gives an SLO."""
    names: tuple[str, ...] = field(init=False)
    """The replicas that may be chosen. Those that left stay in the tables for their streams."""
    bases: dict[str, str] = field(default_factory=dict)
    """The address of each replica."""
    load: dict[str, int] = field(default_factory=dict)
    """Requests outstanding at each replica."""
    moved_at: dict[str, float] = field(default_factory=dict)
    """When a reload gave a replica its address, loop seconds: older requests tell of another."""
    base: dict[str, Breaker] = field(default_factory=dict)
    tight: dict[str, Breaker] = field(default_factory=dict)
    """Breakers under a remedy's threshold, of the replicas it covers."""
    remedy: Running | None = None
    split: Split | None = None
    split_item: Running | None = None
    faults: dict[str, tuple[RunningFault, ...]] = field(default_factory=dict)
    flights: dict[Flight, None] = field(default_factory=dict)
    """In flight, in order of accept."""
    units: "OrderedDict[str, None]" = field(default_factory=OrderedDict)
    all_open: int = 0
    """Requests served by the least bad replica because every breaker was open."""

    def __post_init__(self) -> None:
        self._take(self.config)
        for replica in self.config.replicas:
            self._take_replica(replica)

    def reconfigure(self, config: RouteConfig, now: float) -> frozenset[str]:
        """Take another configuration of the same name; return the replicas that left or moved.

        Requests in flight keep their replica. A breaker is kept unless its settings or the address
        of its replica changed.
        """
        before = {each.name: each for each in self.config.replicas}
        kept_breakers = self.config.breaker == config.breaker
        self._take(config)
        stays = set()
        for replica in config.replicas:
            old = before.get(replica.name)
            if old is not None and old.base == replica.base:
                stays.add(replica.name)
                if kept_breakers:
                    continue
            else:
                self.moved_at[replica.name] = now
            self._take_replica(replica)
        return frozenset(before) - stays

    def _take(self, config: RouteConfig) -> None:
        self.config = config
        self.indicator = Indicator(max_gap_seconds=config.gap_limit_seconds)
        self.names = tuple(replica.name for replica in config.replicas)

    def _take_replica(self, replica: ReplicaConfig) -> None:
        breaker = self.config.breaker
        self.bases[replica.name] = replica.base
        self.load.setdefault(replica.name, 0)
        self.base[replica.name] = Breaker.fresh(
            breaker.threshold_ratio, breaker.window, breaker.min, breaker.open_seconds
        )

    # What a lease puts on the route

    def check(self, spec: SplitSpec | FaultSpec | BreakerSpec) -> None:
        """Refuse an item that names a replica which is not here.

        Raises:
            UnknownReplica: With the name and those there are.
        """
        named = (*spec.control, *spec.chaos) if isinstance(spec, SplitSpec) else spec.replicas
        for name in named:
            if name not in self.names and name != EVERY_REPLICA:
                known = ", ".join(self.names)
                raise UnknownReplica(f"route {self.config.name} has no replica {name}; has {known}")

    def put(self, item: Running, now: float) -> None:
        """Let an item act from now on."""
        spec = item.spec
        if isinstance(spec, SplitSpec):
            self.split, self.split_item = spec.split(item.item_id), item
            self.units.clear()
        elif isinstance(spec, BreakerSpec):
            self.remedy = item
            for name in self._covered(spec.replicas):
                self.tight[name] = self.base[name].tightened(spec.threshold_ratio, now)
        elif isinstance(item, RunningFault):
            for name in self._covered(spec.replicas):
                self.faults[name] = (*self.faults.get(name, ()), item)

    def take_off(self, item: Running) -> None:
        """Stop an item and wake whatever it holds back."""
        item.end()
        if item is self.split_item:
            self.split = self.split_item = None
            self.units.clear()
        elif item is self.remedy:
            self.remedy = None
            self.tight.clear()
        for name, items in list(self.faults.items()):
            self.faults[name] = tuple(each for each in items if each is not item)

    def _covered(self, replicas: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in self.names if name in replicas or EVERY_REPLICA in replicas)

    # One request

    def enter(self, flight: Flight) -> None:
        """Take a request in; it may still have to wait, or be refused."""
        flight.route = self
        self.flights[flight] = None

    def _note_unit(self, flight: Flight) -> None:
        """Say which unit a request belongs to, and whether that is new."""
        by_conversation = self.split is None or self.split.by_conversation
        key = flight.conversation if flight.conversation and by_conversation else flight.key
        flight.unit = unit_hash(key)
        if flight.probe:
            return
        flight.first_of_unit = flight.unit not in self.units
        self.units[flight.unit] = None
        self.units.move_to_end(flight.unit)
        if len(self.units) > MAX_UNITS:
            self.units.popitem(last=False)

    def choose(self, flight: Flight, now: float, tried: frozenset[str] = frozenset()) -> Choice:
        """Say which replica serves, leaving out those that were tried."""
        self._label(flight)
        if flight.pinned:
            return Choice(flight.arm, flight.pinned, flight.pinned)
        own = flight.assigned
        if own not in tried and self.breaker_for(own, flight).tick(now) is BreakerState.CLOSED:
            return Choice(flight.arm, own, own)  # what `settle` says when all is well
        names = tuple(name for name in self.names if name not in tried)
        choice = settle(flight.arm, flight.assigned, names, self._health(flight, names, now))
        self.all_open += choice.all_open
        return choice

    def _label(self, flight: Flight) -> None:
        """Give a request its unit, its arm, its treatment and its own replica, once."""
        if flight.assigned:
            return
        self._note_unit(flight)
        if self.split is not None:
            flight.arm = arm_of(self.split, flight.unit)
            flight.assigned = pick_in_arm(self.split, flight.arm, flight.unit)
        else:
            sticky = bool(flight.conversation)
            flight.assigned = pick_free(self.names, self.load, flight.unit, sticky=sticky)
        if flight.pinned:
            flight.assigned = flight.pinned
        if self.remedy is not None and isinstance(self.remedy.spec, BreakerSpec):
            spec = self.remedy.spec
            flight.treatment = treatment_of(spec.salt, spec.holdout_share, flight.unit)

    def breaker_for(self, name: str, flight: Flight) -> Breaker:
        """Return the breaker in force for this unit: the hold-out keeps the base threshold."""
        if flight.treatment == "treated" and name in self.tight:
            return self.tight[name]
        return self.base[name]

    def _health(self, flight: Flight, names: tuple[str, ...], now: float) -> Health:
        allowed = set()
        badness = {}
        for name in names:
            breaker = self.breaker_for(name, flight)
            state = breaker.tick(now)
            badness[name] = breaker.badness
            is_probe = state is BreakerState.HALF_OPEN and (
                point("half-open", f"{name} {breaker.probe_round(now)}", flight.unit) < PROBE_SHARE
            )
            if state is BreakerState.CLOSED or is_probe:
                allowed.add(name)
        return Health(frozenset(allowed), badness, self.load)

    def arm_faults(self, flight: Flight) -> tuple[RunningFault, ...]:
        """Return the faults on the replica that is about to serve, and note them on the flight."""
        base_model = self.config.models[0]
        flight.armed = tuple(
            item
            for item in self.faults.get(flight.replica, ())
            if item.active and item.may_meet(flight, base_model)
        )
        return flight.armed

    def observe(self, replica: str, bad: bool, now: float, accepted: float) -> None:
        """Count a finished request for the breakers of its replica (loop seconds)."""
        if self.moved_at and accepted < self.moved_at.get(replica, 0.0):
            return
        self.base[replica].observe(bad, now)
        if replica in self.tight:
            self.tight[replica].observe(bad, now)

    def leave(self, flight: Flight) -> None:
        """Take a request out."""
        self.flights.pop(flight, None)
        for item in flight.touched:
            item.touching.discard(flight)
        if flight.replica and not flight.probe:
            for item in flight.armed:
                item.exposed += 1

    # What others are told

    def in_flight(self) -> tuple[dict[str, int], float | None]:
        """Count requests in flight by arm, probes left out, and give the oldest accept time."""
        counts: dict[str, int] = {}
        oldest: float | None = None
        for flight in self.flights:
            if not flight.probe:
                counts[flight.arm] = counts.get(flight.arm, 0) + 1
                oldest = flight.accepted_unix if oldest is None else oldest
        return counts, oldest

    def view(self, now: float) -> dict[str, Any]:
        """Return the route as the admin API shows it."""
        spec = self.remedy.spec if self.remedy else None
        base = self.config.breaker.threshold_ratio
        in_force = spec.threshold_ratio if isinstance(spec, BreakerSpec) else base
        return {
            "name": self.config.name,
            "models": list(self.config.models),
            "labels": dict(self.config.labels),
            "replicas": [
                {"name": each.name, "url": each.url, "breaker": self.breaker_view(each.name, now)}
                for each in self.config.replicas
            ],
            "split": None if self.split_item is None else self.split_item.spec.model_dump(),
            "breaker": {"threshold_ratio": in_force, "base_threshold_ratio": base},
            "all_open_requests": self.all_open,
            "gap_limit_seconds": self.config.gap_limit_seconds,
        }

    def breaker_view(self, name: str, now: float) -> dict[str, Any]:
        """Return one replica's breaker: the tightened one where there is one."""
        breaker = self.tight.get(name, self.base[name])
        return {
            "state": breaker.tick(now).value,
            "threshold_ratio": breaker.threshold_ratio,
            "bad": breaker.window.bad,
            "total": breaker.window.total,
            "probes": breaker.probes.total,
            "probes_bad": breaker.probes.bad,
        }
