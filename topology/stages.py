"""Attribute the time of a request to stages, and say for each what that rests on.

The gateway's clock knows when a request was accepted, sent on, answered and ended; it cannot see
into the wait for the first token, which holds network, queue and prefill. The engine's own figures
part that wait, if they are there and fit into it; else it stays unknown, as a stage of its own.
Nothing is guessed, and the stages always sum to the whole. All figures are seconds, of one request
or means over several.
"""

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from slo.records import RequestRecord
from topology.traces import RequestTrace

FIT = 1.1
"""How much longer than our wait the engine's stages may be and still be believed (they are then
shrunk to it): means over a window are of slightly other requests. Source: ours."""

GATEWAY_CLOCK = "the gateway's clock"


class Stage(StrEnum):
    """Where time can go."""

    GATEWAY = "gateway"
    """Until the request was sent (a place, injected delay), and after the answer's end."""
    NETWORK = "network"
    """Between us and the engine's front: what we waited and it did not see."""
    QUEUE = "queue"
    PREFILL = "prefill"
    DECODE = "decode"
    STALL = "stall"
    """Silences longer than the limit."""
    UNKNOWN = "unknown"
    """What nobody's figures part."""


@dataclass(frozen=True, slots=True)
class Timing:
    """What we saw. None: not measured."""

    e2e_s: float
    sent_s: float | None
    """Accept until it was sent to the replica."""
    first_token_s: float | None
    """Accept until the first token; None: there was none."""
    last_event_s: float | None
    """Accept until the answer's last event, or until the end if the answer was not whole."""
    stall_s: float
    """Silences above the limit, together."""
    stall_rests_on: str
    requests: int = 1
    sent_rests_on: str = GATEWAY_CLOCK


@dataclass(frozen=True, slots=True)
class EngineTimes:
    """What the engine says of itself. None: it does not say."""

    queue_s: float | None
    prefill_s: float | None
    first_token_s: float | None
    """Its arrival until its first token: more than queue and prefill by its own front."""
    rests_on: str
    requests: int = 1


@dataclass(frozen=True, slots=True)
class Part:
    """The time of one stage; `seconds` None: not known, and part of UNKNOWN's."""

    stage: Stage
    seconds: float | None
    rests_on: str


def attribute(timing: Timing, engine: EngineTimes | None) -> tuple[Part, ...]:
    """Part a whole into stages, one for each member of `Stage`, in its order."""
    first = timing.e2e_s if timing.first_token_s is None else timing.first_token_s
    seconds: dict[Stage, float | None] = dict.fromkeys(Stage)
    says: dict[Stage, str] = {}
    tail = 0.0
    if timing.first_token_s is not None and timing.last_event_s is not None:
        tail = max(0.0, timing.e2e_s - timing.last_event_s)
    wait = first
    if timing.sent_s is not None:
        seconds[Stage.GATEWAY] = min(timing.sent_s, first) + tail
        wait = max(0.0, first - timing.sent_s)
    says[Stage.GATEWAY] = (
        timing.sent_rests_on
        if timing.sent_s is not None
        else "not recorded: only sampled requests have it"
    )
    after = max(0.0, timing.e2e_s - first - (tail if timing.sent_s is not None else 0.0))
    if timing.first_token_s is None:
        seconds[Stage.DECODE] = seconds[Stage.STALL] = 0.0
        says[Stage.DECODE] = says[Stage.STALL] = "there was no first token"
    else:
        stall = min(timing.stall_s, after)
        seconds[Stage.STALL], seconds[Stage.DECODE] = stall, after - stall
        says[Stage.DECODE] = f"{GATEWAY_CLOCK}, first token to end"
        says[Stage.STALL] = timing.stall_rests_on
    _part_wait(timing, wait, engine, seconds, says)
    known = sum(each for each in seconds.values() if each is not None)
    seconds[Stage.UNKNOWN] = max(0.0, timing.e2e_s - known)
    says[Stage.UNKNOWN] = "what no figure parts"
    return tuple(Part(stage, seconds[stage], says[stage]) for stage in Stage)


