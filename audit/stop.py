"""The global stop switch: set by a person, in force until a person lifts it.

It only remembers; each gateway has its own switch, and whoever starts a run asks here first.
Every change is an event under the system's run.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, select, update
from sqlalchemy.dialects import postgresql, sqlite

from audit.base import StorePart
from audit.canonical import prepare, stamp
from audit.events import KIND_STOP, SYSTEM_RUN, check_name
from audit.ledger import Entry, append
from audit.records import StopState
from audit.runs import ensure_system_run
from audit.tables import stop_flag

_ROW = 1


class StopSwitch(StorePart):
    """The global stop."""

    def set_stop(self, reason: str, by: str, at: datetime) -> StopState:
        """Refuse new starts from now on; a repeat keeps the first reason.

        Raises:
            CanonicalError: no name.
        """
        check_name("a name", by)
        wanted = StopState(True, prepare(reason), prepare(by), stamp(at))
        return self._write(lambda c: _switch(c, wanted, at))

    def clear_stop(self, by: str, at: datetime) -> StopState:
        """Allow starts again; without effect if nothing was stopped.

        Raises:
            CanonicalError: no name.
        """
        check_name("a name", by)
        wanted = StopState(False, "", prepare(by), stamp(at))
        return self._write(lambda c: _switch(c, wanted, at))

    def stop_state(self) -> StopState:
        """Say whether starts are refused, since when, by whom and why."""
        return self._read(lambda c: _load(c)[0])


def _load(connection: Connection, *, locked: bool = False) -> tuple[StopState, int]:
    query = select(stop_flag).where(stop_flag.c.id == _ROW)
    row = connection.execute(query.with_for_update() if locked else query).one_or_none()
    if row is None:
        return StopState(False), 0
    return StopState(row.stopped, row.reason, row.by, row.at), row.version


def _switch(connection: Connection, wanted: StopState, at: datetime) -> StopState:
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    fresh = {"id": _ROW, "stopped": False, "reason": "", "by": "", "version": 0}
    connection.execute(dialect.insert(stop_flag).values(fresh).on_conflict_do_nothing())
    found, version = _load(connection, locked=True)
    if found.stopped == wanted.stopped:
        return found
    ensure_system_run(connection, at)
    payload = {
        "stopped": wanted.stopped,
        "reason": wanted.reason,
        "by": wanted.by,
        "version": version + 1,
    }
    append(connection, SYSTEM_RUN, Entry(f"stop/{version + 1}", KIND_STOP, payload, at))
    values = {"reason": wanted.reason, "by": wanted.by, "at": wanted.at, "version": version + 1}
    connection.execute(
        update(stop_flag).where(stop_flag.c.id == _ROW).values(stopped=wanted.stopped, **values)
    )
    return wanted
