"""What each fault does to a request, and what it leaves alone."""

import asyncio
import json
from pathlib import Path

import pytest
from scipy.stats import binomtest

from faults.sampling import decide_touch
from slo.records import Outcome
from tests.gateway.harness import (
    DONE,
    END,
    FINISH,
    GOOD,
    ROLE,
    SPLIT,
    SSE_HEAD,
    TOKEN,
    Gate,
    Seen,
    Stub,
    answer,
    chunk,
    good,
    streams,
    token,
)


async def test_a_delay_comes_before_the_request_is_sent_and_is_in_the_first_token_time(
    tmp_path: Path,
):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.lease()
        parameters = {"alpha": 1.5, "base": 0.1, "probability": 1.0, "cap": 0.3}
        await gate.fault("gateway/latency-pareto", parameters)
        for _ in range(4):
            assert (await gate.chat())[1] == b"".join(GOOD)
        for record in await gate.wait_records(4):
            assert record.outcome is Outcome.OK
            assert record.ttft_s is not None
            assert 0.1 <= record.ttft_s < 1.0
            assert record.touched == record.exposed == ("F",)


async def test_a_share_of_the_requests_is_touched_and_all_are_exposed(tmp_path: Path):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.lease()
        await gate.fault("gateway/error", {"status": 503, "probability": 0.3})
        results = [await gate.chat() for _ in range(120)]
        records = await gate.wait_records(120)
        failed = sum(status == 503 for status, _ in results)
        assert binomtest(failed, 120, 0.3).pvalue > 1e-4
        assert [r.outcome for r in records].count(Outcome.HTTP_ERROR) == failed
        assert all(bool(r.touched) == (r.status == 503) for r in records)
        assert all(r.exposed == ("F",) for r in records)
        item = (await gate.ok("GET", "/leases/L"))["items"]["F"]
        assert (item["exposed"], item["touched"]) == (120, failed)
        assert len(stub.seen) == 120 - failed


async def test_an_error_answer_has_the_shape_of_the_engines_and_its_retry_header(tmp_path: Path):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.lease()
        parameters = {"status": 429, "probability": 1.0, "retry_after": 7.0}
        await gate.fault("gateway/error", parameters)
        async with gate.client.post(gate.url + "/v1/x", data=b"{}") as got:
            assert (got.status, got.headers["Retry-After"]) == (429, "7")
            assert json.loads(await got.read())["error"]["code"] == 429
        record = await gate.record()
        assert (record.replica, record.status) == ("a", 429)
        assert stub.seen == []


async def test_an_error_in_the_stream_touches_streams_only(tmp_path: Path):
    async def plain(seen: Seen) -> None:
        await seen.send(answer(b"{}", "Content-Type: application/json"))

    async with Stub(plain) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.lease()
        parameters = {"status": 500, "probability": 1.0, "in_stream": True}
        await gate.fault("gateway/error", parameters)
        status, body = await gate.chat()
        assert status == 200
        assert b'"error"' in body and body.endswith(DONE)
        async with gate.client.post(gate.url + "/v1/x", data=b'{"stream":false}') as got:
            assert (got.status, await got.read()) == (200, b"{}")
        first, second = await gate.wait_records(2)
        assert (first.outcome, first.touched) == (Outcome.STREAM_ERROR, ("F",))
        assert (second.outcome, second.touched, second.exposed) == (Outcome.OK, (), ("F",))


