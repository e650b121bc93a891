"""Gather what `burnproof topology` shows: of a running gateway, a stored run, or a file of spans.

Reading only; the figures are made by the pure room `topology`. A live answer needs two readings of
the engines' metrics with traffic in between, so it takes as long as it is asked to. A stored run
has records and no sampled requests: what those would part stays unknown there, and no prefix is
known.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from api.span_file import read_spans
from slo.records import Page, RequestRecord
from targets.engine_metrics import read_samples
from targets.errors import TargetError
from topology.engine import (
    NAMES,
    CacheUse,
    Samples,
    cache_between,
    mean_times,
    times_between,
)
from topology.hot_spots import HotPrefix, hot_prefixes
from topology.paths import Graph, graph
from topology.stages import Part, attribute, mean_timing, timing_of_record, timing_of_trace
from topology.traces import RequestTrace

if TYPE_CHECKING:
    from audit.store import AuditStore
    from targets.gateway_admin import GatewayAdmin
    from targets.gateway_fleet import GatewayFleet

    Gateway = GatewayAdmin | GatewayFleet

DEFAULT_GAP_LIMIT_S = 2.0
"""Longest good silence, seconds, of a stored run: design, the default SLI of a stream."""

MOST_TRACES = 512
PAGE_RECORDS = 5_000


@dataclass(frozen=True)
class Group:
    """The mean request of one replica, or of one replica in one arm."""

    name: str
    requests: int
    e2e_s: float
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Topology:
    """Everything that is shown. Empty lists and None: nothing is known of it."""

    source: str
    groups: list[Group]
    graph: Graph = field(default_factory=Graph)
    hot: list[HotPrefix] = field(default_factory=list)
    caches: dict[str, CacheUse | None] = field(default_factory=dict)
    sampled: int = 0
    prompts: int = 0
    """Sampled requests whose prompt has at least one whole block."""
    notes: list[str] = field(default_factory=list)


async def live(admin: "Gateway", seconds: float, route_name: str | None) -> Topology:
    """Watch a route for some seconds.

    Raises:
        ValueError: there is no such route.
        TargetError: the gateway does not answer.
    """
    try:
        routes = await admin.routes()
        found = [each for each in routes if route_name in {None, each["name"]}]
        if not found:
            known = ", ".join(each["name"] for each in routes)
            raise ValueError(f"no route {route_name!r}: the gateway has {known}")
        route = found[0]
        urls = {each["name"]: each["url"] for each in route["replicas"]}
        notes: list[str] = []
        began = (await admin.state())["now"]
        start = Page.from_json(await admin.journal(route["name"], tail_seconds=0.0))
        before = await _samples(urls, notes)
        await asyncio.sleep(seconds)
        after = await _samples(urls, [])
        records = await _records_after(admin, route["name"], start)
        view = await admin.traces(MOST_TRACES)
    finally:
        await admin.aclose()
    traces = [RequestTrace.from_json(each) for each in view["traces"]]
    traces = [each for each in traces if each.route == route["name"]]
    fresh = [each for each in traces if each.accepted >= began]
    limit = route["gap_limit_seconds"]
    groups = []
    for name in urls:
        served = [each for each in records if each.replica == name]
        sent = _sent([each for each in fresh if each.replica == name]) or _sent(
            [each for each in traces if each.replica == name]
        )
        groups += _group(name, served, limit, before.get(name, {}), after.get(name, {}), sent)
    hot = hot_prefixes(traces, view["block_bytes"])
    prompts = sum(1 for each in traces if each.is_chosen_here and each.prefixes)
    if not traces:
        notes.append("no sampled request yet: tracing.sample_ratio of the gateway says how many")
    return Topology(
        source=f"live, route {route['name']}, {seconds:g} s",
        groups=groups,
        graph=graph(traces, hot),
        hot=hot,
        caches={name: cache_between(before.get(name, {}), after.get(name, {})) for name in urls},
        sampled=len(traces),
        prompts=prompts,
        notes=notes,
    )


async def _samples(urls: Mapping[str, str], notes: list[str]) -> dict[str, Samples]:
    async def one(name: str, url: str) -> tuple[str, Samples]:
        try:
            return name, await read_samples(url, NAMES)
        except TargetError as error:
            notes.append(f"replica {name}: no metrics: {error}")
            return name, {}

    return dict(await asyncio.gather(*(one(name, url) for name, url in urls.items())))


async def _records_after(admin: "Gateway", route: str, page: Page) -> list[RequestRecord]:
    found: list[RequestRecord] = []
    while True:
        page = Page.from_json(
            await admin.journal(route, after=page.next, limit=PAGE_RECORDS, cursors=page.cursors)
        )
        found += page.records
        if not page.more:
            return found


def _sent(traces: list[RequestTrace]) -> tuple[float, int] | None:
    """Return the mean time until they were sent on, and their number; None without any."""
    known = [each.sent_s for each in traces if each.sent_s is not None]
    return (sum(known) / len(known), len(known)) if known else None


def _group(
    name: str,
    records: list[RequestRecord],
    gap_limit_s: float,
    before: Samples,
    after: Samples,
    sent: tuple[float, int] | None,
) -> list[Group]:
    timings = [timing_of_record(each, gap_limit_s) for each in records if not each.probe]
    timing = mean_timing(timings, sent)
    if timing is None:
        return []
    parts = attribute(timing, times_between(before, after))
    return [Group(name, timing.requests, timing.e2e_s, parts)]


def stored(store: "AuditStore", run_id: str) -> Topology:
    """Take a run's records apart, by arm and replica."""
    records: dict[tuple[str, int], RequestRecord] = {}
    for stream in store.streams(run_id):
        for pages in store.load_segments(run_id, stream):
            for raw in pages:
                page = Page.from_json(raw)
                records |= {(page.epoch, each.seq): each for each in page.records}
    groups = []
    kept = [each for each in records.values() if not each.probe and each.replica]
    for arm, replica in sorted({(each.arm, each.replica) for each in kept}):
        some = [each for each in kept if (each.arm, each.replica) == (arm, replica)]
        name = f"{arm or 'no arm'}: {replica}"
        groups += _group(name, some, DEFAULT_GAP_LIMIT_S, {}, {}, None)
    notes = [
        "a stored run has records only: network, queue, prefill and prefixes are not in them, "
        "and chunk 0 is the first token"
    ]
    traces = [_as_trace(each) for each in kept]
    return Topology(
        source=f"run {run_id}", groups=groups, graph=graph(traces), sampled=0, notes=notes
    )


