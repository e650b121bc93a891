"""Holds: at most one run acts on one target, and only proof frees it.

Rules, in one place:

- A free target, or one never seen, is given to the first run that asks.
- A held one is refused to any other run, **also after it expired**: expiry only says that the owner
  no longer renews. Whoever asks again with the same run id gets the same hold, and more time.
- `release_hold` needs a proof (what was seen that shows the target clean) and the owner's run id.
  The sweep names the dead run; that the run is dead is the sweep's to know, not this room's.
- A quarantined target is given to nobody, and only `clear_quarantine`, by a named person, frees it.

Each change of state is an event: under the owner's run, or under the system's for the sweep and for
people. A renewal changes no state and leaves no event. `version` grows with each change and is in
the event too, so the order of one target's events is known although they lie in several chains.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, select, update
from sqlalchemy.dialects import postgresql, sqlite

from audit.base import StorePart
from audit.canonical import parse_stamp, stamp
from audit.errors import CanonicalError, HoldNotOwned, HoldRefused, ProofMissing, RunFinished
from audit.events import KIND_HOLD, SYSTEM_RUN, check_name
from audit.ledger import Entry, append
from audit.records import Hold, HoldState
from audit.runs import ensure_system_run, record_in
from audit.tables import holds


class Act(NamedTuple):
    """A change of a hold: what is done, under whose chain, when, and what is said about it."""

    action: str
    run_id: str
    now: datetime
    details: dict[str, Any]


class Holds(StorePart):
    """Who has which target."""

    def acquire_hold(self, target: str, run_id: str, seconds: float, now: datetime) -> Hold:
        """Take the target for so many seconds, or get the hold this run has already.

        Raises:
            HoldRefused: another run has it, expired or not, or it is quarantined.
            RunFinished: the run is over, so this is a late attempt.
            UnknownRun: the run was not opened.
        """
        check_name("a target", target)
        return self._write(lambda c: _acquire(c, target, run_id, _until(now, seconds), now))

    def renew_hold(self, target: str, run_id: str, seconds: float, now: datetime) -> bool:
        """Give a held target more time, never less; False if this run does not hold it."""

        def unit(connection: Connection) -> bool:
            hold = _load(connection, target, now)
            if hold.state is not HoldState.HELD or hold.run_id != run_id:
                return False
            _extend(connection, hold, _until(now, seconds))
            return True

        return self._write(unit)

    def release_hold(  # who, what, when, on which proof, and in whose name
        self,
        target: str,
        run_id: str,
        proof: dict[str, Any],
        now: datetime,
        *,
        by_sweep: bool = False,
    ) -> Hold:
        """Free the target on proof that it is clean; a repeat by the same run changes nothing.

        Args:
            target: what was held.
            run_id: the owner; for the sweep, the dead run that owned it.
            proof: what was observed, at least one entry; stored with the event.
            now: the time, with a zone.
            by_sweep: someone else, who knows that the run is dead, frees what it left.

        Raises:
            ProofMissing: the proof is empty.
            HoldNotOwned: the run does not have the target.
            HoldRefused: the target is quarantined.
        """
        if not proof:
            raise ProofMissing(f"{target} is freed by proof that it is clean, and none was given")
        details = {"proof": proof, "by_sweep": by_sweep}
        act = Act("released", run_id, now, details)
        return self._write(lambda c: _release(c, target, act, by_sweep=by_sweep))

    def quarantine_hold(  # as for release_hold
        self, target: str, run_id: str, reason: str, now: datetime, *, by_sweep: bool = False
    ) -> Hold:
        """Close the target to everybody, since clean-up was not proven; a repeat changes nothing.

        The sweep may also quarantine a free target on which it found what should not be there.

        Raises:
            HoldNotOwned: another run has it, or (not the sweep) nobody does.
        """
        act = Act("quarantined", run_id, now, {"reason": reason, "by_sweep": by_sweep})
        return self._write(lambda c: _quarantine(c, target, act, by_sweep=by_sweep))

    def clear_quarantine(
        self, target: str, by: str, reason: str, now: datetime | None = None
    ) -> Hold:
        """Free a quarantined target, in the name of a person who says why.

        Raises:
            HoldNotOwned: the target is not quarantined.
            CanonicalError: no name or no reason.
        """
        check_name("a name", by)
        if not reason.strip():
            raise CanonicalError("say why the quarantine is lifted")
        act = Act("cleared", SYSTEM_RUN, now or datetime.now(UTC), {"by": by, "reason": reason})
        return self._write(lambda c: _clear(c, target, act))

    def list_holds(self) -> list[Hold]:
        """Return every target ever held, with its state now, by name."""
        query = select(holds).order_by(holds.c.target)
        return self._read(lambda c: [to_hold(row) for row in c.execute(query)])

    def hold(self, target: str) -> Hold | None:
        """Return one target's hold, or None if it was never held."""
        query = select(holds).where(holds.c.target == target)

        def unit(connection: Connection) -> Hold | None:
            row = connection.execute(query).one_or_none()
            return None if row is None else to_hold(row)

        return self._read(unit)


def hold_key(target: str, version: int) -> str:
    """Return the key of the event for this change of the target's hold."""
    return f"hold/{target}/{version}"


