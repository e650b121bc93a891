"""Cut a body into whole server-sent events, and read or write the JSON of one.

An event is kept with every byte it came with, its blank line included, so that what is not changed
leaves as it arrived. Lines end at CR, LF and CRLF and nowhere else, as in `gateway.sse`.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

_BLANK = re.compile(rb"(?>\r\n|\r|\n)(?>\r\n|\r|\n)")
"""The end of a line and the empty line after it."""

_LINE = re.compile(rb"\r\n|\r|\n")

MAX_HELD_BYTES = 4 * 1024 * 1024
"""Bytes of one event that are held back; what is longer passes in pieces."""


class Events:
    """Joins network chunks into events."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._searched = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Give the events that are whole now, raw. Must be used up before the next call."""
        self._held += chunk
        while found := _BLANK.search(self._held, max(0, self._searched - 3)):
            event = bytes(self._held[: found.end()])
            del self._held[: found.end()]
            self._searched = 0
            yield event
        self._searched = len(self._held)
        if len(self._held) > MAX_HELD_BYTES:
            yield self.rest()

    def rest(self) -> bytes:
        """Give what is held back, and forget it."""
        rest, self._held, self._searched = bytes(self._held), bytearray(), 0
        return rest


def data_of(event: bytes) -> bytes:
    """Return the data of a raw event, its lines joined; empty if it has none."""
    found = []
    for line in _LINE.split(event):
        name, _, value = line.partition(b":")
        if name == b"data":
            found.append(value[1:] if value.startswith(b" ") else value)
    return b"\n".join(found)


def document_of(event: bytes) -> dict[str, Any] | None:
    """Return the JSON object of a raw event, or None if it has none."""
    try:
        document = json.loads(data_of(event))
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def is_done(event: bytes) -> bool:
    """Whether a raw event is `[DONE]`."""
    return data_of(event).strip(b" \t") == b"[DONE]"


def is_final(document: dict[str, Any] | None) -> bool:
    """Whether a chunk carries a finish reason, or usage and no choice."""
    if document is None:
        return False
    choices = document.get("choices")
    if not isinstance(choices, list):
        return False
    if not choices:
        return bool(document.get("usage"))
    return any(isinstance(choice, dict) and choice.get("finish_reason") for choice in choices)


def event_of(document: dict[str, Any]) -> bytes:
    """Return a JSON object as a raw event."""
    return b"data: " + dump(document) + b"\n\n"


def dump(document: Any) -> bytes:
    """Return JSON as engines write it: no spaces, characters as they are."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")
