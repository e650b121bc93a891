"""C88: trailers never become the beginning of the next message, on either side, however cut.

After each exchange a second one goes over the same socket; were a byte of the trailers left over,
it would be read as the second one's head.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from slo.records import Outcome
from tests.gateway.harness import DONE, FINISH, SSE_HEAD, Gate, Seen, Stub, answer, chunk, token

BODY = token("a") + FINISH + DONE
GET = b"GET / HTTP/1.1\r\nHost: g\r\n\r\n"
TRAILERS = {
    "none": b"",
    "one": b"x-one: 1\r\n",
    "two": b"x-one: 1\r\nX-Two: 2\r\n",
    "an empty one": b"x-one:\r\n",
    "one twice": b"x-one: 1\r\nx-one: 2\r\n",
    "one that looks like a head": b"HTTP: 200\r\nContent-Length: 4\r\nTransfer-Encoding: x\r\n",
    "a long one": b"x-long: " + b"y" * 4000 + b"\r\n",
}


async def two_exchanges(gate: Gate, line: bytes = GET) -> list[bytes]:
    """Send two requests, one after the other on one socket; return the two answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.server.port)
    found = []
    for _ in range(2):
        writer.write(line)
        got = await reader.readuntil(b"\r\n0\r\n")
        while not got.endswith(b"\r\n\r\n"):
            got += await reader.readuntil(b"\r\n")
        found.append(got)
    writer.close()
    return found


@pytest.mark.parametrize("what", TRAILERS)
@pytest.mark.parametrize(
    "fault",
    [
        None,
        ("gateway/slow-drip", {"piece_bytes": 60_000, "pause": 0.001}),
        ("gateway/headers", {"side": "answer", "action": "set", "name": "x-a", "value": "1"}),
    ],
    ids=["untouched", "framed anew", "another head"],
)
async def test_an_answer_with_trailers_leaves_both_sockets_in_step(
    tmp_path: Path, what: str, fault: tuple[str, dict[str, Any]] | None
):
    async def script(seen: Seen) -> None:
        await seen.send(SSE_HEAD + chunk(BODY) + b"0\r\n" + TRAILERS[what] + b"\r\n")

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        if fault is not None:
            await gate.lease()
            await gate.fault(fault[0], {"probability": 1.0, **fault[1]})
        async with asyncio.timeout(10):
            answers = await two_exchanges(gate)
        assert [each[:15] for each in answers] == [b"HTTP/1.1 200 OK"] * 2
        framed_anew = fault is not None and fault[0] == "gateway/slow-drip"
        passed = b"" if framed_anew else TRAILERS[what]
        assert all(each.endswith(b"\r\n0\r\n" + passed + b"\r\n") for each in answers)
        assert stub.connections == 1
        assert {each.outcome for each in await gate.wait_records(2)} == {Outcome.OK}


async def test_trailers_may_be_cut_anywhere(tmp_path: Path):
    end = b"0\r\n" + TRAILERS["two"] + b"\r\n"
    cuts = list(range(len(end)))

    async def script(seen: Seen) -> None:
        at = cuts.pop()
        await seen.send(SSE_HEAD + chunk(BODY) + end[:at])
        await asyncio.sleep(0.002)
        await seen.send(end[at:])

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        for _ in range(len(end)):
            assert await gate.chat() == (200, BODY)
        assert stub.connections == 1


async def test_a_client_of_http_1_0_gets_no_trailers_and_the_replicas_socket_is_kept(
    tmp_path: Path,
):
    async def script(seen: Seen) -> None:
        await seen.send(SSE_HEAD + chunk(BODY) + b"0\r\n" + TRAILERS["two"] + b"\r\n")

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", gate.server.port)
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            assert (await reader.read()).partition(b"\r\n\r\n")[2] == BODY
            writer.close()
        assert stub.connections == 1


@pytest.mark.parametrize("what", TRAILERS)
async def test_trailers_of_a_request_are_read_and_left_out(tmp_path: Path, what: str):
    async def script(seen: Seen) -> None:
        await seen.send(answer(seen.body))

    framed = b"2\r\n{}\r\n0\r\n" + TRAILERS[what] + b"\r\n"
    head = b"POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n"
    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.server.port)
        writer.write(head + b"\r\n" + framed + head + b"Connection: close\r\n\r\n" + framed)
        async with asyncio.timeout(5):
            got = await reader.read()
        writer.close()
        assert got.count(b"HTTP/1.1 200 OK") == 2
        assert [seen.body for seen in stub.seen] == [b"{}", b"{}"]
        assert {name.lower() for seen in stub.seen for name, _ in seen.headers} == {
            "host",
            "content-length",
        }


@pytest.mark.parametrize("body", [b"late", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"])
@pytest.mark.parametrize("method", [b"HEAD", b"GET"], ids=["HEAD", "304"])
async def test_a_body_where_none_may_be_reaches_nobody(tmp_path: Path, method: bytes, body: bytes):
    status = "200 OK" if method == b"HEAD" else "304 Not Modified"

    async def script(seen: Seen) -> None:
        await seen.send(answer(body, status=status))

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.server.port)
        for _ in range(3):
            writer.write(method + b" / HTTP/1.1\r\nHost: g\r\n\r\n")
            async with asyncio.timeout(5):
                head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(f"HTTP/1.1 {status}".encode())
            assert b"Content-Length: %d" % len(body) in head
        writer.close()
        assert stub.connections == 3
