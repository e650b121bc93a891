"""Heads of requests and answers: parsed by llhttp, checked once more, and cut down to pass on.

Everything that could be read in two ways by two servers is refused here: both kinds of framing,
two lengths, codings other than chunked, folded lines, bare LF, spaces before a colon. llhttp
refuses most of it and this module the rest. Headers are kept as pairs of bytes in their order, case
and number; only those of one connection are left out (RFC 9110 section 7.6.1), and those that the
gateway keeps to itself. `Trailer` is not left out of answers, since trailers pass.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import httptools

Pairs = list[tuple[bytes, bytes]]

_HTTP = b" HTTP/1."
"""In every request line; llhttp also reads RTSP and ICE."""

_AUTHORITY_END = re.compile(rb"[/?#]")

MAX_HEAD_BYTES = 64 * 1024
"""Longest head. Source: ours: a header of 64 KiB is a mistake or an attack."""

HEAD_END = b"\r\n\r\n"

HOP_BY_HOP = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization"),
        *(b"proxy-connection", b"te", b"transfer-encoding", b"upgrade"),
    }
)
"""Headers of one connection only. Source: RFC 9110 section 7.6.1."""

OURS = frozenset({b"x-burnproof-probe", b"x-burnproof-replica"})
_NOT_SENT = HOP_BY_HOP | OURS | {b"host", b"content-length", b"expect", b"trailer"}
_NOT_ANSWERED = HOP_BY_HOP | {b"content-length"}

NO_BODY = frozenset({204, 304})
"""Statuses of answers without a body. Source: RFC 9110 sections 15.3.5 and 15.4.5."""


LEAST_STATUS = 100


class BadHead(Exception):
    """A head that is refused."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class _Collected:
    """What llhttp says while it reads one head."""

    __slots__ = ("pairs", "reason", "target")

    def __init__(self) -> None:
        self.pairs: Pairs = []
        self.target = b""
        self.reason = b""

    def on_url(self, part: bytes) -> None:
        self.target += part

    def on_status(self, part: bytes) -> None:
        self.reason += part

    def on_header(self, name: bytes, value: bytes) -> None:
        self.pairs.append((name, value))


@dataclass(slots=True)
class _Framed:
    """What both kinds of head say about their body and their connection."""

    length: int | None = None
    chunked: bool = False
    named: frozenset[bytes] = frozenset()
    """Names in the Connection headers."""


def _framed(pairs: Iterable[tuple[bytes, bytes]]) -> _Framed:
    found = _Framed()
    codings = 0
    for name, value in pairs:
        size = len(name)
        if size == 14 and name.lower() == b"content-length":
            text = value.strip(b" \t")
            if found.length is not None or not text.isdigit() or len(text) > 15:
                raise BadHead("the content length cannot be read")
            found.length = int(text)
        elif size == 17 and name.lower() == b"transfer-encoding":
            codings += 1
            if codings > 1 or value.strip(b" \t").lower() != b"chunked":
                raise BadHead("the transfer encoding is not chunked", 501)
            found.chunked = True
        elif size == 10 and name.lower() == b"connection":
            tokens = (part.strip(b" \t").lower() for part in value.split(b","))
            found.named = found.named.union(tokens)
    if found.chunked and found.length is not None:
        raise BadHead("both a length and a transfer encoding")
    return found


@dataclass(slots=True)
class RequestHead:
    """One request's head."""

    method: bytes
    target: bytes
    minor: int
    """The version's second digit: 0 or 1."""
    pairs: Pairs
    kept: Pairs
    """The headers to pass on."""
    length: int | None
    chunked: bool
    keep_alive: bool
    named: frozenset[bytes] = frozenset()
    """Names in the Connection headers: those headers stay here."""
    special: dict[bytes, bytes] = field(default_factory=dict)
    """The first value of each header that is read here, by its name in lower case."""

    def text(self, name: bytes) -> str:
        """Return a special header, or nothing."""
        return self.special.get(name, b"").decode("utf-8", "surrogateescape")


SPECIAL = frozenset(
    {
        *(b"x-conversation-id", b"x-tenant-id", b"x-burnproof-probe", b"x-burnproof-replica"),
        *(b"content-encoding", b"expect", b"host", b"traceparent", b"x-client-run-id"),
    }
)


