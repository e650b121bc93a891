"""What one request holds of its tenant's share, and what it came to. No I/O, no clock."""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from gateway.flight import Flight
from gateway.tenants.bucket import Bucket
from gateway.tenants.config import Limits, RouteLimit
from gateway.tenants.fair import Gate, Lane, Place
from gateway.tenants.refusal import Refusal
from slo.records import Outcome

if TYPE_CHECKING:
    from gateway.tenants.desk import Desk

BYTES_PER_TOKEN = CHARACTERS_PER_TOKEN = 4
"""What is taken for one token of a prompt, or of an answer, until the engine says how many.

Source: OpenAI's rule of thumb for English; JSON around the text makes it an upper estimate."""


class Guest(Protocol):
    """The request as the desk sees it."""

    def proceed(self) -> None:
        """Go on: its turn has come."""

    def turn_away(self, refusal: Refusal) -> None:
        """Answer with a refusal."""


@dataclass(eq=False, slots=True)
class Pool:
    """What one tenant has, on every route together."""

    label: str
    """Its name in metrics."""
    limits: Limits
    routes: frozenset[str] = frozenset()
    bucket: Bucket | None = None
    here: int = 0
    """Its requests in the gateway."""

    def limit(self, limits: Limits, routes: frozenset[str], now: float) -> None:
        """Go on under these limits: what was used and what is owed stays."""
        self.limits, self.routes = limits, routes
        if limits.tokens_per_second is None:
            self.bucket = None
        elif self.bucket is None:
            self.bucket = Bucket(limits.tokens_per_second, limits.burst, limits.burst, now)
        else:
            self.bucket.limit(limits.tokens_per_second, limits.burst, now)


@dataclass(eq=False, slots=True)
class Door:
    """One route's gate with a lane for each tenant."""

    gate: Gate
    wait_seconds: float
    lanes: dict[Pool, Lane] = field(default_factory=dict)

    def limit(self, limit: RouteLimit) -> None:
        """Go on under another limit, with those who are inside and those who wait."""
        self.gate.places, self.gate.queue = limit.in_flight, limit.queue_per_tenant
        self.wait_seconds = limit.wait_seconds

    def lane(self, pool: Pool) -> Lane:
        """Return a tenant's lane, under its present weight."""
        lane = self.lanes.get(pool)
        if lane is None:
            lane = self.lanes[pool] = Lane(pool.limits.weight)
        lane.weight = pool.limits.weight
        return lane


@dataclass(eq=False, slots=True)
class Visit:
    """One request at the desk."""

    desk: "Desk"
    pool: Pool | None
    signs: tuple[str, ...] = ()
    refusal: Refusal | None = None
    planted: tuple[str, ...] = ()
    echo: str = ""
    prompt: int = 0
    """Tokens that its prompt is taken for."""
    reserve: int = 0
    """Tokens set aside for it."""
    bucket: Bucket | None = None
    """The bucket that tokens were taken from."""
    taken: float = 0.0
    """As many of them as the bucket can hold."""
    door: Door | None = None
    place: Place | None = None
    billed: int = 0
    """Tokens that it came to."""
    is_counted: bool = False
    """Its tenant counts it as here."""
    since: float = 0.0
    """When it began to wait, loop seconds; 0 when it did not."""
    queued_s: float = 0.0
    timer: asyncio.TimerHandle | None = None

    def hear(self, pairs: list[tuple[bytes, bytes]], tenant: str) -> None:
        """Note whom the replica says it served, if it says so."""
        wanted = self.desk.echo_header
        if not wanted:
            return
        for name, value in pairs:
            if len(name) == len(wanted) and name.lower() == wanted:
                said = value.strip(b" \t").decode("latin-1")
                if said != tenant:
                    self.echo = said[:128]


def bill(flight: Flight, visit: Visit, outcome: Outcome) -> int:
    """Return the tokens that a request came to.

    The engine's own figures where there are any, else what was seen and an estimate of the prompt;
    nothing for an error, and all that was set aside for an answer that could not be read.
    """
    facts = flight.facts
    if outcome in {Outcome.SHED, Outcome.HTTP_ERROR} or not flight.replica:
        return 0
    # A chunk is at least one token, and a whole answer is one chunk.
    guess = -(-facts.text_length // CHARACTERS_PER_TOKEN)
    tokens = max(facts.content_chunks, guess if facts.usage_tokens is None else facts.usage_tokens)
    was_read = facts.usage_tokens is not None or facts.content_chunks or facts.prompt_tokens
    if not was_read and outcome in {Outcome.OK, Outcome.TRANSPORT}:
        return visit.reserve if outcome is Outcome.OK else 0
    return (facts.prompt_tokens or visit.prompt) + tokens
