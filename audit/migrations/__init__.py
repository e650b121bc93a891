"""Bring a database to the schema this code needs, and check that it is there.

Several processes may start at once. The whole upgrade is one transaction that begins as a writer
(on PostgreSQL it first takes an advisory lock), so the second process waits, then sees the schema
in place and does nothing. SQLite's DDL is transactional, so a process that dies half-way leaves
nothing behind.

Alembic keeps its current context in module globals: inside one process a lock keeps upgrades apart.
"""

from __future__ import annotations

import threading
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from audit.engine import Database
from audit.errors import SchemaNotReady

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
        database.write(_upgrade_in_transaction)


def require_current(database: Database) -> None:
    """Check that the schema is the one this code needs.

    Raises:
        SchemaNotReady: it is older, newer, or not there.
    """
    found = database.read(lambda c: MigrationContext.configure(c).get_current_heads())
    wanted = tuple(ScriptDirectory.from_config(_config()).get_heads())
    if found != wanted:
        raise SchemaNotReady(
            f"the database is at revision {', '.join(found) or 'none'}, this code needs "
            f"{', '.join(wanted)}: call upgrade() with the same version of the code"
        )


def _upgrade_in_transaction(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return config
