"""C82: no byte of an answer waits here for another, whatever the answer, its framing, its client.

The replica sends the next piece only once the client has the one before; whoever holds a piece back
for more hangs, and a clock is not needed to see it.
"""

import asyncio
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from slo.records import Outcome
from tests.gateway.harness import CHAT, DONE, END, FINISH, Gate, Seen, Stub, chunk, token

SSE = b"Content-Type: text/event-stream\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
EVENTS = [token("x" * 200), token("안"), token("z"), FINISH, DONE]
HALVES = [half for each in EVENTS for half in (each[: len(each) // 2], each[len(each) // 2 :])]
BODY = json.dumps(CHAT).encode()


def request(version: str) -> bytes:
    head = f"POST /v1/chat/completions HTTP/{version}\r\nHost: g\r\nContent-Length: {len(BODY)}"
    return head.encode() + b"\r\nConnection: close\r\n\r\n" + BODY


def flushed(pieces: list[bytes]) -> list[bytes]:
    packer = zlib.compressobj(wbits=31)
    packed = [packer.compress(each) + packer.flush(zlib.Z_SYNC_FLUSH) for each in pieces]
    packed[-1] += packer.flush()
    return packed


@dataclass
class Kind:
    """One kind of exchange."""

    headers: bytes = SSE + CHUNKED
    pieces: list[bytes] = field(default_factory=lambda: list(EVENTS))
    frame: Callable[[bytes], bytes] = chunk
    version: str = "1.1"
    fault: tuple[str, dict[str, Any]] | None = None
    match: dict[str, str] = field(default_factory=dict)


def as_it_is(data: bytes) -> bytes:
    return data


def length_of(pieces: list[bytes]) -> bytes:
    return b"Content-Length: %d\r\n" % sum(map(len, pieces))


KINDS = {
    "a stream": Kind(),
    "halves of events": Kind(pieces=HALVES),
    "single bytes": Kind(pieces=[bytes([each]) for each in token("안") + FINISH + DONE]),
    "a stream with a length": Kind(SSE + length_of(EVENTS), frame=as_it_is),
    "a stream that ends with its connection": Kind(SSE, frame=as_it_is),
    "a client of HTTP/1.0": Kind(version="1.0"),
    "a stream that is packed": Kind(
        SSE + b"Content-Encoding: gzip\r\n" + CHUNKED, pieces=flushed(EVENTS)
    ),
    "a plain answer": Kind(b"Content-Type: application/json\r\n" + CHUNKED, [b"[", b"1", b"]"]),
    "a plain answer with a length": Kind(
        b"Content-Type: application/json\r\n" + length_of([b"[", b"1]"]), [b"[", b"1]"], as_it_is
    ),
    "bytes of no kind": Kind(CHUNKED, [b"\x00", b"\xff" * 40_000, b"\x00"]),
    "a fault that does not match": Kind(
        pieces=HALVES, fault=("gateway/slow-drip", {}), match={"tenant": "nobody"}
    ),
    "a fault that cannot act": Kind(
        pieces=EVENTS, fault=("gateway/constant-embeddings", {"probability": 1.0})
    ),
    "a fault that waits for whole events": Kind(
        fault=("gateway/stream-stall", {"after_tokens": 99, "stall": 1.0})
    ),
    "a fault that looks for tool calls": Kind(fault=("gateway/tool-calls", {"kind": "truncated"})),
}


@pytest.mark.parametrize("what", KINDS)
async def test_each_piece_arrives_before_the_next_one_is_sent(tmp_path: Path, what: str):
    kind = KINDS[what]
    arrived = asyncio.Event()

    async def script(seen: Seen) -> None:
        await seen.send(b"HTTP/1.1 200 OK\r\n" + kind.headers + b"\r\n")
        await arrived.wait()  # the head must not wait for the first piece either
        for piece in kind.pieces:
            arrived.clear()
            await seen.send(kind.frame(piece))
            await arrived.wait()
        if kind.frame is chunk:
            await seen.send(END)
        elif b"Content-Length" not in kind.headers:
            seen.writer.close()

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        if kind.fault is not None:
            await gate.lease()
            given = {"probability": 1.0, **kind.fault[1]}
            await gate.fault(kind.fault[0], given, **({"match": kind.match} if kind.match else {}))
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.server.port)
        writer.write(request(kind.version))
        async with asyncio.timeout(10):
            head = await reader.readuntil(b"\r\n\r\n")
            arrived.set()
            got = b""
            for piece in kind.pieces:
                framed = chunk(piece) if b"chunked" in head else piece
                while len(got) < len(framed):
                    data = await reader.read(len(framed) - len(got))
                    assert data, "it ended early"
                    got += data
                assert got == framed
                got = b""
                arrived.set()
            assert await reader.read() == (END if b"chunked" in head else b"")
        writer.close()
        record = await gate.record()
        assert record.outcome in {Outcome.OK, Outcome.TRUNCATED}
        assert (record.outcome is Outcome.OK) == ("text/event-stream" in kind.headers.decode())
