"""The gateway's middle: every request begins and ends here, and each leaves exactly one record.

`begin` and `finish` are the only two ends of a flight; the proxy calls `finish` in a `finally`.
What the record says is taken to four places in one step: journal, counters, metrics, breakers, so
that no two of them can disagree about a request.
"""

import itertools
import logging
import secrets
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import Any

from gateway import metrics as names
from gateway.breaker import BreakerState
from gateway.clock import Clock
from gateway.config import GatewayConfig, RouteConfig
from gateway.counters import Counters, Ended
from gateway.durable import DurableRecord, Found
from gateway.flight import Flight
from gateway.items import RunningFault
from gateway.journal import Journal
from gateway.leases import LeaseBook
from gateway.metrics import Labels, Metrics, Sample
from gateway.outcome import Asked, classify, says_something_about_replica, text_flags
from gateway.routes import RouteState
from gateway.routing import match_route, unit_hash
from gateway.tenants.desk import Desk
from gateway.tracing import Tracing
from slo.objective import Indicator
from slo.records import Outcome, RequestRecord
from slo.tenancy import Tenancy

log = logging.getLogger("gateway")

BREAKER_LEVEL = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}

MAX_TENANT_CHARACTERS = 128
"""Longer tenant names are cut: they end up in every record."""


class Core:
    """Routes, leases, journal and counts of one gateway process."""

    def __init__(self, config: GatewayConfig, record: DurableRecord, executor: Executor) -> None:
        self.config: GatewayConfig
        self.clock = Clock()
        self.epoch = secrets.token_hex(8)
        self.started_at = self.clock.unix()
        self.routes = {route.name: RouteState(route) for route in config.routes}
        self.former: dict[str, RouteState] = {}
        """Routes that a reload took away: their records are still read, their streams may run."""
        found: Found = record.recover(self.started_at)
        self.dropped_at_start = found.dropped
        self.leases = LeaseBook(self.routes, self.clock, record, executor, found)
        folder = config.journal_dir / "journal"
        self.journal = Journal(
            folder,
            self.epoch,
            config.journal_max_bytes,
            executor,
            config.journal_memory_records,
        )
        self.counters = {route.name: Counters() for route in config.routes}
        self.metrics = Metrics()
        self.desk: Desk | None = None
        self.generation = 0
        self.take_config(config)
        self.tracing = Tracing(config.tracing, self.epoch)
        self.stopping = False
        """Whether the process ends: answers say that their connection closes."""
        self.cut_off = False
        """Whether its time is over: connections that end now are ended by us."""
        self._numbers = itertools.count(1)
        self._nowhere = Indicator()

    def take_config(self, config: GatewayConfig) -> None:
        """Note the configuration that is in force from now on.

        Quotas, queues and requests in flight go on as they are, under the new limits.
        """
        self.config = config
        self.desk = Desk.of(config, self.metrics, self.clock.mono(), self.desk)
        self.config_hash = config.fingerprint
        self.loaded_at = self.clock.unix()
        self.generation += 1

    def take_routes(self, routes: dict[str, RouteState]) -> None:
        """Serve these routes from now on; what a route that left has counted stays readable."""
        self.former |= {name: each for name, each in self.routes.items() if name not in routes}
        self.routes.clear()
        self.routes.update(routes)
        for name in routes:
            self.counters.setdefault(name, Counters())

    def config_view(self) -> dict[str, Any]:
        """Return which configuration is in force."""
        return {
            "generation": self.generation,
            "hash": self.config_hash,
            "loaded_at": self.loaded_at,
        }

    def begin(self, conversation: str, tenant: str, *, probe: bool, pinned: str) -> Flight:
        """Accept a request now."""
        now = self.clock.mono()
        self.leases.sweep()
        return Flight(
            key=f"{self.epoch}-{next(self._numbers)}",
            accepted_mono=now,
            accepted_unix=self.clock.unix(now),
            conversation=conversation,
            tenant=tenant[:MAX_TENANT_CHARACTERS].encode("utf-8", "replace").decode(),
            probe=probe,
            pinned=pinned,
        )

    def enter(self, flight: Flight, asked: Asked, body: bytes) -> RouteState | None:
        """Find the request's route and take it in there; None: nobody serves this model."""
        flight.model, flight.tools = asked.model or "", asked.tools
        flight.wants_stream = asked.wants_stream
        route = self._take_in(flight, asked.model)
        if flight.trace is not None:
            leases = [] if route is None else self.leases.open_on(route)
            self.tracing.enter(flight, flight.trace, body, leases)
        return route

    def _take_in(self, flight: Flight, model: str | None) -> RouteState | None:
        route: RouteConfig | None = match_route(self.config.routes, model)
        if route is None:
            return None
        self.leases.sweep()
        # The wait for the client's own body is no wait for a replica, and was seen by no reader of
        # what is in flight: the request counts from here.
        flight.accepted_mono = self.clock.mono()
        flight.accepted_unix = self.clock.unix(flight.accepted_mono)
        state = self.routes[route.name]
        state.enter(flight)
        return state

    def finish(self, flight: Flight) -> RequestRecord:
        """End a request: write its one record."""
        now = self.clock.mono()
        flight.facts.note_end(now - flight.held_s)
        outcome = classify(
            flight.cause, flight.status, flight.is_stream, flight.facts, owes_end=flight.owes_end
        )
        visit = flight.visit
        tenancy = None if visit is None else visit.desk.settle(flight, outcome, now)
        record = self._record(flight, outcome, now, tenancy)
        if flight.route is not None:
            flight.route.leave(flight)
        self.journal.append(record)
        self._count(flight, record)
        if visit is not None:
            visit.desk.leave(flight)
        if flight.trace is not None:
            self.tracing.end(flight, flight.trace, record)
        return record

    def _record(
        self, flight: Flight, outcome: Outcome, now: float, tenancy: Tenancy | None
    ) -> RequestRecord:
        failed_early = outcome in {Outcome.HTTP_ERROR, Outcome.SHED}
        return RequestRecord(
            seq=self.journal.last_seq + 1,
            at=self.clock.unix(now),
            accepted=flight.accepted_unix,
            route=flight.route.config.name if flight.route else "",
            unit=flight.unit or unit_hash(flight.conversation or flight.key),
            first_of_unit=flight.first_of_unit,
            arm=flight.arm,
            treatment=flight.treatment,
            replica=flight.replica,
            assigned=flight.assigned,
            fallback=flight.fallback,
            exposed=tuple(item.item_id for item in flight.armed) if flight.replica else (),
            touched=tuple(item.item_id for item in flight.touched),
            tenant=flight.tenant,
            probe=flight.probe,
            outcome=outcome,
            status=flight.status,
            ttft_s=None if failed_early else flight.ttft_s,
            max_gap_s=flight.facts.max_gap_s,
            e2e_s=max(0.0, now - flight.held_s - flight.accepted_mono),
            tokens=flight.facts.tokens,
            prompt_tokens=flight.facts.prompt_tokens,
            flags=text_flags(flight, outcome),
            tenancy=tenancy,
            client_run_id=flight.client_run_id,
        )

    def _count(self, flight: Flight, record: RequestRecord) -> None:
        outcome = record.outcome.value
        if record.probe:
            labels = (("route", record.route), ("outcome", outcome))
            self.metrics.add(names.PROBES, labels)
            return
        state = flight.route
        indicator = self._nowhere if state is None else state.indicator
        ended = Ended.of(record, indicator)
        if state is not None:
            self.counters[record.route].add(record.at, ended)
            stalled = indicator.is_stalled(record)
            if flight.replica and says_something_about_replica(
                record.outcome, record.status, stalled
            ):
                state.observe(flight.replica, ended.bad, self.clock.mono(), flight.accepted_mono)
        self._measure(flight, record, ended)

    def _measure(self, flight: Flight, record: RequestRecord, ended: Ended) -> None:
        where: Labels = (
            ("route", record.route),
            ("replica", record.replica),
            ("arm", record.arm),
        )
        add, observe = self.metrics.add, self.metrics.observe
        add(names.REQUESTS, (*where, ("outcome", record.outcome.value)))
        observe(names.E2E, where, record.e2e_s)
        if record.ttft_s is not None:
            observe(names.TTFT, where, record.ttft_s)
            observe(names.GAP, where, record.max_gap_s)
        if ended.interrupted:
            add(names.INTERRUPTIONS, where)
        if ended.hidden:
            add(names.HIDDEN_ERRORS, where)
        if record.tokens:
            add(names.TOKENS, where, record.tokens)
        if record.fallback:
            add(names.FALLBACKS, (("route", record.route), ("assigned", record.assigned)))
        for item in flight.armed if flight.replica else ():
            add(names.EXPOSED, _fault_labels(item, record))
        for item in flight.touched:
            add(names.TOUCHED, _fault_labels(item, record))

    def count_reset(self, route: str, replica: str) -> None:
        """Count an idle socket that died under a request: ours, not the replica's failure."""
        self.metrics.add(names.RESETS, (("route", route), ("replica", replica)))

    def gauges(self) -> Iterator[Sample]:
        """Say how things stand now, for the metrics page."""
        now = self.clock.mono()
        for name, state in self.routes.items():
            route = ("route", name)
            counts, _ = state.in_flight()
            for arm in {"", *counts}:
                yield names.IN_FLIGHT, (route, ("arm", arm)), counts.get(arm, 0)
            for replica in state.names:
                labels = (route, ("replica", replica))
                breaker = state.tight.get(replica, state.base[replica])
                yield names.BREAKER_STATE, labels, BREAKER_LEVEL[breaker.tick(now)]
                yield names.BREAKER_THRESHOLD, labels, breaker.threshold_ratio
            active = {item for items in state.faults.values() for item in items if item.active}
            yield names.FAULTS, (route,), len(active)
            yield names.LEASES, (route,), len(self.leases.open_on(state))
            yield names.ALL_OPEN, (route,), state.all_open
        yield names.CONFIG_GENERATION, (), self.generation
        yield names.CONFIG_INFO, (("hash", self.config_hash),), 1
        yield names.DRAINING, (), float(self.stopping)
        if self.desk is not None:
            yield from self.desk.samples(now)
        yield names.STOPPED, (), float(self.leases.stop_line is not None)
        errors = self.leases.write_errors + self.journal.write_errors
        yield names.WRITE_ERRORS, (), errors
        yield names.JOURNAL_SEQ, (), self.journal.last_seq
        yield names.SAMPLED, (), self.tracing.sampled
        outbox = self.tracing.outbox
        for result, count in ({} if outbox is None else outbox.counts()).items():
            yield names.SPANS, (("result", result),), count

    def state(self) -> dict[str, Any]:
        """Return what `GET /state` says."""
        stop = self.leases.stop_line
        return {
            "epoch": self.epoch,
            "started_at": self.started_at,
            "stopped": stop is not None,
            "stop_reason": None if stop is None else stop.get("reason"),
            "now": self.clock.unix(),
            "dropped_at_start": self.dropped_at_start,
            "last_seq": self.journal.last_seq,
            "draining": self.stopping,
            "config": self.config_view(),
        }


def _fault_labels(item: RunningFault, record: RequestRecord) -> Labels:
    template = getattr(item.spec, "template", "")
    return (("route", record.route), ("replica", record.replica), ("template", template))
