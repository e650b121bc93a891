"""How an answer goes to one client: its status line, its headers, and the framing it can read.

The usual answer leaves as it came: the replica's own chunks, or its own length. Only three things
make the bytes be framed anew: a client of HTTP/1.0, which knows no chunks; a replica that ends its
answer by closing, which a kept connection cannot; and a fault that changes the body.
"""

from enum import Enum
from http import HTTPStatus

from gateway.http1.framing import END_OF_CHUNKS, chunk
from gateway.http1.heads import NO_BODY, Pairs, ReplyHead, RequestHead, block

_CLOSE = b"Connection: close\r\n\r\n"
_CHUNKED = b"Transfer-Encoding: chunked\r\n"

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Way(Enum):
    """What becomes of the body's bytes."""

    NOTHING = 0
    """There is no body."""
    RAW = 1
    """They pass as they came."""
    CHUNKS = 2
    """They are put into chunks of ours."""
    PLAIN = 3
    """They pass without a framing; the close is their end."""
    COUNTED = 4
    """They pass without a framing; the head says how many there are."""


def way_of(request: RequestHead, reply: ReplyHead, *, reshaped: bool) -> Way:
    """Choose the way for an answer. `reshaped`: its body may be another than the replica's."""
    if request.method == b"HEAD" or reply.status in NO_BODY:
        return Way.NOTHING
    if reply.length is not None:
        return Way.COUNTED if reshaped else Way.RAW
    if request.minor == 0:
        return Way.PLAIN
    return Way.RAW if reply.chunked and not reshaped else Way.CHUNKS


def encode(way: Way, raw: bytes, pieces: list[bytes], done: bool) -> bytes:
    """Return what to write for some bytes of the body."""
    if way is Way.RAW:
        return raw
    if way is Way.CHUNKS:
        return b"".join([chunk(piece) for piece in pieces]) + (END_OF_CHUNKS if done else b"")
    return b"" if way is Way.NOTHING else b"".join(pieces)


def passed_head(reply: ReplyHead, way: Way, extra: Pairs, *, close: bool) -> bytes:
    """Return the head of a replica's answer as the client gets it."""
    parts = [b"HTTP/1.1 %d %b\r\n" % (reply.status, reply.reason), block(reply.kept)]
    if extra:
        parts.append(block(extra))
    counted = {Way.RAW, Way.COUNTED, Way.NOTHING}
    if reply.length is not None and way in counted and reply.status != 204:
        parts.append(b"Content-Length: %d\r\n" % reply.length)
    elif way in {Way.RAW, Way.CHUNKS}:
        parts.append(_CHUNKED)
    parts.append(_CLOSE if close else b"\r\n")
    return b"".join(parts)


def interim_head(reply: ReplyHead) -> bytes:
    """Return an answer of the 1xx kind."""
    return b"HTTP/1.1 %d %b\r\n%b\r\n" % (reply.status, reply.reason, block(reply.kept))


def whole(status: int, pairs: Pairs, body: bytes, *, close: bool, is_head: bool = False) -> bytes:
    """Return an answer of our own, whole."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    head = b"HTTP/1.1 %d %b\r\n%bContent-Length: %d\r\n" % (
        status,
        phrase.encode(),
        block(pairs),
        len(body),
    )
    return head + (_CLOSE if close else b"\r\n") + (b"" if is_head else body)
