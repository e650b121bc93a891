"""What a request that is not let in is told, in the shape that OpenAI clients read.

The status says whose doing it was: 400 and 401 for signs that cannot be read, 403 for a tenant
that may not, 429 with `Retry-After` for one that has used up its share, 503 for a route that
stayed full.
"""

import json
import math
from dataclasses import dataclass

from gateway.http1.heads import Pairs
from gateway.tenants.identity import Problem

IDENTITY, QUOTA, CONCURRENT = "identity", "quota", "concurrent"
QUEUE, WAIT = "queue", "wait"

_PROBLEMS = {
    Problem.MALFORMED: (400, "a sign of the tenant cannot be read in one way only"),
    Problem.REPEATED: (400, "a sign of the tenant comes more than once"),
    Problem.DISAGREEING: (403, "the signs of the tenant disagree"),
    Problem.UNKNOWN_KEY: (401, "the API key is unknown"),
    Problem.MISSING: (401, "the request names no tenant"),
    Problem.UNKNOWN: (403, "the tenant is unknown"),
    Problem.WRONG_ROUTE: (403, "the tenant may not use this model"),
}

_KINDS = {401: "authentication_error", 403: "permission_error"}
LIMITED = "rate_limit_exceeded"

SOON_SECONDS = 1
"""`Retry-After` where nobody can know: the shortest that it can say."""

_SLACK_SECONDS = 0.001
"""Added before rounding up, so that floats that are a hair short do not refuse once more."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One refusal, ready to be sent."""

    reason: str
    status: int
    headers: Pairs
    body: bytes


def of_problem(problem: Problem) -> Refusal:
    """Refuse signs that do not say whose request it is."""
    status, message = _PROBLEMS[problem]
    kind = _KINDS.get(status, "invalid_request_error")
    return _refusal(IDENTITY, status, _error(message, kind, f"tenant_{problem.value}"))


def of_quota(tenant: str, limit: float, left: float, asked: float, seconds: float) -> Refusal:
    """Refuse a tenant whose tokens are used up for so many seconds."""
    wait = max(1, math.ceil(seconds + _SLACK_SECONDS))
    message = (
        f"tokens of tenant {tenant} are used up: {limit:g} a second, {max(0, int(left))} left, "
        f"{math.ceil(asked)} needed; try again in {wait} s"
    )
    headers = [
        (b"x-ratelimit-limit-tokens", b"%d" % limit),
        (b"x-ratelimit-remaining-tokens", b"%d" % max(0, int(left))),
        (b"x-ratelimit-reset-tokens", b"%ds" % wait),
    ]
    return _refusal(QUOTA, 429, _error(message, "tokens", LIMITED), wait, headers)


def of_concurrent(tenant: str, limit: int) -> Refusal:
    """Refuse a tenant that has as many requests here as it may have."""
    message = f"tenant {tenant} has {limit} requests in flight, as many as it may have"
    return _refusal(CONCURRENT, 429, _error(message, "requests", LIMITED), SOON_SECONDS)


def of_queue(tenant: str, limit: int) -> Refusal:
    """Refuse a tenant that has as many requests waiting as may wait."""
    message = f"the route is full and tenant {tenant} has {limit} requests waiting already"
    return _refusal(QUEUE, 429, _error(message, "requests", LIMITED), SOON_SECONDS)


def of_wait(seconds: float) -> Refusal:
    """Refuse a request whose turn did not come."""
    message = f"the route stayed full for {seconds:g} s"
    return _refusal(WAIT, 503, _error(message, "server_error", "overloaded"), SOON_SECONDS)


def _error(message: str, kind: str, code: str) -> bytes:
    error = {"message": message, "type": kind, "param": None, "code": code}
    return json.dumps({"error": error}).encode()


def _refusal(
    reason: str, status: int, body: bytes, wait: int | None = None, more: Pairs | None = None
) -> Refusal:
    headers = [(b"Content-Type", b"application/json"), *(more or [])]
    if wait is not None:
        headers.append((b"Retry-After", b"%d" % wait))
    return Refusal(reason, status, headers, body)
