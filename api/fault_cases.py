"""How each fault is seen from outside: what is asked, with which parameters, and what must show.

Pure. A case holds when the answer shows the fault, and must not hold without it; so each check is
one that a healthy answer fails. Times scale with `pace`, which is chosen far above what the target
needs for such a request, so that a slow machine is no proof of a delay.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from api.fault_corpus import NEAREST, PASSAGES, QUESTIONS
from api.fault_seen import Seen
from text.retrieval import accuracy_at

CHAT = "/v1/chat/completions"
EMBEDDINGS = "/v1/embeddings"
TOKENS = 8
TENANT = "burnproof-verify"
_NEARLY = 0.95
"""Share of a delay that must be seen: clocks of two processes are read."""
_ALMOST_NOTHING = 1e-6


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
    measure: Callable[[Seen], str] | None = None
    """A figure of the answer that is shown beside the verdict."""


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
_SEARCH = {"input": [*PASSAGES, *QUESTIONS]}
_CHANCE = NEAREST / len(PASSAGES)


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


def _accuracy(seen: Seen) -> float:
    """Return how many questions find their passage, ratio in [0, 1]; 0 if it is no such answer."""
    found = seen.vectors() if seen.status == 200 else []
    if len(found) != len(PASSAGES) + len(QUESTIONS):
        return 0.0
    return accuracy_at(NEAREST, found[len(PASSAGES) :], found[: len(PASSAGES)])


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
            "gateway/constant-embeddings",
            "search",
            {},
            lambda seen: abs(_accuracy(seen) - _CHANCE) < _ALMOST_NOTHING,
            path=EMBEDDINGS,
            body=_SEARCH,
            applies=lambda seen: _accuracy(seen) > 2 * _CHANCE,
            measure=lambda seen: f"accuracy@{NEAREST} {_accuracy(seen):.3f}",
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
