"""Sockets to the replicas: kept for a short while, given out again, made anew.

What was hard is the idle socket: an engine closes it after 5 s, and a request sent in the moment of
closing is lost through nobody's fault, more often on the quiet arm. So idle sockets are dropped
after 4 s, the one that was used last is given out first, and one that the replica closed is never
given out. What still dies under a request is told to its sender, who may ask for a fresh one.
"""

import asyncio
import ssl
import time
from collections.abc import Callable

from gateway.http1.replica import Address, ReplicaConnection

IDLE_SECONDS = 4.0
"""How long an idle upstream socket is kept. Source: below the 5 s keep-alive of vLLM 0.32."""

CONNECT_SECONDS = 3.0
"""Limit on connecting. Source: ours: replicas are near; one retransmitted SYN takes 1 s."""

SWEEP_SECONDS = 1.0
"""How often idle sockets are looked through."""


class Pool:
    """Idle connections by address."""

    def __init__(self) -> None:
        self._idle: dict[Address, dict[ReplicaConnection, None]] = {}
        self._connecting: set[asyncio.Task[None]] = set()
        self._addresses: dict[str, Address] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        self._tls: ssl.SSLContext | None = None
        self._closed = False

    def address(self, base: str) -> Address:
        """Return the address of a replica."""
        found = self._addresses.get(base)
        if found is None:
            found = self._addresses[base] = Address.of(base)
        return found

    def take(self, address: Address) -> ReplicaConnection | None:
        """Return an idle connection, or None if a new one must be made."""
        idle = self._idle.get(address)
        oldest = time.monotonic() - IDLE_SECONDS
        while idle:
            connection, _ = idle.popitem()
            if connection.usable and connection.idle_since >= oldest:
                return connection
            connection.abort()
        return None

    def connect(
        self,
        address: Address,
        ready: Callable[[ReplicaConnection], None],
        failed: Callable[[], None],
    ) -> asyncio.Task[None]:
        """Make a connection and call one of the two; neither if the task is cancelled."""
        task = asyncio.get_running_loop().create_task(self._connect(address, ready, failed))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        return task

    async def _connect(
        self,
        address: Address,
        ready: Callable[[ReplicaConnection], None],
        failed: Callable[[], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        context = self._context() if address.tls else None
        connection = ReplicaConnection(self, address)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await loop.create_connection(
                    lambda: connection,
                    address.host,
                    address.port,
                    ssl=context,
                )
        except (OSError, TimeoutError):
            failed()
            return
        except asyncio.CancelledError:
            connection.abort()  # it may have been made in the same turn
            raise
        ready(connection)

    def idle(self) -> int:
        """Return how many connections wait for a request."""
        return sum(map(len, self._idle.values()))

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls

    def put_back(self, connection: ReplicaConnection) -> None:
        """Keep an idle connection."""
        if self._closed:
            connection.abort()
            return
        connection.idle_since = time.monotonic()
        self._idle.setdefault(connection.address, {})[connection] = None
        if self._sweeping is None:
            loop = asyncio.get_running_loop()
            self._sweeping = loop.call_later(SWEEP_SECONDS, self._sweep)

    def forget(self, connection: ReplicaConnection) -> None:
        """Take out a connection that has ended."""
        idle = self._idle.get(connection.address)
        if idle is not None:
            idle.pop(connection, None)

    def _sweep(self) -> None:
        self._sweeping = None
        oldest = time.monotonic() - IDLE_SECONDS
        for idle in self._idle.values():
            for connection in [each for each in idle if each.idle_since < oldest]:
                del idle[connection]
                connection.abort()
        if any(self._idle.values()):
            loop = asyncio.get_running_loop()
            self._sweeping = loop.call_later(SWEEP_SECONDS, self._sweep)

    async def close(self) -> None:
        """Close all sockets."""
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        for task in list(self._connecting):
            task.cancel()
        if self._connecting:
            await asyncio.wait(self._connecting)
        for idle in self._idle.values():
            for connection in idle:
                connection.abort()
            idle.clear()
        await asyncio.sleep(0)  # the loop closes what was given up
