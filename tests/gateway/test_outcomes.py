"""Every end of a request is one word, and exactly one record (C19, C20, C23, C25, C86)."""

import asyncio
import json
import time
from pathlib import Path

import aiohttp
import pytest

from gateway.flight import Cause
from gateway.outcome import classify, says_something_about_replica
from gateway.sse import StreamFacts
from slo.objective import Indicator
from slo.records import Outcome
from tests.gateway.harness import (
    CHAT,
    DONE,
    END,
    FINISH,
    ROLE,
    SSE_HEAD,
    TOKEN,
    Gate,
    Seen,
    Stub,
    answer,
    chunk,
    event,
    good,
    streams,
    token,
)

ERROR = event({"error": {"message": "engine died", "type": "InternalError", "code": 500}})
USAGE = event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 9}})
COST = event({"id": "", "choices": [], "cost": "0"})


async def test_a_whole_stream_is_ok_with_its_times_and_tokens(tmp_path: Path):
    async with Stub(streams(ROLE, token("a"), token("b"), FINISH, DONE, pause=0.02)) as stub:
        async with Gate(tmp_path, {"a": stub.url}) as gate:
            await gate.chat()
            record = await gate.record()
    assert record.outcome is Outcome.OK
    assert (record.status, record.replica, record.tokens) == (200, "a", 2)
    assert record.ttft_s is not None
    assert 0.04 <= record.ttft_s <= record.e2e_s
    assert 0.02 <= record.max_gap_s <= record.e2e_s
    assert record.accepted + record.e2e_s == pytest.approx(record.at, abs=1e-5)


@pytest.mark.parametrize("after", [(ROLE,), (ROLE, token("a"))], ids=["role", "token"])
async def test_an_error_object_in_a_200_stream_is_a_stream_error(tmp_path: Path, after):
    async with Stub(streams(*after, ERROR, DONE)) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        assert (await gate.chat())[0] == 200
        record = await gate.record()
    assert (record.outcome, record.status) == (Outcome.STREAM_ERROR, 200)
    assert record.tokens == len(after) - 1
    assert (record.ttft_s is None) == (len(after) == 1)


async def test_an_error_object_as_a_200_json_answer_is_a_stream_error(tmp_path: Path):
    async def script(seen: Seen) -> None:
        await seen.send(answer(b'{"error":{"code":500}}', "Content-Type: application/json"))

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.chat()
        assert (await gate.record()).outcome is Outcome.STREAM_ERROR


@pytest.mark.parametrize("clean", [True, False], ids=["clean-end", "socket-closed"])
async def test_a_stream_that_just_stops_is_truncated(tmp_path: Path, clean: bool):
    async def script(seen: Seen) -> None:
        await seen.send(SSE_HEAD + chunk(ROLE) + chunk(token("a")) + (END if clean else b""))
        if not clean:
            seen.writer.close()

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        if clean:
            assert (await gate.chat())[1] == ROLE + token("a")
        else:  # what broke off at the replica breaks off at the client
            with pytest.raises(aiohttp.ClientPayloadError):
                await gate.chat()
        record = await gate.record()
    assert record.outcome is Outcome.TRUNCATED
    assert ("transport" in record.flags) == (not clean)
    assert record.tokens == 1


@pytest.mark.parametrize(
    "end", [(FINISH,), (DONE,), (FINISH, DONE)], ids=["finish", "done", "both"]
)
async def test_a_stream_with_a_finish_reason_or_a_done_is_whole(tmp_path: Path, end):
    async with Stub(streams(token("a"), *end)) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.chat()
        assert (await gate.record()).outcome is Outcome.OK


async def test_an_answer_shorter_than_its_length_is_a_transport_failure(tmp_path: Path):
    async def script(seen: Seen) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n"
        await seen.send(head + b'{"a":')
        seen.writer.close()

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        with pytest.raises(aiohttp.ClientPayloadError):
            await gate.chat()
        assert (await gate.record()).outcome is Outcome.TRANSPORT


