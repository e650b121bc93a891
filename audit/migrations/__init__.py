"""Bring a database to the schema this code needs, and check that it is there.

Several processes may start at once. The whole upgrade is one transaction that begins as a writer
(on PostgreSQL it first takes an advisory lock), so the second process waits, then sees the schema
in place and does nothing. SQLite's DDL is transactional, so a process that dies half-way leaves
nothing behind.

Alembic keeps its current context in module globals: inside one process a lock keeps upgrades apart.
It costs a second of start-up, so it is loaded only when something has to be upgraded.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from audit.engine import Database
from audit.errors import SchemaNotReady

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0001"
"""Newest revision; a test compares it with the scripts."""

_ADVISORY_LOCK = 8276051403
"""Any number that no other program uses on that database. Source: ours, 2026-12."""

_one_at_a_time = threading.Lock()


def upgrade(url: str) -> None:
    """Bring the database at this address to the newest schema. Safe to call at every start.

    Raises:
        sqlalchemy.exc.DBAPIError: the database cannot be reached or changed.
    """
    database = Database(url)
    try:
        upgrade_database(database)
    finally:
        database.dispose()


def upgrade_database(database: Database) -> None:
    """Do what `upgrade` does on an open database."""
    with _one_at_a_time:
        if database.read(_revision) != HEAD:
            database.write(_upgrade_in_transaction)


def require_current(database: Database) -> None:
    """Check that the schema is the one this code needs.

    Raises:
        SchemaNotReady: it is older, newer, or not there.
    """
    found = database.read(_revision)
    if found != HEAD:
        raise SchemaNotReady(
            f"the database is at revision {found or 'none'}, this code needs {HEAD}: call "
            "upgrade() with the same version of the code"
        )


def _revision(connection: Connection) -> str | None:
    """Return the revision that the database is at; None: no schema of ours."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return found


def _upgrade_in_transaction(connection: Connection) -> None:
    from alembic import command

    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return config