def _part_wait(
    timing: Timing,
    wait: float,
    engine: EngineTimes | None,
    seconds: dict[Stage, float | None],
    says: dict[Stage, str],
) -> None:
    """Part the wait for the first token by the engine's figures, where they fit."""
    inside = (Stage.NETWORK, Stage.QUEUE, Stage.PREFILL)
    if engine is None or engine.queue_s is None or engine.prefill_s is None:
        says |= dict.fromkeys(inside, "the engine gives no figures")
        return
    own = engine.queue_s + engine.prefill_s
    if own > wait * FIT:
        misfit = f"the engine's {own:.4g} s do not fit into a wait of {wait:.4g} s"
        says |= dict.fromkeys(inside, misfit)
        return
    shrink = min(1.0, wait / own) if own > 0 else 1.0
    seconds[Stage.QUEUE] = engine.queue_s * shrink
    seconds[Stage.PREFILL] = engine.prefill_s * shrink
    shrunk = "" if shrink == 1.0 else f", shrunk by {1 - shrink:.1%} to fit"
    says[Stage.QUEUE] = says[Stage.PREFILL] = engine.rests_on + shrunk
    if timing.sent_s is None or engine.first_token_s is None:
        says[Stage.NETWORK] = "needs the moment of sending and the engine's first token"
    elif engine.first_token_s > wait:
        says[Stage.NETWORK] = "too short beside the engine's own figures"
    else:
        # A mean first token is of slightly other requests, and may be before prefill's end.
        seconds[Stage.NETWORK] = max(0.0, wait - max(engine.first_token_s, own * shrink))
        says[Stage.NETWORK] = f"{GATEWAY_CLOCK} less {engine.rests_on}"


def timing_of_trace(trace: RequestTrace, gap_limit_s: float) -> Timing:
    """Return what a sampled request shows: every silence of it is known."""
    ends = list(trace.chunks)
    if not trace.is_whole:
        ends.append(trace.e2e_s)
    gaps = [
        later - before
        for before, later in pairwise(ends)
        if trace.first_token_s is not None and later > trace.first_token_s
    ]
    last = ends[-1] if ends and not trace.dropped_chunks else None
    return Timing(
        e2e_s=trace.e2e_s,
        sent_s=trace.sent_s,
        first_token_s=trace.first_token_s,
        last_event_s=last,
        stall_s=sum(gap for gap in gaps if gap > gap_limit_s),
        stall_rests_on=f"{GATEWAY_CLOCK}, every silence above {gap_limit_s:g} s",
    )


def timing_of_record(record: RequestRecord, gap_limit_s: float) -> Timing:
    """Return what a record shows: of the silences it has the longest only."""
    stall = record.max_gap_s if record.max_gap_s > gap_limit_s else 0.0
    return Timing(
        e2e_s=record.e2e_s,
        sent_s=None,
        first_token_s=record.ttft_s,
        last_event_s=None,
        stall_s=stall,
        stall_rests_on=f"{GATEWAY_CLOCK}, the longest silence if above {gap_limit_s:g} s: "
        "a lower bound",
    )


def mean_timing(timings: list[Timing], sent: tuple[float, int] | None = None) -> Timing | None:
    """Return the mean over requests that had a first token; None without one.

    `sent`: mean and number of a sample, for timings that do not have their own moment of sending.
    """
    whole = [each for each in timings if each.first_token_s is not None]
    if not whole:
        return None
    count = len(whole)
    own = [each.sent_s for each in whole if each.sent_s is not None]
    sent_s: float | None = sum(own) / count
    rests_on = GATEWAY_CLOCK
    if len(own) < count:
        sent_s, sampled = (None, 0) if sent is None else sent
        rests_on = f"{GATEWAY_CLOCK}, {sampled} sampled requests"
    last = [each.last_event_s for each in whole if each.last_event_s is not None]
    return Timing(
        e2e_s=sum(each.e2e_s for each in whole) / count,
        sent_s=sent_s,
        first_token_s=sum(each.first_token_s or 0.0 for each in whole) / count,
        last_event_s=sum(last) / count if len(last) == count else None,
        stall_s=sum(each.stall_s for each in whole) / count,
        stall_rests_on=whole[0].stall_rests_on,
        requests=count,
        sent_rests_on=rests_on,
    )
