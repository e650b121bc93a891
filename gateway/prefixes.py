"""The beginnings of a prompt as a chain of hashes, to see which ones come again.

An engine keeps the work on the beginning of a prompt and reuses it block by block when another
prompt begins the same. So a prompt is cut into blocks here too, and each beginning gets one hash,
of the block and the hash before it. The key is new for each process and never leaves it: short
prompts could otherwise be guessed from their hashes. Only sampled requests are read.

What this cannot know: the engine's tokens and its chat template. A block here is a number of
bytes, about four of an engine's blocks of 16 tokens of English.
"""

import json
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

BLOCK_BYTES = 256

MAX_BLOCKS = 64
"""Longest beginning that is told apart: 16 KiB. Source: ours: longer ones differ before that."""

MAX_READ_BYTES = 1024 * 1024
"""Largest body that is read a second time for its prompt: longer ones would hold the loop up."""

_HASH_BYTES = 8

_PART_END = "\x1e"
"""Between two parts of a prompt, so that moving text from one to the next is another prompt."""


def prompt_text(document: dict[str, Any]) -> str:
    """Return what an engine puts before its first new token, as well as it can be told from here.

    Tools come first since chat templates put them there; images and sounds are left out.
    """
    parts = []
    tools = document.get("tools")
    if tools:
        parts.append(json.dumps(tools))
    messages = document.get("messages")
    if isinstance(messages, list):
        parts += [part for message in messages for part in _of_message(message)]
    for name in ("prompt", "input"):
        value = document.get(name)
        if isinstance(value, list) and value and isinstance(value[0], str | list):
            value = value[0]  # several prompts: each is a request of its own to the engine
        if value is not None:
            parts.append(value if isinstance(value, str) else json.dumps(value))
    return _PART_END.join(parts)


def _of_message(message: Any) -> Iterator[str]:
    if not isinstance(message, dict):
        return
    yield str(message.get("role", ""))
    content = message.get("content")
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield part["text"]
    calls = message.get("tool_calls")
    if calls:
        yield json.dumps(calls)


def chain(text: bytes, model: str, key: bytes) -> tuple[str, ...]:
    """Return one hash for each whole block: it names everything up to that block's end.

    Two models share nothing, so the model is part of every hash.
    """
    named = model.encode("utf-8", "surrogatepass")
    before = blake2b(named, digest_size=_HASH_BYTES, key=key).digest()
    found = []
    for start in range(0, min(len(text), BLOCK_BYTES * MAX_BLOCKS), BLOCK_BYTES):
        block = text[start : start + BLOCK_BYTES]
        if len(block) < BLOCK_BYTES:
            break
        before = blake2b(before + block, digest_size=_HASH_BYTES, key=key).digest()
        found.append(before.hex())
    return tuple(found)


def read_prompt(body: bytes, model: str, key: bytes) -> tuple[tuple[str, ...], int]:
    """Return the chain of a request's prompt and the prompt's length in bytes; ((), 0) without."""
    if not body or len(body) > MAX_READ_BYTES:
        return (), 0
    try:
        document = json.loads(body)
        if not isinstance(document, dict):
            return (), 0
        text = prompt_text(document).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return (), 0
    return chain(text, model, key), len(text)
