"""One accepted request on its way through the gateway: what is known about it so far.

A flight is made when the request's headers are in and ends exactly once, as one record. It holds
no logic but the reading of itself; `outcome.py` says what the end means, `core.py` writes it
down.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from gateway.routing import Arm, Treatment
from gateway.sse import StreamFacts

if TYPE_CHECKING:
    from gateway.items import RunningFault
    from gateway.routes import RouteState
    from gateway.tenants.visit import Visit
    from gateway.trace import Trace


class Cause(StrEnum):
    """Why a flight ended, as seen by the part that ended it."""

    COMPLETE = "complete"
    """The answer, ours or the replica's, was passed on to its last byte."""
    CLIENT = "client"
    """The client went away."""
    TIMEOUT = "timeout"
    LOST = "lost"
    """The connection to the replica failed or broke."""
    SHED = "shed"
    """Refused here."""


@dataclass(slots=True, eq=False)
class Flight:
    """A request in flight. Times named `_mono` are loop seconds, `_unix` are unix seconds."""

    key: str
    """Names this request: unique in this process, the unit when there is no conversation."""
    accepted_mono: float
    accepted_unix: float
    conversation: str = ""
    tenant: str = ""
    probe: bool = False
    pinned: str = ""
    wants_stream: bool = False
    model: str = ""
    """The model that the request names."""
    path: str = ""
    """The path of the request, without its query."""
    tools: object = None
    """The tools that the request offers, unread; None without any."""
    required_fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Tool → fields that its schema requires; read only for a fault that spoils tool calls."""
    route: "RouteState | None" = None
    unit: str = ""
    first_of_unit: bool = False
    arm: Arm = ""
    treatment: Treatment = ""
    assigned: str = ""
    replica: str = ""
    fallback: bool = False
    armed: "tuple[RunningFault, ...]" = ()
    """Fault items on the serving replica when the request was sent there."""
    touched: "list[RunningFault]" = field(default_factory=list)
    status: int = 0
    is_stream: bool = False
    """The answer is an event stream that we can read."""
    owes_end: bool = False
    """A stream was asked for and the answer is a success that we can read, whatever it holds."""
    facts: StreamFacts = field(default_factory=StreamFacts)
    held_s: float = 0.0
    """Seconds for which the client took no bytes: its time, in no figure of the service."""
    cause: Cause = Cause.LOST
    visit: "Visit | None" = None
    """Its tenant side; None for probes, and where no tenants or limits are configured."""
    client_run_id: str = ""
    """The run of the client's own tracing that this request belongs to, a UUID; or empty."""
    trace: "Trace | None" = None
    """What is noted for its span, if it was sampled."""

    def new_facts(self) -> StreamFacts:
        """Return what a stream is read into."""
        return StreamFacts() if self.trace is None else self.trace.facts()

    @property
    def ttft_s(self) -> float | None:
        """Seconds from accept to the first content token, injected delay included."""
        first = self.facts.first_token_at
        return None if first is None else max(0.0, first - self.accepted_mono)

    def touch(self, item: "RunningFault") -> None:
        """Note that a fault item changed this request."""
        if item not in self.touched:
            self.touched.append(item)
            item.note_touch(self)
