"""The way to the replicas: one HTTP client that passes bytes on and repeats nothing by guess.

Nothing is decoded, no cookie is kept, no redirect followed, no header added but those the framing
needs. What was hard is the idle socket: an engine closes it after 5 s, and a request sent in the
moment of closing is lost through nobody's fault, more often on the quiet arm. So idle sockets are
dropped after 4 s, and a request that dies on a *reused* socket before any byte of an answer is
sent once more on a fresh one; it is counted as ours. A request that could not connect was never
sent and may go to another replica. Every other loss is final: the replica may have worked on it.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import aiohttp
from multidict import CIMultiDict
from yarl import URL

IDLE_SECONDS = 4.0
"""How long an idle upstream socket is kept. Source: below the 5 s keep-alive of vLLM 0.32."""

CONNECT_SECONDS = 3.0
"""Limit on connecting. Source: ours: replicas are near; one retransmitted SYN takes 1 s."""

BIG_BODY_BYTES = 1024 * 1024
"""Bodies above this are handed to the socket in pieces, so that the loop is not held up."""

PIECE_BYTES = 64 * 1024

HOP_BY_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization"),
        *("proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
    }
)
"""Headers of one connection only. Source: RFC 9110 section 7.6.1."""

OURS = frozenset({"x-burnproof-probe", "x-burnproof-replica"})
_NOT_SENT = HOP_BY_HOP | OURS | {"host", "content-length", "expect"}
_SKIP_AUTO = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")


class ConnectFailed(Exception):
    """The replica could not be connected to: it never saw the request."""


class UpstreamLost(Exception):
    """The connection broke before an answer began: the replica may have seen the request."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request as it is passed on: target as it came, headers as they came, body as it came."""

    method: str
    target: str
    headers: CIMultiDict[str]
    body: bytes


def request_headers(headers: Iterable[tuple[str, str]], body: bytes) -> CIMultiDict[str]:
    """Return the headers to pass on, in their order, duplicates included."""
    pairs = list(headers)
    named = connection_tokens(value for key, value in pairs if key.lower() == "connection")
    kept: CIMultiDict[str] = CIMultiDict()
    had_length = False
    for key, value in pairs:
        low = key.lower()
        had_length |= low in {"content-length", "transfer-encoding"}
        if low not in _NOT_SENT and low not in named:
            kept.add(key, value)
    if body or had_length:
        kept.add("Content-Length", str(len(body)))
    return kept


def origin_form(target: str) -> str:
    """Return the request target from its path on: a client may send `http://host/path` too.

    Source: RFC 9112 section 3.2.2, every server must accept it.
    """
    _, scheme, rest = target.partition("://")
    if target.startswith("/") or not scheme:
        return target
    path = rest[len(re.split(r"[/?#]", rest, maxsplit=1)[0]) :]
    return path if path.startswith("/") else f"/{path}"


def connection_tokens(values: Iterable[str]) -> frozenset[str]:
    """Return the header names that a Connection header declares hop by hop."""
    return frozenset(part.strip().lower() for value in values for part in value.split(","))


_reused: ContextVar[bool] = ContextVar("reused", default=False)
"""Whether the request that this task sends has got a socket that served another one before."""


class _NotingConnector(aiohttp.TCPConnector):
    """A pool that says whether it gave a used socket. Tracing says so too, at a higher cost."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._served: WeakSet[Any] = WeakSet()

    async def connect(self, *args: Any, **named: Any) -> Any:
        """Get a connection."""
        connection = await super().connect(*args, **named)
        _reused.set(connection.protocol in self._served)
        self._served.add(connection.protocol)
        return connection


class Upstream:
    """The HTTP client of the data path."""

    def __init__(self) -> None:
        self._pooled = _session(_NotingConnector(limit=0, keepalive_timeout=IDLE_SECONDS))
        self._fresh = _session(aiohttp.TCPConnector(limit=0, force_close=True))

    async def close(self) -> None:
        """Close all sockets."""
        await self._pooled.close()
        await self._fresh.close()

    async def send(
        self, base: str, outgoing: Outgoing, on_reset: Callable[[], None]
    ) -> aiohttp.ClientResponse:
        """Send a request and return the answer once its headers are in.

        `on_reset` is called when an idle socket died under it and a fresh one is tried.

        Raises:
            ConnectFailed: Nothing was sent.
            UpstreamLost: The connection broke before an answer.
        """
        _reused.set(False)
        try:
            return await self._request(self._pooled, base, outgoing)
        except UpstreamLost:
            if not _reused.get():
                raise
        on_reset()
        return await self._request(self._fresh, base, outgoing)

    async def _request(
        self, session: aiohttp.ClientSession, base: str, outgoing: Outgoing
    ) -> aiohttp.ClientResponse:
        try:
            return await session.request(
                outgoing.method,
                URL(base + outgoing.target, encoded=True),
                headers=outgoing.headers,
                data=_payload(outgoing.body),
                allow_redirects=False,
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise ConnectFailed(str(error)) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise UpstreamLost(str(error)) from error


def _session(connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=_SKIP_AUTO,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        max_line_size=64 * 1024,
        max_field_size=64 * 1024,
    )


def _payload(body: bytes) -> bytes | AsyncIterator[bytes] | None:
    if len(body) > BIG_BODY_BYTES:
        return _pieces(body)
    return body or None


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), PIECE_BYTES):
        yield body[start : start + PIECE_BYTES]
