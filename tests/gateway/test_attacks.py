"""Clients and replicas that mean harm or are odd: nothing is read twofold or kept for ever."""

import asyncio
import io
import json
import tracemalloc
from pathlib import Path

import pytest

from gateway.http1 import client
from slo.records import Outcome
from tests.gateway.harness import CHAT, Gate, Seen, Stub, answer, completes, good

HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n"
BODY = json.dumps(CHAT).encode()
GET = b"GET / HTTP/1.1\r\nHost: g\r\n"
POST = b"POST / HTTP/1.1\r\nHost: g\r\n"
NOTHING = b"0\r\n\r\n"


async def echo(seen: Seen) -> None:
    await seen.send(answer(b"{}"))


async def talk(gate: Gate, data: bytes, seconds: float = 5.0) -> bytes:
    """Send bytes and return all that comes until the gateway closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.server.port)
    writer.write(data)
    try:
        async with asyncio.timeout(seconds):
            return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize(
    "shape",
    [
        *(GET + b"X: a\rb\r\n\r\n", GET + b"X: a\rTransfer-Encoding: chunked\r\n\r\n"),
        *(GET + b"X: a\r\n\tb\r\n\r\n", b"GET / HTTP/1.1\r\n Host: g\r\n\r\n"),
        *(POST + b"Transfer-Encoding : chunked\r\n\r\n" + NOTHING,),
        *(POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n" + NOTHING,),
        *(POST + b"Transfer-Encoding: chunked, identity\r\n\r\n" + NOTHING,),
        *(POST + b"Transfer-Encoding: identity\r\nContent-Length: 1\r\n\r\na",),
        *(POST + b'Transfer-Encoding: "chunked"\r\n\r\n' + NOTHING,),
        *(POST + b"Transfer-Encoding:\r\nContent-Length: 1\r\n\r\na",),
        *(POST + b"Transfer-Encoding: chunked;q=1\r\n\r\n" + NOTHING,),
        *(POST + b"Transfer-Encoding: ,chunked\r\n\r\n" + NOTHING,),
        *(POST + b"Content-Length:\r\n\r\n", POST + b"Content-Length: 0x1\r\n\r\na"),
        *(POST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na",),
        *(POST + b"Content-Length: 1 1\r\n\r\na", POST + b"Content-Length: 1_0\r\n\r\na"),
        *(POST + b"Content-Length: %d\r\n\r\na" % (2**64 + 1),),
        *(GET + b"X\x00: a\r\n\r\n", GET + b"X: a\x7fb\r\n\r\n", GET + b"X\xe9: a\r\n\r\n"),
        *(GET + b": a\r\n\r\n", GET + b"X\r\n\r\n", GET.replace(b"GET", b"get") + b"\r\n"),
        *(b"GET\t/\tHTTP/1.1\r\nHost: g\r\n\r\n", b"GET / HTTP/1.1 \r\nHost: g\r\n\r\n"),
        *(GET.replace(b"/ ", b"/a\x01 ") + b"\r\n", GET.replace(b"/ ", b"/a\x00 ") + b"\r\n"),
        *(b"GET / HTTP/1.2\r\nHost: g\r\n\r\n", b"GET / HTTP/0.9\r\nHost: g\r\n\r\n"),
        *(b"GET / HTTP/01.1\r\nHost: g\r\n\r\n", b"GET / http/1.1\r\nHost: g\r\n\r\n"),
        *(b"GET /\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        *(b"DESCRIBE / RTSP/1.0\r\nHost: g\r\n\r\n", b"SOURCE / ICE/1.0\r\nHost: g\r\n\r\n"),
        *(b"GET / RTSP/1.0\r\nHost: g\r\nX: / HTTP/1.1\r\n\r\n",),
    ],
    ids=ascii,
)
async def test_a_request_that_hides_another_is_refused_and_nothing_of_it_reaches_a_replica(
    tmp_path: Path, shape: bytes
):
    async with Stub(echo) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        got = await talk(gate, shape + HIDDEN)
        assert got[:10] in {b"HTTP/1.1 4", b"HTTP/1.1 5"}, got
        assert got.count(b"HTTP/1.1 ") == 1
        assert stub.seen == []


@pytest.mark.parametrize(
    ("shape", "body"),
    [
        (POST + b"TRANSFER-ENCODING: CHUNKED\r\n\r\n1\r\na\r\n0\r\n\r\n", b"a"),
        (POST + b"Content-Length: 0001\r\n\r\na", b"a"),
        (POST + b"Content_Length: 9\r\n\r\n", b""),
        (POST + b"Connection: content-length\r\nContent-Length: 1\r\n\r\na", b"a"),
        (
            POST
            + b"Connection: transfer-encoding\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"
            + NOTHING,
            b"a",
        ),
        (
            POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nContent-Length: 44\r\n\r\n",
            b"a",
        ),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n0001;x=y\r\na\r\n0000;z\r\n\r\n", b"a"),
        (GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", b""),
        (
            POST
            + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n"
            + b"Content-Length: 2\r\n\r\n{}",
            b"{}",
        ),
        (GET + b"Content-Length: 2\r\n\r\n{}", b"{}"),
        (GET + b"TE: trailers\r\nTrailer: x\r\n\r\n", b""),
        (b"\r\n" + GET + b"\r\n", b""),
    ],
    ids=ascii,
)
async def test_a_request_that_is_only_odd_is_one_request_with_one_plain_framing(
    tmp_path: Path, shape: bytes, body: bytes
):
    async with Stub(echo) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        got = await talk(gate, shape + HIDDEN)
        assert got.count(b"HTTP/1.1 200") == 2
        odd, hidden = stub.seen
        assert (odd.body, hidden.line) == (body, "GET /hidden HTTP/1.1")
        names = [name.lower() for name, _ in odd.headers]
        hop = {"transfer-encoding", "connection", "upgrade", "http2-settings", "te", "trailer"}
        assert not set(names) & hop
        assert names.count("content-length") == bool(body)


async def drip(port: int, begin: bytes, piece: bytes, until: asyncio.Event) -> bytes:
    """Send a beginning, then one small piece after another; return the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(begin)
    reading = asyncio.create_task(reader.read())
    while not reading.done() and not until.is_set():
        writer.write(piece)
        await asyncio.wait({reading}, timeout=0.02)
    until.set()
    got = await reading
    writer.close()
    return got


