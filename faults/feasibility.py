"""How much traffic a PASS needs, and so how long an experiment will take.

Pure arithmetic on the test that the judge runs. For a service without any bad event it is exact:
the capital of the pass test then grows by a known factor with every unit, and the count at which
it reaches 1/alpha is found by bisection. For a service with bad events the growth is random; the
medians were simulated and are kept as ratios to the exact figure. What was hard: a plan must not
promise, so it gives a median and a 90th percentile and says what limits them.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Final

from pydantic import BaseModel, FiniteFloat

from faults.experiment import ExperimentSpec

_BETS: Final = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
"""Grid of stakes of the pass test, as parts of the largest.

Source: the judge's own grid; simulated at shares 0.05, 0.2 and 0.5 (medians 709 to 834).
"""

_SLOWER: Final = ((0.0, 1.0), (0.001, 1.0), (0.005, 1.9), (0.01, 3.0))
"""Bad ratio of the service → how many times the units of a service without bad events.

Source: ours, 2026-11, simulated: 709, 709, 1,354 and 2,140 units at share 0.5, alpha 1 %, 1 pp.
"""

_P90_OVER_MEDIAN: Final = 1.95
"""Source: ours, 2026-11, simulated: 1,130/680, 2,500/1,310, 4,190/2,140; the largest of them."""

_LATENCY_UNITS: Final = {"p50": 657, "p90": 1204, "p95": 1204, "p98": 3439, "p99": 5802}
"""Units in the chaos arm by which 90 % of equal arms pass a quantile at its usual margin.

Source: ours, 2026-11, simulated: p50 × 1.25, p95, p98 and p99 × 1.875; p90 is taken as p95.
"""

LEAST_RATE: Final = 1e-6
"""Requests per second below which there is no traffic. Source: ours: one request in 11 days."""


class ExpectedPlan(BaseModel, frozen=True):
    """What a PASS needs, and how long that takes at the traffic seen."""

    chaos_units: int
    """Units in the chaos arm, median."""
    total_units: int
    """Units in both arms, median."""
    total_units_p90: int
    seconds: FiniteFloat | None
    """Median time to a PASS; None: no traffic is known."""
    seconds_p90: FiniteFloat | None
    limit_seconds: FiniteFloat
    """Longest comparison that the experiment allows."""
    enough: bool | None
    """Whether a PASS is likelier than not within the limit; None: no traffic is known."""
    limited_by: str
    """The metric that needs most."""


def units_to_pass(alpha: float, margin: float, share: float) -> int:
    """Return the units in both arms until a service without bad events passes.

    Args:
        alpha: chance of a false pass, in (0, 1).
        margin: largest difference of bad ratios that a pass allows, in (0, 1).
        share: share of the chaos arm, in (0, 1).
    """
    largest = 1 / (1 / share - margin)
    gains = [math.log1p(bet * largest * margin) for bet in _BETS]
    low, high = 1, 2
    while not _passed(gains, high, alpha):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _passed(gains, middle, alpha) else (middle, high)
    return high


def _passed(gains: list[float], units: int, alpha: float) -> bool:
    top = max(gains) * units
    capital = sum(math.exp(gain * units - top) for gain in gains) / len(gains)
    return top + math.log(capital) >= -math.log(alpha)


def slower_by(bad_ratio: float) -> float:
    """Return how many times the units a service needs that has this bad ratio in both arms."""
    for (left, low), (right, high) in pairwise(_SLOWER):
        if bad_ratio <= right:
            return low + (high - low) * max(0.0, bad_ratio - left) / (right - left)
    (left, low), (right, high) = _SLOWER[-2:]
    return high + (bad_ratio - right) * (high - low) / (right - left)


def expected_plan(
    spec: ExperimentSpec,
    rate: float | None,
    bad_ratio: float = 0.0,
    requests_per_unit: float = 1.0,
) -> ExpectedPlan:
    """Return what a PASS of the comparison needs.

    Args:
        spec: the experiment.
        rate: requests per second of the route; None or 0: no traffic is known.
        bad_ratio: share of requests that are bad before the fault, in [0, 1].
        requests_per_unit: mean requests of a conversation; 1 when requests are the units.
    """
    share, judge = spec.arms.chaos.share, spec.judge
    counts = {"none": 0.0}
    if {"errors", "slo_bad", "interruptions", "hidden_errors"} & set(judge.metrics):
        exact = units_to_pass(judge.alpha, judge.margin_errors, share)
        counts["bad events"] = exact * slower_by(bad_ratio)
    if {"ttft", "e2e"} & set(judge.metrics):
        quantile = max(judge.latency_pass, key=lambda name: _LATENCY_UNITS[name])
        p90 = _LATENCY_UNITS[quantile] / min(share, 1 - share)
        counts[f"latency {quantile}"] = p90 / _P90_OVER_MEDIAN
    limited_by = max(counts, key=lambda name: counts[name])
    total = math.ceil(counts[limited_by])
    p90_total = math.ceil(counts[limited_by] * _P90_OVER_MEDIAN)
    known = rate is not None and rate >= LEAST_RATE
    pace = max(1.0, requests_per_unit) / rate if known and rate else None
    seconds = None if pace is None else total * pace
    return ExpectedPlan(
        chaos_units=math.ceil(total * share),
        total_units=total,
        total_units_p90=p90_total,
        seconds=seconds,
        seconds_p90=None if pace is None else p90_total * pace,
        limit_seconds=spec.observe_seconds,
        enough=None if seconds is None else seconds <= spec.observe_seconds,
        limited_by=limited_by,
    )
