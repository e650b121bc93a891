r"""An incremental reader of server-sent events that only measures.

It is fed the bytes as they are forwarded and notes: first content token, silences, finish reasons,
`[DONE]`, usage, an error object. It never asks for a chunk to be held back and never changes one.
It splits at CR, LF and CRLF only: universal line splitting also cuts at U+2028, \v or \x1c, which
JSON strings may hold raw. A CR at the end of one read and an LF at the start of the next are one
line end; UTF-8 is decoded per whole event, so that a character cut by the network is never half
read. Comments, empty data and chunks without a choice (usage, cost) are no tokens.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from gateway.sse_template import Template
from text.tool_json import ToolArguments

MAX_EVENT_BYTES = 4 * 1024 * 1024
"""Bytes of one event kept for reading; what is longer is forwarded all the same, but not read."""

LESSONS = 4
"""Chunks of a stream that are tried as the template of its later ones; odd streams have none."""

MAX_TEXT_CHARACTERS = 1_000_000
"""Characters of an answer kept to compute its flags."""

MAX_USAGE_TOKENS = 1_000_000_000
"""Largest figure of tokens that is believed. Source: ours: far above any context length."""

_decode = json.JSONDecoder().raw_decode

_LINE_END = re.compile(rb"\r\n|\r|\n")

_TERMINAL_TYPES = frozenset({"message_stop", "response.completed", "response.incomplete"})
"""Last events of the two other common streaming dialects. Source: their public API references."""


@dataclass(slots=True)
class StreamFacts:
    """What one answer showed. Times are seconds on the loop's clock."""

    first_token_at: float | None = None
    last_event_at: float | None = None
    max_gap_s: float = 0.0
    content_chunks: int = 0
    usage_tokens: int | None = None
    prompt_tokens: int = 0
    finished: bool = False
    done: bool = False
    error: bool = False
    error_code: int = 0
    text: list[str] = field(default_factory=list)
    text_length: int = 0
    tools: ToolArguments = field(default_factory=ToolArguments)

    @property
    def tokens(self) -> int:
        """Completion tokens: as reported when they are, else the content chunks."""
        return self.content_chunks if self.usage_tokens is None else self.usage_tokens

    @property
    def complete(self) -> bool:
        """Whether the answer said that it was over."""
        return self.finished or self.done

    def note_event(self, now: float) -> None:
        """Count the silence before a data event, once the first token was there."""
        if self.first_token_at is not None and self.last_event_at is not None:
            self.max_gap_s = max(self.max_gap_s, now - self.last_event_at)
        self.last_event_at = now

    def note_end(self, now: float) -> None:
        """Count the silence before an end that was not the answer's own."""
        if self.first_token_at is not None and not self.complete:
            StreamFacts.note_event(self, now)  # a silence, but no event that anybody sent

    def note_token(self, text: str, now: float) -> None:
        """Take an event that brings this text and nothing else."""
        self.note_event(now)
        self.add_text(text)
        self.content_chunks += 1
        if self.first_token_at is None:
            self.first_token_at = now

    def add_text(self, piece: str) -> None:
        """Keep a piece of the answer, up to the limit."""
        if self.text_length < MAX_TEXT_CHARACTERS:
            self.text.append(piece)
            self.text_length += len(piece)


