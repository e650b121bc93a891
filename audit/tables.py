"""The tables, in types that SQLite and PostgreSQL treat alike. It holds no queries.

JSON is kept as text in its canonical form, not in a JSON column: the bytes are what is hashed, and
a database that rearranges them would break every chain. Times are texts that sort as times do, for
the same reason.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

NAME = String(200)
KEY = String(500)
STAMP = String(27)
HASH = String(64)

runs = Table(
    "runs",
    metadata,
    Column("run_id", NAME, primary_key=True),
    Column("workflow_id", NAME, nullable=False),
    Column("name", NAME, nullable=False),
    Column("kind", NAME, nullable=False),
    Column("spec", Text, nullable=False),
    Column("parent_run_id", NAME, nullable=True),
    Column("requested_by", NAME, nullable=False),
    Column("trigger", NAME, nullable=False),
    Column("opened_at", STAMP, nullable=False),
    Column("outcome", NAME, nullable=True),
    Column("exit_code", Integer, nullable=True),
    Column("finished_at", STAMP, nullable=True),
    Column("event_count", Integer, nullable=False),
    Column("head_hash", HASH, nullable=False),
    Index("ix_runs_opened_at", "opened_at"),
    Index("ix_runs_parent_run_id", "parent_run_id"),
)

events = Table(
    "events",
    metadata,
    Column("run_id", NAME, ForeignKey("runs.run_id"), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("key", KEY, nullable=False),
    Column("kind", NAME, nullable=False),
    Column("at", STAMP, nullable=False),
    Column("payload", Text, nullable=False),
    Column("payload_sha256", HASH, nullable=False),
    Column("prev_hash", HASH, nullable=False),
    Column("hash", HASH, nullable=False),
    UniqueConstraint("run_id", "key"),
    Index("ix_events_kind_at", "kind", "at"),
)

segments = Table(
    "segments",
    metadata,
    Column("run_id", NAME, ForeignKey("runs.run_id"), primary_key=True),
    Column("stream", NAME, primary_key=True),
    Column("index", Integer, primary_key=True, autoincrement=False),
    Column("digest", HASH, nullable=False),
    Column("raw_bytes", Integer, nullable=False),
    Column("count", Integer, nullable=False),
    Column("first_seq", BigInteger, nullable=True),
    Column("last_seq", BigInteger, nullable=True),
    Column("blob", LargeBinary, nullable=False),
)

holds = Table(
    "holds",
    metadata,
    Column("target", NAME, primary_key=True),
    Column("state", String(20), nullable=False),
    Column("run_id", NAME, nullable=True),
    Column("expires_at", STAMP, nullable=True),
    Column("since", STAMP, nullable=False),
    Column("reason", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("last_run_id", NAME, nullable=True),
)

stop_flag = Table(
    "stop_flag",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("stopped", Boolean, nullable=False),
    Column("reason", Text, nullable=False),
    Column("by", NAME, nullable=False),
    Column("at", STAMP, nullable=True),
    Column("version", Integer, nullable=False),
)
