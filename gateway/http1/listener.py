"""The listening socket and all clients' connections: opened, looked after, drained.

One timer looks after all connections, so that none needs a timer of its own. At the end the socket
closes first, then idle connections, then those whose request ends within its time, then the rest.
"""

import asyncio
import time
from collections.abc import Callable

from gateway.http1.client import ClientConnection

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
    """A listening socket."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def start(self, factory: Callable[[], asyncio.Protocol], host: str, port: int) -> int:
        """Listen. Return the port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(factory, host, port, backlog=1024)
        self._tick()
        return int(self._server.sockets[0].getsockname()[1])

    def _tick(self) -> None:
        self._connections.sweep()
        self._timer = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._tick)

    async def stop(self, seconds: float, cut_off: Callable[[], None]) -> None:
        """Listen no more and drain; see `Connections.drain`."""
        if self._server is not None:
            self._server.close()
        await self._connections.drain(seconds, cut_off)
        if self._timer is not None:
            self._timer.cancel()
