"""What the soak's measurements say: records against the client, and whether a figure stays flat.

Pure. Flatness is a statistic: the samples after the warm-up are cut into blocks of time, each block
counts by its median, and the slope over the blocks is that of Theil and Sen with its 95 % interval.
One step up, as an allocator makes it, moves that slope hardly at all; a leak is steady and does.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from scipy.stats import theilslopes

from gateway.routing import unit_hash
from slo.records import Outcome, RequestRecord
from tests.soak.traffic import Asked, Saw

BLOCKS = 30
CONFIDENCE = 0.95

_ENDED = {Outcome.OK, Outcome.HTTP_ERROR, Outcome.STREAM_ERROR, Outcome.TRUNCATED}
AGREES: dict[Saw, set[Outcome]] = {
    Saw.OK: {Outcome.OK},
    Saw.REFUSED: {Outcome.HTTP_ERROR, Outcome.SHED, Outcome.TRANSPORT, Outcome.TIMEOUT},
    Saw.ERROR: {Outcome.STREAM_ERROR},
    Saw.CUT: {Outcome.TRUNCATED, Outcome.TRANSPORT, Outcome.TIMEOUT},
    Saw.LEFT: _ENDED | {Outcome.CLIENT_ABORT},  # the answer may have been out before it left
    Saw.NOTHING: set(),
    Saw.HANGS: set(),
}
"""What a client saw → what its record may say."""


@dataclass
class Comparison:
    """Requests held against records."""

    sent: int = 0
    records: int = 0
    lost: int = 0
    """Requests without a record."""
    extra: int = 0
    """Records without a request."""
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(what the client saw, outcome) → how often."""
    disagreements: list[str] = field(default_factory=list)


def compare(asked: Sequence[Asked], records: Sequence[RequestRecord]) -> Comparison:
    """Match each request with its record: the n-th of a conversation and tenant on both sides.

    A conversation's requests have tenants in turn, so that one whose client left, and which a busy
    gateway takes in after the next one of its conversation, is not taken for that.
    """
    found = Comparison(len(asked), len(records))
    of_unit: dict[tuple[str, str], list[RequestRecord]] = defaultdict(list)
    for record in sorted(records, key=lambda each: (each.accepted, each.seq)):
        of_unit[record.unit, record.tenant].append(record)
    of_conversation: dict[tuple[str, str], list[Asked]] = defaultdict(list)
    for each in asked:
        of_conversation[each.conversation, each.tenant].append(each)
    for (conversation, tenant), requests in of_conversation.items():
        theirs = of_unit.pop((unit_hash(conversation), tenant), [])
        found.lost += max(0, len(requests) - len(theirs))
        found.extra += max(0, len(theirs) - len(requests))
        for request, record in zip(requests, theirs, strict=False):
            _hold_against(request, record, found)
    found.extra += sum(map(len, of_unit.values()))
    return found


def _hold_against(request: Asked, record: RequestRecord, found: Comparison) -> None:
    saw = request.saw
    found.pairs[str(saw), record.outcome.value] += 1
    agrees = saw is not None and record.outcome in AGREES[saw]
    agrees &= saw is Saw.LEFT or record.status == request.status
    if not agrees:
        found.disagreements.append(
            f"request {request.number} ({request.kind}): the client saw {saw}, status "
            f"{request.status}; record {record.seq} says {record.outcome.value}, status "
            f"{record.status}, touched by {', '.join(record.touched) or 'nothing'}"
        )


def outlived(records: Sequence[RequestRecord], ended_at: Mapping[str, float]) -> list[str]:
    """Return the faults that a request met although it came after their end."""
    found = set()
    for record in records:
        for item in (*record.exposed, *record.touched):
            if record.accepted > ended_at.get(item, float("inf")):
                found.add(f"record {record.seq} met {item} after its end")
    return sorted(found)


@dataclass(frozen=True)
class Slope:
    """A rise per second with the bounds of its 95 % interval."""

    value: float
    low: float
    high: float


def slope(times: Sequence[float], values: Sequence[float]) -> Slope:
    """Return the Theil-Sen slope over block medians. Times in seconds, in order.

    Source: Sen, Journal of the American Statistical Association 63 (1968), as scipy has it.

    Raises:
        ValueError: There are fewer samples than blocks.
    """
    if len(times) < BLOCKS:
        raise ValueError(f"{len(times)} samples make no {BLOCKS} blocks")
    cuts = [round(n * len(times) / BLOCKS) for n in range(BLOCKS + 1)]
    blocks = [slice(a, b) for a, b in pairwise(cuts)]
    at = [median(times[block]) for block in blocks]
    figures = [median(values[block]) for block in blocks]
    found = theilslopes(figures, at, CONFIDENCE)
    return Slope(float(found.slope), float(found.low_slope), float(found.high_slope))
