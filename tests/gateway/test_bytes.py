"""What goes in comes out, byte for byte (C06, C79, C81, C83, C88)."""

import asyncio
import gzip
import json
import zlib
from pathlib import Path

import aiohttp
import pytest

from slo.records import Outcome
from tests.gateway.harness import (
    DONE,
    END,
    FINISH,
    ROLE,
    SSE_HEAD,
    Gate,
    Seen,
    Stub,
    answer,
    chunk,
    good,
    token,
)


async def test_one_byte_per_write_comes_out_unchanged_with_split_characters(tmp_path: Path):
    body = b"".join((ROLE, token("안녕 你好 🌍"), token("\x0b"), FINISH, DONE))

    async def script(seen: Seen) -> None:
        await seen.send(SSE_HEAD)
        for byte in body:
            await seen.send(chunk(bytes([byte])))
            await asyncio.sleep(0)
        await seen.send(END)

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        status, got = await gate.chat()
        assert (status, got) == (200, body)
        record = await gate.record()
        assert (record.outcome, record.tokens) == ("ok", 2)


@pytest.mark.parametrize("odd", ["\u2028", "\u2029", "\u0085", "\x0c", "\x1c"])
async def test_an_odd_line_separator_inside_a_string_neither_changes_nor_cuts_an_event(
    tmp_path: Path, odd: str
):
    raw = b'data: {"choices":[{"index":0,"delta":{"content":"a%sb"}}]}\n\n' % odd.encode()
    body = raw + FINISH + DONE

    async def script(seen: Seen) -> None:
        await seen.send(SSE_HEAD + chunk(body) + END)

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        assert (await gate.chat())[1] == body
        record = await gate.record()
        # A control character is not allowed raw in JSON, so those two events are not tokens.
        assert record.tokens == (0 if odd in "\x0c\x1c" else 1)
        assert record.outcome == "ok"


def _raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize(
    ("encoding", "pack", "readable"),
    [
        ("gzip", gzip.compress, True),
        ("deflate", zlib.compress, True),
        ("deflate", _raw_deflate, True),
        ("br", lambda data: b"\x8b" + data[::-1], False),
        ("zstd", lambda data: b"\x28\xb5" + data[::-1], False),
    ],
    ids=["gzip", "deflate", "raw-deflate", "br", "zstd"],
)
async def test_an_encoded_answer_passes_as_it_is_with_its_headers(
    tmp_path: Path, framing: str, encoding: str, pack, readable: bool
):
    document = {
        "choices": [{"index": 0, "message": {"content": "hello"}, "finish_reason": "stop"}],
        "usage": {"completion_tokens": 7, "prompt_tokens": 3},
    }
    packed = pack(json.dumps(document).encode())
    headers = ("Content-Type: application/json", f"Content-Encoding: {encoding}")

    async def script(seen: Seen) -> None:
        if framing == "length":
            await seen.send(answer(packed, *headers))
            return
        head = "\r\n".join(["HTTP/1.1 200 OK", *headers, "Transfer-Encoding: chunked"])
        half = len(packed) // 2
        await seen.send(
            head.encode() + b"\r\n\r\n" + chunk(packed[:half]) + chunk(packed[half:]) + END
        )

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        async with gate.client.post(gate.url + "/v1/completions", data=b'{"model":"m"}') as got:
            assert await got.read() == packed
            assert got.headers["Content-Encoding"] == encoding
            assert ("Content-Length" in got.headers) == (framing == "length")
            assert "Server" not in got.headers and "Date" not in got.headers
        record = await gate.record()
        assert record.outcome == "ok"
        assert (record.tokens, record.prompt_tokens) == ((7, 3) if readable else (0, 0))


async def test_an_encoded_request_body_reaches_the_replica_untouched_and_finds_its_route(
    tmp_path: Path,
):
    packed = gzip.compress(b'{"model":"m","stream":true}')
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}, {"models": ["m"]}) as gate:
        headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
        async with gate.client.post(gate.url + "/v1/x", data=packed, headers=headers) as got:
            assert got.status == 200
            await got.read()
        assert stub.seen[0].body == packed
        assert stub.seen[0].header("content-encoding") == ["gzip"]


@pytest.mark.parametrize(
    "body",
    [
        rb'{"model":"m","stop":"a\ud83d b"}',
        '{"model":"m","stop":"\u2028"}'.encode(),
        b'{"model":"m","x":"\xff\xfe not utf-8"}',
        b'{"model": "m",   "a":1, "a":2}\n',
        b"not json at all",
        b"[" * 100_000,
        b'{"model":' + b'"m"' + b',"pad":"' + b"x" * 2_000_000 + b'"}',
    ],
    ids=["surrogate", "separator", "not-utf8", "spaces", "text", "deep", "two-megabytes"],
)
async def test_a_request_body_reaches_the_replica_byte_for_byte(tmp_path: Path, body: bytes):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        async with gate.client.post(gate.url + "/v1/chat/completions", data=_pieces(body)) as got:
            assert got.status == 200
            await got.read()
        assert stub.seen[0].body == body
        assert (await gate.record()).outcome == "ok"


async def _pieces(body: bytes):
    for start in range(0, len(body), 50_000):
        yield body[start : start + 50_000]


