"""What is noted about a request that was sampled, and which requests are.

The choice is made once, when a request's head is in: a share of those without a parent, and those
whose client says in `traceparent` that it samples, up to a limit a second. Any other request gets
nothing: no object, no list, no clock reading of its own. Of a sampled one only times and counts are
kept, in compact arrays; a span is made of them after it has ended (`spans.py`). What was hard: a
client decides with one header whether we work for it, hence the limit.
"""

import re
from array import array
from dataclasses import dataclass, field
from random import Random
from typing import Any

from gateway.http1.heads import Pairs, RequestHead
from gateway.sse import StreamFacts

TRACEPARENT = b"traceparent"

_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
"""Source: W3C Trace Context, section 3.2; later versions may have more at the end."""

SAMPLED = 1

_RUN_ID = re.compile(rb"[0-9a-f]{8}(-?)[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}")

KEEP_ALL = 10**9


@dataclass(frozen=True, slots=True)
class Parent:
    """The span that a client names as the cause of its request."""

    trace_id: int
    span_id: int
    sampled: bool


def read_traceparent(value: bytes) -> Parent | None:
    """Read the header; None if it is not one, so that the trace begins here."""
    found = _TRACEPARENT.fullmatch(value)
    if found is None:
        return None
    version, trace_id, span_id = found[1], int(found[2], 16), int(found[3], 16)
    if version == b"ff" or (version == b"00" and found[5]) or not trace_id or not span_id:
        return None
    return Parent(trace_id, span_id, bool(int(found[4], 16) & SAMPLED))


def read_run_id(value: bytes) -> str:
    """Return a client's run id in its usual form; empty if it is no UUID.

    Any other text is dropped: a header can hold what must not be in a record.
    """
    low = value.lower()
    if not _RUN_ID.fullmatch(low):
        return ""
    digits = low.replace(b"-", b"").decode()
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "-".join(parts)


@dataclass(slots=True)
class TracedFacts(StreamFacts):
    """What one answer showed, with the time of each of its events."""

    limit: int = KEEP_ALL
    times: "array[float]" = field(default_factory=lambda: array("d"))
    """Seconds on the loop's clock, one for each event that was passed on."""
    tokens_before: "array[int]" = field(default_factory=lambda: array("I"))
    """Events with content before each of these."""
    dropped: int = 0
    """Events above the limit, of which only the number is known."""

    def note_event(self, now: float) -> None:
        """Count the silence before a data event, and keep its time."""
        StreamFacts.note_event(self, now)
        if len(self.times) < self.limit:
            self.times.append(now)
            self.tokens_before.append(self.content_chunks)
        else:
            self.dropped += 1

    def has_content(self) -> list[bool]:
        """Say of each kept event whether it brought content."""
        after = [*self.tokens_before[1:], self.content_chunks]
        return [later > before for before, later in zip(self.tokens_before, after, strict=True)]


@dataclass(slots=True, eq=False)
class Trace:
    """One sampled request. Times are seconds on the loop's clock."""

    trace_id: int
    """128 bits."""
    span_id: int
    """64 bits: ours."""
    parent: Parent | None
    max_events: int
    sent_at: float | None = None
    """When it was sent to the replica that answered, for the last time if there were several."""
    head_at: float | None = None
    """When that replica's answer began."""
    method: str = ""
    operation: str = ""
    """chat, text_completion or embeddings; empty for any other path."""
    held: tuple[tuple[str, str], ...] = ()
    """Lease and run of each lease that was open on the route."""
    prefixes: tuple[str, ...] = ()
    """Keyed hashes of the prompt's beginnings, each a block longer than the one before."""
    prompt_bytes: int = 0

    @property
    def is_chosen_here(self) -> bool:
        """Whether our own share chose it, so that it stands for the traffic."""
        return self.parent is None

    def facts(self) -> TracedFacts:
        """Return what the answer is read into."""
        return TracedFacts(limit=self.max_events)

    def traceparent(self) -> bytes:
        """Return the header that makes our span the parent of the replica's."""
        return b"00-%032x-%016x-01" % (self.trace_id, self.span_id)


class Sampler:
    """Chooses requests. Not for two threads."""

    def __init__(
        self, ratio: float, parents_per_second: float, max_events: int, random: Random
    ) -> None:
        self.seen = 0
        """Requests with a parent that samples."""
        self.over_limit = 0
        """Those of them that were not sampled because of the limit."""
        self._ratio = ratio
        self._rate = parents_per_second
        self._left = parents_per_second
        self._at = 0.0
        self._max_events = max_events
        self._random = random

    def choose(self, traceparent: bytes | None, now: float) -> Trace | None:
        """Decide about a request that came at `now` (seconds on any steady clock)."""
        parent = None if traceparent is None else read_traceparent(traceparent)
        if parent is None:
            if self._random.random() >= self._ratio:
                return None
            trace_id = self._random.getrandbits(128) or 1
        else:
            if not parent.sampled or not self._has_room(now):
                return None
            trace_id = parent.trace_id
        span_id = self._random.getrandbits(64) or 1
        return Trace(trace_id, span_id, parent, self._max_events)

    def _has_room(self, now: float) -> bool:
        """Take one from a bucket that holds a second's worth."""
        self.seen += 1
        self._left = min(max(1.0, self._rate), self._left + (now - self._at) * self._rate)
        self._at = now
        if self._rate <= 0 or self._left < 1.0:
            self.over_limit += 1
            return False
        self._left -= 1.0
        return True


def set_traceparent(head: RequestHead, trace: Trace) -> None:
    """Name our span to the replica, in place of the client's if it named one."""
    kept: Pairs = [pair for pair in head.kept if pair[0].lower() != TRACEPARENT]
    head.kept = [*kept, (TRACEPARENT, trace.traceparent())]


def as_dict(trace: Trace) -> dict[str, Any]:
    """Return the ids of a trace as other tools write them."""
    return {
        "trace_id": f"{trace.trace_id:032x}",
        "span_id": f"{trace.span_id:016x}",
        "parent_span_id": "" if trace.parent is None else f"{trace.parent.span_id:016x}",
    }
