"""C86: wherever a request is and however its client leaves, its replica is let go in a second."""

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from slo.records import Outcome
from tests.gateway.harness import CHAT, SSE_HEAD, Gate, Seen, Stub, chunk, token

BODY = json.dumps(CHAT).encode()
HEAD = b"POST /v1/x HTTP/1.1\r\nHost: g\r\nContent-Length: %d\r\n\r\n" % len(BODY)
REQUEST = HEAD + BODY
SECOND = 1.0
"""Time for the replica's socket to close after the client left. Source: the issue asks for 1 s."""


def close(writer: asyncio.StreamWriter) -> None:
    writer.close()


def half(writer: asyncio.StreamWriter) -> None:
    writer.write_eof()


def reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


WAYS: dict[str, Callable[[asyncio.StreamWriter], None]] = {
    "closes": close,
    "closes its half": half,
    "resets": reset,
}


@dataclass
class Point:
    """Where a request is when its client leaves."""

    sent: bytes
    """By the client."""
    waits_for: bytes = b""
    """What the client has read of the answer before it leaves."""
    answered: tuple[bytes, ...] = ()
    """What the replica sends at once; then it goes on for ever, in silence or not."""
    floods: bool = False
    reaches_replica: bool = True
    records: int = 1
    fault: tuple[str, dict[str, Any]] | None = None


PLAIN_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
POINTS = {
    "in its head": Point(HEAD[:-3], reaches_replica=False, records=0),
    "in its body": Point(REQUEST[:-3], reaches_replica=False),
    "in a chunked body": Point(
        b"POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        reaches_replica=False,
    ),
    "before its body was asked for": Point(
        HEAD.replace(b"Host: g", b"Host: g\r\nExpect: 100-continue"),
        waits_for=b"100 Continue\r\n\r\n",
        reaches_replica=False,
    ),
    "before any byte of the answer": Point(REQUEST),
    "after early hints": Point(
        REQUEST, b"103", (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",)
    ),
    "in the answer's head": Point(REQUEST, b"", (b"HTTP/1.1 200 OK\r\nX: ",)),
    "after the stream's head": Point(REQUEST, b"\r\n\r\n", (SSE_HEAD,)),
    "in the stream": Point(REQUEST, token("a"), (SSE_HEAD, chunk(token("a")))),
    "in a plain answer": Point(REQUEST, b"12", (PLAIN_HEAD, b"12")),
    "while it takes no bytes": Point(REQUEST, b"\r\n\r\n", (SSE_HEAD,), floods=True),
    "with its next request waiting": Point(REQUEST * 3, token("a"), (SSE_HEAD, chunk(token("a")))),
    "with more waiting than is read": Point(REQUEST * 2000),
    "with more waiting, in the stream": Point(
        REQUEST * 2000, token("a"), (SSE_HEAD, chunk(token("a")))
    ),
    "while a fault delays it": Point(
        REQUEST, reaches_replica=False, fault=("gateway/latency-fixed", {"delay": 60.0})
    ),
    "while a fault stalls it": Point(
        REQUEST,
        token("a"),
        (SSE_HEAD, chunk(token("a")), chunk(token("b"))),
        fault=("gateway/stream-stall", {"after_tokens": 1, "stall": 60.0}),
    ),
    "while a fault holds its whole answer": Point(
        REQUEST,
        b"",
        (PLAIN_HEAD, b"{}"),
        fault=("gateway/tool-calls", {"kind": "truncated"}),
    ),
}


@dataclass
class Replica:
    """Answers as the point says and notes when its client, the gateway, is there and has gone."""

    point: Point
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, seen: Seen) -> None:
        for piece in self.point.answered:
            await seen.send(piece)
        self.asked.set()
        flood = asyncio.create_task(self._flood(seen)) if self.point.floods else None
        await seen.gone()
        if flood is not None:
            flood.cancel()
            await asyncio.gather(flood, return_exceptions=True)
        self.gone.set()

    async def _flood(self, seen: Seen) -> None:
        while True:
            await seen.send(chunk(token("x" * 60_000)))


async def soon(happened: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(5):
        while not await happened():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("where", POINTS)
async def test_a_client_that_leaves_anywhere_in_any_way_frees_its_replica_within_a_second(
    tmp_path: Path, where: str, way: str
):
    point = POINTS[where]
    replica = Replica(point)
    async with Stub(replica) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        if point.fault is not None:
            await gate.lease()
            template, given = point.fault
            await gate.fault(template, {"probability": 1.0, **given})
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.server.port)
        writer.write(point.sent)
        async with asyncio.timeout(5):
            await (reader.readuntil(point.waits_for) if point.waits_for else asyncio.sleep(0.05))
            if point.reaches_replica:
                await replica.asked.wait()
        if point.floods:
            await asyncio.sleep(0.3)  # until both sockets are full
        WAYS[way](writer)
        async with asyncio.timeout(SECOND):
            if point.reaches_replica:
                await replica.gone.wait()
            while any(state.flights for state in gate.server.core.routes.values()):
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        assert len(stub.seen) == point.reaches_replica
        records = await gate.wait_records(point.records)
        assert [each.outcome for each in records] == [Outcome.CLIENT_ABORT] * point.records
        breaker = (await gate.ok("GET", "/routes"))["routes"][0]["replicas"][0]["breaker"]
        assert breaker["bad"] == 0
        writer.close()


@pytest.mark.parametrize("way", WAYS)
async def test_a_client_that_leaves_while_its_replica_is_being_reached_is_let_go(
    tmp_path: Path, way: str
):
    """The replica's queue of new connections is full, so that connecting hangs."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        address = full.getsockname()
        queue = [socket.socket() for _ in range(3)]
        for each in queue:
            each.setblocking(False)
            each.connect_ex(address)
        url = f"http://127.0.0.1:{address[1]}"
        async with Gate(tmp_path, {"a": url}) as gate:
            _, writer = await asyncio.open_connection("127.0.0.1", gate.server.port)
            writer.write(REQUEST)
            route = gate.server.core.routes["chat"]
            async with asyncio.timeout(5):
                while not route.flights:
                    await asyncio.sleep(0.005)
            await asyncio.sleep(0.05)
            assert route.load == {"a": 1}
            WAYS[way](writer)
            async with asyncio.timeout(SECOND):
                while route.flights:
                    await asyncio.sleep(0.005)
            assert (await gate.record()).outcome is Outcome.CLIENT_ABORT
            assert route.load == {"a": 0}
            writer.close()
        for each in queue:
            each.close()
