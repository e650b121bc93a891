"""Open and finish runs, and append to them.

The row of a run is a cache, for lists and for the head of its chain. What counts is in the events:
the first one holds all that the run was opened with, the finishing one its outcome, and
`audit.verify` compares the two. Nothing here judges an outcome.

Opening, finishing and each key of `append` keep their first value; a repeat returns it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, select, update
from sqlalchemy.dialects import postgresql, sqlite

from audit.base import StorePart
from audit.canonical import dumps, prepare, stamp
from audit.errors import CanonicalError, UnknownRun
from audit.events import (
    GENESIS,
    KEY_FINISHED,
    KEY_OPENED,
    KIND_FINISHED,
    KIND_OPENED,
    SYSTEM_RUN,
    Event,
    EventRef,
    check_name,
)
from audit.ledger import Entry, append, read, read_since
from audit.records import RunRecord
from audit.tables import runs

OPENED_FIELDS = ("workflow_id", "name", "kind", "parent_run_id", "requested_by", "trigger")
"""Texts that the row and the opening event both hold."""


class Runs(StorePart):
    """Runs and their events."""

    def open_run(  # noqa: PLR0913  # one argument for each thing a run is opened with
        self,
        run_id: str,
        workflow_id: str,
        name: str,
        kind: str,
        spec: dict[str, Any],
        *,
        parent_run_id: str | None = None,
        requested_by: str,
        trigger: str,
        at: datetime,
        engine: str = "",
    ) -> EventRef:
        """Open a run; a second opening changes nothing. An unknown engine is empty, and not told.

        Raises:
            CanonicalError: a name or the spec cannot be stored.
            PayloadTooLarge: the spec is over the limit of an event.
        """
        about = {
            "workflow_id": workflow_id,
            "name": name,
            "kind": kind,
            "parent_run_id": parent_run_id,
            "requested_by": requested_by,
            "trigger": trigger,
        }
        return self._write(lambda c: open_in(c, run_id, about, spec, at, engine))

    def append(
        self, run_id: str, key: str, kind: str, payload: dict[str, Any], at: datetime
    ) -> EventRef:
        """Append an event to the run's chain; the first payload under a key wins.

        Raises:
            UnknownRun: the run was not opened.
            PayloadTooLarge: over 256 kB; put the bulk into a segment.
            CanonicalError: the payload has no JSON form.
        """
        return self._write(lambda c: append(c, run_id, Entry(key, kind, payload, at)))

    def finish_run(self, run_id: str, outcome: str, exit_code: int, at: datetime) -> EventRef:
        """Write the run's outcome, once; a repeat returns the first one in `stored`.

        Raises:
            UnknownRun: the run was not opened.
        """
        return self._write(lambda c: _finish_in(c, run_id, outcome, exit_code, at))

    def history(self, limit: int = 50) -> list[RunRecord]:
        """Return the newest runs first, without the system's own."""
        query = (
            select(runs)
            .where(runs.c.run_id != SYSTEM_RUN)
            .order_by(runs.c.opened_at.desc(), runs.c.run_id)
            .limit(limit)
        )
        return self._read(lambda c: [record(row) for row in c.execute(query)])

    def run(self, run_id: str) -> RunRecord | None:
        """Return one run, or None."""
        return self._read(lambda c: record_in(c, run_id))

    def children(self, run_id: str) -> list[RunRecord]:
        """Return the runs that this run started, oldest first."""
        query = (
            select(runs)
            .where(runs.c.parent_run_id == run_id)
            .order_by(runs.c.opened_at, runs.c.run_id)
        )
        return self._read(lambda c: [record(row) for row in c.execute(query)])

    def events(self, run_id: str, kind: str | None = None) -> list[Event]:
        """Return the run's events in order, unchecked; of one kind if asked."""
        return self._read(lambda c: read(c, run_id, kind))

    def engines(self, run_ids: Sequence[str]) -> dict[str, str]:
        """Return the engine behind each of these runs, of those whose record names one."""

        def told(connection: Connection) -> dict[str, str]:
            opened = (event for run in run_ids for event in read(connection, run, KIND_OPENED))
            return {event.run_id: engine for event in opened if (engine := engine_of(event))}

        return self._read(told)

    def events_since(self, kind: str, since: datetime) -> list[Event]:
        """Return the events of a kind in all runs from then on, oldest first, unchecked."""
        return self._read(lambda c: read_since(c, kind, stamp(since)))