class SseReader:
    """Reads a byte stream of events into `StreamFacts`."""

    def __init__(self, facts: StreamFacts | None = None) -> None:
        self.facts = StreamFacts() if facts is None else facts
        self._line = bytearray()
        self._data: list[bytes] = []
        self._data_size = 0
        self._after_cr = False
        self._template: Template | None = None
        self._lessons = LESSONS

    def feed(self, chunk: bytes, now: float) -> None:
        """Read one chunk, forwarded at `now` (seconds). Never raises on what the bytes hold."""
        template = self._template
        if (
            template is not None
            and not self._line
            and not self._data
            and not self._after_cr
            and len(chunk) <= MAX_EVENT_BYTES
        ):
            text = template.text_of_event(chunk)
            if text is not None:
                self.facts.note_token(text, now)
                return
        if self._after_cr:
            self._after_cr = False
            if chunk.startswith(b"\n"):
                chunk = chunk[1:]
        if b"\r" not in chunk and len(self._line) + len(chunk) <= MAX_EVENT_BYTES:
            self._feed_plain(chunk, now)
            return
        start = 0
        for end in _LINE_END.finditer(chunk):
            self._take(chunk[start : end.start()])
            start = end.end()
            line, self._line = bytes(self._line), bytearray()
            self._end_line(line, now)
        if start:
            self._after_cr = chunk.endswith(b"\r")
        self._take(chunk[start:])

    def _feed_plain(self, chunk: bytes, now: float) -> None:
        """Do the same for the usual chunk: lines that end in LF, of bearable length."""
        first, *lines = chunk.split(b"\n")
        self._line += first
        if not lines:
            return
        line, self._line = bytes(self._line), bytearray(lines.pop())
        self._end_line(line, now)
        for line in lines:
            self._end_line(line, now)

    def _take(self, piece: bytes) -> None:
        if len(self._line) + len(piece) <= MAX_EVENT_BYTES:
            self._line += piece

    def _end_line(self, line: bytes, now: float) -> None:
        if not line:
            data, self._data, self._data_size = self._data, [], 0
            if data:
                self._event(b"\n".join(data), now)
            return
        name, _, value = line.partition(b":")
        self._data_size += len(value)
        if name == b"data" and self._data_size <= MAX_EVENT_BYTES:
            self._data.append(value[1:] if value.startswith(b" ") else value)

    def _event(self, data: bytes, now: float) -> None:
        data = data.strip(b" \t")
        if not data:
            return
        if data == b"[DONE]":
            self.facts.note_event(now)
            self.facts.done = True
            return
        if self._template is not None:
            token = self._template.text_of(data)
            if token is not None:
                self.facts.note_token(token, now)
                return
        try:
            text = data.decode("utf-8", "surrogatepass")
            document, end = _decode(text)
        except (ValueError, RecursionError):
            return
        if isinstance(document, dict) and not text[end:].strip():
            before = self.facts.content_chunks
            note_chunk(self.facts, document, now)
            if self._lessons and self.facts.content_chunks > before:
                self._lessons -= 1
                self._template = Template.learn(data, document) or self._template


def note_chunk(facts: StreamFacts, document: dict[str, Any], now: float) -> None:
    """Take one streamed JSON object into the facts."""
    if document.get("error"):
        facts.error = True
        facts.error_code = _code(document["error"])
        return
    _note_usage(facts, document.get("usage"))
    kind = document.get("type")
    if kind in _TERMINAL_TYPES:
        facts.note_event(now)
        facts.finished = True
    choices = document.get("choices")
    if not isinstance(choices, list) or not choices:
        return
    facts.note_event(now)
    has_token = False
    for choice in choices:
        if isinstance(choice, dict):
            has_token |= _note_choice(facts, choice)
    if has_token:
        facts.content_chunks += 1
        if facts.first_token_at is None:
            facts.first_token_at = now


def _note_choice(facts: StreamFacts, choice: dict[str, Any]) -> bool:
    """Take one choice; say whether it brought content or a part of a tool call."""
    if choice.get("finish_reason"):
        facts.finished = True
    has_token = False
    delta = choice.get("delta") or choice.get("message")
    parts: dict[str, Any] = delta if isinstance(delta, dict) else {"content": choice.get("text")}
    for key in ("content", "reasoning_content", "reasoning", "refusal"):
        piece = parts.get(key)
        if isinstance(piece, str) and piece:
            has_token = True
            if key == "content":
                facts.add_text(piece)
    return facts.tools.add(parts.get("tool_calls")) or has_token


def _note_usage(facts: StreamFacts, usage: Any) -> None:
    if not isinstance(usage, dict):
        return
    completion, prompt = usage.get("completion_tokens"), usage.get("prompt_tokens")
    if _is_count(completion):
        facts.usage_tokens = completion
    if _is_count(prompt):
        facts.prompt_tokens = prompt


def _is_count(figure: Any) -> TypeGuard[int]:
    """Whether an engine's figure can be a number of tokens; a counter that took 1e400 is dead."""
    return type(figure) is int and 0 <= figure <= MAX_USAGE_TOKENS


def _code(error: Any) -> int:
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, str) and code.isdecimal() and len(code) <= 3:
        code = int(code)
    return code if isinstance(code, int) and 100 <= code <= 999 else 0
