"""One answer as a client saw it: bytes and times, and what can be read in them.

Pure. Reading never raises: what is no event, no JSON or no vector is left out, since a fault may
have spoilt it.
"""

import base64
import json
import struct
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Seen:
    """An answer as it came."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    first_byte: float
    """Seconds to the headers."""
    seconds: float
    longest_gap: float
    """Seconds between two pieces of the body."""
    broken: bool

    def header(self, name: str) -> list[str]:
        """Return the values of a header."""
        return [value for key, value in self.headers if key.lower() == name.lower()]

    @property
    def events(self) -> list[bytes]:
        """Return the data of each event."""
        found = self.body.split(b"\n\n")
        return [each.removeprefix(b"data: ") for each in found if each.startswith(b"data: ")]

    def documents(self) -> list[Any]:
        """Return the JSON of the events, or of the whole body; what is none is left out."""
        found = []
        for raw in self.events or [self.body]:
            try:
                found.append(json.loads(raw))
            except ValueError:
                continue
        return found

    @property
    def is_done(self) -> bool:
        """Whether the stream said that it was over."""
        return self.body.endswith(b"data: [DONE]\n\n")

    @property
    def is_good(self) -> bool:
        """Whether this is a whole, healthy answer."""
        whole = self.is_done if self.events else bool(self.documents())
        return self.status == 200 and whole and not self.broken and not self.error

    @property
    def error(self) -> dict[str, Any]:
        """Return the error object, in a stream or not."""
        errors = [d["error"] for d in self.documents() if isinstance(d, dict) and "error" in d]
        return errors[0] if errors and isinstance(errors[0], dict) else {}

    @property
    def tokens(self) -> int:
        """Count the chunks with content."""
        return sum(
            bool(choice.get("delta", {}).get("content"))
            for document in self.documents()
            for choice in document.get("choices", ())
        )

    @property
    def has_finish(self) -> bool:
        """Whether a chunk has a finish reason."""
        choices = (c for d in self.documents() for c in d.get("choices", ()))
        return any(choice.get("finish_reason") for choice in choices)

    def arguments(self) -> str:
        """Return the arguments of the tool calls, joined."""
        text = ""
        for document in self.documents():
            for choice in document.get("choices", ()):
                part = choice.get("delta") or choice.get("message") or {}
                for call in part.get("tool_calls") or ():
                    text += call.get("function", {}).get("arguments") or ""
        return text

    def vectors(self) -> list[list[float]]:
        """Return the embeddings, whichever form they have."""
        found = []
        for document in self.documents():
            for entry in document.get("data", ()):
                vector = entry.get("embedding")
                if isinstance(vector, str):
                    raw = base64.b64decode(vector)
                    vector = list(struct.unpack(f"<{len(raw) // 4}f", raw))
                found.append(vector)
        return found
