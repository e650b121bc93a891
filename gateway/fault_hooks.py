"""Where faults act on a request before it is sent: delays, refusals, and changes of its headers.

Which request is touched, and how hard, are pure draws of `faults.sampling`; this module only waits
and says what to answer or what to send instead. Every wait ends at once when the item ends: a
lapsed lease must not hold back the requests it already holds. What faults do to answers is in
`gateway.shaping`. A fault that is drawn but cannot act (a quota of a request without a tenant, a
header that is not there) touches nothing and is not counted.
"""

import asyncio
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from email.utils import formatdate
from fnmatch import fnmatchcase

from faults.parameters import (
    DependencyLatency,
    ErrorAnswer,
    Headers,
    LatencyFixed,
    LatencyPareto,
    QuotaOverrun,
    RateLimit,
    TenantConfusion,
    ToolCalls,
)
from faults.sampling import decide_touch, draw_delay
from gateway.flight import Flight
from gateway.items import RunningFault
from gateway.rewrites import required_fields
from gateway.stream_shapers import error_events, error_object
from gateway.tampering import change_header, confuse_tenant
from gateway.upstream import Outgoing

JSON = "application/json"


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


async def before_sending(flight: Flight, outgoing: Outgoing) -> InjectedAnswer | Outgoing:
    """Let the armed faults act before the request goes out; return what to answer or to send."""
    for item in flight.armed:
        if not item.active or not decide_touch(item.seed, flight.key, _probability(item)):
            continue
        seconds = _delay(flight, item)
        if seconds is not None:
            flight.touch(item)
            await hold_back(item, seconds)
            continue
        refusal = _refusal(flight, item)
        if refusal is not None:
            flight.touch(item)
            return refusal
        outgoing = _tampered(flight, item, outgoing)
    return outgoing


def _probability(item: RunningFault) -> float:
    return float(getattr(item.parameters, "probability", 0.0))


def _delay(flight: Flight, item: RunningFault) -> float | None:
    """Return for how many seconds a drawn fault delays the request; None: it is no such fault."""
    given = item.parameters
    if isinstance(given, LatencyPareto):
        alpha, base, cap = given.alpha, given.base, given.cap
        return draw_delay(item.seed, flight.key, alpha=alpha, base=base, cap=cap)
    if isinstance(given, LatencyFixed):
        return given.delay
    if isinstance(given, DependencyLatency) and fnmatchcase(flight.replica, given.upstream):
        return given.delay
    return None


def _refusal(flight: Flight, item: RunningFault) -> InjectedAnswer | None:
    """Return the answer that a drawn fault gives at once; None: the request goes on."""
    given = item.parameters
    if isinstance(given, ErrorAnswer) and not given.after_tokens:
        can_act = flight.wants_stream or not given.in_stream
        return error_answer(given) if can_act else None
    if isinstance(given, RateLimit):
        body = error_object(
            429, "rate limit reached (injected by burnproof)", "rate_limit_exceeded"
        )
        return InjectedAnswer(429, body, JSON, tuple(_retry_after(given, flight.accepted_unix)))
    if isinstance(given, QuotaOverrun) and flight.tenant:
        message = (
            f"tokens of tenant {flight.tenant} are used up: limit {given.limit}, "
            f"used {given.limit} (injected by burnproof)"
        )
        body = error_object(429, message, "insufficient_quota")
        headers = [
            ("x-ratelimit-limit-tokens", str(given.limit)),
            ("x-ratelimit-remaining-tokens", "0"),
        ]
        if given.retry_after is not None:
            headers.append(("Retry-After", str(math.ceil(given.retry_after))))
        return InjectedAnswer(429, body, JSON, tuple(headers))
    return None


def _retry_after(given: RateLimit, now_unix: float) -> Iterator[tuple[str, str]]:
    if given.retry_after is None:
        return
    if given.form == "seconds":
        yield "Retry-After", str(math.ceil(given.retry_after))
    else:
        yield "Retry-After", formatdate(math.ceil(now_unix + given.retry_after), usegmt=True)


def error_answer(given: ErrorAnswer) -> InjectedAnswer:
    """Return the answer of an error fault, in the shape that engines use."""
    if given.in_stream:
        stream = error_events(given.status)
        return InjectedAnswer(200, stream, "text/event-stream; charset=utf-8")
    headers: tuple[tuple[str, str], ...] = ()
    if given.retry_after is not None:
        headers = (("Retry-After", str(round(given.retry_after))),)
    body = error_object(given.status, "injected by burnproof", "ServiceUnavailable")
    return InjectedAnswer(given.status, body, JSON, headers)


def _tampered(flight: Flight, item: RunningFault, outgoing: Outgoing) -> Outgoing:
    """Return what a drawn fault sends instead."""
    given = item.parameters
    if isinstance(given, ToolCalls):
        flight.required_fields = required_fields(outgoing.body)
    elif isinstance(given, Headers) and given.side == "request":
        headers = change_header(outgoing.headers, given)
        if headers is not None:
            flight.touch(item)
            return replace(outgoing, headers=headers)
    elif isinstance(given, TenantConfusion):
        confused = confuse_tenant(outgoing.target, outgoing.headers, given)
        if confused is not None:
            flight.touch(item)
            return replace(outgoing, target=confused[0], headers=confused[1])
    return outgoing
