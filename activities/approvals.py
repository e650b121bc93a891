"""Write down who consented to a run, who was refused, and that nobody did in time.

The workflow hears of it and may not write; so it hands what it heard to the two activities that
follow, and each writes all of it: the place in the list is the key, and the first writing counts.
Names are what people claim to be (see docs/critiques.md).
"""

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel

from activities.ports import AuditLog, Now

ApprovalKind = Literal["approved", "approval_refused", "approval_expired"]

MOST_CHARACTERS = 1000
"""Longest note kept. Source: ours, 2026-12; an event may have 256 kB, and a person says less."""


class ApprovalEvent(BaseModel, frozen=True):
    """What a run that waits for consent heard."""

    kind: ApprovalKind
    at: str
    """When, ISO 8601, UTC, of the workflow's clock."""
    by: str = ""
    note: str = ""
    why: str = ""
    """Why it was refused, or that the time was over."""


async def record_approvals(
    audit: AuditLog, run_id: str, heard: Sequence[ApprovalEvent], now: Now
) -> None:
    """Append each as an event; a repeat changes nothing."""
    for number, event in enumerate(heard, start=1):
        payload = {
            name: text[:MOST_CHARACTERS]
            for name, text in event.model_dump(mode="json", exclude={"kind"}).items()
            if text
        }
        await audit.append(run_id, f"approval/{number}", event.kind, payload, now())
