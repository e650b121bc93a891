"""A request as it is passed on: target, headers and body as they came.

No header is added but those that the connection needs: the replica's Host and the body's length.
A fault may change a request, and reads and writes headers as text; `from_text` and `to_text` turn
them over without loss.
"""

from dataclasses import dataclass

from multidict import CIMultiDict

from gateway.http1.heads import Pairs, RequestHead, block, origin_form
from gateway.http1.replica import Address


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request on its way to a replica, as a fault sees it."""

    method: str
    target: str
    headers: CIMultiDict[str]
    body: bytes


def to_text(pairs: Pairs) -> CIMultiDict[str]:
    """Return headers as text."""
    return CIMultiDict([(_text(name), _text(value)) for name, value in pairs])


def from_text(headers: CIMultiDict[str]) -> Pairs:
    """Return headers as bytes."""
    return [(_bytes(name), _bytes(value)) for name, value in headers.items()]


def outgoing(head: RequestHead, body: bytes) -> Outgoing:
    """Return a request as a fault sees it."""
    return Outgoing(
        _text(head.method), _text(origin_form(head.target)), to_text(_headers(head, body)), body
    )


def request_bytes(head: RequestHead, body: bytes, address: Address) -> bytes:
    """Return a whole request for a replica."""
    return _whole(head.method, origin_form(head.target), _headers(head, body), body, address)


def changed_bytes(changed: Outgoing, address: Address) -> bytes:
    """Return a whole request that a fault may have changed."""
    pairs = from_text(changed.headers)
    return _whole(_bytes(changed.method), _bytes(changed.target), pairs, changed.body, address)


def _headers(head: RequestHead, body: bytes) -> Pairs:
    if body or head.chunked or head.length is not None:
        return [*head.kept, (b"Content-Length", b"%d" % len(body))]
    return head.kept


def _whole(method: bytes, target: bytes, pairs: Pairs, body: bytes, address: Address) -> bytes:
    return b"%b %b%b HTTP/1.1\r\nHost: %b\r\n%b\r\n%b" % (
        method,
        address.prefix,
        target,
        address.name,
        block(pairs),
        body,
    )


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