@pytest.mark.parametrize("joined", [True, False], ids=["one-network-chunk", "a-chunk-an-event"])
async def test_a_stall_comes_after_its_tokens_and_changes_no_byte(tmp_path: Path, joined: bool):
    events = (ROLE, token("a"), token("b"), token("c"), FINISH, DONE)
    script = streams(b"".join(events)) if joined else streams(*events)
    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.lease()
        await gate.fault(
            "gateway/stream-stall", {"after_tokens": 2, "stall": 0.3, "probability": 1.0}
        )
        async with gate.client.post(gate.url + "/v1/x", data=b'{"stream":true}') as got:
            early = b""
            loop = asyncio.get_running_loop()
            started = loop.time()
            while early != b"".join(events[:3]):
                early += await got.content.readany()
                assert b"".join(events).startswith(early) and len(early) <= len(
                    b"".join(events[:3])
                )
            assert loop.time() - started < 0.25  # two tokens pass at once
            late = await got.content.read()
            assert loop.time() - started >= 0.29
        assert early + late == b"".join(events)
        record = await gate.record()
        assert (record.outcome, record.touched) == (Outcome.OK, ("F",))
        assert 0.29 <= record.max_gap_s < 2
        assert record.ttft_s is not None
        assert record.ttft_s < 0.25


async def test_an_answer_that_is_too_short_or_no_stream_is_not_touched_by_a_stall(tmp_path: Path):
    plain = {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}

    async def script(seen: Seen) -> None:
        if b"plain" in seen.body:
            body = json.dumps(plain).encode()
            await seen.send(answer(body, "Content-Type: application/json"))
        else:
            await seen.send(SSE_HEAD + chunk(token("a") + FINISH + DONE) + END)

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.lease()
        await gate.fault(
            "gateway/stream-stall", {"after_tokens": 2, "stall": 30.0, "probability": 1.0}
        )
        await gate.chat()
        async with gate.client.post(gate.url + "/v1/x", data=b'{"plain":1}') as got:
            await got.read()
        for record in await gate.wait_records(2):
            assert (record.outcome, record.touched, record.exposed) == (Outcome.OK, (), ("F",))


async def test_null_is_on_every_request_and_changes_none(tmp_path: Path):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.lease()
        await gate.fault("null", {})
        for _ in range(5):
            assert (await gate.chat())[1] == b"".join(GOOD)
        for record in await gate.wait_records(5):
            assert (record.outcome, record.touched, record.exposed) == (Outcome.OK, (), ("F",))


async def test_a_fault_stays_on_its_replica_and_a_request_that_leaves_it_is_safe(tmp_path: Path):
    async with Stub(good()) as one, Stub(good()) as two:
        async with Gate(tmp_path, {"a": one.url, "b": two.url}) as gate:
            await gate.lease()
            await gate.put("S", "split", SPLIT)
            parameters = {"status": 500, "probability": 1.0}
            await gate.fault("gateway/error", parameters, replicas=["b"])
            for n in range(30):
                await gate.chat(f"c{n}")
            for record in await gate.wait_records(30):
                assert (record.status == 500) == (record.arm == "chaos") == bool(record.exposed)
            route = gate.server.core.routes["chat"]
            now = gate.server.core.clock.mono()
            for _ in range(200):
                route.observe("b", True, now, now)  # its breaker opens
            for n in range(30):
                assert (await gate.chat(f"c{n}"))[0] == 200
            late = (await gate.wait_records(60))[30:]
            chaos = [record for record in late if record.arm == "chaos"]
            assert chaos
            assert all(r.fallback and r.exposed == r.touched == () for r in chaos)


async def test_a_probe_meets_the_fault_but_is_not_counted_as_its_effect(tmp_path: Path):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.lease()
        await gate.fault("gateway/error", {"status": 500, "probability": 1.0})
        headers = {"x-burnproof-probe": TOKEN, "x-burnproof-replica": "a"}
        assert (await gate.chat("", **headers))[0] == 500
        record = await gate.record()
        assert (record.probe, record.touched) == (True, ("F",))
        item = (await gate.ok("GET", "/leases/L"))["items"]["F"]
        assert (item["exposed"], item["touched"], item["still_touching"]) == (0, 0, 0)


async def test_who_is_touched_is_the_pure_draw_of_seed_and_request(tmp_path: Path):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.lease()
        await gate.fault("gateway/error", {"status": 500, "probability": 0.5}, seed=42)
        for _ in range(30):
            await gate.chat()
        epoch = gate.server.core.epoch
        for number, record in enumerate(await gate.wait_records(30), start=1):
            assert bool(record.touched) == decide_touch(42, f"{epoch}-{number}", 0.5)
