"""Everything about sampled requests: begin, what is noted on the way, end, and who may look.

A request that was sampled ends as one `Finished`: ids, times and counts, never a text. The latest
of them are kept for the admin API, and each goes to the outbox if spans are sent anywhere. Without
an endpoint no header is set: a parent that no collector will ever see would only mislead.
"""

import logging
from collections import deque
from dataclasses import dataclass
from random import Random
from secrets import token_bytes
from typing import TYPE_CHECKING, Any

from gateway.config import TracingConfig
from gateway.flight import Flight
from gateway.http1.heads import RequestHead
from gateway.leases import Entry
from gateway.prefixes import BLOCK_BYTES, read_prompt
from gateway.trace import Sampler, Trace, TracedFacts, as_dict, set_traceparent
from slo.records import RequestRecord

if TYPE_CHECKING:
    from gateway.outbox import Outbox

log = logging.getLogger("gateway.tracing")

RECENT = 512
"""Finished requests that are kept to be looked at."""

RECENT_EVENTS = 500_000
"""Events that they may have together: 5 MB."""

OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
}
"""Paths whose operation has a name. Source: OpenTelemetry GenAI conventions, gen_ai.operation.name;
any other path is left out of spans, since anything can stand in it."""


@dataclass(frozen=True, slots=True, eq=False)
class Finished:
    """A sampled request that has ended. Offsets are seconds since it was accepted."""

    trace: Trace
    record: RequestRecord
    model: str
    """As the client named it, cut to a bearable length."""
    is_known_model: bool
    """Whether the route lists it, so that it is one of few."""
    slo_id: str
    is_stream: bool
    sent_s: float | None
    head_s: float | None
    chunks: tuple[float, ...]
    """When each event of the answer was passed on."""
    content: tuple[bool, ...]
    """Whether it brought content."""
    dropped: int
    """Events above the limit."""

    def view(self) -> dict[str, Any]:
        """Return it as the admin API shows it."""
        record = self.record
        return {
            **as_dict(self.trace),
            "is_chosen_here": self.trace.is_chosen_here,
            "route": record.route,
            "replica": record.replica,
            "arm": record.arm,
            "unit": record.unit,
            "outcome": record.outcome.value,
            "accepted": record.accepted,
            "is_stream": self.is_stream,
            "sent_s": _micro(self.sent_s),
            "head_s": _micro(self.head_s),
            "first_token_s": record.ttft_s,
            "e2e_s": record.e2e_s,
            "chunks": [round(each, 6) for each in self.chunks],
            "content": [int(each) for each in self.content],
            "dropped_chunks": self.dropped,
            "prompt_tokens": record.prompt_tokens,
            "prompt_bytes": self.trace.prompt_bytes,
            "prefixes": list(self.trace.prefixes),
            "touched": list(record.touched),
            "client_run_id": record.client_run_id,
        }


def _micro(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)


MAX_MODEL_CHARACTERS = 128


def finished(flight: Flight, trace: Trace, record: RequestRecord) -> Finished:
    """Take from a flight what may outlive it."""
    facts, since = flight.facts, flight.accepted_mono
    traced = facts if isinstance(facts, TracedFacts) else None
    route = None if flight.route is None else flight.route.config
    return Finished(
        trace=trace,
        record=record,
        model=flight.model[:MAX_MODEL_CHARACTERS].encode("utf-8", "replace").decode(),
        is_known_model=route is not None and flight.model in route.models,
        slo_id="" if route is None else route.slo_id or "",
        is_stream=flight.is_stream,
        sent_s=None if trace.sent_at is None else trace.sent_at - since,
        head_s=None if trace.head_at is None else trace.head_at - since,
        chunks=() if traced is None else tuple(each - since for each in traced.times),
        content=() if traced is None else tuple(traced.has_content()),
        dropped=0 if traced is None else traced.dropped,
    )


def _outbox(config: TracingConfig, epoch: str) -> "Outbox | None":
    """Return what sends spans, if they go anywhere; its libraries are loaded for those only."""
    if config.endpoint is None:
        return None
    from gateway.outbox import Outbox

    return Outbox(config.endpoint, config.max_events, epoch)


class Tracing:
    """Samples, and keeps what was sampled."""

    def __init__(self, config: TracingConfig, epoch: str) -> None:
        self._config = config
        self._key = token_bytes(32)
        self._sampler = Sampler(
            config.sample_ratio, config.parents_per_second, config.max_events, Random()
        )
        self._recent: deque[Finished] = deque()
        self._recent_events = 0
        self.sampled = 0
        self.failed = 0
        """Requests of which no `Finished` could be made: a bug of ours, in the log."""
        self.outbox = _outbox(config, epoch)

    def begin(self, flight: Flight, head: RequestHead) -> None:
        """Choose whether a request is sampled."""
        trace = self._sampler.choose(head.special.get(b"traceparent"), flight.accepted_mono)
        if trace is None:
            return
        flight.trace = trace
        trace.method = head.method.decode("latin-1")
        trace.operation = OPERATIONS.get(flight.path, "")
        if self.outbox is not None:
            set_traceparent(head, trace)

    def enter(self, flight: Flight, trace: Trace, body: bytes, leases: list[Entry]) -> None:
        """Note what is known once the request is whole and has its route."""
        trace.held = tuple((entry.lease.lease_id, entry.run_id) for entry in leases)
        trace.prefixes, trace.prompt_bytes = read_prompt(body, flight.model, self._key)

    def end(self, flight: Flight, trace: Trace, record: RequestRecord) -> None:
        """Keep a request that has ended. Never raises: it has its record, and that is enough."""
        try:
            ended = finished(flight, trace, record)
            self.sampled += 1
            self._keep(ended)
            if self.outbox is not None:
                self.outbox.put(ended)
        except Exception:
            self.failed += 1
            log.exception("a sampled request could not be kept")

    def _keep(self, ended: Finished) -> None:
        self._recent.append(ended)
        self._recent_events += len(ended.chunks)
        while len(self._recent) > RECENT or (
            self._recent_events > RECENT_EVENTS and len(self._recent) > 1
        ):
            self._recent_events -= len(self._recent.popleft().chunks)

    def view(self, limit: int) -> dict[str, Any]:
        """Return the latest requests, the newest last, and what the figures stand for."""
        latest = list(self._recent)[max(0, len(self._recent) - limit) :]
        sampler, outbox = self._sampler, self.outbox
        return {
            "sample_ratio": self._config.sample_ratio,
            "sampled": self.sampled,
            "parents_seen": sampler.seen,
            "parents_over_limit": sampler.over_limit,
            "block_bytes": BLOCK_BYTES,
            "export": None if outbox is None else outbox.counts(),
            "traces": [each.view() for each in latest],
        }