def to_hold(row: Row[Any]) -> Hold:
    """Turn a row of `holds` into what the store hands out."""
    return Hold(
        target=row.target,
        state=HoldState(row.state),
        run_id=row.run_id,
        expires_at=None if row.expires_at is None else parse_stamp(row.expires_at),
        since=parse_stamp(row.since),
        reason=row.reason,
        version=row.version,
        last_run_id=row.last_run_id,
    )


def _until(now: datetime, seconds: float) -> datetime:
    if not 0 < seconds < float("inf"):
        raise CanonicalError(f"a hold lasts a positive time, not {seconds} s")
    return now + timedelta(seconds=seconds)


def _acquire(
    connection: Connection, target: str, run_id: str, until: datetime, now: datetime
) -> Hold:
    hold = _load(connection, target, now)
    if hold.state is HoldState.HELD and hold.run_id == run_id:
        return _extend(connection, hold, until)
    if hold.state is not HoldState.FREE:
        raise HoldRefused(hold)
    run = record_in(connection, run_id)
    if run is not None and run.finished_at is not None:
        raise RunFinished(f"run {run_id!r} is over and takes no new hold on {target}")
    held = replace(
        hold, state=HoldState.HELD, run_id=run_id, expires_at=until, reason="", last_run_id=run_id
    )
    return _change(connection, held, Act("acquired", run_id, now, {"expires_at": stamp(until)}))


def _release(connection: Connection, target: str, act: Act, *, by_sweep: bool) -> Hold:
    hold = _load(connection, target, act.now)
    if hold.state is HoldState.FREE and hold.last_run_id == act.run_id:
        return hold
    if hold.state is HoldState.QUARANTINED:
        raise HoldRefused(hold)
    if hold.state is HoldState.FREE or hold.run_id != act.run_id:
        raise HoldNotOwned(f"run {act.run_id!r} does not hold {target}: {_describe(hold)}")
    details = {**act.details, "expired": hold.expired(act.now)}
    return _change(connection, _freed(hold), act._replace(details=details), system=by_sweep)


def _quarantine(connection: Connection, target: str, act: Act, *, by_sweep: bool) -> Hold:
    hold = _load(connection, target, act.now)
    if hold.state is HoldState.QUARANTINED and hold.run_id == act.run_id:
        return hold
    found_dirty = by_sweep and hold.state is HoldState.FREE
    owned = hold.state is HoldState.HELD and hold.run_id == act.run_id
    if not (owned or found_dirty):
        raise HoldNotOwned(f"run {act.run_id!r} does not hold {target}: {_describe(hold)}")
    closed = replace(
        hold,
        state=HoldState.QUARANTINED,
        run_id=act.run_id,
        expires_at=None,
        reason=str(act.details["reason"]),
        last_run_id=act.run_id,
    )
    return _change(connection, closed, act, system=by_sweep)


def _clear(connection: Connection, target: str, act: Act) -> Hold:
    hold = _load(connection, target, act.now)
    if hold.state is not HoldState.QUARANTINED:
        raise HoldNotOwned(f"{target} is not quarantined: {_describe(hold)}")
    owner = hold.run_id or SYSTEM_RUN
    return _change(connection, _freed(hold), act._replace(run_id=owner), system=True)


def _load(connection: Connection, target: str, now: datetime) -> Hold:
    """Return the target's row, locked, making a free one if there is none."""
    fresh = {
        "target": target,
        "state": HoldState.FREE.value,
        "since": stamp(now),
        "reason": "",
        "version": 0,
    }
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    connection.execute(dialect.insert(holds).values(fresh).on_conflict_do_nothing())
    query = select(holds).where(holds.c.target == target).with_for_update()
    return to_hold(connection.execute(query).one())


def _change(connection: Connection, hold: Hold, act: Act, *, system: bool = False) -> Hold:
    """Write the hold's new state and its event, both or neither."""
    changed = replace(hold, version=hold.version + 1, since=act.now.astimezone(UTC))
    payload = {
        "target": hold.target,
        "action": act.action,
        "state": hold.state.value,
        "run_id": act.run_id,
        "version": changed.version,
        **act.details,
    }
    if system:
        ensure_system_run(connection, act.now)
    entry = Entry(hold_key(hold.target, changed.version), KIND_HOLD, payload, act.now)
    stored = append(connection, SYSTEM_RUN if system else act.run_id, entry).stored
    changed = replace(changed, reason=str(stored.get("reason", "")))
    _store(connection, changed)
    return changed


def _extend(connection: Connection, hold: Hold, until: datetime) -> Hold:
    longer = replace(hold, expires_at=max(until, hold.expires_at or until))
    _store(connection, longer)
    return longer


def _store(connection: Connection, hold: Hold) -> None:
    connection.execute(
        update(holds)
        .where(holds.c.target == hold.target)
        .values(
            state=hold.state.value,
            run_id=hold.run_id,
            expires_at=None if hold.expires_at is None else stamp(hold.expires_at),
            since=stamp(hold.since),
            reason=hold.reason,
            version=hold.version,
            last_run_id=hold.last_run_id,
        )
    )


def _freed(hold: Hold) -> Hold:
    return replace(hold, state=HoldState.FREE, run_id=None, expires_at=None, reason="")


def _describe(hold: Hold) -> str:
    until = f" until {stamp(hold.expires_at)}" if hold.expires_at else ""
    return f"it is {hold.state.value} by {hold.run_id or 'nobody'}{until}"