def open_in(
    connection: Connection,
    run_id: str,
    about: dict[str, Any],
    spec: dict[str, Any],
    at: datetime,
    engine: str = "",
) -> EventRef:
    """Open a run inside a transaction (see `Runs.open_run`)."""
    check_name("a run id", run_id)
    about = prepare(about)
    for key, value in about.items():
        if value is not None:
            check_name(key, value)
    row = {
        "run_id": run_id,
        **about,
        "spec": dumps(prepare(spec)).decode("utf-8"),
        "opened_at": stamp(at),
        "event_count": 0,
        "head_hash": GENESIS,
    }
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    connection.execute(dialect.insert(runs).values(row).on_conflict_do_nothing())
    payload = {**about, "spec": spec, **({"engine": engine} if engine else {})}
    return append(connection, run_id, Entry(KEY_OPENED, KIND_OPENED, payload, at))


def engine_of(opened: Event) -> str:
    """Return the engine that an opening event names; empty: it names none, or was changed."""
    try:
        engine = opened.payload.get("engine")
    except CanonicalError:
        return ""
    return engine if isinstance(engine, str) else ""


def ensure_system_run(connection: Connection, at: datetime) -> None:
    """Open the run that keeps the acts of no run."""
    if record_in(connection, SYSTEM_RUN) is None:
        about = {
            "workflow_id": SYSTEM_RUN,
            "name": SYSTEM_RUN,
            "kind": SYSTEM_RUN,
            "parent_run_id": None,
            "requested_by": SYSTEM_RUN,
            "trigger": SYSTEM_RUN,
        }
        open_in(connection, SYSTEM_RUN, about, {}, at)


def record_in(connection: Connection, run_id: str) -> RunRecord | None:
    """Return one run's row, or None."""
    row = connection.execute(select(runs).where(runs.c.run_id == run_id)).one_or_none()
    return None if row is None else record(row)


def record(row: Row[Any]) -> RunRecord:
    """Turn a row of `runs` into what the store hands out."""
    return RunRecord(
        run_id=row.run_id,
        workflow_id=row.workflow_id,
        name=row.name,
        kind=row.kind,
        spec_text=row.spec,
        parent_run_id=row.parent_run_id,
        requested_by=row.requested_by,
        trigger=row.trigger,
        opened_at=row.opened_at,
        outcome=row.outcome,
        exit_code=row.exit_code,
        finished_at=row.finished_at,
        event_count=row.event_count,
        head_hash=row.head_hash,
    )


def _finish_in(
    connection: Connection, run_id: str, outcome: str, exit_code: int, at: datetime
) -> EventRef:
    locked = select(runs).where(runs.c.run_id == run_id).with_for_update()
    before = connection.execute(locked).one_or_none()
    if before is None:
        raise UnknownRun(f"no run {run_id!r} was opened")
    outcome = check_name("an outcome", outcome)
    payload = {
        "outcome": outcome,
        "exit_code": exit_code,
        "events_before": before.event_count,
        "head_before": before.head_hash,
    }
    ref = append(connection, run_id, Entry(KEY_FINISHED, KIND_FINISHED, payload, at))
    if ref.created:
        connection.execute(
            update(runs)
            .where(runs.c.run_id == run_id)
            .values(outcome=outcome, exit_code=exit_code, finished_at=stamp(at))
        )
    return ref
