"""The lease book: every split, fault and breaker setting lives under a lease and ends with it.

What a lease may do is `faults.lease`, pure. This module gives it a clock, a timer, a durable
record and hands: whatever the pure lease says is over is taken off its route in the same step,
before anything is written or answered. Deadlines are enforced twice, by a timer on the event loop
and by `sweep` at each request, so that a blocked timer cannot prolong a fault. Order of writing:
an open lease is on disk before it may hold anything; an end takes effect first and is written
after, since a kill in between only turns `closed` into `dropped`, and neither ever opens again.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from faults.lease import ItemConflict, ItemState, Lease, LeaseClosed, LeaseState
from gateway.clock import Clock
from gateway.durable import TOMBSTONES_KEPT, DurableRecord, Found
from gateway.items import FaultSpec, Running, Spec, start_item
from gateway.routes import RouteState

ENDED_KEPT = 1_000
"""Ended leases whose items can still be looked at."""


class AdminError(Exception):
    """A refusal of the admin API: HTTP status, code, and one line."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(eq=False)
class Entry:
    """A lease with its route and what runs under it."""

    lease: Lease
    run_id: str
    route: RouteState
    running: dict[str, Running] = field(default_factory=dict)
    durable: "asyncio.Future[None] | None" = None
    """Done when the open lease is on disk."""
    granted_seconds: float = 0.0
    """What the latest opening or renewal gave it."""
    why: str = ""
    """Why the gateway ended it, if it did so of its own."""


