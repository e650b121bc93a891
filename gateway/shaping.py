"""What the armed faults do to an answer: its headers, and its body step by step.

Only what the catalogue has today: a stall in a stream. The data path knows nothing of faults but
the steps that come from here, and asks for a shaper only when a fault is armed.
"""

import re
from collections.abc import Iterable

from multidict import CIMultiDict

from faults.catalog import StreamStall
from gateway.fault_hooks import drawn_stalls
from gateway.flight import Flight
from gateway.items import RunningFault
from gateway.outcome import HTTP_ERROR_FROM
from gateway.steps import Send, Shaper, Step, Wait

_LINES = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


class Stalls:
    """One silence for each stall, before the first byte after the last token let through."""

    def __init__(self, flight: Flight, waiting: list[tuple[RunningFault, StreamStall]]) -> None:
        self._flight = flight
        self._waiting = waiting

    def feed(self, chunk: bytes) -> Iterable[Step]:
        """Cut a chunk at its line ends for as long as a stall is due."""
        at = 0
        for line in _LINES.finditer(chunk):
            for entry in list(self._waiting):
                item, parameters = entry
                if self._flight.facts.content_chunks >= parameters.after_tokens:
                    self._waiting.remove(entry)
                    if item.active:
                        self._flight.touch(item)
                        yield Wait(parameters.stall, item)
            if not self._waiting:
                yield Send(chunk[at:])
                return
            at = line.end()
            yield Send(line.group())

    def end(self) -> Iterable[Step]:
        """Give nothing: nothing was held back."""
        return ()


def shaper_for(flight: Flight, status: int, headers: CIMultiDict[str]) -> Shaper | None:
    """Return what shapes this answer, or None to pass it untouched."""
    if status >= HTTP_ERROR_FROM or not headers.get("Content-Type", "").lower().startswith(
        "text/event-stream"
    ):
        return None
    waiting = drawn_stalls(flight)
    return Stalls(flight, waiting) if waiting else None


def shape_headers(
    flight: Flight, status: int, headers: CIMultiDict[str]
) -> tuple[int, CIMultiDict[str]]:
    """Return status and headers of an answer as the faults of this request leave them."""
    del flight
    return status, headers
