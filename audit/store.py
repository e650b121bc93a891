"""The audit store: who did what to which target, and on what evidence, in SQL.

It composes the parts: runs and their chained events, segments of evidence, holds, the stop switch,
and the checks of all of them. Every method is one transaction, and every act that is tried again
finds what the first try stored. It judges nothing and never changes what was written.

    store = AuditStore("sqlite:///audit.db")
    store.upgrade()

Methods block: from asynchronous code use `audit.asynchronous`. Make a new store after a fork.
"""

from __future__ import annotations

from audit.engine import BUSY_SECONDS, RETRY_SECONDS, Database
from audit.holds import Holds
from audit.migrations import upgrade_database
from audit.runs import Runs
from audit.segments import Segments
from audit.stop import StopSwitch
from audit.verify import Verify


class AuditStore(Runs, Segments, Holds, StopSwitch, Verify):
    """Everything that is kept, behind one address."""

    def __init__(
        self,
        url: str,
        *,
        busy_seconds: float = BUSY_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        super().__init__(Database(url, busy_seconds, retry_seconds))

    def upgrade(self) -> None:
        """Bring the database to the schema this code needs; safe at every start."""
        upgrade_database(self._database)

    def close(self) -> None:
        """Close the pooled connections; the store can be used again afterwards."""
        self._database.dispose()
