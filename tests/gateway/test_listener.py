"""The listening socket on the loop that the gateway runs on."""

import asyncio
import os
import resource
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
    await listener.stop(1.0, lambda: None)
    return turns


def test_a_crowd_is_let_in_within_a_few_turns_of_a_busy_loop() -> None:
    assert uvloop.run(turns_until_all_are_in()) < 10


async def test_after_the_stop_nobody_is_let_in() -> None:
    listener = Listener(Connections())
    port = await listener.start(lambda: Counted([]), "127.0.0.1", 0)
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    await listener.stop(1.0, lambda: None)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_without_a_free_file_those_who_wait_are_let_in_later(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.http1.listener.RETRY_SECONDS", 0.05)
    made: list[Any] = []
    listener = Listener(Connections())
    port = await listener.start(lambda: Counted(made), "127.0.0.1", 0)
    client = socket.create_connection(("127.0.0.1", port), 5)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        async with asyncio.timeout(5):
            while "cannot accept" not in caplog.text:
                await asyncio.sleep(0.01)
        assert not made
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    async with asyncio.timeout(5):
        while not made:
            await asyncio.sleep(0.01)
    client.close()
    made[0].close()
    await listener.stop(1.0, lambda: None)