def from_spans(path: Path) -> Topology:
    """Take the spans of a collector's file apart, by replica.

    Raises:
        ValueError: it holds no spans of the gateway.
    """
    spans = read_spans(path)
    groups = []
    notes = []
    for name in sorted({each.replica for each in spans.traces if each.replica}):
        served = [each for each in spans.traces if each.replica == name]
        matched = [each for each in served if each.trace_id in spans.engine]
        if len(matched) < len(served):
            notes.append(f"replica {name}: {len(matched)} of {len(served)} have the engine's span")
        chosen = matched or served
        timing = mean_timing([timing_of_trace(each, DEFAULT_GAP_LIMIT_S) for each in chosen])
        if timing is None:
            continue
        times = [spans.engine[each.trace_id] for each in matched if each.first_token_s is not None]
        engine = mean_times(times, "vLLM's spans") if times else None
        parts = attribute(timing, engine)
        groups.append(Group(name, timing.requests, timing.e2e_s, parts))
    notes.append("spans hold no prefixes: `burnproof topology live` knows them")
    return Topology(
        source=f"spans of {path}",
        groups=groups,
        graph=graph(spans.traces),
        sampled=len(spans.traces),
        notes=notes,
    )


def _as_trace(record: RequestRecord) -> RequestTrace:
    """Return a record as a way without its chunks: route, replica, first token, end."""
    first = () if record.ttft_s is None else (record.ttft_s,)
    return RequestTrace(
        trace_id="",
        is_chosen_here=True,
        route=record.route,
        replica=record.replica,
        arm=record.arm,
        outcome=record.outcome.value,
        accepted=record.accepted,
        is_stream=True,
        sent_s=None,
        first_token_s=record.ttft_s,
        e2e_s=record.e2e_s,
        chunks=first,
        content=(True,) * len(first),
        dropped_chunks=0,
        prompt_bytes=0,
        prefixes=(),
        client_run_id=record.client_run_id,
    )


def as_json(found: Topology) -> dict[str, Any]:
    """Return everything as plain JSON types."""
    return {
        "source": found.source,
        "groups": [
            {
                "name": group.name,
                "requests": group.requests,
                "e2e_s": group.e2e_s,
                "stages": {
                    part.stage.value: {"seconds": part.seconds, "rests_on": part.rests_on}
                    for part in group.parts
                },
            }
            for group in found.groups
        ],
        "nodes": [
            {
                "name": node.name,
                "rank": node.rank,
                "requests": flow.requests,
                "inside_s": flow.seconds,
            }
            for node, flow in sorted(found.graph.nodes.items())
        ],
        "edges": [
            {
                "from": a.name,
                "to": b.name,
                "requests": flow.requests,
                "seconds": flow.seconds,
                "longest_s": flow.longest_s,
            }
            for (a, b), flow in sorted(found.graph.edges.items())
        ],
        "hot_prefixes": [
            {
                "prefix": each.prefix,
                "size_bytes": each.size_bytes,
                "requests": each.requests,
                "share": each.share,
                "replicas": each.replicas,
                "reusable_bytes": each.reusable_bytes,
            }
            for each in found.hot
        ],
        "prefix_caches": {
            name: None if use is None else {"queries": use.queries, "hits": use.hits}
            for name, use in found.caches.items()
        },
        "sampled": found.sampled,
        "prompts": found.prompts,
        "notes": found.notes,
    }
