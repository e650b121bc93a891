"""Spans of sampled requests: what they say, what they never say, and whom they never hurt."""

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gateway import span_content
from gateway.outbox import QUEUE, Outbox
from tests.gateway.collector import Collector
from tests.gateway.harness import (
    CHAT,
    DONE,
    FINISH,
    ROLE,
    SPLIT,
    STALL,
    TOKEN,
    Gate,
    Stub,
    completes,
    good,
    streams,
    token,
)

ALL = {"sample_ratio": 1.0}
RUN = "019b2f5c-7def-7e3a-9f1c-0123456789ab"
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SERVER = 2
SECRETS = ("Bearer", "hush-key", "a-conversation", "whisper", "prompt-word", TOKEN)


async def test_a_span_has_the_request_its_chunks_and_its_experiment_and_no_text(tmp_path: Path):
    words = [token(f"whisper{n}") for n in range(3)]
    async with Collector() as collector, Stub(streams(ROLE, *words, FINISH, DONE)) as stub:
        options = {"slo_id": "chat-streams", "models": ["m"]}
        tracing = {**ALL, "endpoint": collector.endpoint}
        async with Gate(tmp_path, {"a": stub.url, "b": stub.url}, options, tracing=tracing) as gate:
            await gate.lease()
            await gate.put("S", "split", SPLIT)
            await gate.fault("gateway/latency-fixed", {"delay": 0.05, "probability": 1.0})
            body = {**CHAT, "messages": [{"role": "user", "content": "prompt-word " * 100}]}
            headers = {
                "Authorization": "Bearer hush-key",
                "x-conversation-id": "a-conversation",
                "x-client-run-id": RUN.upper(),
            }
            url = gate.url + "/v1/chat/completions?key=hush-key"
            async with gate.client.post(url, json=body, headers=headers) as response:
                await response.read()
            record = await gate.record()
            (span,) = await collector.wait(1)
    assert (span.name, span.kind, span.parent_id, span.is_error) == ("chat m", SERVER, "", False)
    assert span.begin == pytest.approx(record.accepted, abs=1e-5)
    assert span.seconds == pytest.approx(record.e2e_s, abs=1e-5)
    assert span.resource["service.name"] == "burnproof-gateway"
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.usage.output_tokens": 3,
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "slo_id": "chat-streams",
        "burnproof.outcome": "ok",
        "burnproof.unit": record.unit,
        "burnproof.arm": record.arm,
        "burnproof.replica": record.replica,
        "burnproof.lease_ids": ["L"],
        "burnproof.run_ids": ["R"],
        "burnproof.touched_items": ["F"],
        "burnproof.client_run_id": RUN,
        "burnproof.journal_seq": 1,
    }
    assert {key: span.attributes.get(key) for key in expected} == expected
    assert record.client_run_id == RUN
    chunks = [more for name, _, more in span.events if name == span_content.CHUNK]
    assert [each["burnproof.chunk.index"] for each in chunks] == list(range(6))
    flags = [each["burnproof.chunk.has_content"] for each in chunks]
    assert flags == [False, True, True, True, False, False]
    times = [when for _, when, _ in span.events]
    assert times == sorted(times)
    assert times[0] - span.begin >= 0.05  # the delay acts before the request is sent
    raw = b"".join(collector.bodies)
    assert not [each for each in SECRETS if each.encode() in raw]
    (seen,) = stub.seen
    assert seen.header("traceparent") == [f"00-{span.trace_id}-{span.span_id}-01"]
    assert seen.header("x-client-run-id") == [RUN.upper()]


async def test_a_clients_trace_goes_on_through_us_to_the_replica(tmp_path: Path):
    async with Collector() as collector, Stub(good()) as stub:
        tracing = {"sample_ratio": 0.0, "endpoint": collector.endpoint}
        async with Gate(tmp_path, {"a": stub.url}, tracing=tracing) as gate:
            await gate.chat(traceparent=f"00-{TRACE}-{SPAN}-01", tracestate="x=1")
            (span,) = await collector.wait(1)
    assert (span.trace_id, span.parent_id) == (TRACE, SPAN)
    (seen,) = stub.seen
    assert seen.header("traceparent") == [f"00-{TRACE}-{span.span_id}-01"]
    assert seen.header("tracestate") == ["x=1"]


