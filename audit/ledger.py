"""Append to and read one run's chain, inside a transaction that the caller opened.

This is the only place that writes events. The run's row is locked first, so that two writers of one
run queue up and the chain stays one; then the key is looked up, so that a repeated act (an activity
tried again) finds what the first one stored and adds nothing.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, insert, select, update

from audit.canonical import digest, dumps, prepare, stamp
from audit.errors import PayloadTooLarge, UnknownRun
from audit.events import MAX_PAYLOAD_BYTES, Event, EventRef, check_name, envelope, link
from audit.tables import events, runs

KEY_CHARACTERS = 500


class Entry(NamedTuple):
    """An event still to be placed: its name within the run, kind, payload and time."""

    key: str
    kind: str
    payload: dict[str, Any]
    at: datetime


def append(connection: Connection, run_id: str, entry: Entry) -> EventRef:
    """Place the entry at the head of the run's chain, unless its key is there already.

    Raises:
        UnknownRun: the run was not opened.
        PayloadTooLarge: over 256 kB of canonical JSON.
        CanonicalError: the payload has no JSON form.
    """
    head = connection.execute(
        select(runs.c.event_count, runs.c.head_hash)
        .where(runs.c.run_id == run_id)
        .with_for_update()
    ).one_or_none()
    if head is None:
        raise UnknownRun(f"no run {run_id!r} was opened")
    existing = find(connection, run_id, entry.key)
    if existing is not None:
        return EventRef(existing.seq, existing.hash, existing.payload, created=False)
    event = _seal(run_id, entry, head.event_count + 1, head.head_hash)
    connection.execute(
        insert(events).values(
            run_id=run_id,
            seq=event.seq,
            key=event.key,
            kind=event.kind,
            at=event.at,
            payload=event.payload_text,
            payload_sha256=event.payload_sha256,
            prev_hash=event.prev_hash,
            hash=event.hash,
        )
    )
    connection.execute(
        update(runs)
        .where(runs.c.run_id == run_id)
        .values(event_count=event.seq, head_hash=event.hash)
    )
    return EventRef(event.seq, event.hash, event.payload)


def find(connection: Connection, run_id: str, key: str) -> Event | None:
    """Return the event stored under this key, if there is one."""
    row = connection.execute(
        select(events).where(events.c.run_id == run_id, events.c.key == key)
    ).one_or_none()
    return None if row is None else _event(row)


def read(connection: Connection, run_id: str, kind: str | None = None) -> list[Event]:
    """Return the run's events in order, unchecked; of one kind if asked."""
    query = select(events).where(events.c.run_id == run_id).order_by(events.c.seq)
    if kind is not None:
        query = query.where(events.c.kind == kind)
    return [_event(row) for row in connection.execute(query)]


def read_since(connection: Connection, kind: str, since: str) -> list[Event]:
    """Return the events of a kind in all runs from a stamp on, oldest first, unchecked."""
    query = select(events).where(events.c.kind == kind, events.c.at >= since).order_by(events.c.at)
    return [_event(row) for row in connection.execute(query)]


def _seal(run_id: str, entry: Entry, seq: int, prev_hash: str) -> Event:
    payload = dumps(prepare(entry.payload))
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            f"event {entry.key!r} has {len(payload)} bytes, the limit is {MAX_PAYLOAD_BYTES}: "
            "put the bulk into a segment and refer to it"
        )
    unhashed = Event(
        run_id=run_id,
        seq=seq,
        key=check_name("a key", entry.key, KEY_CHARACTERS),
        kind=check_name("a kind", entry.kind),
        at=stamp(entry.at),
        payload_text=payload.decode("utf-8"),
        payload_sha256=digest(payload),
        prev_hash=prev_hash,
        hash="",
    )
    return replace(unhashed, hash=link(prev_hash, envelope(unhashed)))


def _event(row: Row[Any]) -> Event:
    return Event(
        run_id=row.run_id,
        seq=row.seq,
        key=row.key,
        kind=row.kind,
        at=row.at,
        payload_text=row.payload,
        payload_sha256=row.payload_sha256,
        prev_hash=row.prev_hash,
        hash=row.hash,
    )
