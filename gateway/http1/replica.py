"""One connection to a replica: writes a request, reads its answer, tells its owner as bytes come.

It belongs to one owner at a time, from `send` to the end of the answer, and between two owners to
the pool. It never decides to send again: it says whether a byte of an answer had come, and its
owner decides. A byte that nobody asked for, a head or a framing that cannot be read, and an end
that is too early all end the connection: the next answer on it could not be told from the rest.
"""

import asyncio
from dataclasses import dataclass
from typing import Protocol, cast
from urllib.parse import urlsplit

from gateway.http1.framing import BadFraming, Chunked, Framing, Length, UntilClose
from gateway.http1.heads import NO_BODY, BadHead, ReplyHead, head_end, read_reply_head

SWITCHING = 101
FIRST_FINAL = 200


class Owner(Protocol):
    """Who asked: called in the turn of the loop in which bytes came."""

    def on_interim(self, reply: ReplyHead) -> None:
        """An answer of the 1xx kind came before the real one."""

    def on_head(self, reply: ReplyHead) -> None:
        """The answer's head came; its first bytes, or none, follow in the same turn."""

    def on_body(self, raw: bytes, pieces: list[bytes], done: bool) -> None:
        """Bytes came: as they were sent, and what they mean. `done`: these were the last."""

    def on_lost(self, answered: bool) -> None:
        """The connection broke; `answered`: not before a byte of the answer had come."""


class Home(Protocol):
    """Who keeps connections between two requests."""

    def put_back(self, connection: "ReplicaConnection") -> None:
        """Keep an idle connection."""

    def forget(self, connection: "ReplicaConnection") -> None:
        """A connection has ended."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a replica listens."""

    host: str
    port: int
    tls: bool
    prefix: bytes
    """What its paths begin with, without a slash at the end."""
    name: bytes
    """For the Host header."""

    @classmethod
    def of(cls, base: str) -> "Address":
        """Read an address such as `http://host:port/prefix`."""
        parts = urlsplit(base)
        tls = parts.scheme == "https"
        return cls(
            host=parts.hostname or "",
            port=parts.port or (443 if tls else 80),
            tls=tls,
            prefix=parts.path.rstrip("/").encode(),
            name=parts.netloc.rpartition("@")[2].encode(),
        )


class ReplicaConnection(asyncio.Protocol):
    """A socket to a replica."""

    def __init__(self, home: Home, address: Address) -> None:
        self.address = address
        self.served = 0
        """Requests sent on it so far."""
        self.idle_since = 0.0
        self._home = home
        self._owner: Owner | None = None
        self._transport: asyncio.Transport | None = None
        self._is_head = False
        self._held = b""
        self._answered = False
        self._framing: Framing | None = None
        self._keep = False

    def send(self, owner: Owner, data: bytes, *, is_head: bool) -> None:
        """Write a whole request. `is_head`: its answer has no body."""
        assert self._transport is not None
        self._owner = owner
        self._is_head = is_head
        self._answered = False
        self.served += 1
        self._transport.write(data)

    @property
    def usable(self) -> bool:
        """Whether it still stands."""
        return self._transport is not None and not self._transport.is_closing()

    def abort(self) -> None:
        """Close at once; the owner hears no more."""
        self._owner = None
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Read no more for now: the owner's client is slow."""
        if self.usable:
            cast(asyncio.Transport, self._transport).pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self.usable:
            cast(asyncio.Transport, self._transport).resume_reading()

    # Called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Take bytes of an answer."""
        if self._owner is None:
            self.abort()
            return
        self._answered = True
        try:
            if self._framing is None:
                rest = self._take_head(data)
                if rest is None:
                    return
                data = rest
            self._take_body(data)
        except (BadHead, BadFraming):
            self._lose()

    def eof_received(self) -> None:
        """The replica will send no more."""
        self._end()

    def connection_lost(self, error: Exception | None) -> None:
        """The connection has ended."""
        self._end(error)

    def _take_head(self, data: bytes) -> bytes | None:
        """Take heads until the real one is in; return what follows it, None if it is not whole."""
        data = self._held + data if self._held else data
        self._held = b""
        while True:
            end = head_end(data)
            if end < 0:
                self._held = data
                return None
            reply = read_reply_head(data[:end])
            data = data[end:]
            owner = self._owner
            if owner is None:
                return None
            if reply.status == SWITCHING:
                raise BadHead("nobody asked to switch")
            if reply.status >= FIRST_FINAL:
                self._framing = self._framing_of(reply)
                self._keep = reply.keep_alive and not isinstance(self._framing, UntilClose)
                owner.on_head(reply)
                return data
            owner.on_interim(reply)

    def _framing_of(self, reply: ReplyHead) -> Framing:
        if self._is_head or reply.status in NO_BODY:
            return Length(0)
        if reply.chunked:
            return Chunked()
        return UntilClose() if reply.length is None else Length(reply.length)

    def _take_body(self, data: bytes) -> None:
        framing, owner = self._framing, self._owner
        if framing is None or owner is None:
            return
        pieces = framing.feed(data) if data else []
        if not framing.done:
            owner.on_body(data, pieces, False)
            return
        surplus = len(framing.surplus)
        self._let_go(keep=self._keep and not surplus)
        owner.on_body(data[: len(data) - surplus], pieces, True)

    def _let_go(self, *, keep: bool) -> None:
        """End the answer; keep the connection if both sides are done with it and in step."""
        self._owner = self._framing = None
        transport = self._transport
        if transport is None:
            return
        if keep and not transport.is_closing() and not transport.get_write_buffer_size():
            self._home.put_back(self)
        else:
            transport.abort()

    def _end(self, error: Exception | None = None) -> None:
        owner, framing = self._owner, self._framing
        self._home.forget(self)
        if owner is not None and isinstance(framing, UntilClose) and error is None:
            self._let_go(keep=False)
            owner.on_body(b"", [], True)
            return
        self._lose()

    def _lose(self) -> None:
        owner = self._owner
        self.abort()
        if owner is not None:
            owner.on_lost(self._answered)
