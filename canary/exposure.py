"""When was one tenant exposed to what another did? Sorts records into exposed, not, and neither.

Either by time, where a window says when the other tenant was loud, broken or over its quota, or by
the arms of a split, where chance said it. By time is weaker evidence: whatever else changed at that
time is taken for an effect. What hangs over an edge of the window is in neither group.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from slo.records import RequestRecord

SETTLE_SECONDS = 10.0
"""Time after a window that belongs to neither group. Source: ours: queues empty, caches fill."""


class Exposure(Protocol):
    """Sorts records."""

    @property
    def is_randomised(self) -> bool:
        """Whether chance put the requests into their groups."""

    def of(self, record: RequestRecord) -> bool | None:
        """Return whether a request was exposed; None if it belongs to neither group."""


@dataclass(frozen=True, slots=True)
class During:
    """Exposed is what was accepted and ended in a window, unix seconds."""

    start: float
    end: float
    is_randomised: bool = False

    def of(self, record: RequestRecord) -> bool | None:
        """See `Exposure.of`."""
        if self.start <= record.accepted <= self.end:
            return True
        if record.at < self.start or record.accepted > self.end + SETTLE_SECONDS:
            return False
        return None


@dataclass(frozen=True, slots=True)
class Arms:
    """Exposed is the chaos arm: the replica on which the other tenant's fault acts."""

    is_randomised: bool = True

    def of(self, record: RequestRecord) -> bool | None:
        """See `Exposure.of`."""
        return {"chaos": True, "control": False}.get(record.arm)


def while_touched(records: Iterable[RequestRecord], tenant: str, item: str) -> During | None:
    """Return the window in which a fault changed requests of a tenant; None: it changed none."""
    return _window(each for each in records if each.tenant == tenant and item in each.touched)


def while_refused(records: Iterable[RequestRecord], tenant: str) -> During | None:
    """Return the window in which a tenant was over its quota; None: it never was."""
    return _window(
        each
        for each in records
        if each.tenant == tenant
        and each.tenancy is not None
        and each.tenancy.refusal in {"quota", "concurrent", "queue"}
    )


def _window(records: Iterable[RequestRecord]) -> During | None:
    found = list(records)
    if not found:
        return None
    return During(min(each.accepted for each in found), max(each.at for each in found))
