"""Mask secrets before anything is stored. Pure.

A value is masked for the name of its key, at any depth, and a text also for what it plainly shows:
a bearer token or a password inside an address. It does not find secrets that look like ordinary
text, and it knows nothing of prompts (those are not given to this room at all).

The hard part was names: `token` is a secret, `tokens`, `prompt_tokens` and `admin_token_file` are
not. So whole last words are compared, after `apiKey` and `X-Api-Key` were brought to one form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

MASK = "[redacted]"

_WHOLE = frozenset(
    {"auth", "authorization", "apikey", "cookie", "passwd", "password", "secret", "token"}
)
_ENDINGS = (
    "_api_key",
    "_apikey",
    "_authorization",
    "_cookie",
    "_passphrase",
    "_passwd",
    "_password",
    "_private_key",
    "_secret",
    "_secret_key",
    "_access_key",
    "_token",
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")
_SHORTEST = len("://:p@h")
_USERINFO = re.compile(r"(?<=://)[^/\s?#]*:[^/\s?#]+(?=@)")  # to the last @: passwords hold some
_QUERY = re.compile(r"(?<=[?&])([\w.-]+)=[^&\s#]+")


def is_secret(key: str) -> bool:
    """Say whether the value under this key must not be stored."""
    name = _CAMEL.sub("_", key).lower().replace("-", "_").replace(".", "_").replace(" ", "_")
    return name in _WHOLE or f"_{name}".endswith(_ENDINGS)


def mask_text(text: str) -> str:
    """Mask bearer tokens and passwords in addresses inside a text."""
    if len(text) < _SHORTEST:
        return text
    if "://" in text and "@" in text:
        text = _USERINFO.sub(MASK, text)
    if "://" in text and "=" in text:
        text = _QUERY.sub(_mask_query, text)
    lowered = text.lower()
    if "bearer" in lowered or "basic" in lowered:
        text = _BEARER.sub(lambda found: f"{found[1]} {MASK}", text)
    return text


def _mask_query(found: re.Match[str]) -> str:
    return f"{found[1]}={MASK}" if is_secret(found[1]) else found[0]


def secret_paths(value: Any, path: str = "") -> Iterator[str]:
    """Yield the path of each value that storing would mask, such as `metadata.labels.token`."""
    if isinstance(value, str):
        if mask_text(value) != value:
            yield path
    elif isinstance(value, Mapping):
        for key, item in value.items():
            name = f"{path}.{key}" if path else str(key)
            if item is not None and is_secret(str(key)):
                yield name
            else:
                yield from secret_paths(item, name)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from secret_paths(item, f"{path}[{index}]")