async def test_a_replica_that_hangs_up_without_an_answer_is_a_transport_failure(tmp_path: Path):
    async def script(seen: Seen) -> None:
        seen.writer.close()

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        status, body = await gate.chat()
        record = await gate.record()
        assert (status, json.loads(body)["error"]["code"]) == (502, 502)
        assert (record.outcome, record.status) == (Outcome.TRANSPORT, 502)
        assert len(stub.seen) == 1  # it may have worked on it: never sent twice


async def test_usage_comments_and_empty_data_are_no_tokens_and_usage_is_read(tmp_path: Path):
    quiet = (b": ping\n\n", b"data:\n\n", b"data: \n\n", COST, b"event: x\nid: 1\nretry: 5\n\n")
    script = streams(*quiet, ROLE, token("a"), FINISH, USAGE, *quiet, DONE, pause=0.01)
    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.chat()
        record = await gate.record()
    assert record.outcome is Outcome.OK
    assert (record.tokens, record.prompt_tokens) == (9, 5)
    assert record.ttft_s is not None
    assert record.ttft_s >= 0.07  # seven pauses before the first content


async def test_a_tool_call_delta_is_a_first_token_and_bad_arguments_are_flagged(tmp_path: Path):
    def call(arguments: str) -> bytes:
        delta = {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": arguments}}]}
        return event({"choices": [{"index": 0, "delta": delta}]})

    script = streams(call('{"city": '), call('"Oslo"'), FINISH, DONE)
    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.chat()
        record = await gate.record()
    assert record.ttft_s is not None
    assert record.flags == ("bad_tool_json",)


async def test_an_answer_without_a_character_is_flagged_empty(tmp_path: Path):
    async with Stub(streams(ROLE, FINISH, DONE)) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.chat()
        record = await gate.record()
    assert (record.outcome, record.ttft_s, record.flags) == (Outcome.OK, None, ("empty",))


@pytest.mark.parametrize("status", ["400 Bad Request", "429 Too Many Requests", "500 Oops"])
async def test_an_error_status_is_passed_on_as_an_http_error(tmp_path: Path, status: str):
    async def script(seen: Seen) -> None:
        await seen.send(answer(b'{"error":{}}', "Content-Type: application/json", status=status))

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        assert await gate.chat() == (int(status[:3]), b'{"error":{}}')
        record = await gate.record()
    assert (record.outcome, record.ttft_s) == (Outcome.HTTP_ERROR, None)


async def test_a_replica_that_never_answers_ends_in_our_timeout(tmp_path: Path):
    async def script(seen: Seen) -> None:
        await seen.gone()

    options = {"timeout_seconds": 0.2}
    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}, options) as gate:
        assert (await gate.chat())[0] == 504
        record = await gate.record()
    assert (record.outcome, record.ttft_s) == (Outcome.TIMEOUT, None)
    assert record.e2e_s >= 0.2


async def test_a_stream_that_goes_silent_ends_in_our_timeout_and_breaks_off(tmp_path: Path):
    async def script(seen: Seen) -> None:
        await seen.send(SSE_HEAD + chunk(token("a")))
        await seen.gone()

    options = {"timeout_seconds": 0.2}
    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}, options) as gate:
        with pytest.raises(aiohttp.ClientPayloadError):
            await gate.chat()
        record = await gate.record()
    assert record.outcome is Outcome.TIMEOUT
    assert record.max_gap_s >= 0.15


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
@pytest.mark.parametrize("begun", [True, False], ids=["after-first-byte", "before-first-byte"])
async def test_a_client_that_leaves_frees_the_replica_within_a_second(
    tmp_path: Path, stream: bool, begun: bool
):
    closed = asyncio.Event()

    async def script(seen: Seen) -> None:
        if begun and stream:
            await seen.send(SSE_HEAD + chunk(token("a")))
        elif begun:
            await seen.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n12")
        await seen.gone()
        closed.set()

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.server.port)
        body = json.dumps(CHAT).encode()
        writer.write(b"POST /v1/x HTTP/1.1\r\nHost: g\r\nContent-Length: %d\r\n\r\n" % len(body))
        writer.write(body)
        if begun:
            await reader.readuntil(b"\r\n\r\n")
        else:
            async with asyncio.timeout(5):
                while not stub.seen:
                    await asyncio.sleep(0.005)
        left = time.monotonic()
        writer.transport.abort()
        async with asyncio.timeout(1):
            await closed.wait()
        assert time.monotonic() - left < 1
        record = await gate.record()
    assert record.outcome is Outcome.CLIENT_ABORT
    assert not Indicator().is_valid(record)


