"""Where a body ends: by its length, by its last chunk, by the close of the connection, or at once.

A framing is fed the bytes after a head, as the network cut them, and gives back what they meant.
`surplus` is what came after the end: the begin of the next message, or rubbish. The caller may pass
on the raw bytes up to there without writing them anew, which is the point of having it here and
not in a parser that copies: extensions, trailers and cuts stay as they came. Chunk sizes are read
by the letter (no sign, no underscore, no bare LF), since what one reader takes for a size and
another one does not is how requests are smuggled.
"""

import re
from typing import Protocol

MAX_LINE_BYTES = 8 * 1024
"""Longest chunk-size or trailer line. Source: ours: the extensions that engines send have none."""

MAX_TRAILER_BYTES = 64 * 1024

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?\r\n")
_FIELD = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\x00-\x08\x0a-\x1f\x7f]*\r\n")
END_OF_CHUNKS = b"0\r\n\r\n"


class BadFraming(Exception):
    """The bytes are no body in this framing, or could be read as one in two ways."""


class Framing(Protocol):
    """Follows one body."""

    done: bool
    surplus: bytes

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes; return the body's own, in pieces.

        Raises:
            BadFraming: The rest of the connection cannot be understood.
        """


class Length:
    """A body of so many bytes; none at all is done before it begins."""

    def __init__(self, length: int) -> None:
        self._left = length
        self.done = length == 0
        self.surplus = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes up to the length."""
        left = self._left
        if len(data) > left:
            self.surplus = data[left:]
            data = data[:left]
        self._left = left - len(data)
        self.done = not self._left
        return [data] if data else []


class UntilClose:
    """A body that ends when its sender closes. Only an answer may."""

    def __init__(self) -> None:
        self.done = False
        self.surplus = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Take all."""
        return [data] if data else []


class Chunked:
    """A chunked body, with its extensions and trailers read and left out."""

    def __init__(self) -> None:
        self.done = False
        self.surplus = b""
        self._held = b""  # a line that is not whole yet
        self._left = 0
        self._ends_data = False  # the CRLF after a chunk's data is due
        self._in_trailers = False
        self._trailer_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes; return the chunks' data, each cut of the network a piece of its own."""
        if self._held:
            data = self._held + data
            self._held = b""
        pieces: list[bytes] = []
        at, end = 0, len(data)
        if not (self._left or self._ends_data or self._in_trailers):
            at = _whole_chunks(data, pieces)
        while at < end and not self.done:
            if self._left:
                piece = data[at : at + self._left]
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                self._ends_data = not self._left
            elif self._ends_data:
                at = self._end_data(data, at)
            elif self._in_trailers:
                at = self._take_trailer(data, at)
            else:
                at = self._take_size(data, at)
        if self.done:
            self.surplus = data[at:]
        return pieces

    def _end_data(self, data: bytes, at: int) -> int:
        if data.startswith(b"\r\n", at):
            self._ends_data = False
            return at + 2
        if data[at:] != b"\r":
            raise BadFraming("a chunk is longer than its size")
        return self._hold(data, at)

    def _take_size(self, data: bytes, at: int) -> int:
        found = _SIZE.match(data, at)
        if found is None:
            return self._hold(data, at)
        self._left = int(found[1], 16)
        self._in_trailers = not self._left
        return found.end()

    def _take_trailer(self, data: bytes, at: int) -> int:
        if data.startswith(b"\r\n", at):
            self.done = True
            return at + 2
        found = _FIELD.match(data, at)
        if found is None:
            return self._hold(data, at)
        self._trailer_bytes += found.end() - at
        if self._trailer_bytes > MAX_TRAILER_BYTES:
            raise BadFraming("the trailers are too long")
        return found.end()

    def _hold(self, data: bytes, at: int) -> int:
        """Keep a line whose end has not come; a whole line that was not taken is a bad one."""
        self._held = data[at:]
        if b"\n" in self._held or len(self._held) > MAX_LINE_BYTES:
            raise BadFraming("a chunk size or a trailer cannot be read")
        return len(data)


def _whole_chunks(data: bytes, pieces: list[bytes]) -> int:
    """Take the chunks that are here whole, the usual case; return where the first other begins."""
    at = 0
    while (found := _SIZE.match(data, at)) is not None:
        begin = found.end()
        end = begin + int(found[1], 16)
        if end == begin or not data.startswith(b"\r\n", end):
            break
        pieces.append(data[begin:end])
        at = end + 2
    return at


def chunk(data: bytes) -> bytes:
    """Return data as one chunk; nothing for no data, since an empty chunk would be the end."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""