async def test_an_answer_with_a_lone_surrogate_is_passed_on_and_recorded(tmp_path: Path):
    raw = rb'data: {"choices":[{"index":0,"delta":{"content":"a\ud83d"}}]}' + b"\n\n"

    async def script(seen: Seen) -> None:
        await seen.send(SSE_HEAD + chunk(raw + FINISH + DONE) + END)

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        assert (await gate.chat())[1] == raw + FINISH + DONE
        assert (await gate.record()).tokens == 1


async def test_a_body_above_the_limit_is_refused_and_recorded_as_shed(tmp_path: Path):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        big = b"x" * (32 * 1024 * 1024 + 1)
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.server.port)
        writer.write(b"POST /v1/x HTTP/1.1\r\nHost: g\r\nContent-Length: %d\r\n\r\n" % len(big))

        async def upload() -> None:
            writer.write(big)
            await writer.drain()

        sending = asyncio.create_task(upload())
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 413 " in head
        sending.cancel()
        writer.transport.abort()
        await asyncio.gather(sending, return_exceptions=True)
        record = await gate.record()
        assert (record.outcome, record.status) == ("shed", 413)
        assert stub.seen == []


async def test_trailers_are_read_to_the_end_and_the_connection_stays_in_step(tmp_path: Path):
    async def script(seen: Seen) -> None:
        trailers = b"0\r\nx-one: 1\r\nx-two: 2\r\n\r\n"
        await seen.send(SSE_HEAD + chunk(token("a") + FINISH + DONE) + trailers)

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        for _ in range(3):
            assert await gate.chat() == (200, token("a") + FINISH + DONE)
        assert stub.connections == 1


async def test_connection_headers_and_our_own_stay_here_and_the_others_pass(tmp_path: Path):
    async def script(seen: Seen) -> None:
        await seen.send(
            answer(
                b"{}",
                *("Content-Type: application/json", "Set-Cookie: a=1", "Set-Cookie: b=2"),
                *("Connection: x-hop", "X-Hop: 1", "Keep-Alive: timeout=5", "Server: engine"),
            )
        )

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        sent = {
            "Connection": "X-Mine",
            "X-Mine": "1",
            "TE": "trailers",
            "x-burnproof-probe": "wrong",
            "x-burnproof-replica": "a",
            "x-conversation-id": "c",
            "x-tenant-id": "t",
            "User-Agent": "u/1",
        }
        async with gate.client.post(gate.url + "/p%2Fq?a=%20b&c", data=b"{}", headers=sent) as got:
            assert got.headers.getall("Set-Cookie") == ["a=1", "b=2"]
            assert got.headers["Server"] == "engine"
            assert "X-Hop" not in got.headers and "Keep-Alive" not in got.headers
            assert "x-burnproof-arm" not in got.headers
        seen = stub.seen[0]
        assert seen.line == "POST /p%2Fq?a=%20b&c HTTP/1.1"
        names = {key.lower() for key, _ in seen.headers}
        assert not names & {"x-mine", "te", "x-burnproof-probe", "x-burnproof-replica"}
        assert seen.header("x-conversation-id") == ["c"]
        assert seen.header("user-agent") == ["u/1"]
        assert seen.header("host") == [f"127.0.0.1:{stub.port}"]
        record = await gate.record()
        assert (record.tenant, record.probe) == ("t", False)


@pytest.mark.parametrize(("method", "status"), [("HEAD", "200 OK"), ("GET", "204 No Content")])
async def test_an_answer_without_a_body_is_passed_on(tmp_path: Path, method: str, status: str):
    async def script(seen: Seen) -> None:
        await seen.send(f"HTTP/1.1 {status}\r\nX-A: 1\r\n\r\n".encode())

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        for _ in range(2):
            async with gate.client.request(method, gate.url + "/v1/models") as got:
                assert got.status == int(status[:3])
                assert got.headers["X-A"] == "1"
                assert await got.read() == b""


async def test_a_refused_head_request_gets_no_body_that_would_spoil_the_next_answer(tmp_path: Path):
    async with Gate(tmp_path, {"a": "http://127.0.0.1:9"}) as gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.server.port)
        writer.write(b"HEAD /v1/models HTTP/1.1\r\nHost: g\r\n\r\n" * 2)
        for _ in range(2):
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 502 ")
        writer.close()


async def test_an_old_client_gets_the_same_body_ended_by_the_close(tmp_path: Path):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.server.port)
        writer.write(b"GET /v1/x HTTP/1.0\r\nHost: g\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        assert b"chunked" not in head
        assert body.endswith(DONE)


async def test_a_redirect_is_the_clients_business(tmp_path: Path):
    async def script(seen: Seen) -> None:
        await seen.send(answer(b"", "Location: /elsewhere", status="307 Temporary Redirect"))

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        async with aiohttp.ClientSession() as client:
            async with client.get(gate.url + "/x", allow_redirects=False) as got:
                assert (got.status, got.headers["Location"]) == (307, "/elsewhere")
        assert len(stub.seen) == 1


@pytest.mark.parametrize(
    ("target", "passed_on"),
    [("http://h/v1/models?x=1", "/v1/models?x=1"), ("http://a@h:1/", "/"), ("//h/x", "//h/x")],
)
async def test_a_target_with_a_host_in_it_reaches_the_replica_as_a_path(
    tmp_path: Path, target: str, passed_on: str
):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.server.port)
        writer.write(f"GET {target} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        record = await gate.record()
        writer.close()
    assert record.outcome is Outcome.OK
    assert stub.seen[0].line == f"GET {passed_on} HTTP/1.1"