async def test_a_client_that_gives_up_in_a_silence_counts_against_the_replica(tmp_path: Path):
    async def script(seen: Seen) -> None:
        await seen.send(SSE_HEAD + chunk(token("a")))
        await seen.gone()

    options = {"gap_limit_seconds": 0.2}
    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}, options) as gate:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.4):
                await gate.chat()
        record = await gate.record()
        assert record.outcome is Outcome.CLIENT_ABORT
        assert record.max_gap_s > 0.2
        indicator = Indicator(max_gap_seconds=0.2)
        assert indicator.is_valid(record) and indicator.is_bad(record)
        buckets = (await gate.ok("GET", "/counters?route=chat"))["buckets"]
        assert sum(each["bad"] for each in buckets) == 1


async def test_a_client_that_leaves_after_the_whole_answer_is_no_abort(tmp_path: Path):
    async def script(seen: Seen) -> None:
        await seen.send(SSE_HEAD + chunk(token("a") + FINISH + DONE))
        await seen.gone()  # the end mark never comes

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        async with gate.client.post(gate.url + "/v1/chat/completions", json=CHAT) as got:
            data = b""
            while DONE not in data:
                data += await got.content.readany()
            got.close()
        assert (await gate.record()).outcome is Outcome.OK


async def test_a_model_that_no_route_serves_is_shed(tmp_path: Path):
    options = {"models": ["other"]}
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}, options) as gate:
        assert (await gate.chat())[0] == 404
        record = await gate.record()
        assert (record.outcome, record.route, record.replica) == (Outcome.SHED, "", "")
        assert stub.seen == []


async def test_probes_are_pinned_labelled_and_in_no_count(tmp_path: Path):
    async with Stub(good()) as one, Stub(good()) as two:
        async with Gate(tmp_path, {"a": one.url, "b": two.url}) as gate:
            for name in ("a", "b", "b"):
                headers = {"x-burnproof-probe": TOKEN, "x-burnproof-replica": name}
                url = gate.url + "/v1/chat/completions"
                async with gate.client.post(url, json=CHAT, headers=headers) as got:
                    assert got.headers["x-burnproof-replica"] == name
                    assert got.headers["x-burnproof-arm"] == ""
                    await got.read()
            assert (len(one.seen), len(two.seen)) == (1, 2)
            assert all(not seen.header("x-burnproof-probe") for seen in one.seen + two.seen)
            records = await gate.wait_records(3)
            assert all(record.probe for record in records)
            assert (await gate.ok("GET", "/counters?route=chat"))["buckets"] == []
            for route in (await gate.ok("GET", "/routes"))["routes"]:
                assert [each["breaker"]["total"] for each in route["replicas"]] == [0, 0]
            async with gate.client.get(gate.url + "/metrics") as got:
                text = await got.text()
            assert 'burnproof_gateway_probes_total{route="chat",outcome="ok"} 3' in text
            assert "burnproof_gateway_requests_total" not in text


async def test_a_probe_pinned_to_a_replica_that_is_not_there_is_refused(tmp_path: Path):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        headers = {"x-burnproof-probe": TOKEN, "x-burnproof-replica": "z"}
        status, _ = await gate.chat("", **headers)
        assert status == 404
        assert (await gate.record()).probe


