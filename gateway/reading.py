"""What is read of one answer while it passes: its events, or its whole body if it is plain JSON.

Reading comes after writing, also within one turn of the loop: the proxy notes what passed and when,
and hands it in here once the sockets have their bytes.
"""

from gateway.encodings import Decoder, Identity, decoder_for
from gateway.flight import Flight
from gateway.outcome import HTTP_ERROR_FROM, read_json_answer
from gateway.sse import SseReader

NOT_SUCCESS_FROM = 300

MAX_JUDGED_BYTES = 4 * 1024 * 1024
"""Bytes of a plain answer kept to read usage and flags; longer ones pass unread."""


class Reading:
    """Reads one answer into its flight."""

    def __init__(self, flight: Flight, status: int, content_type: str, encoding: str) -> None:
        decoder = decoder_for(encoding)
        fine = decoder is not None and status < HTTP_ERROR_FROM
        is_sse = fine and content_type.startswith("text/event-stream")
        flight.owes_end = fine and flight.wants_stream and status < NOT_SUCCESS_FROM
        self._flight = flight
        self._decoder: Decoder | None = None if isinstance(decoder, Identity) else decoder
        self._sse = SseReader(flight.new_facts()) if is_sse else None
        self._plain = bytearray() if fine and not is_sse and "json" in content_type else None
        self._first_byte_at: float | None = None
        if self._sse is not None:
            flight.facts, flight.is_stream = self._sse.facts, True

    def take(self, pieces: list[bytes], now: float) -> None:
        """Read pieces that were written at `now` (loop seconds)."""
        if self._first_byte_at is None:
            self._first_byte_at = now
        sse, plain = self._sse, self._plain
        if sse is None and plain is None:
            return
        if self._decoder is not None:
            pieces = [self._decoder.decode(piece) for piece in pieces]
        if sse is not None:
            for piece in pieces:
                sse.feed(piece, now)
        elif plain is not None:
            for piece in pieces:
                if len(plain) <= MAX_JUDGED_BYTES:
                    plain += piece

    def end(self) -> None:
        """Read what could only be read whole."""
        if self._plain is not None and len(self._plain) <= MAX_JUDGED_BYTES:
            read_json_answer(bytes(self._plain), self._first_byte_at, self._flight.facts)
