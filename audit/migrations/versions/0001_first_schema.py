"""Make runs, events, segments, holds and the stop switch."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "runs",
        sa.Column("run_id", sa.String(200), nullable=False),
        sa.Column("workflow_id", sa.String(200), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("kind", sa.String(200), nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("parent_run_id", sa.String(200), nullable=True),
        sa.Column("requested_by", sa.String(200), nullable=False),
        sa.Column("trigger", sa.String(200), nullable=False),
        sa.Column("opened_at", sa.String(27), nullable=False),
        sa.Column("outcome", sa.String(200), nullable=True),
        sa.Column("exit_code", sa.Integer, nullable=True),
        sa.Column("finished_at", sa.String(27), nullable=True),
        sa.Column("event_count", sa.Integer, nullable=False),
        sa.Column("head_hash", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_runs"),
    )
    op.create_index("ix_runs_opened_at", "runs", ["opened_at"])
    op.create_index("ix_runs_parent_run_id", "runs", ["parent_run_id"])
    op.create_table(
        "events",
        sa.Column("run_id", sa.String(200), nullable=False),
        sa.Column("seq", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("key", sa.String(500), nullable=False),
        sa.Column("kind", sa.String(200), nullable=False),
        sa.Column("at", sa.String(27), nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("payload_sha256", sa.String(64), nullable=False),
        sa.Column("prev_hash", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "seq", name="pk_events"),
        sa.UniqueConstraint("run_id", "key", name="uq_events_run_id_key"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_events_run_id"),
    )
    op.create_index("ix_events_kind_at", "events", ["kind", "at"])
    op.create_table(
        "segments",
        sa.Column("run_id", sa.String(200), nullable=False),
        sa.Column("stream", sa.String(200), nullable=False),
        sa.Column("index", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("raw_bytes", sa.Integer, nullable=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("first_seq", sa.BigInteger, nullable=True),
        sa.Column("last_seq", sa.BigInteger, nullable=True),
        sa.Column("blob", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "stream", "index", name="pk_segments"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_segments_run_id"),
    )
    op.create_table(
        "holds",
        sa.Column("target", sa.String(200), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("run_id", sa.String(200), nullable=True),
        sa.Column("expires_at", sa.String(27), nullable=True),
        sa.Column("since", sa.String(27), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("last_run_id", sa.String(200), nullable=True),
        sa.PrimaryKeyConstraint("target", name="pk_holds"),
    )
    op.create_table(
        "stop_flag",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("stopped", sa.Boolean, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("by", sa.String(200), nullable=False),
        sa.Column("at", sa.String(27), nullable=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_stop_flag"),
    )


def downgrade() -> None:
    for table in ("stop_flag", "holds", "segments", "events", "runs"):
        op.drop_table(table)
