"""`burnproof topology`: a live gateway before two engines, and a stored run."""

import asyncio
import base64
import io
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from rich.console import Console

from api import topology
from api.cli import EXIT_NOTHING_LEARNT, run
from api.commands.topology import show
from audit.store import AuditStore
from simulated_engine.options import EngineOptions
from targets.gateway_admin import GatewayAdmin
from targets.gateway_fleet import GatewayFleet
from tests.canary.build import page, record
from tests.gateway.collector import Collector
from tests.gateway.harness import TOKEN, Gate
from tests.simulated_engine.running import serving
from topology.stages import Stage

ENGINE = EngineOptions(ttft_seconds=0.03, itl_seconds=0.005, slots=2)
SYSTEM = "You are a patient helper of a small shop that sells boats. " * 12


def printed(found: topology.Topology) -> str:
    out = io.StringIO()
    show(Console(file=out, width=200, markup=False, highlight=False), found)
    return out.getvalue()


async def ask(gate: Gate, number: int) -> None:
    body = {
        "model": "tiny-chat",
        "stream": True,
        "max_tokens": 5,
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": f"question {number} " * 40},
        ],
    }
    async with gate.client.post(gate.url + "/v1/chat/completions", json=body) as got:
        await got.read()


async def test_a_live_route_has_known_stages_ways_and_the_shared_beginning(tmp_path: Path):
    async with serving(ENGINE) as (one, _), serving(ENGINE) as (two, _):
        tracing = {"sample_ratio": 1.0}
        async with Gate(tmp_path, {"a": one, "b": two}, tracing=tracing) as gate:
            watching = asyncio.create_task(
                topology.live(GatewayAdmin(gate.url, TOKEN), 1.5, "chat")
            )
            await asyncio.sleep(0.2)
            await asyncio.gather(*(ask(gate, number) for number in range(12)))
            found = await watching
    assert [group.name for group in found.groups] == ["a", "b"]
    assert sum(group.requests for group in found.groups) == 12
    for group in found.groups:
        parts = {part.stage: part for part in group.parts}
        assert all(part.seconds is not None for part in group.parts), group.parts
        assert sum(part.seconds or 0 for part in group.parts) == pytest.approx(group.e2e_s)
        assert "vLLM's metrics" in parts[Stage.QUEUE].rests_on
        prefill, queue = parts[Stage.PREFILL].seconds, parts[Stage.QUEUE].seconds
        assert prefill is not None and prefill >= 0.02
        assert queue is not None and queue >= 0.02  # six requests for two slots
    hottest = found.hot[0]
    assert hottest.requests == 12
    assert hottest.size_bytes == len(SYSTEM) // 256 * 256
    assert set(hottest.replicas) == {"a", "b"}
    assert found.caches == {"a": None, "b": None}
    text = printed(found)
    assert hottest.prefix in text
    assert "the engine has no such metrics" in text
    assert "boats" not in text + json.dumps(topology.as_json(found))


