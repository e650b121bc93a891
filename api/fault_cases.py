"""How each fault is seen from outside: what is asked, with which parameters, and what must show.

Pure. A case holds when the answer shows the fault, and must not hold without it; so each check is
one that a healthy answer fails. Times scale with `pace`, which is chosen far above what the target
needs for such a request, so that a slow machine is no proof of a delay.
"""

import base64
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

CHAT = "/v1/chat/completions"
EMBEDDINGS = "/v1/embeddings"
TOKENS = 8
TENANT = "burnproof-verify"
_NEARLY = 0.95
"""Share of a delay that must be seen: clocks of two processes are read."""


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


@dataclass(frozen=True)
class Case:
    """One way to show one template."""

    template: str
    name: str
    parameters: dict[str, Any]
    holds: Callable[[Seen], bool]
    path: str = CHAT
    body: dict[str, Any] = field(default_factory=dict)
    tenant: str = TENANT
    applies: Callable[[Seen], bool] = lambda seen: seen.is_good
    """Whether the healthy answer shows that the preconditions are met."""


_TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Oslo"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
_CALL = {
    "tools": [_TOOL],
    "tool_choice": {"type": "function", "function": {"name": "weather"}},
    "max_tokens": 64,
    "ignore_eos": False,
}
_TEXTS = {"input": ["a river", "a stone"]}


def _called(seen: Seen) -> Any:
    """Return the arguments of the call, read; None if they cannot be, or if there is no call."""
    try:
        return json.loads(seen.arguments())
    except ValueError:
        return None


def _has_call(seen: Seen) -> bool:
    return seen.is_good and _called(seen) is not None


def _has_fields(seen: Seen) -> bool:
    return seen.is_good and isinstance(found := _called(seen), dict) and "city" in found


def _is_cut_short(seen: Seen) -> bool:
    return bool(seen.arguments()) and _called(seen) is None


def _are_constant(seen: Seen) -> bool:
    found = seen.vectors()
    return len(found) == 2 and found[0] == found[1] and len(set(found[0])) == 1


def _are_different(seen: Seen) -> bool:
    found = seen.vectors()
    return seen.status == 200 and len(found) == 2 and found[0] != found[1]


def _loses_field(seen: Seen) -> bool:
    return bool(_called(seen) == {})


def _bad_events(seen: Seen) -> int:
    return len(seen.events) - len(seen.documents()) - seen.body.count(b"data: [DONE]")


def cases(pace: float, replica: str) -> list[Case]:
    """Return every case, in the order of the catalogue.

    Args:
        pace: seconds, several times what a request takes.
        replica: that the requests are pinned to.
    """
    return [*_slow(pace, replica), *_refused(), *_broken(), *_changed(), *_nothing()]


def _slow(pace: float, replica: str) -> list[Case]:
    def late(seen: Seen) -> bool:
        return seen.first_byte >= pace * _NEARLY

    each, piece, pause = pace / 4, 64, pace / 20
    return [
        Case("gateway/latency-pareto", "delayed", {"base": pace, "cap": pace}, late),
        Case("gateway/latency-fixed", "delayed", {"delay": pace}, late),
        Case(
            "gateway/latency-per-token",
            "each token",
            {"delay": each},
            lambda seen: seen.tokens > 1 and seen.seconds >= seen.tokens * each * _NEARLY,
        ),
        Case(
            "gateway/dependency-latency",
            "by name",
            {"upstream": replica, "delay": pace},
            late,
        ),
        Case(
            "gateway/stream-stall",
            "one silence",
            {"after_tokens": 2, "stall": pace},
            lambda seen: seen.longest_gap >= pace * _NEARLY,
        ),
        Case(
            "gateway/slow-drip",
            "small pieces",
            {"piece_bytes": piece, "pause": pause},
            lambda seen: seen.seconds >= (len(seen.body) / piece - 1) * pause * _NEARLY,
        ),
    ]


