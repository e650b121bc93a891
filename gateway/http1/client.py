"""One connection of a client: reads requests one after the other and hands each to the service.

A request is read whole before it is served, since its body names its model. Requests that come
early wait in a bounded buffer and are served in order. A client that closes, or closes its half,
has gone: the two cannot be told apart, and an answer for nobody would keep a replica's slot busy.
What was hard is refusing a client that still sends: closing a socket with unread bytes resets it,
and the reset may overtake the refusal. So such a connection says its last word, closes its own
half, and reads into the void for a short while.
"""

import asyncio
import select
import socket
import time
from enum import Enum
from typing import Protocol, cast

from gateway.http1.framing import BadFraming, Chunked, Framing, Length
from gateway.http1.heads import BadHead, RequestHead, head_end, origin_form, read_request_head
from gateway.http1.own_page import OwnPage
from gateway.http1.reply import CONTINUE

MAX_BODY_BYTES = 32 * 1024 * 1024
"""Largest request body: it is read whole to find its model."""

EARLY_BYTES = 64 * 1024
"""Bytes of later requests that are read before the present one is answered."""

IDLE_SECONDS = 75.0
"""Time without a byte after which a client that owes us one is let go. Source: nginx's default."""

HEAD_SECONDS = 60.0
"""Time for a whole head, however busily its bytes come. Source: nginx's default."""

BODY_SECONDS = 600.0
"""Time for a whole body. Source: ours: the largest one at half a megabit a second."""

WATCH_SECONDS = 0.5
"""How often a client whose bytes wait unread is looked at. Source: ours: it is let go in 1 s."""

CLOSE_SECONDS = 10.0
"""Time that a closing connection has to take what was written."""

LINGER_SECONDS = 2.0
"""Time for which a refused client may go on sending. Source: ours: a few round trips."""


class Request(Protocol):
    """One request that is being served. Told everything that happens on its connection."""

    def on_whole(self, body: bytes) -> None:
        """Its body is in."""

    def on_too_large(self) -> None:
        """Its body is above the limit."""

    def on_gone(self) -> None:
        """Its client has gone."""

    def on_paused(self) -> None:
        """The client takes no bytes for now."""

    def on_resumed(self) -> None:
        """The client takes bytes again."""


class Service(Protocol):
    """What stands behind the connections."""

    @property
    def stopping(self) -> bool:
        """Whether connections close after their answer."""

    def begin(self, client: "ClientConnection", head: RequestHead) -> Request:
        """Take a request in."""

    def is_own(self, path: bytes) -> bool:
        """Whether a path belongs to this process and not to the replicas."""

    def own_handler(self) -> asyncio.Protocol:
        """Return who serves one request for such a path, and then closes."""

    def refusal(self, status: int, message: str) -> bytes:
        """Return an answer to what was no request; it says that the connection closes."""

    def opened(self, client: "ClientConnection") -> None:
        """A connection was made."""

    def closed(self, client: "ClientConnection") -> None:
        """A connection has ended, or is no longer ours."""


class State(Enum):
    """What the connection waits for."""

    HEAD = 0
    BODY = 1
    ANSWER = 2
    NOTHING = 3
    """It is over; what still comes is thrown away."""


