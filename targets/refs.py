"""Name the things we act on: a route, its replicas, and which of them a run resolved to.

Pure data, no I/O. A *route* is one model's share of traffic at a gateway; a *replica* is one engine
process behind it. The hold on a target is keyed by `RouteRef.key`, so two documents that reach one
route by different words still meet in one row.
"""

from pydantic import BaseModel


class RouteRef(BaseModel, frozen=True):
    """A route at a gateway."""

    name: str

    @property
    def key(self) -> str:
        """Return the name of the hold's row."""
        return f"route/{self.name}"


class ReplicaRef(BaseModel, frozen=True):
    """One engine process behind a route."""

    name: str
    url: str