def _refused() -> list[Case]:
    return [
        Case("gateway/error", "status", {"status": 503}, lambda seen: seen.status == 503),
        Case(
            "gateway/error",
            "in the stream",
            {"status": 500, "in_stream": True},
            lambda seen: seen.status == 200 and seen.error.get("code") == 500,
        ),
        Case(
            "gateway/error",
            "after 2 tokens",
            {"status": 500, "in_stream": True, "after_tokens": 2},
            lambda seen: seen.tokens == 2 and seen.error.get("code") == 500,
        ),
        Case(
            "gateway/rate-limit",
            "no time",
            {},
            lambda seen: seen.status == 429 and not seen.header("retry-after"),
        ),
        Case(
            "gateway/rate-limit",
            "seconds",
            {"retry_after": 7.0},
            lambda seen: seen.status == 429 and seen.header("retry-after") == ["7"],
        ),
        Case(
            "gateway/rate-limit",
            "date",
            {"retry_after": 7.0, "form": "http-date"},
            lambda seen: seen.status == 429 and "".join(seen.header("retry-after")).endswith("GMT"),
        ),
        Case(
            "gateway/quota-overrun",
            "tenant named",
            {},
            lambda seen: seen.status == 429 and TENANT in str(seen.error.get("message")),
        ),
    ]


def _broken() -> list[Case]:
    cut, garble = "gateway/stream-cut", "gateway/stream-garble"
    clean = {"after_tokens": 2, "ending": "clean"}
    return [
        Case(
            cut,
            "abrupt",
            {"after_tokens": 2},
            lambda seen: seen.broken and seen.tokens == 2 and not seen.is_done,
        ),
        Case(
            cut,
            "clean",
            clean,
            lambda seen: not seen.broken and seen.tokens == 2 and not seen.has_finish,
        ),
        Case(
            cut,
            "only [DONE]",
            {**clean, "done": True},
            lambda seen: seen.tokens == 2 and seen.is_done and not seen.has_finish,
        ),
        Case(
            cut,
            "final chunk",
            {**clean, "final_chunk": True},
            lambda seen: seen.has_finish and not seen.is_done and not seen.broken,
        ),
        Case(garble, "flip-byte", {"kind": "flip-byte"}, lambda seen: _bad_events(seen) == 1),
        Case(garble, "half-event", {"kind": "half-event"}, lambda seen: _bad_events(seen) == 1),
        Case(garble, "invalid-utf8", {"kind": "invalid-utf8"}, lambda seen: b"\xff" in seen.body),
    ]


def _changed() -> list[Case]:
    name = "x-burnproof-verified"
    headers, tools = "gateway/headers", "gateway/tool-calls"
    plain = {**_CALL, "stream": False}
    return [
        Case(
            headers,
            "answer, set",
            {"side": "answer", "action": "set", "name": name, "value": "1"},
            lambda seen: seen.header(name) == ["1"],
        ),
        Case(
            headers,
            "answer, removed",
            {"side": "answer", "action": "remove", "name": "content-type"},
            lambda seen: not seen.header("content-type"),
        ),
        Case(
            headers,
            "answer, doubled",
            {"side": "answer", "action": "duplicate", "name": "content-type"},
            lambda seen: len(seen.header("content-type")) == 2,
        ),
        Case(
            headers,
            "request, set",
            {"side": "request", "action": "set", "name": "content-type", "value": "text/plain"},
            lambda seen: seen.status >= 400,
        ),
        Case(
            "gateway/tenant-confusion",
            "route",
            {"kind": "route", "tenant": "another"},
            lambda seen: seen.status == 404,
            tenant="v1",  # a part of every path here, so that the replica itself sees the confusion
        ),
        Case(
            "gateway/constant-embeddings",
            "floats",
            {},
            _are_constant,
            path=EMBEDDINGS,
            body=_TEXTS,
            applies=_are_different,
        ),
        Case(
            "gateway/constant-embeddings",
            "base64",
            {},
            _are_constant,
            path=EMBEDDINGS,
            body={**_TEXTS, "encoding_format": "base64"},
            applies=_are_different,
        ),
        Case(
            tools,
            "truncated",
            {"kind": "truncated"},
            _is_cut_short,
            body=_CALL,
            applies=_has_call,
        ),
        Case(
            tools,
            "truncated, plain",
            {"kind": "truncated"},
            _is_cut_short,
            body=plain,
            applies=_has_call,
        ),
        Case(
            tools,
            "missing-required",
            {"kind": "missing-required"},
            _loses_field,
            body=_CALL,
            applies=_has_fields,
        ),
        Case(
            tools,
            "wrong-type",
            {"kind": "wrong-type"},
            lambda seen: bool(_called(seen) == {"city": 0}),
            body=_CALL,
            applies=_has_fields,
        ),
    ]


def _nothing() -> list[Case]:
    return [Case("null", "no effect", {}, lambda seen: not seen.is_good)]
