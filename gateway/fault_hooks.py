"""Where faults act on a request: before it is sent, and inside its stream.

Which request is touched, and how hard, are pure draws of `faults.sampling`; this module only waits
and says what to answer. Every wait ends at once when the item ends: a lapsed lease must not hold
back the requests it already holds. A fault that is drawn but cannot act (a stall in an answer that
is too short, an error inside a stream that was not asked for) touches nothing and is not counted.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from faults.catalog import ErrorAnswer, LatencyPareto, StreamStall
from faults.sampling import decide_touch, draw_delay
from gateway.flight import Flight
from gateway.items import RunningFault

_LINES = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


@dataclass(frozen=True, slots=True)
class InjectedAnswer:
    """An answer that a fault gives instead of the replica."""

    status: int
    body: bytes
    content_type: str
    headers: tuple[tuple[str, str], ...] = ()


async def hold_back(item: RunningFault, seconds: float) -> None:
    """Wait for `seconds`, or until the fault ends."""
    if seconds <= 0 or not item.active:
        return
    try:
        async with asyncio.timeout(seconds):
            await item.over.wait()
    except TimeoutError:
        return


async def before_sending(flight: Flight) -> InjectedAnswer | None:
    """Let the armed faults act before the request goes out; None: send it."""
    for item in flight.armed:
        parameters = item.parameters
        if not item.active:
            continue
        if isinstance(parameters, LatencyPareto):
            await _delay(flight, item, parameters)
        elif isinstance(parameters, ErrorAnswer):
            drawn = decide_touch(item.seed, flight.key, parameters.probability)
            if drawn and (flight.wants_stream or not parameters.in_stream):
                flight.touch(item)
                return error_answer(parameters)
    return None


async def _delay(flight: Flight, item: RunningFault, parameters: LatencyPareto) -> None:
    if decide_touch(item.seed, flight.key, parameters.probability):
        flight.touch(item)
        seconds = draw_delay(
            item.seed,
            flight.key,
            alpha=parameters.alpha,
            base=parameters.base,
            cap=parameters.cap,
        )
        await hold_back(item, seconds)


def error_answer(parameters: ErrorAnswer) -> InjectedAnswer:
    """Return the answer of an error fault, in the shape that engines use."""
    error = {
        "error": {
            "message": "injected by burnproof",
            "type": "ServiceUnavailable",
            "param": None,
            "code": parameters.status,
        }
    }
    document = json.dumps(error).encode()
    if parameters.in_stream:
        body = b"data: " + document + b"\n\ndata: [DONE]\n\n"
        return InjectedAnswer(200, body, "text/event-stream; charset=utf-8")
    headers: tuple[tuple[str, str], ...] = ()
    if parameters.retry_after is not None:
        headers = (("Retry-After", str(round(parameters.retry_after))),)
    return InjectedAnswer(parameters.status, document, "application/json", headers)


def drawn_stalls(flight: Flight) -> list[tuple[RunningFault, StreamStall]]:
    """Return the stalls that were drawn for this request; they act if its stream is long enough."""
    return [
        (item, item.parameters)
        for item in flight.armed
        if isinstance(item.parameters, StreamStall)
        and decide_touch(item.seed, flight.key, item.parameters.probability)
    ]


async def stall_stream(
    flight: Flight,
    chunk: bytes,
    waiting: list[tuple[RunningFault, StreamStall]],
    tokens: Callable[[], int],
) -> AsyncIterator[bytes]:
    """Hand on one network chunk in pieces, with the silence where it belongs.

    One chunk can hold many events, so it is cut at its line ends for as long as a stall is due;
    `tokens` counts the content chunks handed on so far, the last piece included. The stall comes
    before the first byte after the last token let through, so an answer that ends there is left
    alone only if nothing follows.
    """
    position = 0
    for line in _LINES.finditer(chunk):
        for entry in list(waiting):
            item, parameters = entry
            if tokens() >= parameters.after_tokens:
                waiting.remove(entry)
                if item.active:
                    flight.touch(item)
                    await hold_back(item, parameters.stall)
        if not waiting:
            yield chunk[position:]
            return
        position = line.end()
        yield line.group()
