"""The data path's frame: which connections are whose, and what every request needs to be served.

Order of one request: tenant, admission, breaker, split, fault hooks, upstream, outcome; it is kept
by `exchange.py`, one object a request. This module tells the gateway's own four addresses from
those of the replicas, and probes from traffic.
"""

import asyncio
import hmac
from collections.abc import Callable

from gateway.admin import PREFIX
from gateway.answers import JSON, error_body
from gateway.core import Core
from gateway.exchange import Exchange
from gateway.http1.client import ClientConnection
from gateway.http1.heads import RequestHead, origin_form
from gateway.http1.listener import Connections
from gateway.http1.pool import Pool
from gateway.http1.reply import whole
from gateway.trace import read_run_id

_PREFIX = PREFIX.encode()
_OWN = frozenset({b"/healthz", b"/readyz", b"/metrics", _PREFIX})


class Proxy:
    """Takes requests in for every connection of a client."""

    def __init__(self, core: Core, pool: Pool, token: str) -> None:
        self._core = core
        self._pool = pool
        self._token = token.encode()
        self.connections = Connections()
        self.own_factory: Callable[[], asyncio.Protocol] | None = None
        """Makes who serves the gateway's own addresses."""

    def connect(self) -> ClientConnection:
        """Make the protocol of a new connection."""
        return ClientConnection(self)

    @property
    def stopping(self) -> bool:
        """Whether connections close after their answer."""
        return self._core.stopping

    def begin(self, client: ClientConnection, head: RequestHead) -> Exchange:
        """Take a request in: from here on it will leave one record."""
        probe = self._is_probe(head.special.get(b"x-burnproof-probe", b""))
        flight = self._core.begin(
            head.text(b"x-conversation-id"),
            head.text(b"x-tenant-id"),
            probe=probe,
            pinned=head.text(b"x-burnproof-replica") if probe else "",
        )
        flight.path = origin_form(head.target).partition(b"?")[0].decode("utf-8", "surrogateescape")
        if not probe:
            run_id = head.special.get(b"x-client-run-id")
            if run_id is not None:
                flight.client_run_id = read_run_id(run_id)
            self._core.tracing.begin(flight, head)
            if self._core.desk is not None:
                self._core.desk.identify(flight, head)
        return Exchange(self._core, self._pool, client, head, flight)

    def _is_probe(self, given: bytes) -> bool:
        return bool(given) and hmac.compare_digest(given, self._token)

    def is_own(self, path: bytes) -> bool:
        """Whether a path belongs to this process and not to the replicas."""
        return path in _OWN or path.startswith(_PREFIX + b"/")

    def own_handler(self) -> asyncio.Protocol:
        """Return who serves one request for such a path."""
        assert self.own_factory is not None
        return self.own_factory()

    def refusal(self, status: int, message: str) -> bytes:
        """Return an answer to what was no request."""
        return whole(status, JSON, error_body(status, message), close=True)

    def opened(self, client: ClientConnection) -> None:
        """Note a new connection."""
        self.connections.add(client)

    def closed(self, client: ClientConnection) -> None:
        """Forget a connection."""
        self.connections.discard(client)
