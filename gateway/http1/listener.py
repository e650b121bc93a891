"""The listening socket and all clients' connections: opened, looked after, drained.

One timer looks after all connections, so that none needs a timer of its own. At the end the socket
closes first, then idle connections, then those whose request ends within its time, then the rest.
What was hard: libuv accepts one connection in a turn of its loop. In a busy process a turn takes
a tenth of a second, so that the last of 256 clients was let in after ten; so we accept ourselves.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable

from gateway.http1.client import ClientConnection

log = logging.getLogger("gateway.listener")

BACKLOG = 1024
"""Connections that the kernel holds until they are accepted."""

ACCEPTED_AT_ONCE = 128
"""Connections taken in within one turn of the loop. Source: ours, 2026-11: a few milliseconds."""

RETRY_SECONDS = 1.0
"""Pause after a failed accept. Source: asyncio's own."""

SWEEP_SECONDS = 2.0
"""How often connections are looked through for those that are silent for too long."""


class Connections:
    """The open connections of clients."""

    def __init__(self) -> None:
        self._open: set[ClientConnection] = set()
        self._left = asyncio.Event()

    def add(self, client: ClientConnection) -> None:
        """Take one in."""
        self._open.add(client)

    def discard(self, client: ClientConnection) -> None:
        """Take one out."""
        self._open.discard(client)
        self._left.set()

    def sweep(self) -> None:
        """Let go of those that are silent for too long."""
        now = time.monotonic()
        for client in list(self._open):
            client.sweep(now)

    def all(self) -> tuple[ClientConnection, ...]:
        """Return those that are open."""
        return tuple(self._open)

    async def drain(self, seconds: float, cut_off: Callable[[], None]) -> None:
        """Close idle ones now, the others as they end, and all after so many seconds.

        `cut_off` is told before the first connection is ended that had not ended by itself.
        """
        for client in list(self._open):
            client.close_if_idle()
        try:
            async with asyncio.timeout(seconds):
                while self._open:
                    self._left.clear()
                    await self._left.wait()
        except TimeoutError:
            pass
        cut_off()
        for client in list(self._open):
            client.abort()
        for _ in range(3):  # the loop writes and closes what was closed just now
            await asyncio.sleep(0)


class Listener:
    """A listening socket for each address of its host."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._factory: Callable[[], asyncio.Protocol] | None = None
        self._sockets: list[socket.socket] = []
        self._welcoming: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def start(self, factory: Callable[[], asyncio.Protocol], host: str, port: int) -> int:
        """Listen. Return the port."""
        loop = asyncio.get_running_loop()
        self._factory = factory
        found = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, address in dict.fromkeys((each[0], each[4][0]) for each in found):
            listening = socket.create_server((address, port), family=family, backlog=BACKLOG)
            listening.setblocking(False)
            port = int(listening.getsockname()[1])  # the system's choice holds for all addresses
            self._sockets.append(listening)
            loop.add_reader(listening, self._accept, listening)
        self._tick()
        return port

    def _accept(self, listening: socket.socket) -> None:
        """Take in whoever waits."""
        assert self._factory is not None
        loop = asyncio.get_running_loop()
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no file descriptor is left: those who wait go on waiting
                log.warning("cannot accept a connection: %s", error)
                loop.remove_reader(listening)
                loop.call_later(RETRY_SECONDS, self._accept_again, listening)
                return
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = loop.create_task(self._welcome(accepted))
            self._welcoming.add(task)
            task.add_done_callback(self._welcoming.discard)

    async def _welcome(self, accepted: socket.socket) -> None:
        """Give an accepted socket its protocol."""
        assert self._factory is not None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._factory, accepted)
        except OSError:  # it has gone already
            accepted.close()

    def _accept_again(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _tick(self) -> None:
        self._connections.sweep()
        self._timer = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._tick)

    async def stop(self, seconds: float, cut_off: Callable[[], None]) -> None:
        """Listen no more and drain; see `Connections.drain`."""
        loop = asyncio.get_running_loop()
        sockets, self._sockets = self._sockets, []
        for listening in sockets:
            loop.remove_reader(listening)
            listening.close()
        if self._welcoming:
            await asyncio.wait(self._welcoming)
        await self._connections.drain(seconds, cut_off)
        if self._timer is not None:
            self._timer.cancel()