class ClientConnection(asyncio.Protocol):
    """A socket to a client."""

    def __init__(self, service: Service) -> None:
        self.paused = False
        """Whether the client takes no bytes for now."""
        self._service = service
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._state = State.HEAD
        self._buffer = b""
        self._request: Request | None = None
        self._framing: Framing | None = None
        self._body = bytearray()  # of a body that came in pieces
        self._body_bytes = 0
        self._is_pumping = False
        self._reads = True
        self._active_at = time.monotonic()
        self._since = 0.0  # when the present head or body began; 0: no byte of a head is there
        self._watching: asyncio.TimerHandle | None = None

    # For the request that is served

    def write(self, data: bytes) -> None:
        """Write bytes of the answer."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def done(self, *, keep: bool) -> None:
        """The answer is written. `keep`: the connection may serve the next request."""
        was = self._state
        self._request = self._framing = None
        if self._body:
            self._body = bytearray()
        if not keep or self._service.stopping or self._transport.is_closing():
            self._close(still_sends=was is State.BODY)
            return
        self._state = State.HEAD
        self._active_at = time.monotonic()
        self._since = self._active_at if self._buffer else 0.0
        self._read_on()
        if self._buffer:
            self._pump()

    def break_off(self, *, hard: bool) -> None:
        """End the connection in the middle of an answer: what was sent stays sent.

        `hard`: the client takes the close for the answer's end, so it gets a reset instead.
        """
        self._request = None
        self._state = State.NOTHING
        self._active_at = time.monotonic()
        if hard:
            self._transport.abort()
        else:
            self._transport.close()

    # For the listener

    def close_if_idle(self) -> None:
        """Close unless a request is being served."""
        if self._request is None and self._state is State.HEAD:
            self._close(still_sends=False)

    def abort(self) -> None:
        """End now."""
        self._gone()
        self._transport.abort()

    def sweep(self, now: float) -> None:
        """Let go a client that owes us bytes for too long, or does not take our last ones."""
        silent = now - self._active_at
        if self._state is State.NOTHING:
            if silent > CLOSE_SECONDS:
                self._transport.abort()
        elif self._state is not State.ANSWER:
            limit = HEAD_SECONDS if self._state is State.HEAD else BODY_SECONDS
            if silent > IDLE_SECONDS:
                self.abort()
            elif self._since and now - self._since > limit:
                if self._request is not None:
                    self._request.on_gone()
                self.refuse(408, "the request took too long to come")

    # Called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)
        self._service.opened(self)

    def data_received(self, data: bytes) -> None:
        """Take bytes."""
        state = self._state
        if state is State.NOTHING:
            return
        now = self._active_at = time.monotonic()
        if state is State.BODY:
            self._take_body(data)
            if self._state is State.HEAD and self._buffer:
                self._pump()
            return
        self._buffer = self._buffer + data if self._buffer else data
        if state is State.HEAD:
            self._since = self._since or now
            self._pump()
        elif len(self._buffer) > EARLY_BYTES and self._reads:
            self._reads = False
            self._transport.pause_reading()
            if self._watching is None:
                self._watch()

    def eof_received(self) -> None:
        """The client will send no more: it has gone. The loop closes the transport."""
        self._gone()

    def connection_lost(self, _error: Exception | None) -> None:
        """The connection has ended."""
        self._gone()
        self._service.closed(self)

    def pause_writing(self) -> None:
        """The client's socket and our buffer are full."""
        self.paused = True
        if self._request is not None:
            self._request.on_paused()

    def resume_writing(self) -> None:
        """There is room again."""
        self.paused = False
        if self._request is not None:
            self._request.on_resumed()

    # Requests

    def _pump(self) -> None:
        """Begin requests for as long as whole heads are there and nobody is being served."""
        if self._is_pumping:
            return
        self._is_pumping = True
        try:
            while self._state is State.HEAD and self._buffer:
                if not self._begin():
                    return
        except BadHead as error:
            self.refuse(error.status, str(error))
        finally:
            self._is_pumping = False

    def _begin(self) -> bool:
        """Take one request from the buffer; False if its head is not whole."""
        data = self._buffer
        while data.startswith(b"\r\n"):  # Source: RFC 9112 section 2.2
            data = data[2:]
        end = head_end(data)
        if end < 0:
            self._buffer = data
            return False
        head = read_request_head(data[:end])
        self._buffer = b""
        rest = data[end:]
        expects = head.special.get(b"expect")
        if expects is not None and expects.lower() != b"100-continue":
            raise BadHead("this expectation is not met here", 417)
        self._framing = Chunked() if head.chunked else Length(head.length or 0)
        self._body_bytes = 0
        self._since = self._active_at
        self._state = State.BODY
        target = origin_form(head.target)
        if self._service.is_own(target.partition(b"?")[0]):
            self._request = OwnPage(self, head, target, MAX_BODY_BYTES)
        else:
            self._request = self._service.begin(self, head)
        if head.length is not None and head.length > MAX_BODY_BYTES:
            self._request.on_too_large()
        elif expects is not None and head.minor and not rest and not self._framing.done:
            self.write(CONTINUE)
        else:
            self._take_body(rest)
        return True

    def _take_body(self, data: bytes) -> None:
        framing, request = self._framing, self._request
        if framing is None or request is None:
            return
        piece = b""
        if data:
            try:
                piece = b"".join(framing.feed(data))
            except BadFraming as error:
                request.on_gone()
                self.refuse(400, str(error))
                return
            self._body_bytes += len(piece)
            if self._body_bytes > MAX_BODY_BYTES:
                request.on_too_large()
                return
        if not framing.done:
            self._body += piece
            return
        body = b"".join((self._body, piece)) if self._body else piece
        self._body = bytearray()
        self._buffer = framing.surplus
        self._state = State.ANSWER
        request.on_whole(body)

    def hand_over(self, request: bytes) -> None:
        """Give the connection to those who serve the process's own pages; they close it."""
        handler = self._service.own_handler()
        self._request = None
        self._state = State.NOTHING
        self._buffer = b""
        self._service.closed(self)
        self._transport.set_protocol(handler)
        handler.connection_made(self._transport)
        handler.data_received(request)

    # Ends

    def _gone(self) -> None:
        request, self._request = self._request, None
        self._state = State.NOTHING
        self._buffer = b""
        if request is not None:
            request.on_gone()

    def refuse(self, status: int, message: str) -> None:
        """Answer to what is no request that can be served, and close."""
        self._request = None
        self.write(self._service.refusal(status, message))
        self._close(still_sends=True)

    def _close(self, *, still_sends: bool) -> None:
        self._state = State.NOTHING
        self._buffer = b""
        self._active_at = time.monotonic()
        transport = self._transport
        if transport.is_closing():
            return
        if not still_sends:
            transport.close()
            return
        self._read_on()
        transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER_SECONDS, transport.close)

    def _watch(self) -> None:
        """See a client leave although its bytes wait unread: the loop tells nobody then."""
        self._watching = None
        if self._reads or self._transport.is_closing():
            return
        if _has_left(self._transport.get_extra_info("socket")):
            self.abort()
        else:
            loop = asyncio.get_running_loop()
            self._watching = loop.call_later(WATCH_SECONDS, self._watch)

    def _read_on(self) -> None:
        if not self._reads and not self._transport.is_closing():
            self._reads = True
            self._transport.resume_reading()


def _has_left(sock: socket.socket) -> bool:
    """Whether the other side has closed its half or reset, whatever is still to be read."""
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLRDHUP | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))
