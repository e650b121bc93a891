"""Read an engine's own figures: of its metrics between two moments, or of its span of one request.

Histograms of metrics give means over the requests that ended in between, never one request's time.
Figures that are not there are None, and a counter that went back (the engine was started again)
gives nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from topology.stages import EngineTimes

# Source: vLLM 0.32, its metrics page under load; names with a unit are seconds.
QUEUE = "vllm:request_queue_time_seconds"
PREFILL = "vllm:request_prefill_time_seconds"
FIRST_TOKEN = "vllm:time_to_first_token_seconds"
HITS = "vllm:prefix_cache_hits_total"
QUERIES = "vllm:prefix_cache_queries_total"

NAMES = (
    *(f"{name}_{part}" for name in (QUEUE, PREFILL, FIRST_TOKEN) for part in ("sum", "count")),
    *(HITS, QUERIES),
)
"""The samples that are read."""

# Source: vLLM 0.32, the attributes of its span `llm_request`, seconds.
SPAN_QUEUE = "gen_ai.latency.time_in_queue"
SPAN_PREFILL = "gen_ai.latency.time_in_model_prefill"
SPAN_FIRST_TOKEN = "gen_ai.latency.time_to_first_token"

Samples = Mapping[str, float]
"""Sample name → value, summed over its labels."""


@dataclass(frozen=True, slots=True)
class CacheUse:
    """Tokens that the engine looked up in its prefix cache, and those that were there."""

    queries: float
    hits: float

    @property
    def hit_ratio(self) -> float:
        """Return hits ÷ queries, in [0, 1]; 0 without queries."""
        return self.hits / self.queries if self.queries else 0.0


def times_between(before: Samples, after: Samples) -> EngineTimes | None:
    """Return the means between two readings of the metrics; None if no request ended."""
    queue, count = _mean(QUEUE, before, after)
    prefill, _ = _mean(PREFILL, before, after)
    first, _ = _mean(FIRST_TOKEN, before, after)
    if queue is None and prefill is None and first is None:
        return None
    rests_on = f"vLLM's metrics, means of {count:.0f} requests"
    return EngineTimes(queue, prefill, first, rests_on, round(count))


def _mean(name: str, before: Samples, after: Samples) -> tuple[float | None, float]:
    count = _rise(f"{name}_count", before, after)
    total = _rise(f"{name}_sum", before, after)
    if not count or total is None:
        return None, 0.0
    return total / count, count


def _rise(name: str, before: Samples, after: Samples) -> float | None:
    if name not in after:
        return None
    rise = after[name] - before.get(name, 0.0)
    return rise if isfinite(rise) and rise >= 0 else None


def cache_between(before: Samples, after: Samples) -> CacheUse | None:
    """Return the use of the prefix cache between two readings; None if the engine has no such."""
    queries, hits = _rise(QUERIES, before, after), _rise(HITS, before, after)
    return None if queries is None or hits is None else CacheUse(queries, hits)


def times_of_span(attributes: Mapping[str, object]) -> EngineTimes | None:
    """Return what vLLM's span says of its one request; None if it says nothing of the kind."""
    queue, prefill, first = (
        _seconds(attributes.get(name)) for name in (SPAN_QUEUE, SPAN_PREFILL, SPAN_FIRST_TOKEN)
    )
    if queue is None and prefill is None and first is None:
        return None
    return EngineTimes(queue, prefill, first, "vLLM's span of this request")


def mean_times(several: Sequence[EngineTimes], what: str) -> EngineTimes:
    """Return the mean of figures of one kind; a figure that one of them lacks is lacking.

    `what`: what they were read from, in the plural.
    """

    def mean(values: list[float | None]) -> float | None:
        known = [each for each in values if each is not None]
        return sum(known) / len(known) if known and len(known) == len(values) else None

    return EngineTimes(
        mean([each.queue_s for each in several]),
        mean([each.prefill_s for each in several]),
        mean([each.first_token_s for each in several]),
        f"{what} of {len(several)} requests",
        len(several),
    )


def _seconds(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if isfinite(value) and value >= 0 else None
