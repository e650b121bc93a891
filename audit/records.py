"""What the store hands back besides events: runs, segments, holds, the stop switch. Pure.

These are plain frozen values; they decide nothing. A hold that has expired is not free: `expired`
only says that its owner no longer renews it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from audit.canonical import loads


class HoldState(StrEnum):
    """Where one target stands."""

    FREE = "free"
    HELD = "held"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True)
class Hold:
    """One target's hold. `version` grows by one with each change of state."""

    target: str
    state: HoldState
    run_id: str | None
    expires_at: datetime | None
    since: datetime
    reason: str
    version: int
    last_run_id: str | None

    def expired(self, now: datetime) -> bool:
        """Say whether a held target is past its time. It stays held all the same."""
        return (
            self.state is HoldState.HELD and self.expires_at is not None and self.expires_at <= now
        )


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One row of the history: a cache of what the run's own events say."""

    run_id: str
    workflow_id: str
    name: str
    kind: str
    spec_text: str
    parent_run_id: str | None
    requested_by: str
    trigger: str
    opened_at: str
    outcome: str | None
    exit_code: int | None
    finished_at: str | None
    event_count: int
    head_hash: str

    @property
    def spec(self) -> dict[str, Any]:
        """The document the run was started with, secrets masked."""
        value: dict[str, Any] = loads(self.spec_text)
        return value


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """One stored piece of evidence. `count` is in records; sequences are None without records."""

    digest: str
    count: int
    first_seq: int | None
    last_seq: int | None
    created: bool = True


@dataclass(frozen=True, slots=True)
class StopState:
    """The global stop switch."""

    stopped: bool
    reason: str = ""
    by: str = ""
    at: str | None = None
