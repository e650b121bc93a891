"""Which beginnings of prompts come again, and on which replicas.

A beginning that came n times costs prefill once for each replica that got it and could be reused
all other times. The ranking is by the bytes that reuse could save. Of a chain of beginnings that
always came together only the longest is named: the shorter ones say nothing more. Counts are of
sampled requests that the gateway's own share chose: they stand for the traffic, and one that came
once in the sample is none.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from topology.traces import RequestTrace

LEAST_REQUESTS = 2


@dataclass(frozen=True, slots=True)
class HotPrefix:
    """One beginning that came several times."""

    prefix: str
    """Its keyed hash: it names it within one life of the gateway's process, and says no more."""
    size_bytes: int
    requests: int
    share: float
    """Of the requests looked at, ratio in [0, 1]."""
    replicas: dict[str, int]
    """Requests by replica: each of them works it out once and can keep it."""

    @property
    def reusable_bytes(self) -> int:
        """Return the bytes of prompt that a perfect cache would not work out again."""
        return self.size_bytes * (self.requests - len(self.replicas))


def hot_prefixes(
    traces: Iterable[RequestTrace], block_bytes: int, limit: int = 10
) -> list[HotPrefix]:
    """Return the beginnings that reuse could save most of, the greatest first."""
    seen = [each for each in traces if each.is_chosen_here and each.prefixes]
    by_replica: dict[str, Counter[str]] = {}
    sizes: dict[str, int] = {}
    parents: dict[str, str] = {}
    for trace in seen:
        before = ""
        for index, prefix in enumerate(trace.prefixes, start=1):
            by_replica.setdefault(prefix, Counter())[trace.replica] += 1
            sizes[prefix] = index * block_bytes
            parents[prefix] = before
            before = prefix
    counts = {prefix: found.total() for prefix, found in by_replica.items()}
    surpassed = {
        parents[prefix] for prefix, count in counts.items() if count == counts.get(parents[prefix])
    }
    found = [
        HotPrefix(prefix, sizes[prefix], count, count / len(seen), dict(by_replica[prefix]))
        for prefix, count in counts.items()
        if count >= LEAST_REQUESTS and prefix not in surpassed
    ]
    return sorted(found, key=lambda each: (-each.reusable_bytes, -each.requests, each.prefix))[
        :limit
    ]