async def test_several_gateways_are_watched_as_one(tmp_path: Path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    tracing = {"sample_ratio": 1.0}
    async with serving(ENGINE) as (url, _):
        async with Gate(tmp_path / "one", {"a": url}, tracing=tracing) as one:
            async with Gate(tmp_path / "two", {"a": url}, tracing=tracing) as two:
                members = {"one": GatewayAdmin(one.url, TOKEN), "two": GatewayAdmin(two.url, TOKEN)}
                fleet = GatewayFleet(members)
                watching = asyncio.create_task(topology.live(fleet, 1.5, None))
                await asyncio.sleep(0.2)
                await asyncio.gather(ask(one, 1), ask(one, 2), ask(two, 3))
                found = await watching
    (group,) = found.groups
    assert (group.requests, found.sampled) == (3, 3)
    assert found.hot[0].requests == 2, "each gateway hashes with a key of its own"


async def test_replicas_without_metrics_and_a_route_without_traffic_say_so(tmp_path: Path):
    async with Gate(tmp_path, {"a": "http://127.0.0.1:1"}) as gate:
        found = await topology.live(GatewayAdmin(gate.url, TOKEN), 0.05, None)
        with pytest.raises(ValueError, match="the gateway has chat"):
            await topology.live(GatewayAdmin(gate.url, TOKEN), 0.05, "other")
    text = printed(found)
    assert "replica a: no metrics" in text
    assert "nothing to take apart" in text
    assert "no sampled request yet" in text


def test_a_stored_run_is_parted_by_arm_and_says_what_it_lacks(tmp_path: Path):
    store = AuditStore(f"sqlite:///{tmp_path / 'audit.db'}")
    store.upgrade()
    now = datetime.now(UTC)
    store.open_run(
        run_id="run-1",
        workflow_id="w",
        name="n",
        kind="experiment",
        spec={},
        at=now,
        requested_by="me",
        trigger="cli",
    )
    good = [record(n, ttft_s=0.1, e2e_s=0.5) for n in range(1, 4)]
    stalled = [
        record(n, arm="chaos", replica="b", ttft_s=0.1, e2e_s=5.0, max_gap_s=4.0)
        for n in range(4, 6)
    ]
    probe = record(6, probe=True, e2e_s=99.0)
    store.put_segment("run-1", "observe", 0, [page([*good, *stalled, probe]).to_json()], now)
    found = topology.stored(store, "run-1")
    by_name = {group.name: {p.stage: p.seconds for p in group.parts} for group in found.groups}
    assert list(by_name) == ["chaos: b", "control: a"]
    assert by_name["chaos: b"][Stage.STALL] == 4.0
    assert by_name["control: a"][Stage.STALL] == 0.0
    assert by_name["control: a"][Stage.QUEUE] is None
    text = printed(found)
    assert "not recorded: only sampled requests have it" in text
    assert "lower bound" in text
    assert "records only" in text
    edges = {(a.name, b.name) for a, b in found.graph.edges}
    assert ("replica b", "chunk 0") in edges


def _otlp_json(body: bytes) -> dict:
    """Return an export as a collector's file exporter writes it: ids in hexadecimal."""
    document = MessageToDict(ExportTraceServiceRequest.FromString(body))
    for resource in document["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for key in ("traceId", "spanId"):
                    span[key] = base64.b64decode(span[key]).hex()
    return document


def _engine_span(parent: dict, queue: float, prefill: float, first: float) -> dict:
    figures = {
        "gen_ai.latency.time_in_queue": queue,
        "gen_ai.latency.time_in_model_prefill": prefill,
        "gen_ai.latency.time_to_first_token": first,
    }
    span = {
        "traceId": parent["traceId"],
        "spanId": "0" * 15 + "7",
        "parentSpanId": parent["spanId"],
        "name": "llm_request",
        "attributes": [{"key": k, "value": {"doubleValue": v}} for k, v in figures.items()],
    }
    return {"resourceSpans": [{"scopeSpans": [{"scope": {"name": "vllm"}, "spans": [span]}]}]}


async def test_spans_of_a_collectors_file_part_the_wait_of_the_same_requests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    async with Collector() as collector, serving(ENGINE) as (url, _):
        tracing = {"sample_ratio": 1.0, "endpoint": collector.endpoint}
        async with Gate(tmp_path, {"a": url}, tracing=tracing) as gate:
            await ask(gate, 1)
            await ask(gate, 2)
            records = await gate.wait_records(2)
            await collector.wait(2)
    exports = [_otlp_json(body) for body in collector.bodies]
    spans = [
        span
        for export in exports
        for resource in export["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]
    children = [_engine_span(spans[0], 0.001, 0.02, 0.022)]
    path = tmp_path / "spans.jsonl"
    path.write_text("\n".join(json.dumps(each) for each in [*exports, *children]) + "\n")
    found = topology.from_spans(path)
    (group,) = found.groups
    assert group.requests == 1, "only the request that has both spans"
    assert group.e2e_s == pytest.approx(records[0].e2e_s, abs=1e-5)
    stages = {part.stage: part.seconds for part in group.parts}
    assert stages[Stage.QUEUE] == pytest.approx(0.001)
    assert stages[Stage.NETWORK] is not None
    assert sum(each or 0 for each in stages.values()) == pytest.approx(group.e2e_s)
    text = printed(found)
    assert "replica a: 1 of 2 have the engine's span" in text
    assert "vLLM's spans of 1 requests" in text
    assert "chunk 1" in text
    assert run(["topology", str(path)]) == 0
    assert "spans of" in capsys.readouterr().out
    assert run(["topology", str(tmp_path / "none.jsonl")]) == EXIT_NOTHING_LEARNT


@pytest.mark.parametrize(
    ("line", "words"),
    [("{", "spans.jsonl:1"), ('{"resourceSpans": 3}', "spans.jsonl:1"), ("", "no span of the")],
)
def test_a_file_that_holds_no_spans_is_refused_in_one_line(tmp_path: Path, line: str, words: str):
    path = tmp_path / "spans.jsonl"
    path.write_text(line)
    with pytest.raises(ValueError, match=words) as caught:
        topology.from_spans(path)
    assert "\n" not in str(caught.value)