@pytest.mark.parametrize("has_endpoint", [True, False], ids=["exporter", "no exporter"])
async def test_a_request_that_is_not_sampled_or_not_sent_passes_as_it_came(
    tmp_path: Path, has_endpoint: bool
):
    parent = f"00-{TRACE}-{SPAN}-{'00' if has_endpoint else '01'}"
    async with Collector() as collector, Stub(good()) as stub:
        tracing = {"sample_ratio": 0.0 if has_endpoint else 1.0}
        if has_endpoint:
            tracing["endpoint"] = collector.endpoint
        async with Gate(tmp_path, {"a": stub.url}, tracing=tracing) as gate:
            await gate.chat(TraceParent=parent)
            await gate.chat()
            await gate.wait_records(2)
            view = await gate.ok("GET", "/traces")
    first, second = stub.seen
    assert ("TraceParent", parent) in first.headers
    assert second.header("traceparent") == []
    assert collector.calls == 0
    assert view["sampled"] == (0 if has_endpoint else 2)


async def test_a_probe_is_never_sampled(tmp_path: Path):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}, tracing=ALL) as gate:
        await gate.chat(**{"x-burnproof-probe": TOKEN, "x-client-run-id": RUN})
        assert (await gate.record()).client_run_id == ""
        assert (await gate.ok("GET", "/traces"))["sampled"] == 0


async def test_an_answer_has_an_event_for_each_chunk_above_opentelemetrys_limit(tmp_path: Path):
    script = streams(*[token(f"t{n}") for n in range(500)], FINISH, DONE)
    async with Collector() as collector, Stub(script) as stub:
        tracing = {**ALL, "endpoint": collector.endpoint, "max_events": 400}
        async with Gate(tmp_path, {"a": stub.url}, tracing=tracing) as gate:
            await gate.chat()
            (span,) = await collector.wait(1)
    assert sum(name == span_content.CHUNK for name, _, _ in span.events) == 400
    assert span.attributes["burnproof.chunks_dropped"] == 102


@pytest.mark.parametrize("mode", ["refuses", "hangs", "gone"])
async def test_a_collector_that_fails_touches_no_request_and_is_counted(tmp_path: Path, mode: str):
    async with Collector(mode) as collector, Stub(good()) as stub:
        endpoint = "http://127.0.0.1:1/v1/traces" if mode == "gone" else collector.endpoint
        tracing = {**ALL, "endpoint": endpoint}
        async with Gate(tmp_path, {"a": stub.url}, tracing=tracing) as gate:
            for _ in range(20):
                began = time.monotonic()
                assert (await gate.chat())[0] == 200
                assert time.monotonic() - began < 0.5
            records = await gate.wait_records(20)
            async with asyncio.timeout(20):
                while not (await gate.ok("GET", "/traces"))["export"]["failed"]:
                    await asyncio.sleep(0.05)
            async with gate.client.get(gate.url + "/metrics") as page:
                text = await page.text()
            began = time.monotonic()
        assert time.monotonic() - began < 6, "the end must not wait for a collector"
    assert {record.outcome.value for record in records} == {"ok"}
    assert 'burnproof_gateway_spans_total{result="sent"} 0' in text
    assert "burnproof_gateway_sampled_requests_total 20" in text


async def test_spans_that_wait_at_the_end_are_sent(tmp_path: Path):
    async with Collector() as collector, Stub(good()) as stub:
        tracing = {**ALL, "endpoint": collector.endpoint}
        async with Gate(tmp_path, {"a": stub.url}, tracing=tracing) as gate:
            for _ in range(5):
                await gate.chat()
            await gate.wait_records(5)
        await collector.wait(5)