@pytest.mark.parametrize(
    ("begin", "piece", "status"),
    [
        (b"GET / HTTP/1.1\r\nX: ", b"a", b"408"),
        (b"", b"\r\n", b"408"),
        (POST + b"Content-Length: 100000\r\n\r\n", b"a", b"408"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n", b"408"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n1;x=", b"a", b"408"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"x: 1\r\n", b"408"),
    ],
    ids=["head", "empty lines", "body", "chunks", "extension", "trailers"],
)
async def test_a_client_that_sends_for_ever_a_little_at_a_time_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: bytes, piece: bytes, status: bytes
):
    monkeypatch.setattr(client, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(client, "BODY_SECONDS", 0.3)
    over = asyncio.Event()
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        dripping = asyncio.create_task(drip(gate.server.port, begin, piece, over))
        async with asyncio.timeout(5):
            while not over.is_set():
                gate.server.connections.sweep()
                await asyncio.sleep(0.02)
            got = await dripping
        assert got.startswith(b"HTTP/1.1 " + status)
        assert stub.seen == []
        records = await gate.records()
        assert [each.outcome for each in records] == [Outcome.CLIENT_ABORT] * len(records)


async def test_a_body_of_tiny_chunks_takes_no_more_memory_than_its_bytes(tmp_path: Path):
    size = 256 * 1024
    async with Stub(completes()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.server.port)
        writer.write(POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
        await writer.drain()
        tracemalloc.start()
        try:
            part = b"2\r\nab\r\n" * 4096
            for _ in range(size // 2 // 4096):
                writer.write(part)
                await writer.drain()
            await asyncio.sleep(0.1)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert held < 5 * size
        writer.write(NOTHING)
        async with asyncio.timeout(10):
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()
        assert stub.seen[0].body == b"ab" * (size // 2)


async def test_an_answer_that_comes_before_the_body_was_read_is_passed_on(tmp_path: Path):
    """A replica refuses a large body at once, and closes with most of it unread."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer(b"{}", "Connection: close", status="413 Too Large"))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Gate(tmp_path, {"a": f"http://127.0.0.1:{port}"}) as gate:
        for _ in range(5):
            big = b"x" * 20_000_000
            async with gate.client.post(gate.url + "/x", data=io.BytesIO(big)) as got:
                assert (got.status, await got.read()) == (413, b"{}")
        assert {each.status for each in await gate.wait_records(5)} == {413}


@pytest.mark.parametrize("status", ["000", "042", "099"])
async def test_a_status_that_is_none_is_no_answer(tmp_path: Path, status: str):
    async def script(seen: Seen) -> None:
        await seen.send(f"HTTP/1.1 {status} Odd\r\nContent-Length: 0\r\n\r\n".encode())
        await seen.gone()

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        assert (await talk(gate, GET + b"Connection: close\r\n\r\n")).startswith(b"HTTP/1.1 502")


async def test_a_flood_of_interim_answers_waits_for_its_client(tmp_path: Path):
    sent = 0

    async def script(seen: Seen) -> None:
        nonlocal sent
        while True:
            await seen.send(b"HTTP/1.1 103 Early\r\nLink: %b\r\n\r\n" % (b"x" * 1000))
            sent += 1

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        _, writer = await asyncio.open_connection("127.0.0.1", gate.server.port)
        writer.write(GET + b"\r\n")
        last = -1
        async with asyncio.timeout(10):
            while sent != last:
                last = sent
                await asyncio.sleep(0.3)
        assert sent < 50_000
        writer.transport.abort()
        assert (await gate.record()).outcome is Outcome.CLIENT_ABORT
