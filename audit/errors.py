"""What the audit room raises. It decides nothing; a caller chooses by type, never by text.

    AuditError
    ├── CanonicalError      the value has no canonical JSON form (also a ValueError)
    ├── PayloadTooLarge     an event or a segment is over its limit
    ├── UnknownRun          nothing was opened under this run id
    ├── RunFinished         the run is over and may take no new hold
    ├── SchemaNotReady      the database is not at the revision this code needs
    ├── JournalModeRefused  SQLite did not enter WAL, so readers would block writers
    ├── SegmentConflict     the same segment was put before with other content
    ├── SegmentCorrupt      a stored segment does not give its digest
    └── HoldError
        ├── HoldRefused     somebody else has the target, or it is quarantined
        ├── HoldNotOwned    the caller does not have the hold it wants to change
        └── ProofMissing    a hold is freed by proof, and none was given

None of these is cured by trying again: what is (a locked database) is retried inside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from audit.records import Hold


class AuditError(Exception):
    """Whatever this room refuses."""


class CanonicalError(AuditError, ValueError):
    """The value has no canonical JSON form."""


class PayloadTooLarge(AuditError):
    """An event or a segment is over its limit."""


class UnknownRun(AuditError):
    """Nothing was opened under this run id."""


class RunFinished(AuditError):
    """The run is over and may take no new hold."""


class SchemaNotReady(AuditError):
    """The database is not at the revision this code needs."""


class JournalModeRefused(AuditError):
    """SQLite did not enter write-ahead logging."""


class SegmentConflict(AuditError):
    """The same segment was put before with other content."""


class SegmentCorrupt(AuditError):
    """A stored segment does not give its digest."""


class HoldError(AuditError):
    """A change of a hold that its rules do not allow."""


class HoldRefused(HoldError):
    """Somebody else has the target, or it is quarantined. `hold` says who and why."""

    def __init__(self, hold: Hold) -> None:
        self.hold = hold
        owner = f"run {hold.run_id}" if hold.run_id else "nobody"
        until = f" until {hold.expires_at.isoformat()}" if hold.expires_at else ""
        because = f": {hold.reason}" if hold.reason else ""
        super().__init__(f"{hold.target} is {hold.state.value} by {owner}{until}{because}")


class HoldNotOwned(HoldError):
    """The caller does not have the hold it wants to change."""


class ProofMissing(HoldError):
    """A hold is freed by proof of a clean target, and none was given."""