async def test_a_failure_of_the_service_is_an_error_and_a_refused_request_is_none(tmp_path: Path):
    cut = streams(ROLE, token("a"))
    async with Collector() as collector, Stub(cut) as stub:
        tracing = {**ALL, "endpoint": collector.endpoint}
        async with Gate(tmp_path, {"a": stub.url}, {"models": ["m"]}, tracing=tracing) as gate:
            await gate.chat()
            await gate.wait_records(1)
            async with gate.client.post(gate.url + "/v1/x", json={"model": "none"}) as got:
                assert got.status == 404
            failed, refused = await collector.wait(2)
    assert (failed.is_error, failed.attributes["error.type"]) == (True, "truncated")
    assert (refused.is_error, "error.type" in refused.attributes) == (False, False)


async def test_any_other_path_or_model_is_in_no_name_of_a_span(tmp_path: Path):
    async with Collector() as collector, Stub(completes()) as stub:
        tracing = {**ALL, "endpoint": collector.endpoint}
        async with Gate(tmp_path, {"a": stub.url}, tracing=tracing) as gate:
            url = gate.url
            async with gate.client.post(url + "/v1/rerank/hush-key", json={"model": "m"}) as got:
                await got.read()
            document = {"model": "m" * 500, "prompt": "x"}
            async with gate.client.post(url + "/v1/completions", json=document) as got:
                await got.read()
            spans = await collector.wait(2)
    assert [span.name for span in spans] == ["POST", "text_completion"]
    assert "http.route" not in spans[0].attributes
    assert len(spans[1].attributes["gen_ai.request.model"]) == 128
    assert b"hush-key" not in b"".join(collector.bodies)


async def test_the_admin_api_shows_the_latest_with_their_beginnings_as_hashes(tmp_path: Path):
    prompt = {"model": "m", "stream": True, "prompt": "the same words again " * 40}
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}, tracing=ALL) as gate:
        for _ in range(3):
            async with gate.client.post(gate.url + "/v1/completions", json=prompt) as got:
                await got.read()
        await gate.wait_records(3)
        view = await gate.ok("GET", "/traces?limit=2")
        assert (await gate.ok("GET", "/traces?limit=0"))["traces"] == []
        assert (await gate.admin("GET", "/traces?limit=x"))[0] == 400
    first, second = view["traces"]
    assert first["trace_id"] != second["trace_id"]
    assert first["prefixes"] == second["prefixes"]
    assert len(first["prefixes"]) == len(prompt["prompt"]) // view["block_bytes"]
    assert "same words" not in json.dumps(view)
    assert 0 < first["sent_s"] <= first["head_s"] <= first["chunks"][0] <= first["e2e_s"]
    assert len(first["chunks"]) == len(first["content"]) == 6


async def test_an_injected_stream_is_traced_as_any_other(tmp_path: Path):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}, tracing=ALL) as gate:
        await gate.lease()
        await gate.fault("gateway/stream-stall", {**STALL, "stall": 0.1})
        await gate.chat()
        record = await gate.record()
        (trace,) = (await gate.ok("GET", "/traces"))["traces"]
    gaps = [b - a for a, b in zip(trace["chunks"], trace["chunks"][1:], strict=False)]
    assert max(gaps) == pytest.approx(record.max_gap_s, abs=1e-4)
    assert trace["touched"] == ["F"]


async def test_the_queue_is_bounded_and_says_what_had_no_room():
    outbox = Outbox("http://127.0.0.1:1/v1/traces", 10, "e")
    outbox._stop.set()
    outbox._thread.join()
    for _ in range(QUEUE + 5):
        outbox.put(None)  # type: ignore[arg-type]
    assert outbox.counts() == {"sent": 0, "failed": 0, "dropped": 5}
    outbox.close(0.1)


def test_every_name_of_the_conventions_is_one_that_the_package_knows():
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
    from opentelemetry.semconv.attributes import error_attributes, http_attributes

    known = {
        value
        for module in (gen_ai_attributes, error_attributes, http_attributes)
        for value in vars(module).values()
        if isinstance(value, str)
    }
    ours = {
        value
        for key, value in vars(span_content).items()
        if key.isupper()
        and isinstance(value, str)
        and value.startswith(("gen_ai.", "http.", "err"))
    }
    assert len(ours) >= 10
    assert ours <= known


def test_a_gateway_that_sends_no_spans_loads_none_of_the_libraries_for_it():
    code = (
        "import sys, gateway.__main__\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry', 'requests'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
