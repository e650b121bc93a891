"""The listening socket on the loop that the gateway runs on."""

import asyncio
import socket
from typing import Any

import pytest
import uvloop

from gateway.http1.listener import Connections, Listener

CLIENTS = 100


class Counted(asyncio.Protocol):
    """A connection that is only counted."""

    def __init__(self, made: list[Any]) -> None:
        self._made = made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made.append(transport)


async def turns_until_all_are_in() -> int:
    """Return how many turns of the loop it takes to let in a crowd that waits."""
    made: list[Any] = []
    listener = Listener(Connections())
    port = await listener.start(lambda: Counted(made), "127.0.0.1", 0)
    clients = [socket.create_connection(("127.0.0.1", port), 5) for _ in range(CLIENTS)]
    turns = 0
    while len(made) < CLIENTS and turns < CLIENTS:
        await asyncio.sleep(0)
        turns += 1
    for each in (*clients, *made):
        each.close()
    await listener.stop(1.0)
    return turns


def test_a_crowd_is_let_in_within_a_few_turns_of_a_busy_loop() -> None:
    assert uvloop.run(turns_until_all_are_in()) < 10


async def test_after_the_stop_nobody_is_let_in() -> None:
    listener = Listener(Connections())
    port = await listener.start(lambda: Counted([]), "localhost", 0)
    await listener.stop(1.0)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