def read_request_head(head: bytes) -> RequestHead:
    """Read a whole head, its last empty line included.

    Raises:
        BadHead: With the status to refuse it by.
    """
    got = _Collected()
    parser = httptools.HttpRequestParser(got)
    _feed(parser, head)
    version = parser.get_http_version()
    if version not in {"1.0", "1.1"} or head.find(_HTTP, 0, head.find(b"\r\n", 2)) < 0:
        raise BadHead("this version is not spoken here", 505)
    method = parser.get_method()
    if method == b"CONNECT":
        raise BadHead("no tunnels", 405)
    framed = _framed(got.pairs)
    if version == "1.0" and framed.chunked:
        raise BadHead("chunks are unknown to HTTP/1.0")
    named = framed.named
    kept: Pairs = []
    special: dict[bytes, bytes] = {}
    hosts = 0
    for pair in got.pairs:
        low = pair[0].lower()
        if low in SPECIAL:
            hosts += low == b"host"
            special.setdefault(low, pair[1].strip(b" \t"))
        if low not in _NOT_SENT and low not in named:
            kept.append(pair)
    if hosts > 1 or (version == "1.1" and not hosts):
        raise BadHead("one Host header is needed")
    return RequestHead(
        method=method,
        target=got.target,
        minor=int(version[2]),
        pairs=got.pairs,
        kept=kept,
        length=framed.length,
        chunked=framed.chunked,
        keep_alive=version == "1.1" and b"close" not in named,
        named=named,
        special=special,
    )


@dataclass(slots=True)
class ReplyHead:
    """One answer's head."""

    status: int
    reason: bytes
    kept: Pairs
    """The headers to pass on, without those of the framing."""
    length: int | None
    chunked: bool
    keep_alive: bool
    content_type: str
    content_encoding: str


def read_reply_head(head: bytes) -> ReplyHead:
    """Read a whole head, its last empty line included.

    Raises:
        BadHead: It is no answer that can be passed on.
    """
    got = _Collected()
    parser = httptools.HttpResponseParser(got)
    _feed(parser, head)
    version = parser.get_http_version()
    if version not in {"1.0", "1.1"}:
        raise BadHead("this version is not spoken here")
    if parser.get_status_code() < LEAST_STATUS:
        raise BadHead("no such status")
    framed = _framed(got.pairs)
    named = framed.named
    kept: Pairs = []
    kind = encoding = b""
    for pair in got.pairs:
        low = pair[0].lower()
        if low in _NOT_ANSWERED or low in named:
            continue
        kept.append(pair)
        if low == b"content-type":
            kind = kind or pair[1]
        elif low == b"content-encoding":
            encoding = encoding or pair[1]
    return ReplyHead(
        status=parser.get_status_code(),
        reason=got.reason,
        kept=kept,
        length=framed.length,
        chunked=framed.chunked,
        keep_alive=b"close" not in named if version == "1.1" else b"keep-alive" in named,
        content_type=kind.decode("latin-1").lower(),
        content_encoding=encoding.decode("latin-1"),
    )


def _feed(parser: httptools.HttpRequestParser | httptools.HttpResponseParser, head: bytes) -> None:
    try:
        parser.feed_data(head)
    except httptools.HttpParserUpgrade:
        return  # a wish that is not granted, and a head that was read to its end
    except httptools.HttpParserInvalidMethodError as error:
        raise BadHead("the method is unknown", 501) from error
    except httptools.HttpParserError as error:
        raise BadHead(str(error)) from error


def head_end(data: bytes) -> int:
    """Return where the head in these bytes ends, or -1 when its end has not come.

    Raises:
        BadHead: It is too long, or a line in it ends without a CR.
    """
    end = data.find(HEAD_END)
    if end >= 0:
        if end > MAX_HEAD_BYTES:
            raise BadHead("the head is too long", 431)
        return end + 4
    if len(data) > MAX_HEAD_BYTES:
        raise BadHead("the head is too long", 431)
    if b"\n\n" in data or b"\n\r\n" in data:
        raise BadHead("a line ends without a CR")
    return -1


def block(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return headers as lines."""
    return b"".join([b"%b: %b\r\n" % pair for pair in pairs])


def origin_form(target: bytes) -> bytes:
    """Return the request target from its path on: a client may send `http://host/path` too.

    Source: RFC 9112 section 3.2.2, every server must accept it.
    """
    _, scheme, rest = target.partition(b"://")
    if target.startswith(b"/") or not scheme:
        return target
    path = rest[len(_AUTHORITY_END.split(rest, maxsplit=1)[0]) :]
    return path if path.startswith(b"/") else b"/" + path
