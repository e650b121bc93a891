"""Looking into encoded bodies without touching them: copies are decoded, the originals passed on.

Only gzip and deflate can be read with what Python brings; br and zstd bodies pass through
unmeasured, which the record shows (no tokens, no first token) rather than hides. Decoded sizes are
bounded, so that a small body cannot grow to fill the memory.
"""

import zlib
from typing import Protocol

MAX_DECODED_BYTES = 32 * 1024 * 1024
"""Bytes read of one decoded body or chunk."""

MAX_COPIED_BYTES = 64 * 1024 * 1024
"""Bytes copied to find the members of one piece: a body of tiny ones must not cost minutes."""

_AUTO = 32 + zlib.MAX_WBITS
_KIND_BYTES = 2
"""Bytes that tell a header from none. Source: RFC 1950 section 2.2 and RFC 1952 section 2.3."""


class Decoder(Protocol):
    """Turns what was sent into what was meant, piece by piece."""

    def decode(self, piece: bytes) -> bytes:
        """Decode one piece; nothing more once the bytes made no sense."""


class Identity:
    """Bytes that are not encoded."""

    def decode(self, piece: bytes) -> bytes:
        """Return the piece."""
        return piece


class Inflate:
    """gzip or deflate; the latter also without its zlib header, as some servers send it.

    A gzip body may have several members, one for each flush of its sender (RFC 1952 section 2.2).
    """

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(_AUTO)
        self._first = b""
        self._kind_is_known = False
        self._broken = False

    def decode(self, piece: bytes) -> bytes:
        """Decode one piece, up to the bound."""
        if self._broken:
            return b""
        if not self._kind_is_known:
            piece = self._first = self._first + piece
            if len(piece) < _KIND_BYTES:
                return b""
            self._kind_is_known = True
        try:
            return self._decode(piece)
        except zlib.error:
            if not self._first:
                self._broken = True
                return b""
            self._inner = zlib.decompressobj(-zlib.MAX_WBITS)
            raw, self._first = self._first, b""
            return self.decode(raw)
        finally:
            self._first = b""

    def _decode(self, piece: bytes) -> bytes:
        out = self._inner.decompress(piece, MAX_DECODED_BYTES)
        copied = 0
        while self._inner.eof and (rest := self._inner.unused_data):
            copied += len(rest)
            if len(out) >= MAX_DECODED_BYTES or copied > MAX_COPIED_BYTES:
                self._broken = True
                break
            self._inner = zlib.decompressobj(_AUTO)
            try:
                out += self._inner.decompress(rest, MAX_DECODED_BYTES - len(out))
            except zlib.error:  # what follows is no member
                self._broken = True
        return out


def decoder_for(content_encoding: str) -> Decoder | None:
    """Return a decoder for a Content-Encoding, or None if the body cannot be read here."""
    name = content_encoding.strip().lower()
    if name in {"", "identity"}:
        return Identity()
    return Inflate() if name in {"gzip", "x-gzip", "deflate"} else None


def decode_body(body: bytes, content_encoding: str) -> bytes:
    """Return a whole body decoded, or nothing if it cannot be read here."""
    decoder = decoder_for(content_encoding)
    return b"" if decoder is None else decoder.decode(body)
