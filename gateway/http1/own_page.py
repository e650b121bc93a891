"""A request for one of the process's own pages, on its way to those who serve them.

It is read to its end here, as any other, and then handed over with a plain framing and the wish to
close, so that nothing that follows it on the connection is theirs.
"""

from typing import TYPE_CHECKING

from gateway.http1.heads import RequestHead, block

if TYPE_CHECKING:
    from gateway.http1.client import ClientConnection

_FRAMING = frozenset({b"connection", b"content-length", b"transfer-encoding", b"expect"})


class OwnPage:
    """A request for one of the process's own pages: once whole it goes to those who serve them."""

    def __init__(
        self, client: "ClientConnection", head: RequestHead, target: bytes, limit: int
    ) -> None:
        self._client = client
        self._head = head
        self._target = target
        self._limit = limit

    def on_whole(self, body: bytes) -> None:
        """Hand it over, alone: what came after it is not theirs."""
        head = self._head
        pairs = [pair for pair in head.pairs if pair[0].lower() not in _FRAMING]
        pairs += [(b"Connection", b"close"), (b"Content-Length", b"%d" % len(body))]
        line = b"%b %b HTTP/1.%d\r\n" % (head.method, self._target, head.minor)
        self._client.hand_over(line + block(pairs) + b"\r\n" + body)

    def on_too_large(self) -> None:
        """Refuse it."""
        self._client.refuse(413, f"the limit is {self._limit} bytes")

    def on_gone(self) -> None:
        """Nothing was begun."""

    def on_paused(self) -> None:
        """Nothing is written."""

    def on_resumed(self) -> None:
        """Nothing is written."""