@pytest.mark.parametrize(
    ("outcome", "status", "stalled", "counts"),
    [
        (Outcome.OK, 200, False, True),
        (Outcome.HTTP_ERROR, 500, False, True),
        (Outcome.HTTP_ERROR, 429, False, True),
        (Outcome.HTTP_ERROR, 400, False, False),
        (Outcome.HTTP_ERROR, 404, False, False),
        (Outcome.STREAM_ERROR, 200, False, True),
        (Outcome.TRUNCATED, 200, False, True),
        (Outcome.TIMEOUT, 504, False, True),
        (Outcome.TRANSPORT, 502, False, True),
        (Outcome.CLIENT_ABORT, 200, False, False),
        (Outcome.CLIENT_ABORT, 200, True, True),
        (Outcome.SHED, 404, False, False),
    ],
)
def test_what_blames_the_request_says_nothing_about_the_replica(outcome, status, stalled, counts):
    assert says_something_about_replica(outcome, status, stalled) is counts


def test_every_cause_has_its_outcome():
    whole = StreamFacts(finished=True)
    part = StreamFacts(content_chunks=1)
    table = {
        (Cause.SHED, 404, False): Outcome.SHED,
        (Cause.TIMEOUT, 200, True): Outcome.TIMEOUT,
        (Cause.CLIENT, 200, True): Outcome.CLIENT_ABORT,
        (Cause.CLIENT, 0, False): Outcome.CLIENT_ABORT,
        (Cause.LOST, 200, True): Outcome.TRUNCATED,
        (Cause.LOST, 502, False): Outcome.TRANSPORT,
        (Cause.COMPLETE, 503, False): Outcome.HTTP_ERROR,
        (Cause.COMPLETE, 200, True): Outcome.TRUNCATED,
        (Cause.COMPLETE, 200, False): Outcome.OK,
    }
    for (cause, status, is_stream), outcome in table.items():
        assert classify(cause, status, is_stream, part) is outcome
    assert classify(Cause.CLIENT, 200, True, whole) is Outcome.OK
    assert classify(Cause.LOST, 200, True, whole) is Outcome.OK


@pytest.mark.parametrize(
    ("body", "kind"),
    [(b"", "text/plain"), (b"<html>", "text/html"), (b"{}", "application/json")],
    ids=["nothing", "a page", "an empty object"],
)
async def test_a_stream_that_was_asked_for_and_never_came_is_truncated(
    tmp_path: Path, body: bytes, kind: str
):
    async def script(seen: Seen) -> None:
        await seen.send(answer(body, f"Content-Type: {kind}"))

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        assert await gate.chat() == (200, body)
        record = await gate.record()
    assert record.outcome is Outcome.TRUNCATED


async def test_a_whole_plain_answer_to_a_request_for_a_stream_is_ok(tmp_path: Path):
    body = json.dumps({"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]})

    async def script(seen: Seen) -> None:
        await seen.send(answer(body.encode(), "Content-Type: application/json"))

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.chat()
        record = await gate.record()
    assert record.outcome is Outcome.OK


@pytest.mark.parametrize("figure", ["true", "1" + "0" * 400, "-1", "2e3"])
async def test_a_usage_figure_that_is_no_count_is_not_believed(tmp_path: Path, figure: str):
    usage = b'data: {"choices": [], "usage": {"completion_tokens": %s}}\n\n' % figure.encode()
    async with Stub(streams(token("a"), usage, FINISH, DONE)) as stub:
        async with Gate(tmp_path, {"a": stub.url}) as gate:
            await gate.chat()
            record = await gate.record()
            async with gate.client.get(gate.url + "/metrics") as page:
                assert page.status == 200
    assert (record.outcome, record.tokens) == (Outcome.OK, 1)


async def test_the_time_a_client_takes_to_send_its_body_is_not_the_replicas(tmp_path: Path):
    body = json.dumps(CHAT).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n"
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.server.port)
        writer.write(head % len(body) + body[:5])
        await writer.drain()
        await asyncio.sleep(0.6)
        writer.write(body[5:])
        await reader.readuntil(DONE)
        record = await gate.record()
        writer.close()
    assert record.ttft_s is not None
    assert record.ttft_s <= record.e2e_s < 0.5
    assert record.accepted + record.e2e_s == pytest.approx(record.at, abs=1e-5)
