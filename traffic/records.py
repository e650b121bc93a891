"""What the client saw of each request, and the sum of it.

These counts are the denominator nobody else has: an engine's own series know nothing of a request
that never got an answer.
"""

from collections import Counter
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from statistics import quantiles
from typing import Any


class Outcome(StrEnum):
    """How one request ended; exactly one holds."""

    OK = "ok"
    HTTP_ERROR = "http_error"
    STREAM_ERROR = "stream_error"
    TRUNCATED = "truncated"
    TIMEOUT = "timeout"
    TRANSPORT = "transport"
    CLIENT_ABORT = "client_abort"


@dataclass(frozen=True, slots=True)
class ClientRecord:
    """One request. Times but `started` are seconds since the request was sent."""

    id: str
    unit: str
    started: float
    """Unix seconds."""
    ttft: float | None
    """None: no token came."""
    max_gap: float
    """Longest silence after the first token; 0 if none."""
    e2e: float
    status: int
    """HTTP status; 0 when none came."""
    outcome: Outcome
    tokens: int

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return asdict(self)


@dataclass(slots=True)
class Tally:
    """Running sums of one drive. Keeps two floats a request, for quantiles."""

    by_outcome: Counter[str] = field(default_factory=Counter)
    by_status: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    units: int = 0
    late_sends: int = 0
    """Requests sent later than planned by more than the driver's tolerance."""
    skipped: int = 0
    """Conversations not started, since too many were open."""
    simulated: bool | None = None
    """Whether the engine called itself simulated; None while nothing is known."""
    ttft: list[float] = field(default_factory=list)
    e2e: list[float] = field(default_factory=list)

    def add(self, record: ClientRecord) -> None:
        """Count one request."""
        self.by_outcome[record.outcome.value] += 1
        self.by_status[str(record.status)] += 1
        self.tokens += record.tokens
        self.e2e.append(record.e2e)
        if record.ttft is not None:
            self.ttft.append(record.ttft)

    @property
    def requests(self) -> int:
        """Requests that ended."""
        return self.by_outcome.total()

    def to_json(self) -> dict[str, Any]:
        """Return the sums as a JSON object; quantiles without samples are null."""
        return {
            "requests": self.requests,
            "conversations": self.units,
            "by_outcome": dict(sorted(self.by_outcome.items())),
            "by_status": dict(sorted(self.by_status.items())),
            "tokens": self.tokens,
            "late_sends": self.late_sends,
            "skipped_conversations": self.skipped,
            "ttft_seconds": _spread(self.ttft),
            "e2e_seconds": _spread(self.e2e),
        }


def _spread(samples: list[float]) -> dict[str, float] | None:
    if len(samples) < 2:
        return None
    cuts = quantiles(samples, n=100, method="inclusive")
    return {"p50": round(cuts[49], 6), "p95": round(cuts[94], 6), "p99": round(cuts[98], 6)}
