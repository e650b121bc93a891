"""Which request a fault touches, and how hard: pure functions of seed and request id.

No generator is kept: the same request under the same seed gets the same draw on every gateway
and in every replay, and what other requests do changes nothing. What was hard: one hash must not
decide two things, or the requests that are touched would also be those with the longest delays;
so each decision has a purpose of its own in the hash.
"""

from __future__ import annotations

import hashlib

_BITS = 53
"""Bits of a draw: a float in [0, 1) holds 53 exactly."""


def uniform(seed: int | str, request_id: str, purpose: str) -> float:
    """Return a number in [0, 1), uniform over request ids and independent between purposes."""
    text = "\x00".join((str(seed), purpose, request_id))
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return float((int.from_bytes(digest, "big") >> (64 - _BITS)) * 2.0**-_BITS)


def decide_touch(seed: int | str, request_id: str, probability: float) -> bool:
    """Return whether the fault touches this request; true for the share `probability` in [0, 1]."""
    return uniform(seed, request_id, "touch") < probability


def pareto_delay(u: float, alpha: float, base: float, cap: float) -> float:
    """Return the delay in seconds at quantile `u` in [0, 1): min(cap, base × (1 − u)^(−1/alpha)).

    Source: inverse of the Pareto distribution function F(x) = 1 − (base/x)^alpha, x ≥ base.

    Raises:
        ValueError: `u` outside [0, 1), or alpha, base or cap not above 0.
    """
    if not 0 <= u < 1 or alpha <= 0 or base <= 0 or cap <= 0:
        raise ValueError(f"no delay at u={u}, alpha={alpha}, base={base}, cap={cap}")
    # At u = 0.5 and alpha = 0.5 the factor is 4; at the last float below 1 it stays finite for
    # alpha ≥ 0.5 (2^106), so that no overflow can happen within the bounds of the catalogue.
    return float(min(cap, base * (1 - u) ** (-1 / alpha)))


def draw_delay(seed: int | str, request_id: str, *, alpha: float, base: float, cap: float) -> float:
    """Return the delay in seconds of a touched request."""
    return pareto_delay(uniform(seed, request_id, "delay"), alpha, base, cap)
