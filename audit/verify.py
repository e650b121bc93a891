"""Check a stored run against itself: chain, segments, the row; and the holds against their events.

It names the run and the field of whatever cannot be as it was written. It cannot see that somebody
with write access to everything rebuilt a whole chain, or removed a whole run: for that, the head
hash is kept elsewhere (in a report, in Temporal's history) and given as `expected_head`.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, select

from audit.base import StorePart
from audit.canonical import digest, dumps, loads
from audit.errors import CanonicalError, SegmentCorrupt
from audit.events import (
    GENESIS,
    KEY_FINISHED,
    KEY_OPENED,
    KIND_HOLD,
    KIND_SEGMENT,
    Event,
    Problem,
    check_chain,
    is_well_typed,
)
from audit.ledger import read
from audit.records import RunRecord
from audit.runs import OPENED_FIELDS, record_in
from audit.segments import segment_key, summary, unpack
from audit.tables import events, holds, segments

_BOUND = ("digest", "raw_bytes", "count", "first_seq", "last_seq")


class Verify(StorePart):
    """Checks of what is stored."""

    def verify_chain(self, run_id: str, expected_head: str | None = None) -> list[Problem]:
        """Name everything in the run's record that was changed after it was written.

        Args:
            run_id: the run.
            expected_head: a head hash seen earlier, kept outside the database; it must be the
                hash of one of the run's events.
        """

        def unit(connection: Connection) -> list[Problem]:
            run = record_in(connection, run_id)
            if run is None:
                return [Problem(run_id, "runs", "there is no such run")]
            found = read(connection, run_id)
            problems = check_chain(run_id, found)
            if not all(is_well_typed(event) for event in found):
                return problems
            problems += _check_head(run, found, expected_head)
            problems += _check_row(run, found)
            query = select(segments).where(segments.c.run_id == run_id)
            rows = connection.execute(query.execution_options(yield_per=8))
            problems += _check_segments(run_id, found, rows)
            return problems

        return self._read(unit)

    def verify_holds(self) -> list[Problem]:
        """Compare each hold's row with the newest of its events, in whatever run that lies."""

        def unit(connection: Connection) -> list[Problem]:
            query = select(events.c.run_id, events.c.payload).where(events.c.kind == KIND_HOLD)
            newest: dict[str, tuple[str, dict[str, Any]]] = {}
            for run_id, text in connection.execute(query):
                payload = _payload(text)
                target = str(payload.get("target"))
                if target not in newest or _version(payload) > _version(newest[target][1]):
                    newest[target] = (run_id, payload)
            return _check_holds(list(connection.execute(select(holds))), newest)

        return self._read(unit)


def _check_head(run: RunRecord, found: list[Event], expected: str | None) -> list[Problem]:
    problems: list[Problem] = []
    head = found[-1].hash if found else GENESIS
    if run.event_count != len(found):
        text = f"the row counts {run.event_count}, {len(found)} are stored"
        problems.append(Problem(run.run_id, "runs.event_count", text))
    if run.head_hash != head:
        problems.append(Problem(run.run_id, "runs.head_hash", "is not the last event's hash"))
    if expected is not None and expected not in [event.hash for event in found]:
        problems.append(Problem(run.run_id, "head", "the hash kept elsewhere is not in the chain"))
    return problems


def _check_row(run: RunRecord, found: list[Event]) -> list[Problem]:
    by_key = {event.key: event for event in found}
    wanted: dict[str, Any] = {"outcome": None, "exit_code": None, "finished_at": None}
    opened, finished = by_key.get(KEY_OPENED), by_key.get(KEY_FINISHED)
    if opened is None:
        return [Problem(run.run_id, "events", f"there is no event {KEY_OPENED!r}")]
    payload = _payload(opened.payload_text)
    wanted.update({field: payload.get(field) for field in OPENED_FIELDS})
    wanted["opened_at"] = opened.at
    wanted["spec_text"] = dumps(payload.get("spec")).decode("utf-8")
    problems: list[Problem] = []
    if finished is not None:
        ending = _payload(finished.payload_text)
        wanted.update(outcome=ending.get("outcome"), exit_code=ending.get("exit_code"))
        wanted["finished_at"] = finished.at
        before = found[finished.seq - 2] if 2 <= finished.seq <= len(found) + 1 else None
        if (
            before is None
            or ending.get("events_before") != before.seq
            or ending.get("head_before") != before.hash
        ):
            text = "the events before it are not those it was written after"
            problems.append(Problem(run.run_id, f"events[{finished.seq}].payload", text))
    for field, value in wanted.items():
        if getattr(run, field) != value:
            name = "spec" if field == "spec_text" else field
            text = f"the row says {getattr(run, field)!r}, the event {value!r}"
            problems.append(Problem(run.run_id, f"runs.{name}", text))
    return problems


def _check_segments(run_id: str, found: list[Event], rows: Any) -> list[Problem]:
    bound = {event.key: event for event in found if event.kind == KIND_SEGMENT}
    problems: list[Problem] = []
    for row in rows:
        field = f"segments[{row.stream}/{row.index}]"
        event = bound.pop(segment_key(row.stream, row.index), None)
        if event is None:
            problems.append(Problem(run_id, field, "no event binds it"))
            continue
        payload = _payload(event.payload_text)
        for name in _BOUND:
            if getattr(row, name) != payload.get(name):
                text = f"the row says {getattr(row, name)!r}, the event {payload.get(name)!r}"
                problems.append(Problem(run_id, f"{field}.{name}", text))
        problems += _check_blob(run_id, field, row.blob, payload)
    for event in bound.values():
        name = event.key.removeprefix("segment/")
        problems.append(Problem(run_id, f"segments[{name}]", "the chain binds it, it is gone"))
    return problems


def _check_blob(run_id: str, field: str, blob: object, bound: dict[str, Any]) -> list[Problem]:
    if not isinstance(blob, bytes):
        return [Problem(run_id, f"{field}.blob", "is no binary value")]
    try:
        raw = unpack(blob)
        if digest(raw) != bound.get("digest"):
            return [Problem(run_id, f"{field}.blob", "its content does not give its digest")]
        if summary(loads(raw)) != (bound.get("count"), bound["first_seq"], bound["last_seq"]):
            return [Problem(run_id, f"{field}.blob", "it does not hold the records counted")]
    except (SegmentCorrupt, CanonicalError, KeyError, AttributeError) as error:
        return [Problem(run_id, f"{field}.blob", f"cannot be read: {error}")]
    return []


def _check_holds(
    rows: list[Row[Any]], newest: dict[str, tuple[str, dict[str, Any]]]
) -> list[Problem]:
    problems: list[Problem] = []
    for row in rows:
        chain, payload = newest.pop(row.target, ("", {"state": "free", "version": 0}))
        state = payload.get("state")
        owner = None if state == "free" else payload.get("run_id")
        wanted = {"state": state, "version": payload.get("version"), "run_id": owner}
        for name, value in wanted.items():
            if getattr(row, name) != value:
                text = f"the row says {getattr(row, name)!r}, the newest event {value!r}"
                problems.append(Problem(chain, f"holds[{row.target}].{name}", text))
    for target, (chain, _) in newest.items():
        problems.append(Problem(chain, f"holds[{target}]", "events tell of it, the row is gone"))
    return problems


def _version(payload: dict[str, Any]) -> int:
    version = payload.get("version")
    return version if isinstance(version, int) else -1


def _payload(text: str) -> dict[str, Any]:
    """Read a payload that may have been tampered with; the chain check names that, not this."""
    try:
        value = loads(text)
    except CanonicalError:
        return {}
    return value if isinstance(value, dict) else {}
