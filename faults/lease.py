"""The dead-man's switch: a right to hold faults that ends by itself.

A `Lease` is an immutable value; each act returns the next one. Whoever enforces it (the gateway)
keeps the current value, calls `expire` from its own timer before anything else, and acts on what
it finds. This module asks no clock: `now` is the enforcer's monotonic clock, in seconds.

    open ──deadline──▶ lapsed
      ├────close─────▶ closed
      └────restart───▶ dropped

The three ends are final. What was hard is fencing: a worker that everyone believes dead may still
send its inject late. So an ended lease never opens again, and an item that was removed, or whose
removal came before its attachment, is never attached again under the same id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

MAX_SECONDS = 60.0
"""Longest lease, in seconds. Source: ours: an orphaned fault is gone within a minute."""


class LeaseState(StrEnum):
    """Where a lease is; all but `open` are final."""

    OPEN = "open"
    LAPSED = "lapsed"
    CLOSED = "closed"
    DROPPED = "dropped"


class ItemState(StrEnum):
    """Where an item is; all but `active` are final."""

    ACTIVE = "active"
    EXPIRED = "expired"
    REMOVED = "removed"
    NEVER_APPLIED = "never_applied"


class LeaseError(Exception):
    """An act that the lease refuses; `code` is what goes over the wire."""

    code = "lease_error"


class LeaseClosed(LeaseError):
    """The lease has lapsed, was closed or dropped, or is past its deadline."""

    code = "lease_closed"


class ItemClosed(LeaseError):
    """The item was removed or has expired, and is not attached again under this id."""

    code = "item_closed"


class ItemConflict(LeaseError):
    """The item is there with another kind or specification."""

    code = "item_conflict"


@dataclass(frozen=True, slots=True)
class Item:
    """One thing held under a lease: a split, a fault, a breaker setting."""

    item_id: str
    kind: str
    spec: Mapping[str, Any]
    state: ItemState
    attached_at: float
    """Monotonic seconds."""
    ends_at: float | None = None
    """Monotonic seconds at which the item ends by itself; None: with the lease."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A time-limited right to hold items. Make one with `open`, `tombstone` or `dropped`."""

    lease_id: str
    state: LeaseState
    deadline: float
    """Monotonic seconds; without meaning once the lease has ended."""
    items: Mapping[str, Item] = field(default_factory=dict)

    @classmethod
    def open(cls, lease_id: str, seconds: float, now: float) -> Lease:
        """Return a new lease of `seconds` (above 0, at most `MAX_SECONDS`).

        Raises:
            ValueError: the length is out of bounds.
        """
        return cls(lease_id, LeaseState.OPEN, now + _checked(seconds))

    @classmethod
    def tombstone(cls, lease_id: str) -> Lease:
        """Return a closed lease that was never open, so that a late open is refused."""
        return cls(lease_id, LeaseState.CLOSED, 0.0)

    @classmethod
    def dropped(cls, lease_id: str) -> Lease:
        """Return a lease that was open when its enforcer died."""
        return cls(lease_id, LeaseState.DROPPED, 0.0)

    def is_open(self, now: float) -> bool:
        """Return whether the lease holds at `now`; false from the deadline on."""
        return self.state is LeaseState.OPEN and now < self.deadline

    def active(self, now: float) -> tuple[Item, ...]:
        """Return the items in force at `now`, oldest first."""
        if not self.is_open(now):
            return ()
        return tuple(item for item in self.items.values() if _holds(item, now))

    def expire(self, now: float) -> Lease:
        """Return the lease as time has left it: lapsed at its deadline, items expired at theirs."""
        if self.state is not LeaseState.OPEN:
            return self
        if now >= self.deadline:
            return self._end(LeaseState.LAPSED)
        items = {key: _expired(item, now) for key, item in self.items.items()}
        return replace(self, items=items) if items != self.items else self

    def next_change(self) -> float | None:
        """Return when time next changes something, in monotonic seconds; None: never."""
        if self.state is not LeaseState.OPEN:
            return None
        active = [item for item in self.items.values() if item.state is ItemState.ACTIVE]
        return min([self.deadline, *(i.ends_at for i in active if i.ends_at is not None)])

    def renew(self, seconds: float, now: float) -> Lease:
        """Return the lease with `seconds` left from now.

        Raises:
            LeaseClosed: it has ended.
            ValueError: the length is out of bounds.
        """
        self._require_open(now)
        return replace(self, deadline=now + _checked(seconds))

    def close(self, now: float) -> Lease:
        """Return the ended lease; a lease that has already ended stays as it ended."""
        current = self.expire(now)
        return current._end(LeaseState.CLOSED) if current.state is LeaseState.OPEN else current

    def drop(self) -> Lease:
        """Return the lease after a restart of its enforcer; an ended one stays as it ended."""
        return self._end(LeaseState.DROPPED) if self.state is LeaseState.OPEN else self

    def attach(
        self,
        item_id: str,
        kind: str,
        spec: Mapping[str, Any],
        now: float,
        max_seconds: float | None = None,
    ) -> tuple[Lease, bool]:
        """Return the lease with the item active, and whether this call made it so.

        Attaching the same item again changes nothing, its own end included.

        Raises:
            LeaseClosed: the lease has ended.
            ItemClosed: the item had its end, or its removal came first.
            ItemConflict: the item is there with another kind or specification.
            ValueError: `max_seconds` is not above 0.
        """
        self._require_open(now)
        there = self.expire(now).items.get(item_id)
        if there is not None:
            if there.state is not ItemState.ACTIVE:
                raise ItemClosed(f"item {item_id} is {there.state}: use a new id")
            if there.kind != kind or there.spec != spec:
                raise ItemConflict(f"item {item_id} is there with another specification")
            return self, False
        if max_seconds is not None and not max_seconds > 0:
            raise ValueError(f"max_seconds must be above 0, not {max_seconds}")
        ends_at = None if max_seconds is None else now + max_seconds
        item = Item(item_id, kind, dict(spec), ItemState.ACTIVE, now, ends_at)
        return self._with(item), True

    def detach(self, item_id: str, now: float) -> tuple[Lease, ItemState]:
        """Return the lease without the item in force, and how the item stands; idempotent.

        Never fails: removing is always allowed, also from a lease that has ended. An item that
        was not there is remembered as `never_applied`, so that a late attach is refused.
        """
        current = self.expire(now)
        there = current.items.get(item_id)
        if there is None:
            item = Item(item_id, "", {}, ItemState.NEVER_APPLIED, now)
            return current._with(item), ItemState.NEVER_APPLIED
        if there.state is ItemState.NEVER_APPLIED:
            return current, ItemState.NEVER_APPLIED
        if there.state is ItemState.ACTIVE:
            current = current._with(replace(there, state=ItemState.REMOVED))
        return current, ItemState.REMOVED

    def _require_open(self, now: float) -> None:
        if not self.is_open(now):
            state = LeaseState.LAPSED if self.state is LeaseState.OPEN else self.state
            raise LeaseClosed(f"lease {self.lease_id} is {state} and never opens again")

    def _with(self, item: Item) -> Lease:
        return replace(self, items={**self.items, item.item_id: item})

    def _end(self, state: LeaseState) -> Lease:
        items = {key: _removed(item) for key, item in self.items.items()}
        return replace(self, state=state, items=items)


def _checked(seconds: float) -> float:
    if not 0 < seconds <= MAX_SECONDS:
        raise ValueError(f"a lease is above 0 and at most {MAX_SECONDS:g} s long, not {seconds}")
    return seconds


def _holds(item: Item, now: float) -> bool:
    return item.state is ItemState.ACTIVE and (item.ends_at is None or now < item.ends_at)


def _expired(item: Item, now: float) -> Item:
    if item.state is ItemState.ACTIVE and not _holds(item, now):
        return replace(item, state=ItemState.EXPIRED)
    return item


def _removed(item: Item) -> Item:
    return replace(item, state=ItemState.REMOVED) if item.state is ItemState.ACTIVE else item
