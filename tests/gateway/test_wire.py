"""HTTP/1.1 by the letter: what is refused, what passes, and in which order (C85, C88)."""

import asyncio
import json
from pathlib import Path

import pytest

from gateway.http1 import client
from slo.records import Outcome
from tests.gateway.harness import (
    CHAT,
    DONE,
    END,
    FINISH,
    GOOD,
    SSE_HEAD,
    Gate,
    Seen,
    Stub,
    answer,
    chunk,
    completes,
    good,
    token,
)

BODY = json.dumps(CHAT).encode()
POST = b"POST /v1/x HTTP/1.1\r\nHost: g\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


async def say(gate: Gate, *data: bytes) -> bytes:
    """Send bytes and return all that comes until the gateway closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.server.port)
    for piece in data:
        writer.write(piece)
        await asyncio.sleep(0.01)
    async with asyncio.timeout(5):
        got = await reader.read()
    writer.close()
    return got


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 1\r\nTransfer-Encoding: chunked", 400),
        (b"POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\nContent-Length: 1", 400),
        (b"POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 1\r\nContent-Length: 2", 400),
        (b"POST / HTTP/1.1\r\nHost: g\r\nContent-Length: +1", 400),
        (b"POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 1, 1", 400),
        (b"POST / HTTP/1.1\r\nHost: g\r\nContent-Length: -1", 400),
        (b"POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: gzip, chunked", 501),
        (b"POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: xchunked", 400),
        (b"POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x", 400),
        (b"POST / HTTP/1.0\r\nHost: g\r\nTransfer-Encoding: chunked", 400),
        (b"GET / HTTP/1.1\r\nHost: g\r\nX: a\r\n folded", 400),
        (b"GET / HTTP/1.1\r\nHost : g", 400),
        (b"GET / HTTP/1.1\r\nHost: g\r\nX\x01: a", 400),
        (b"GET / HTTP/1.1\r\nHost: g\r\nX: a\x00b", 400),
        (b"GET / HTTP/1.1\r\nHost: g\r\nX: a\nY: b", 400),
        (b"GET / HTTP/1.1\nHost: g\n\nGET /b HTTP/1.1\r\nHost: g", 400),
        (b"GET / HTTP/1.1", 400),
        (b"GET / HTTP/1.1\r\nHost: g\r\nHost: h", 400),
        (b"GET /a b HTTP/1.1\r\nHost: g", 400),
        (b"GET / HTTP/2.0\r\nHost: g", 505),
        (b"FETCH / HTTP/1.1\r\nHost: g", 501),
        (b"CONNECT h:1 HTTP/1.1\r\nHost: g", 405),
        (b"GET / HTTP/1.1\r\nHost: g\r\nExpect: a-miracle", 417),
        (b"GET / HTTP/1.1\r\nHost: g\r\nX: " + b"a" * 70_000, 431),
    ],
)
async def test_a_head_that_two_servers_could_read_in_two_ways_is_refused(
    tmp_path: Path, head: bytes, status: int
):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        got = await say(gate, head + b"\r\n\r\n")
        assert got.startswith(b"HTTP/1.1 %d " % status)
        assert got.count(b"HTTP/1.1 ") == 1
        assert b"Connection: close" in got
        assert stub.seen == []
        assert await gate.records() == []


async def test_a_head_of_bare_line_feeds_is_refused_without_waiting_for_more(tmp_path: Path):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        assert (await say(gate, b"GET / HTTP/1.1\nHost: g\n\n")).startswith(b"HTTP/1.1 400 ")


async def test_a_bad_chunk_ends_the_request_and_the_connection(tmp_path: Path):
    head = b"POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        got = await say(gate, head + b"2\r\nab\r\n", b"0x2\r\nab\r\n0\r\n\r\n")
        assert got.startswith(b"HTTP/1.1 400 ")
        assert stub.seen == []
        assert (await gate.record()).outcome is Outcome.CLIENT_ABORT


@pytest.mark.parametrize("size", [1, 3, 10_000])
async def test_early_requests_are_answered_in_their_order(tmp_path: Path, size: int):
    async def script(seen: Seen) -> None:
        await asyncio.sleep(0.02 if b"/0" in seen.line.encode() else 0)
        await seen.send(answer(seen.line.encode()))

    sent = b"".join(
        b"POST /%d HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
        % n
        for n in range(8)
    )
    last = b"\r\nGET /last HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n"
    sent += last
    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.server.port)
        for start in range(0, len(sent), size):
            writer.write(sent[start : start + size])
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            got = await reader.read()
        writer.close()
        lines = [f"POST /{n} HTTP/1.1" for n in range(8)] + ["GET /last HTTP/1.1"]
        assert [seen.line for seen in stub.seen] == lines
        at = [got.index(line.encode()) for line in lines]
        assert at == sorted(at)
        await gate.wait_records(9)


async def test_a_client_that_sends_far_ahead_is_held_and_then_served(tmp_path: Path):
    go = asyncio.Event()

    async def script(seen: Seen) -> None:
        await go.wait()
        await seen.send(answer(b"{}"))

    body = b"x" * 50_000
    one = b"POST /x HTTP/1.1\r\nHost: g\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.server.port)
        count = 300
        writer.write(one * count)
        await asyncio.sleep(0.2)
        held = sum(len(each._buffer) for each in gate.server.connections.all())
        assert held < 1_000_000  # the rest waits in the sockets
        go.set()
        got = b""
        async with asyncio.timeout(20):
            while got.count(b"HTTP/1.1 200") < count:
                got += await reader.read(65536)
        writer.close()
        assert len(stub.seen) == count


async def test_a_client_that_asks_first_is_told_to_go_on(tmp_path: Path):
    async with Stub(completes()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.server.port)
        writer.write(
            b"POST /x HTTP/1.1\r\nHost: g\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        )
        async with asyncio.timeout(5):
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"{}")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        writer.close()
        assert stub.seen[0].header("expect") == []


async def test_a_body_that_is_announced_too_large_is_refused_before_it_is_sent(tmp_path: Path):
    head = b"POST /x HTTP/1.1\r\nHost: g\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        got = await say(gate, head % (client.MAX_BODY_BYTES + 1))
        assert got.startswith(b"HTTP/1.1 413 ")
        assert (await gate.record()).outcome is Outcome.SHED


async def test_early_hints_pass_and_the_replicas_own_continue_does_not(tmp_path: Path):
    async def script(seen: Seen) -> None:
        await seen.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        await seen.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nConnection: x\r\n\r\n")
        await seen.send(answer(b"{}"))

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        got = await say(gate, b"GET / HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n")
        hints, _, rest = got.partition(b"\r\n\r\n")
        assert hints == b"HTTP/1.1 103 Early Hints\r\nLink: </a>"
        assert rest.startswith(b"HTTP/1.1 200 ") and rest.endswith(b"\r\n\r\n{}")


async def test_trailers_and_chunk_extensions_reach_the_client_as_they_came(tmp_path: Path):
    framed = b"2;a=b\r\n{}\r\n0\r\nx-one: 1\r\nX-Two: 2\r\n\r\n"

    async def script(seen: Seen) -> None:
        head = b"HTTP/1.1 200 OK\r\nTrailer: x-one\r\nTransfer-Encoding: chunked\r\n\r\n"
        await seen.send(head + framed)

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        request = b"GET / HTTP/1.1\r\nHost: g\r\n\r\n"
        last = b"GET / HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n"
        got = await say(gate, request, last)
        head, first, second = got.split(b"\r\n\r\n2;a=b")
        assert b"Trailer: x-one" in head
        assert first.startswith(framed[5:]) and b"2;a=b" + second == framed
        assert stub.connections == 1


@pytest.mark.parametrize(
    "bad",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\n{}",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\n{}",
        SSE_HEAD + b"zz\r\n",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000,
    ],
)
async def test_an_answer_that_cannot_be_read_is_a_transport_failure(tmp_path: Path, bad: bytes):
    async def script(seen: Seen) -> None:
        await seen.send(bad)
        await seen.gone()

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        assert (await gate.chat())[0] == 502
        assert (await gate.record()).outcome is Outcome.TRANSPORT
        assert len(stub.seen) == 1


async def test_bytes_after_an_answer_never_reach_a_client_and_end_the_socket(tmp_path: Path):
    evil = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"

    async def script(seen: Seen) -> None:
        await seen.send(SSE_HEAD + chunk(token("a") + FINISH + DONE) + END + evil)

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        for _ in range(3):
            assert await gate.chat() == (200, token("a") + FINISH + DONE)
        assert stub.connections == 3


async def test_a_bad_chunk_in_an_answer_breaks_it_off(tmp_path: Path):
    begun = asyncio.Event()

    async def script(seen: Seen) -> None:
        await seen.send(SSE_HEAD + chunk(token("a")))
        await begun.wait()
        await seen.send(b"zz\r\n")
        await seen.gone()

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.server.port)
        writer.write(POST)
        async with asyncio.timeout(5):
            await reader.readuntil(token("a"))
            begun.set()
            assert await reader.read() == b"\r\n"
        writer.close()
        record = await gate.record()
        assert (record.outcome, record.flags) == (Outcome.TRUNCATED, ("transport",))


async def test_an_answer_that_ends_with_its_connection_is_whole_and_the_clients_is_kept(
    tmp_path: Path,
):
    async def script(seen: Seen) -> None:
        await seen.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + b'{"a":')
        await seen.send(b"1}")
        seen.writer.close()

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        for _ in range(2):
            async with gate.client.get(gate.url + "/v1/models") as got:
                assert await got.read() == b'{"a":1}'
        assert [each.outcome for each in await gate.wait_records(2)] == [Outcome.OK] * 2


async def test_a_client_that_closes_its_half_has_gone(tmp_path: Path):
    gone = asyncio.Event()

    async def script(seen: Seen) -> None:
        await seen.gone()
        gone.set()

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        _, writer = await asyncio.open_connection("127.0.0.1", gate.server.port)
        writer.write(POST)
        async with asyncio.timeout(5):
            while not stub.seen:
                await asyncio.sleep(0.005)
            writer.write_eof()
            async with asyncio.timeout(1):
                await gone.wait()
        assert (await gate.record()).outcome is Outcome.CLIENT_ABORT
        writer.close()


async def test_a_client_that_leaves_in_its_own_body_is_recorded_and_asks_nobody(tmp_path: Path):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        _, writer = await asyncio.open_connection("127.0.0.1", gate.server.port)
        writer.write(POST[:-3])
        await asyncio.sleep(0.05)
        writer.transport.abort()
        assert (await gate.record()).outcome is Outcome.CLIENT_ABORT
        assert stub.seen == []


async def test_a_fast_replica_waits_for_a_slow_client_in_bounded_memory(tmp_path: Path):
    size, sent = 64 * 1024 * 1024, 0

    async def script(seen: Seen) -> None:
        nonlocal sent
        await seen.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        while sent < size:
            await seen.send(b"x" * 65536)
            sent += 65536

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.server.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n")
        await asyncio.sleep(0.5)
        early = sent
        await asyncio.sleep(0.3)
        assert sent == early < size / 2  # nobody reads, so nobody sends
        got = 0
        async with asyncio.timeout(30):
            while data := await reader.read(1 << 20):
                got += len(data)
        writer.close()
        assert got > size
        assert (await gate.record()).outcome is Outcome.OK


async def test_the_own_pages_take_one_request_and_close_also_after_traffic(tmp_path: Path):
    health = b"GET /healthz HTTP/1.1\r\nHost: g\r\n\r\n"
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        got = await say(gate, POST + health + POST)
        assert got.count(b"HTTP/1.1 200") == 2
        assert got.endswith(b'{"status":"ok"}')
        assert len(stub.seen) == 1


async def test_requests_in_flight_end_before_the_process_and_idle_connections_close(
    tmp_path: Path,
):
    go = asyncio.Event()

    async def script(seen: Seen) -> None:
        await seen.send(SSE_HEAD + chunk(GOOD[0]))
        await go.wait()
        await seen.send(chunk(b"".join(GOOD[1:])) + END)

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        idle, idle_writer = await asyncio.open_connection("127.0.0.1", gate.server.port)
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.server.port)
        writer.write(POST)
        await reader.readuntil(GOOD[0])
        stopping = asyncio.create_task(gate.server.stop())
        async with asyncio.timeout(4):
            assert await idle.read() == b""
            with pytest.raises(ConnectionError):
                await asyncio.open_connection("127.0.0.1", gate.server.port)
            go.set()
            assert (await reader.read()).endswith(END)
            await stopping
        writer.close()
        idle_writer.close()
