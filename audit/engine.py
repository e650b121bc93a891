"""The database as units of work: `write` and `read` run a function in one transaction.

On SQLite every writer begins with BEGIN IMMEDIATE. A transaction that reads first and writes later
is refused at once when another writer came between, whatever the busy time-out says; begun as a
writer it waits its turn. What is still refused (a lock held past the time-out, a serialisation
failure on PostgreSQL) is cured by running the *whole* unit again, since what it read may be old.
So a unit must have no effect besides its transaction.

It decides nothing about content. It refuses a database in memory: each thread would get its own.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from audit.errors import AuditError, JournalModeRefused

T = TypeVar("T")

BUSY_SECONDS = 30.0
"""How long SQLite waits for another writer. Source: ours, 2026-12: 20 writers queue under 2 s."""

RETRY_SECONDS = 60.0
"""How long a unit is run again. Source: ours, 2026-12: the time limit of a recording activity."""

_WRITER = "burnproof_writer"
_RETRYABLE_SQLSTATES = frozenset({"40001", "40P01", "55P03"})
_SQLITE_BUSY_CODES = frozenset(
    {5, 6}
)  # SQLITE_BUSY, SQLITE_LOCKED. Source: sqlite.org/rescode.html


class Database:
    """One database, safe to use from many threads. Make a new one after a fork."""

    def __init__(
        self, url: str, busy_seconds: float = BUSY_SECONDS, retry_seconds: float = RETRY_SECONDS
    ) -> None:
        self.url = make_url(url)
        self._retry_seconds = retry_seconds
        self.engine = _make_engine(self.url, busy_seconds)

    @property
    def is_sqlite(self) -> bool:
        """Say whether this is SQLite."""
        return self.engine.dialect.name == "sqlite"

    def write(self, unit: Callable[[Connection], T]) -> T:
        """Run the unit as a writer and commit; run all of it again if it lost a race.

        Raises:
            JournalModeRefused: SQLite could not enter WAL.
            sqlalchemy.exc.DBAPIError: the database failed for another reason, or for too long.
        """
        return self._run(unit, writer=True)

    def read(self, unit: Callable[[Connection], T]) -> T:
        """Run the unit on one consistent snapshot.

        Raises:
            sqlalchemy.exc.DBAPIError: as for `write`.
        """
        return self._run(unit, writer=False)

    def dispose(self) -> None:
        """Close all pooled connections."""
        self.engine.dispose()

    def _options(self, writer: bool) -> dict[str, Any]:
        if self.is_sqlite:
            return {_WRITER: writer}
        return {"isolation_level": "READ COMMITTED" if writer else "REPEATABLE READ"}

    def _run(self, unit: Callable[[Connection], T], *, writer: bool) -> T:
        deadline = time.monotonic() + self._retry_seconds
        pause = 0.01
        while True:
            try:
                with self.engine.connect() as raw:
                    connection = raw.execution_options(**self._options(writer))
                    with connection.begin():
                        return unit(connection)
            except DBAPIError as error:
                if not is_retryable(error) or time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, 1.0)


def is_retryable(error: DBAPIError) -> bool:
    """Say whether running the whole unit again can help."""
    original = error.orig
    if isinstance(original, sqlite3.OperationalError):
        return (getattr(original, "sqlite_errorcode", 0) & 0xFF) in _SQLITE_BUSY_CODES
    return getattr(original, "sqlstate", None) in _RETRYABLE_SQLSTATES


def _make_engine(url: URL, busy_seconds: float) -> Engine:
    if url.get_backend_name() != "sqlite":
        return create_engine(url, pool_pre_ping=True)
    if not url.database or url.database == ":memory:" or "mode=memory" in str(url):
        raise AuditError("the audit store needs a file: a database in memory proves nothing later")
    engine = create_engine(url, connect_args={"check_same_thread": False})
    _listen_sqlite(engine, busy_seconds)
    return engine


def _listen_sqlite(engine: Engine, busy_seconds: float) -> None:
    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # no hidden BEGIN: ours, below, is the only one
        connection.text_factory = _decode  # a text that was tampered with must still be readable
        cursor = connection.cursor()
        try:
            cursor.execute(f"PRAGMA busy_timeout = {int(busy_seconds * 1000)}")
            _enter_wal(cursor, busy_seconds)
            cursor.execute("PRAGMA synchronous = FULL")  # a commit survives a power cut
            cursor.execute("PRAGMA foreign_keys = ON")
        finally:
            cursor.close()

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        writer = connection.get_execution_options().get(_WRITER, True)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writer else "BEGIN DEFERRED")


def _decode(stored: bytes) -> str:
    return stored.decode("utf-8", "surrogateescape")


def _enter_wal(cursor: Any, busy_seconds: float) -> None:
    """Read the journal mode back; changing it needs a lock that busy_timeout does not wait for."""
    deadline = time.monotonic() + busy_seconds
    while True:
        try:
            mode = cursor.execute("PRAGMA journal_mode").fetchone()[0]
            if mode != "wal":
                mode = cursor.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            if (error.sqlite_errorcode & 0xFF) not in _SQLITE_BUSY_CODES:
                raise
            mode = "locked"
        if mode == "wal":
            return
        if mode != "locked" or time.monotonic() > deadline:
            raise JournalModeRefused(
                f"SQLite stays in journal mode {mode!r} instead of WAL: use a local file system"
            )
        time.sleep(random.uniform(0.005, 0.05))
