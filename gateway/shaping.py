"""Who shapes an answer: from the faults that drew it to one list-maker of steps, or to nobody.

This is the seam between the rule (what a fault does to an answer) and the data path (which reads,
waits and writes). `shaper_for` answers None for an answer that no armed fault drew, and for one
that those it drew cannot change: a body of another kind, a compressed one, none at all. Such an
answer takes the fast path and is not counted. What was hard: a shaped answer may get longer or
shorter, so its Content-Length is taken away here, before the headers leave.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from multidict import CIMultiDict

from faults.parameters import (
    ConstantEmbeddings,
    ErrorAnswer,
    Headers,
    LatencyPerToken,
    Null,
    SlowDrip,
    StreamCut,
    StreamGarble,
    StreamStall,
    ToolCalls,
)
from faults.sampling import decide_touch
from gateway.flight import Flight
from gateway.items import RunningFault
from gateway.rewrites import ToolStream, Whole, constant_embeddings, spoil_tool_calls
from gateway.steps import Chain, Close, Cut, Send, Shaper, Step, Wait
from gateway.stream_shapers import CutOff, Drip, Garble, LateError, PerToken, Stall
from gateway.tampering import change_header

__all__ = [
    "Close",
    "Cut",
    "Send",
    "Shaper",
    "Step",
    "Wait",
    "shape_headers",
    "shaper_for",
]

_SUCCESS = range(200, 300)
_NO_BODY = frozenset({204, 205, 304})

Maker = Callable[[Flight, RunningFault, Any], Shaper]

_OF_STREAMS: dict[type, tuple[int, Maker]] = {
    ToolCalls: (0, ToolStream),
    ErrorAnswer: (1, LateError),
    StreamGarble: (2, Garble),
    StreamCut: (3, CutOff),
    LatencyPerToken: (4, PerToken),
    StreamStall: (5, Stall),
    SlowDrip: (6, Drip),
}
"""Parameters → place in the chain and maker. What changes bytes comes before what changes time, so
that it does not matter in which order the faults were put on."""

_KEEPS_BYTES = (LatencyPerToken, StreamStall, SlowDrip)


def _whole_embeddings(flight: Flight, item: RunningFault, given: ConstantEmbeddings) -> Shaper:
    return Whole(flight, item, partial(constant_embeddings, vector=given.vector))


def _whole_tool_calls(flight: Flight, item: RunningFault, given: ToolCalls) -> Shaper:
    required = flight.required_fields
    return Whole(flight, item, partial(spoil_tool_calls, kind=given.kind, required=required))


_OF_PLAIN: dict[type, tuple[int, Maker]] = {
    ToolCalls: (0, _whole_tool_calls),
    ConstantEmbeddings: (0, _whole_embeddings),
    SlowDrip: (6, Drip),
}

_OF_ANY: dict[type, tuple[int, Maker]] = {SlowDrip: (6, Drip)}


def shaper_for(flight: Flight, status: int, headers: CIMultiDict[str]) -> Shaper | None:
    """Return who shapes this answer, or None to pass it untouched.

    Args:
        flight: the request; the faults that it met are on it.
        status: of the replica's answer.
        headers: as they will be sent. Content-Length is removed if bytes may change.
    """
    if not flight.armed or status in _NO_BODY:
        return None
    makers = _makers_for(status, headers)
    found: list[tuple[int, Shaper]] = []
    keeps_bytes = True
    for item in flight.armed:
        given = item.parameters
        entry = makers.get(type(given))
        if (
            entry is None
            or isinstance(given, Null)
            or not item.active
            or not _can_act(flight, given)
        ):
            continue
        if not decide_touch(item.seed, flight.key, given.probability):
            continue
        keeps_bytes &= isinstance(given, _KEEPS_BYTES)
        found.append((entry[0], entry[1](flight, item, given)))
    if not found:
        return None
    if not keeps_bytes:
        headers.popall("Content-Length", None)
    found.sort(key=lambda pair: pair[0])
    shaper = found[0][1]
    for _, following in found[1:]:
        shaper = Chain(shaper, following)
    return shaper


def _makers_for(status: int, headers: CIMultiDict[str]) -> dict[type, tuple[int, Maker]]:
    is_plain_bytes = headers.get("Content-Encoding", "identity").strip().lower() == "identity"
    kind = headers.get("Content-Type", "").lower()
    if status in _SUCCESS and is_plain_bytes:
        if kind.startswith("text/event-stream"):
            return _OF_STREAMS
        if "json" in kind:
            return _OF_PLAIN
    return _OF_ANY


def _can_act(flight: Flight, given: object) -> bool:
    if isinstance(given, ErrorAnswer):
        return given.in_stream and given.after_tokens > 0
    if isinstance(given, ConstantEmbeddings):
        return flight.path.rstrip("/").endswith("/embeddings")
    return True


def shape_headers(
    flight: Flight, status: int, headers: CIMultiDict[str]
) -> tuple[int, CIMultiDict[str]]:
    """Return status and headers as the client gets them. Call it after `shaper_for`."""
    for item in flight.armed:
        given = item.parameters
        if not isinstance(given, Headers) or given.side != "answer" or not item.active:
            continue
        if decide_touch(item.seed, flight.key, given.probability):
            changed = change_header(headers, given)
            if changed is not None:
                flight.touch(item)
                headers = changed
    return status, headers
