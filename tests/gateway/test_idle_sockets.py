"""C85: a hundred idle sockets at once that their replica closes as they are used again.

An engine closes an idle socket after its own time; a request that is just being written on it is
lost through nobody's fault. For each moment and manner of the close, all requests are answered,
each is worked on once, and what died is counted as ours.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from slo.records import Outcome
from tests.gateway.harness import GOOD, Gate, Seen, Stub, good

SOCKETS = 100


def fin(writer: asyncio.StreamWriter) -> None:
    writer.close()


def rst(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class Closing:
    """Answers; the second request on a socket finds it closing, unanswered."""

    def __init__(self, how: Callable[[asyncio.StreamWriter], None]) -> None:
        self._how = how
        self._used: set[asyncio.StreamWriter] = set()
        self.open: set[asyncio.StreamWriter] = set()
        self.answered = 0
        self.lost = 0
        self._together = asyncio.Event()

    async def __call__(self, seen: Seen) -> None:
        if seen.writer in self._used:
            self.lost += 1
            self._how(seen.writer)
            return
        self._used.add(seen.writer)
        self.open.add(seen.writer)
        if len(self._used) == SOCKETS:  # nobody is answered before all have a socket
            self._together.set()
        await self._together.wait()
        self.answered += 1
        await good()(seen)

    def close_all(self) -> None:
        """Close every idle socket now."""
        for writer in self.open:
            self._how(writer)
        self.open.clear()


async def crowd(gate: Gate) -> list[tuple[int, bytes]]:
    return await asyncio.gather(*(gate.chat() for _ in range(SOCKETS)))


async def resets(gate: Gate) -> int:
    async with gate.client.get(gate.url + "/metrics") as got:
        text = await got.text()
    name = 'burnproof_gateway_idle_socket_resets_total{route="chat",replica="a"} '
    return sum(int(line.removeprefix(name)) for line in text.splitlines() if line.startswith(name))


@pytest.mark.parametrize("how", [fin, rst], ids=["politely", "with a reset"])
@pytest.mark.parametrize("when", ["before", "meanwhile", "after"])
async def test_a_hundred_idle_sockets_that_close_as_they_are_used_fail_no_request(
    tmp_path: Path, how: Callable[[asyncio.StreamWriter], None], when: str
):
    replica = Closing(how)
    async with Stub(replica) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.client.close()
        gate.client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        async with asyncio.timeout(20):
            whole = [(200, b"".join(GOOD))] * SOCKETS
            assert await crowd(gate) == whole
            assert stub.connections == SOCKETS
            if when == "before":  # closed, and nobody has told the gateway's loop yet
                replica.close_all()
                second = await crowd(gate)
            elif when == "meanwhile":
                sending = asyncio.create_task(crowd(gate))
                await asyncio.sleep(0)
                replica.close_all()
                second = await sending
            else:  # the request arrives, and then it closes
                second = await crowd(gate)
            assert second == whole
        records = await gate.wait_records(2 * SOCKETS)
        assert {each.outcome for each in records} == {Outcome.OK}
        assert {each.fallback for each in records} == {False}
        assert replica.answered == 2 * SOCKETS  # nothing was worked on twice
        if when == "after":
            assert replica.lost == SOCKETS
        assert await resets(gate) >= replica.lost
        breaker = (await gate.ok("GET", "/routes"))["routes"][0]["replicas"][0]["breaker"]
        assert (breaker["bad"], breaker["total"]) == (0, 2 * SOCKETS)
