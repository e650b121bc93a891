"""Looking into encoded bodies without touching them: copies are decoded, the originals passed on.

Only gzip and deflate can be read with what Python brings; br and zstd bodies pass through
unmeasured, which the record shows (no tokens, no first token) rather than hides. Decoded sizes are
bounded, so that a small body cannot grow to fill the memory.
"""

import zlib
from typing import Protocol

MAX_DECODED_BYTES = 32 * 1024 * 1024
"""Bytes read of one decoded body or chunk."""

_AUTO = 32 + zlib.MAX_WBITS


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
    """gzip or deflate; the latter also without its zlib header, as some servers send it."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(_AUTO)
        self._started = False
        self._broken = False

    def decode(self, piece: bytes) -> bytes:
        """Decode one piece, up to the bound."""
        if self._broken or not piece:
            return b""
        try:
            out = self._inner.decompress(piece, MAX_DECODED_BYTES)
        except zlib.error:
            if self._started:
                self._broken = True
                return b""
            self._inner = zlib.decompressobj(-zlib.MAX_WBITS)
            self._started = True
            return self.decode(piece)
        self._started = True
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
