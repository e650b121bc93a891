"""What the end of a request means: one word of the exclusive outcome enum, and text flags.

Pure. The hard part is that an HTTP status tells almost nothing about a stream: an error object can
come inside a 200, and a stream can close politely in the middle of a sentence. So the words are
taken from what was read in the stream. A stream whose connection broke before its end is
`truncated`, as is one that closed cleanly too early; the flag "transport" tells the two apart.
"""

import json
from dataclasses import dataclass
from typing import Any

from gateway.flight import Cause, Flight
from gateway.sse import StreamFacts, note_chunk
from slo.records import Outcome
from text.flags import response_flags
from text.tool_fields import fields_fit

TRANSPORT_FLAG = "transport"
"""Beside the outcome `truncated`: the connection to the replica broke."""

HTTP_ERROR_FROM = 400
NEUTRAL_STATUS = frozenset(range(400, 500)) - {408, 429}
"""Answers that blame the request: they say nothing about the replica's health."""


def classify(
    cause: Cause, status: int, is_stream: bool, facts: StreamFacts, *, owes_end: bool = False
) -> Outcome:
    """Name the outcome of a finished flight.

    Args:
        cause: why it ended.
        status: sent to the client.
        is_stream: whether the answer was an event stream that we read.
        facts: what was read of it.
        owes_end: whether a stream was asked for, so that an answer without its end is cut short.
    """
    if cause is Cause.SHED:
        return Outcome.SHED
    if cause is Cause.TIMEOUT:
        return Outcome.TIMEOUT
    if cause is Cause.CLIENT and not facts.complete:
        return Outcome.CLIENT_ABORT
    if cause is Cause.LOST and not is_stream:
        return Outcome.TRANSPORT
    if status >= HTTP_ERROR_FROM:
        return Outcome.HTTP_ERROR
    if facts.error:
        return Outcome.STREAM_ERROR
    if is_stream or owes_end:
        return Outcome.OK if facts.complete else Outcome.TRUNCATED
    return Outcome.OK


def text_flags(flight: Flight, outcome: Outcome) -> tuple[str, ...]:
    """Return the flags of a flight: of its text if it was answered, and of its transport."""
    flags: tuple[str, ...] = ()
    if outcome is Outcome.OK and (flight.facts.complete or flight.facts.content_chunks):
        tools = flight.facts.tools
        fit = flight.tools is None or fields_fit(tools.calls(), flight.tools)
        text = "".join(flight.facts.text)
        flags = response_flags(text, tools.joined(), tool_fields_fit=fit)
    if outcome is Outcome.TRUNCATED and flight.cause is Cause.LOST:
        flags = (*flags, TRANSPORT_FLAG)
    return flags


def says_something_about_replica(outcome: Outcome, status: int, stalled: bool) -> bool:
    """Whether a breaker may count this end: a client that left, or a 400, is no evidence."""
    if outcome is Outcome.SHED:
        return False
    if outcome is Outcome.CLIENT_ABORT:
        return stalled
    return not (outcome is Outcome.HTTP_ERROR and status in NEUTRAL_STATUS)


def read_json_answer(body: bytes, first_byte_at: float | None, facts: StreamFacts) -> None:
    """Take the facts of a whole JSON answer. Its tokens arrived with its first byte."""
    document = _object(body)
    if document is None:
        return
    note_chunk(facts, document, first_byte_at if first_byte_at is not None else 0.0)
    facts.max_gap_s = 0.0


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


@dataclass(slots=True)
class Asked:
    """What is read of a request's body."""

    model: str | None = None
    wants_stream: bool = False
    max_tokens: int = 0
    """Completion tokens that it may take at most; 0 when it does not say."""
    tools: object = None
    """The tools of the parsed request, unread: they are looked at if a tool was called."""


def read_request(body: bytes) -> Asked:
    """Read what routing and quotas need of a request's body."""
    document = _object(body)
    if document is None:
        return Asked()
    model = document.get("model")
    most = document.get("max_completion_tokens") or document.get("max_tokens")
    return Asked(
        model=model if isinstance(model, str) else None,
        wants_stream=document.get("stream") is True,
        max_tokens=most * _answers(document) if type(most) is int and most > 0 else 0,
        tools=document.get("tools"),
    )


def _answers(document: dict[str, Any]) -> int:
    """Return how many answers a request asks for: `n` of each of its prompts."""
    choices, prompts = document.get("n"), document.get("prompt")
    times = choices if type(choices) is int and choices > 1 else 1
    if isinstance(prompts, list) and prompts and not isinstance(prompts[0], int):
        times *= len(prompts)
    return times
