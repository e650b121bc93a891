"""Alembic's entry: run on the connection that `audit.migrations` hands over, in its transaction."""

from __future__ import annotations

from alembic import context

from audit.tables import metadata


def run() -> None:
    """Run the migrations on the given connection."""
    connection = context.config.attributes["connection"]
    context.configure(
        connection=connection,
        target_metadata=metadata,
        transactional_ddl=True,
        render_as_batch=True,
    )
    with context.begin_transaction():
        context.run_migrations()


run()