class LeaseBook:
    """All leases of the gateway. Every public act first lets time do its work."""

    def __init__(
        self,
        routes: Mapping[str, RouteState],
        clock: Clock,
        record: DurableRecord,
        executor: Executor,
        found: Found,
    ) -> None:
        self._routes = routes
        self._clock = clock
        self._record = record
        self._executor = executor
        self._entries: dict[str, Entry] = {}
        self._ended: OrderedDict[str, str] = OrderedDict(found.ended)
        self._timer: asyncio.TimerHandle | None = None
        self._writes: set[asyncio.Future[None]] = set()
        self.next_change = float("inf")
        """Loop seconds at which time next ends something; the data path compares with it."""
        self.stop_line = found.stop
        self.write_errors = 0
        self._draining = False

    # Time

    def sweep(self) -> None:
        """End what is past its deadline. Cheap when nothing is due."""
        now = self._clock.mono()
        if now < self.next_change:
            return
        for entry in list(self._entries.values()):
            self._set(entry, entry.lease.expire(now))
        self._arm_timer()

    def _arm_timer(self) -> None:
        changes = [entry.lease.next_change() for entry in self._entries.values()]
        self.next_change = min((each for each in changes if each is not None), default=float("inf"))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.next_change != float("inf"):
            loop = asyncio.get_running_loop()
            delay = max(0.0, self.next_change - self._clock.mono())
            self._timer = loop.call_at(loop.time() + delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._clock.mono() < self.next_change:  # the loop rounds its times down
            self._arm_timer()
        self.sweep()

    def _set(self, entry: Entry, lease: Lease) -> None:
        """Put a new value of a lease in force: take off what it no longer holds."""
        before, entry.lease = entry.lease, lease
        for item_id, running in entry.running.items():
            if running.active and lease.items[item_id].state is not ItemState.ACTIVE:
                entry.route.take_off(running)
                if lease.items[item_id].state is ItemState.EXPIRED:
                    self._tell("expire", entry, item_id=item_id, **running.counts())
        if before.state is LeaseState.OPEN and lease.state is not LeaseState.OPEN:
            act = {LeaseState.LAPSED: "lapse", LeaseState.DROPPED: "drop"}.get(lease.state, "close")
            items = {key: item.counts() for key, item in entry.running.items()}
            self._end(lease.lease_id, lease.state)
            self._tell(act, entry, items=items, **({"why": entry.why} if entry.why else {}))

    def _end(self, lease_id: str, state: LeaseState) -> None:
        self._ended[lease_id] = state.value
        self._ended.move_to_end(lease_id)
        line = {"lease_id": lease_id, "state": state.value, "at": self._clock.unix()}
        self._later(self._record.lease, line)
        while len(self._ended) > TOMBSTONES_KEPT:
            self._ended.popitem(last=False)
        ended = [key for key, each in self._entries.items() if each.lease.state != LeaseState.OPEN]
        for key in ended[:-ENDED_KEPT]:
            del self._entries[key]

    # The record

    def note(self, act: str, **more: Any) -> None:
        """Add a line that is about no lease to the admin log."""
        self._tell(act, None, **more)

    def _tell(self, act: str, entry: Entry | None, **more: Any) -> None:
        line: dict[str, Any] = {"at": self._clock.unix(), "act": act}
        if entry is not None:
            line |= {
                "lease_id": entry.lease.lease_id,
                "run_id": entry.run_id,
                "route": entry.route.config.name,
            }
        self._later(self._record.tell, line | more)

    def _later(self, write: Any, line: dict[str, Any] | None) -> "asyncio.Future[None]":
        """Write in the writer thread, in order; a failed write is counted."""
        future = asyncio.get_running_loop().run_in_executor(self._executor, write, line)
        self._writes.add(future)
        future.add_done_callback(self._written)
        return future

    def _written(self, future: "asyncio.Future[None]") -> None:
        self._writes.discard(future)
        if not future.cancelled() and future.exception() is not None:
            self.write_errors += 1

    async def settle_writes(self) -> None:
        """Wait until every line so far is on disk.

        Not `gather`: a caller who gives up would take the lines of everybody with him.
        """
        while self._writes:
            await asyncio.wait(self._writes)

    # Leases

    async def open(self, lease_id: str, run_id: str, route_name: str, seconds: float) -> Entry:
        """Open a lease, or find it open.

        Raises:
            AdminError: 423 stopped, 404 route, 409 lease_closed or route_busy, 400 seconds.
        """
        self.sweep()
        there = self._entries.get(lease_id)
        if there is not None and there.lease.state is LeaseState.OPEN:
            if there.route.config.name != route_name:
                raise AdminError(409, "lease_conflict", f"{lease_id} is on another route")
            if there.run_id != run_id:
                raise AdminError(409, "lease_conflict", f"{lease_id} is of another run")
            if there.durable is not None:
                await asyncio.shield(there.durable)
            return there
        if lease_id in self._ended:
            state = self._ended[lease_id]
            raise AdminError(409, "lease_closed", f"lease {lease_id} is {state}: it never reopens")
        if self.stop_line is not None:
            raise AdminError(423, "stopped", f"stopped: {self.stop_line.get('reason', '')}")
        if self._draining:
            raise AdminError(503, "draining", "this gateway ends: it takes no lease")
        route = self._routes.get(route_name)
        if route is None:
            raise AdminError(404, "route", f"no route {route_name}; has {', '.join(self._routes)}")
        for other in self.open_on(route):
            raise AdminError(
                409, "route_busy", f"lease {other.lease.lease_id} is open on route {route_name}"
            )
        return await self._open_new(lease_id, run_id, route, seconds)

    async def _open_new(
        self, lease_id: str, run_id: str, route: RouteState, seconds: float
    ) -> Entry:
        try:
            lease = Lease.open(lease_id, seconds, self._clock.mono())
        except ValueError as error:
            raise AdminError(400, "invalid", f"seconds: {error}") from error
        entry = Entry(lease, run_id, route, granted_seconds=seconds)
        self._entries[lease_id] = entry
        self._arm_timer()
        line = {"lease_id": lease_id, "run_id": run_id, "route": route.config.name, "state": "open"}
        entry.durable = self._later(self._record.lease, line | {"at": self._clock.unix()})
        self._tell("open", entry, seconds=seconds)
        try:
            await asyncio.shield(entry.durable)
        except OSError as error:
            self._set(entry, entry.lease.close(self._clock.mono()))
            self._arm_timer()
            raise AdminError(500, "not_durable", f"cannot write the lease: {error}") from error
        return entry

    def renew(self, lease_id: str, seconds: float) -> Entry:
        """Give a lease `seconds` from now.

        Raises:
            AdminError: 404 lease, 409 lease_closed, 400 seconds.
        """
        self.sweep()
        entry = self._open_entry(lease_id)
        try:
            entry.lease = entry.lease.renew(seconds, self._clock.mono())
        except ValueError as error:
            raise AdminError(400, "invalid", f"seconds: {error}") from error
        entry.granted_seconds = seconds
        self._arm_timer()
        return entry

    def close(self, lease_id: str) -> tuple[Entry | None, list[str]]:
        """End a lease; an unknown id becomes a tombstone. Return it and the items taken off."""
        self.sweep()
        entry = self._entries.get(lease_id)
        if entry is None:
            if lease_id not in self._ended:
                self._end(lease_id, LeaseState.CLOSED)
                self._tell("close", None, lease_id=lease_id, known=False)
            return None, []
        removed = [item.item_id for item in entry.running.values() if item.active]
        self._set(entry, entry.lease.close(self._clock.mono()))
        self._arm_timer()
        return entry, removed

    def withdraw(self, lease_id: str, why: str) -> None:
        """End an open lease of our own accord, and remember why."""
        self._entries[lease_id].why = why
        self.close(lease_id)

    def _open_entry(self, lease_id: str) -> Entry:
        entry = self._entries.get(lease_id)
        if entry is None and lease_id not in self._ended:
            raise AdminError(404, "lease", f"no lease {lease_id}")
        if entry is None or entry.lease.state is not LeaseState.OPEN:
            state = self._ended.get(lease_id, "closed")
            why = f": {entry.why}" if entry is not None and entry.why else ""
            raise AdminError(409, "lease_closed", f"lease {lease_id} is {state}{why}")
        return entry

    def find(self, lease_id: str) -> Entry | str:
        """Return a lease, or the state of one of which only the end is known.

        Raises:
            AdminError: 404 lease.
        """
        self.sweep()
        entry = self._entries.get(lease_id)
        if entry is not None:
            return entry
        if lease_id in self._ended:
            return self._ended[lease_id]
        raise AdminError(404, "lease", f"no lease {lease_id}")

    def open_on(self, route: RouteState | None = None) -> list[Entry]:
        """Return the open leases, of one route or of all."""
        self.sweep()
        return [
            entry
            for entry in self._entries.values()
            if entry.lease.state is LeaseState.OPEN and (route is None or entry.route is route)
        ]

    # Items

    async def attach(
        self, lease_id: str, item_id: str, kind: str, spec: Spec
    ) -> tuple[Entry, Running, bool]:
        """Put an item on the lease's route, or find it there.

        Raises:
            AdminError: 404 lease, 409 lease_closed, item_closed, item_conflict or route_busy.
            UnknownReplica: The item names a replica that is not on the route.
            SpecErrors: The fault's template or parameters do not fit.
            LeaseError: The pure lease refuses.
        """
        self.sweep()
        entry = self._open_entry(lease_id)
        if entry.durable is not None:
            await asyncio.shield(entry.durable)
            self.sweep()
            entry = self._open_entry(lease_id)
        now = self._clock.mono()
        limit = spec.max_seconds if isinstance(spec, FaultSpec) else None
        item = start_item(item_id, spec, self._clock.unix())
        entry.route.check(spec)
        lease, first = entry.lease.attach(item_id, kind, spec.model_dump(), now, limit)
        if not first:
            return entry, entry.running[item_id], False
        others = [each for each in entry.running.values() if each.active]
        if kind != "fault" and any(type(each.spec) is type(spec) for each in others):
            raise ItemConflict(f"the lease holds another {kind} already")
        entry.lease = lease
        entry.running[item_id] = item
        entry.route.put(item, now)
        self._arm_timer()
        self._tell("attach", entry, item_id=item_id, kind=kind, spec=spec.model_dump())
        return entry, item, True

    def detach(self, lease_id: str, item_id: str) -> tuple[Entry | None, ItemState]:
        """Take an item off; a removal that comes first forbids a late attach.

        Of a lease of another life of this process only the end is known: whatever it held is gone.
        """
        self.sweep()
        found = self._entries.get(lease_id)
        if found is None:
            was_here = lease_id in self._ended
            return None, ItemState.REMOVED if was_here else ItemState.NEVER_APPLIED
        lease, state = found.lease.detach(item_id, self._clock.mono())
        was_active = item_id in found.running and found.running[item_id].active
        self._set(found, lease)
        self._arm_timer()
        if was_active:
            self._tell("detach", found, item_id=item_id, **found.running[item_id].counts())
        return found, state

    # The stop

    async def stop(self, reason: str) -> list[str]:
        """Close every lease now and refuse new ones until released. Return those closed."""
        self.stop_line = {"at": self._clock.unix(), "reason": reason}
        closed = [entry.lease.lease_id for entry in self.open_on()]
        for lease_id in closed:
            self.close(lease_id)
        written = self._later(self._record.stop, self.stop_line)
        self._tell("stop", None, reason=reason, closed=closed)
        await asyncio.shield(written)
        return closed

    async def release(self) -> bool:
        """Allow leases again. Return whether it was stopped."""
        was, self.stop_line = self.stop_line is not None, None
        written = self._later(self._record.stop, None)
        self._tell("release", None)
        await asyncio.shield(written)
        return was

    def drain(self) -> None:
        """Drop everything, at the end of the process, and take no lease any more."""
        self._draining = True
        for entry in self.open_on():
            entry.why = "the gateway ends"
            self._set(entry, entry.lease.drop())
        self._arm_timer()


__all__ = ["AdminError", "Entry", "LeaseBook", "LeaseClosed"]
