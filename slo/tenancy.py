"""What the gateway noted about a request's tenant, beside the name in the record itself.

A record has it only where tenants or route limits are configured, so that what was written before
reads as it did. Only names and counts stand here: no key, no marker, no text.
"""

from dataclasses import dataclass
from math import isfinite
from typing import Any

_NAMES = ("signs", "planted", "markers")


@dataclass(frozen=True, slots=True)
class Tenancy:
    """One request's tenant side.

    Raises:
        ValueError: the wait is not finite.
    """

    refusal: str = ""
    """Why it was not let in: identity, quota, concurrent, queue or wait; empty when it was."""
    billed: int = 0
    """Tokens charged to the tenant."""
    queued_s: float = 0.0
    """Wait for a place on a full route, seconds; part of every latency."""
    signs: tuple[str, ...] = ()
    """Other tenants that a sign of this request named."""
    echo: str = ""
    """Another tenant that the replica said it served."""
    planted: tuple[str, ...] = ()
    """Owners of the markers in the request."""
    markers: tuple[str, ...] = ()
    """Owners of the markers in the answer."""

    def __post_init__(self) -> None:
        if not isfinite(self.queued_s):
            raise ValueError("a tenancy: queued_s is not finite")

    @property
    def is_refused_by_rule(self) -> bool:
        """Whether the refusal was the tenant's own doing: no event of the service's."""
        return self.refusal not in ("", "wait")

    def leaked(self, tenant: str) -> tuple[str, ...]:
        """Return the tenants whose markers came to `tenant` without it having sent them."""
        return tuple(m for m in self.markers if m != tenant and m not in self.planted)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types, without what is as by default."""
        found: dict[str, Any] = {}
        if self.refusal:
            found["refusal"] = self.refusal
        if self.billed:
            found["billed"] = self.billed
        if self.queued_s:
            found["queued_s"] = self.queued_s
        if self.echo:
            found["echo"] = self.echo
        for name in _NAMES:
            if names := getattr(self, name):
                found[name] = list(names)
        return found

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> "Tenancy":
        """Read one; unknown keys are ignored.

        Raises:
            ValueError: the wait is not finite.
        """
        return cls(
            refusal=raw.get("refusal", ""),
            billed=raw.get("billed", 0),
            queued_s=raw.get("queued_s", 0.0),
            signs=tuple(raw.get("signs", ())),
            echo=raw.get("echo", ""),
            planted=tuple(raw.get("planted", ())),
            markers=tuple(raw.get("markers", ())),
        )
