"""The usual chunk of a stream, learnt once and then recognised by its bytes.

The chunks of one stream differ only in the text of their token: the same id, the same model, the
same order of keys. So the first chunk that was parsed is taken apart around its text; a later event
with the same bytes before and after, and plain text between them, is that document with another
text, and need not be parsed. That this is so is not assumed but checked when the template is
learnt: the document is parsed again with another text in that place, and nothing else may differ.
Whatever does more than bring text (an end, a usage figure, a tool call) is never learnt.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

_decode = json.JSONDecoder().raw_decode

_CONTENT = re.compile(rb'"(?:content|text)":\s*"')
_is_plain = re.compile(rb'[^"\\\x00-\x1f]+').fullmatch
_PROBE = "\x7fprobe\x7f"

_MORE = ("reasoning_content", "reasoning", "refusal", "tool_calls")
"""Keys of a delta that bring something else than its text."""


@dataclass(frozen=True, slots=True)
class Template:
    """Bytes of an event's data before and after the text of its one token."""

    before: bytes
    after: bytes
    event_before: bytes
    event_after: bytes

    @classmethod
    def learn(cls, data: bytes, document: dict[str, Any]) -> "Template | None":
        """Take an event's data apart, if it brings one text and nothing else."""
        holder = _holder(document)
        places = list(_CONTENT.finditer(data))
        if holder is None or len(places) != 1:
            return None
        start = places[0].end()
        end = data.find(b'"', start)
        if not _is_plain(data[start:end]):
            return None
        before, after = data[:start], data[end:]
        try:
            other, _ = _decode((before + _PROBE.encode() + after).decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError):
            return None
        parts, key = holder
        text, parts[key] = parts[key], _PROBE
        is_same = other == document
        parts[key] = text
        if not is_same:
            return None
        return cls(before, after, b"data: " + before, after + b"\n\n")

    def text_of_event(self, event: bytes) -> str | None:
        """Return the text of a whole event, its empty line included; None if it is another one."""
        before, after = self.event_before, self.event_after
        if event.startswith(before) and event.endswith(after):
            return _plain(event[len(before) : -len(after)])
        return None

    def text_of(self, data: bytes) -> str | None:
        """Return the text of an event's data; None if it is another one."""
        if data.startswith(self.before) and data.endswith(self.after):
            return _plain(data[len(self.before) : -len(self.after)])
        return None


def _plain(text: bytes) -> str | None:
    if not _is_plain(text):
        return None
    try:
        return text.decode("utf-8", "surrogatepass")
    except ValueError:
        return None


def _holder(document: dict[str, Any]) -> tuple[dict[str, Any], str] | None:
    """Return where the one text stands, if the document does nothing but bring it."""
    choices = document.get("choices")
    if document.get("error") or document.get("usage") or "type" in document:
        return None
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        return None
    choice: dict[str, Any] = choices[0]
    if choice.get("finish_reason") or choice.get("message"):
        return None
    delta = choice.get("delta")
    if not delta:
        return (choice, "text") if isinstance(choice.get("text"), str) else None
    if not isinstance(delta, dict) or any(delta.get(key) for key in _MORE):
        return None
    return (delta, "content") if isinstance(delta.get("content"), str) else None
