"""Tool calls and embeddings: just enough of both for faults to have something to spoil.

A request that names its tool (`tool_choice`) gets one call whose arguments fit the tool's schema,
whole or streamed in three pieces; embeddings count the words of a text, each in the place that its
hash says, so that texts with words in common are near. Neither waits for a slot nor is counted as
tokens: they have the shape of the real thing, not its cost. A tool that the model may choose by
itself is not chosen.
"""

import base64
import json
import math
import re
import struct
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any

from simulated_engine.errors import bad_request
from simulated_engine.options import FINGERPRINT
from simulated_engine.wire import DONE, compact

DIMENSION = 256
"""Numbers of a vector. Source: ours: long enough that the words of a sentence seldom share one."""

_WORD = re.compile(r"\w+")

_PIECES = 3


def named_call(raw: bytes) -> tuple[str, str] | None:
    """Return name and arguments of the tool that a request names, or None if it names none."""
    if b'"tool_choice"' not in raw:
        return None
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    choice = fields.get("tool_choice") if isinstance(fields, dict) else None
    if not isinstance(choice, dict):
        return None
    name = _part(choice, "function").get("name")
    tools = fields.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        function = _part(tool, "function")
        if function.get("name") == name and isinstance(name, str):
            schema = function.get("parameters")
            return name, json.dumps(_example(schema if isinstance(schema, dict) else {}))
    raise bad_request(f"Tool '{name}' has not been found in the tools list.", "tool_choice")


def _part(value: object, key: str) -> Mapping[str, Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _example(schema: Mapping[str, Any]) -> Any:
    """Return a value that fits a schema of the simple kinds."""
    options = schema.get("enum")
    if isinstance(options, list) and options:
        return options[0]
    fields = schema.get("properties")
    if isinstance(fields, dict):
        return {
            key: _example(each if isinstance(each, dict) else {}) for key, each in fields.items()
        }
    kinds: dict[object, Any] = {"string": "river", "integer": 3, "number": 1.5, "boolean": True}
    return kinds.get(schema.get("type"), [] if schema.get("type") == "array" else {})


def call_stream(head: Mapping[str, Any], name: str, arguments: str) -> Iterator[bytes]:
    """Give the chunks of a streamed call: role, name, pieces of the arguments, finish."""

    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        body = {**head, "object": "chat.completion.chunk", "choices": [choice]}
        return b"data: " + compact({**body, "system_fingerprint": FINGERPRINT}) + b"\n\n"

    yield chunk({"role": "assistant", "content": ""})
    size = -(-len(arguments) // _PIECES)
    opening: dict[str, Any] = {"id": "call-0", "type": "function"}
    for start in range(0, len(arguments), size):
        function = {"name": name} if opening else {}
        piece = {**function, "arguments": arguments[start : start + size]}
        yield chunk({"tool_calls": [{**opening, "index": 0, "function": piece}]})
        opening = {}
    yield chunk({}, "stop")
    yield DONE


def call_answer(head: Mapping[str, Any], name: str, arguments: str) -> bytes:
    """Return a whole answer with the call."""
    call = {
        "id": "call-0",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }
    message = {"role": "assistant", "content": "", "tool_calls": [call]}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    answer = {**head, "object": "chat.completion", "choices": [choice]}
    return compact({**answer, "system_fingerprint": FINGERPRINT})


def embeddings_answer(fields: object, default_model: str, created: int) -> bytes:
    """Return the answer to an embeddings request.

    Raises:
        ApiError: `input` is no text and no list of texts.
    """
    given = fields if isinstance(fields, dict) else {}
    texts = given.get("input")
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise bad_request("input must be a string or a list of strings", "input")
    as_text = given.get("encoding_format") == "base64"
    data = [
        {"index": index, "object": "embedding", "embedding": _vector(text, as_text)}
        for index, text in enumerate(texts)
    ]
    tokens = sum(max(1, len(text.split())) for text in texts)
    return compact(
        {
            "id": "embd-0",
            "object": "list",
            "created": created,
            "model": given.get("model") or default_model,
            "data": data,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            "system_fingerprint": FINGERPRINT,
        }
    )


def _vector(text: str, as_text: bool) -> list[float] | str:
    numbers = [0.0] * DIMENSION
    for word in _WORD.findall(text.lower()) or [text]:
        digest = blake2b(word.encode("utf-8", "replace"), digest_size=4).digest()
        place, sign = divmod(int.from_bytes(digest, "big") % (2 * DIMENSION), 2)
        numbers[place] += 1.0 - 2.0 * sign
    length = math.hypot(*numbers) or 1.0
    numbers = [number / length for number in numbers]
    if not as_text:
        return numbers
    return base64.b64encode(struct.pack(f"<{DIMENSION}f", *numbers)).decode()
