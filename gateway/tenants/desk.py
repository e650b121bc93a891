"""The desk that every request passes: who it is, whether it may come in, and when.

One object holds everything that a configuration of tenants and route limits brings with it; a new
configuration gets a new desk that takes over what is in use (`rebuilt`). Requests keep the desk at
which they came in. A place is given back by one call at the request's end, whatever that end is,
and only then does the next one go: so nothing is locked, and without tenants there is no desk.

Probes do not come here: they hold the admin token, and are no traffic.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from functools import partial

from gateway import metrics as names
from gateway.config import GatewayConfig
from gateway.flight import Flight
from gateway.http1.heads import RequestHead
from gateway.metrics import Metrics, Sample
from gateway.outcome import Asked
from gateway.tenants import refusal as no
from gateway.tenants.config import Limits
from gateway.tenants.fair import Gate, Place, Turn
from gateway.tenants.identity import Identity, Problem, Signs
from gateway.tenants.refusal import Refusal
from gateway.tenants.visit import BYTES_PER_TOKEN, Door, Guest, Pool, Visit, bill
from slo.records import Outcome
from slo.tenancy import Tenancy
from text.markers import PREFIX, owners_in

OTHERS = "(others)"
"""The label of the pool for unknown tenants and for none: no tenant can be called so."""

EVERYBODY = "(all)"
"""The label of the one pool where no tenants are configured."""

_MARKER = PREFIX.encode()
_COUNTABLE = frozenset({Problem.REPEATED, Problem.DISAGREEING})


class Desk:
    """Tenants and route limits of one configuration. Times are seconds on the loop's clock."""

    def __init__(
        self, config: GatewayConfig, metrics: Metrics, now: float, before: "Desk | None" = None
    ) -> None:
        self._metrics = metrics
        self._config = config.tenants
        self._signs = None if config.tenants is None else Signs(config.tenants)
        self._pools: dict[str, Pool] = {}
        self._doors: dict[str, Door] = {}
        self._owners: Mapping[str, str] = {}
        self._reserve = 0
        self.echo_header = b""
        old = {} if before is None else before._pools
        if config.tenants is None:
            self._keep(EVERYBODY, Limits(), (), old, now)
        else:
            tenants = config.tenants
            self._reserve = tenants.reserve_tokens
            self.echo_header = (tenants.echo_header or "").encode()
            for member in tenants.members:
                self._keep(member.name, member, member.routes, old, now)
            if tenants.others is not None:
                self._keep(OTHERS, tenants.others, (), old, now)
            self._owners = {
                digest: member.name for member in tenants.members for digest in member.marker_sha256
            }
        for route in config.routes:
            limit = route.limit
            if limit is None:
                continue
            door = None if before is None else before._doors.get(route.name)
            if door is None:
                gate = Gate(limit.in_flight, limit.queue_per_tenant)
                door = Door(gate, limit.wait_seconds)
            door.limit(limit)
            self._doors[route.name] = door

    @classmethod
    def of(
        cls, config: GatewayConfig, metrics: Metrics, now: float, before: "Desk | None" = None
    ) -> "Desk | None":
        """Return the desk of a configuration; None if it has neither tenants nor limits.

        `before`: the desk until now, whose buckets, queues and requests in flight go on.
        """
        if config.tenants is None and all(route.limit is None for route in config.routes):
            return None
        return cls(config, metrics, now, before)

    def _keep(
        self,
        label: str,
        limits: Limits,
        routes: tuple[str, ...],
        old: Mapping[str, Pool],
        now: float,
    ) -> None:
        pool = self._pools[label] = old.get(label) or Pool(label, limits)
        pool.limit(limits, frozenset(routes), now)

    # One request

    def identify(self, flight: Flight, head: RequestHead) -> None:
        """Say whose request this is; the answer to a bad sign is given once its body is in."""
        if self._signs is None:
            flight.visit = Visit(self, self._pools[EVERYBODY])
            return
        who = self._signs.read(head, flight.path)
        pool = self._pools.get(who.tenant) or self._pools.get(OTHERS)
        problem = self._problem_of(who, pool)
        if problem is None:
            flight.tenant = who.tenant
            flight.visit = Visit(self, pool, who.others)
        else:
            flight.tenant = ""
            every = (who.tenant, *who.others) if who.tenant else who.others
            flight.visit = Visit(self, None, every, no.of_problem(problem))

    def _problem_of(self, who: Identity, pool: Pool | None) -> Problem | None:
        """Return why this one may not come in, and count what is wrong with it."""
        assert self._config is not None
        problem = who.problem
        if problem in _COUNTABLE and self._config.on_conflict == "count":
            self._count_sign(problem, "counted")
            problem = None
        if problem is None or problem is Problem.MISSING:
            unknown = Problem.UNKNOWN if who.tenant else Problem.MISSING
            problem = unknown if pool is None else None
        if problem is not None:
            self._count_sign(problem, "refused")
        return problem

    def _count_sign(self, problem: Problem, action: str) -> None:
        self._metrics.add(names.TENANT_SIGNS, (("problem", problem.value), ("action", action)))

    def admit(self, guest: Guest, flight: Flight, asked: Asked, body: bytes) -> bool:
        """Let a request in whose signs were fine, and say whether it may go on at once.

        False: it was turned away, or waits and is told when its turn has come.
        """
        visit, now = flight.visit, time.monotonic()
        assert visit is not None
        if self._owners and _MARKER in body:
            visit.planted = owners_in(body.decode("latin-1"), self._owners)
        refusal = self._refusal(guest, flight, asked, body, now)
        if refusal is not None:
            self.turn_away(guest, visit, refusal)
            return False
        if visit.place is None or visit.place.is_served:
            return True
        assert visit.door is not None
        visit.since = now
        loop = asyncio.get_running_loop()
        visit.timer = loop.call_later(visit.door.wait_seconds, self._give_up, guest, visit)
        return False

    def _refusal(
        self, guest: Guest, flight: Flight, asked: Asked, body: bytes, now: float
    ) -> Refusal | None:
        visit = flight.visit
        route = "" if flight.route is None else flight.route.config.name
        assert visit is not None and visit.pool is not None
        pool = visit.pool
        if pool.routes and route not in pool.routes:
            self._count_sign(Problem.WRONG_ROUTE, "refused")
            return no.of_problem(Problem.WRONG_ROUTE)
        limits = pool.limits
        if limits.concurrent is not None and pool.here >= limits.concurrent:
            return no.of_concurrent(pool.label, limits.concurrent)
        if body:
            visit.prompt = -(-len(body) // BYTES_PER_TOKEN)
            visit.reserve = visit.prompt + (asked.max_tokens or self._reserve)
        bucket = pool.bucket
        if bucket is not None and visit.reserve:
            seconds = bucket.take(visit.reserve, now)
            visit.taken = min(visit.reserve, bucket.burst)
            if seconds:
                wanted = visit.taken
                return no.of_quota(pool.label, bucket.rate, bucket.level, wanted, seconds)
            visit.bucket = bucket
        door = self._doors.get(route)
        if door is not None:
            go = partial(self._let_in, guest, visit)
            place = Place(door.lane(pool), max(1.0, visit.reserve), go)
            if door.gate.come(place) is Turn.NEVER:
                return no.of_queue(pool.label, door.gate.queue)
            visit.door, visit.place = door, place
        pool.here += 1
        visit.is_counted = True
        return None

    def turn_away(self, guest: Guest, visit: Visit, refusal: Refusal) -> None:
        """Refuse a request, and count that."""
        visit.refusal = refusal
        label = "" if visit.pool is None else visit.pool.label
        self._metrics.add(names.TENANT_REFUSALS, (("tenant", label), ("reason", refusal.reason)))
        guest.turn_away(refusal)

    def _give_up(self, guest: Guest, visit: Visit) -> None:
        """Refuse a request that has waited too long."""
        door, place = visit.door, visit.place
        assert door is not None and place is not None
        if place.is_served:
            return  # its turn came in this very turn of the loop
        door.gate.leave(place, 0.0)
        visit.place = None
        visit.queued_s = door.wait_seconds
        self.turn_away(guest, visit, no.of_wait(door.wait_seconds))

    @staticmethod
    def _let_in(guest: Guest, visit: Visit) -> None:
        """Tell a request that has waited to go on."""
        if visit.timer is not None:
            visit.timer.cancel()
        visit.queued_s = time.monotonic() - visit.since
        guest.proceed()

    # Its end

    def settle(self, flight: Flight, outcome: Outcome, now: float) -> Tenancy | None:
        """Charge a request that has ended; its place is kept until `leave`."""
        visit = flight.visit
        assert visit is not None
        if visit.timer is not None:
            visit.timer.cancel()
        billed = visit.billed = bill(flight, visit, outcome)
        if visit.bucket is not None:
            visit.bucket.settle(visit.taken, billed, now)
        if visit.since and not visit.queued_s:
            visit.queued_s = now - visit.since
        pool = visit.pool
        if pool is not None:
            if visit.is_counted:
                pool.here -= 1
                visit.is_counted = False
            if billed:
                self._metrics.add(names.TENANT_BILLED, (("tenant", pool.label),), billed)
            if visit.since:
                labels = (("tenant", pool.label),)
                self._metrics.observe(names.TENANT_QUEUED, labels, visit.queued_s)
        if self._config is None and visit.refusal is None and not visit.since:
            return None
        tenancy = Tenancy(
            refusal="" if visit.refusal is None else visit.refusal.reason,
            billed=billed,
            queued_s=visit.queued_s,
            signs=visit.signs,
            echo=visit.echo,
            planted=visit.planted,
            markers=self._markers(flight),
        )
        self._count_crossings(flight.tenant, tenancy)
        return tenancy

    def _markers(self, flight: Flight) -> tuple[str, ...]:
        if not self._owners:
            return ()
        facts = flight.facts
        said = "".join(facts.text)
        tools = "".join(facts.tools.joined())
        return owners_in(f"{said}\n{tools}", self._owners)

    def _count_crossings(self, tenant: str, tenancy: Tenancy) -> None:
        """Count what one tenant's request had of another's."""
        leaks = tenancy.leaked(tenant)
        if not (tenancy.signs or tenancy.echo or leaks):
            return
        label = tenant if tenant in self._pools else OTHERS
        for kind, others in (
            ("sign", tenancy.signs),
            ("echo", (tenancy.echo,) if tenancy.echo else ()),
            ("marker", leaks),
        ):
            for other in others:
                other_label = other if other in self._pools else OTHERS
                labels = (("kind", kind), ("tenant", label), ("other", other_label))
                self._metrics.add(names.TENANT_CROSSED, labels)

    def leave(self, flight: Flight) -> None:
        """Give back a request's place, and tell those whose turn it is."""
        visit = flight.visit
        if visit is None or visit.place is None or visit.door is None:
            return
        place, visit.place = visit.place, None
        gate = visit.door.gate
        gate.leave(place, visit.billed)
        for following in gate.next():
            asyncio.get_running_loop().call_soon(following.go)

    # What others are told

    def samples(self, now: float) -> Iterator[Sample]:
        """Say how things stand now, for the metrics page."""
        for pool in self._pools.values():
            labels = (("tenant", pool.label),)
            yield names.TENANT_HERE, labels, pool.here
            if pool.bucket is not None:
                pool.bucket.fill(now)
                yield names.TENANT_QUOTA, labels, pool.bucket.level
        for route, door in self._doors.items():
            yield names.ROUTE_SERVED, (("route", route),), door.gate.served
            yield names.ROUTE_WAITING, (("route", route),), door.gate.waiting
