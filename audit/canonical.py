"""One encoder for all that is stored or hashed. Pure.

Canonical JSON here is: keys sorted by code point, no spaces, UTF-8 without escapes that JSON does
not demand, finite numbers only. `clean` makes any JSON-like value fit for it (and fit for a
PostgreSQL text column), `dumps` refuses what was not cleaned. It does not turn models or
dataclasses into dicts: a caller does that and so decides which names are stored.

The hard part: cleaning must lose nothing silently. A number that is not finite becomes a small
object that says which one it was, NUL is dropped, half of a surrogate pair becomes U+FFFD, and two
keys that would fall together are refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from audit.errors import CanonicalError
from audit.redaction import MASK, is_secret, mask_text

MAX_DEPTH = 100
"""Nested containers, at most. Source: ours, 2026-12: far under Python's recursion limit."""

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def clean(value: Any) -> Any:
    """Return the value as plain JSON types that every strict parser accepts.

    Raises:
        CanonicalError: a type, a key or a depth that has no JSON form.
    """
    return _clean(value, redact=False, depth=0)


def prepare(value: Any) -> Any:
    """Clean the value and mask what must not be stored (see `audit.redaction`).

    Raises:
        CanonicalError: as for `clean`.
    """
    return _clean(value, redact=True, depth=0)


def dumps(value: Any) -> bytes:
    """Encode cleaned JSON types canonically.

    Raises:
        CanonicalError: a number that is not finite, half of a surrogate pair, another type.
    """
    try:
        text = json.dumps(
            value, allow_nan=False, ensure_ascii=False, separators=(",", ":"), sort_keys=True
        )
        return text.encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise CanonicalError(f"no canonical JSON for this value: {error}") from error


def loads(data: bytes | str) -> Any:
    """Decode JSON, refusing NaN, Infinity and repeated keys.

    Raises:
        CanonicalError: the text is not strict JSON.
    """
    try:
        return json.loads(data, parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise CanonicalError(f"not strict JSON: {error}") from error


def digest(data: bytes) -> str:
    """Return the SHA-256 of the bytes, 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def stamp(at: datetime) -> str:
    """Write a time as UTC with microseconds; such texts sort as the times do.

    Raises:
        CanonicalError: the time has no zone.
    """
    if at.utcoffset() is None:
        raise CanonicalError(f"a time without a zone says nothing: {at!r}")
    utc = at.astimezone(UTC).replace(tzinfo=None)
    return f"{utc.isoformat(timespec='microseconds')}Z"


def parse_stamp(text: str) -> datetime:
    """Read back what `stamp` wrote."""
    return datetime.fromisoformat(text)


def clean_text(text: str) -> str:
    """Drop NUL and replace each half of a surrogate pair by U+FFFD."""
    if not _UNSTORABLE.search(text):
        return str.__str__(text)  # the plain value of a text enumeration too
    return _UNSTORABLE.sub(lambda found: "" if found[0] == "\x00" else "\ufffd", text)


def _clean(value: Any, *, redact: bool, depth: int) -> Any:
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        text = clean_text(value)
        return mask_text(text) if redact else text
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _not_finite(value)
    if depth >= MAX_DEPTH:
        raise CanonicalError(f"nested deeper than {MAX_DEPTH} containers")
    if isinstance(value, Mapping):
        return _clean_mapping(value, redact=redact, depth=depth + 1)
    if isinstance(value, list | tuple):
        return [_clean(item, redact=redact, depth=depth + 1) for item in value]
    if isinstance(value, datetime):
        return stamp(value)
    raise CanonicalError(f"{type(value).__name__} has no JSON form here")


def _clean_mapping(value: Mapping[Any, Any], *, redact: bool, depth: int) -> dict[str, Any]:
    cleaned: dict[str, Any] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise CanonicalError(f"a key must be text, not {type(key).__name__}")
        name, secret = _known_key(key)
        if name in cleaned:
            raise CanonicalError(f"two keys fall together after cleaning: {name!r}")
        if redact and secret and item is not None:
            cleaned[name] = MASK
        else:
            cleaned[name] = _clean(item, redact=redact, depth=depth)
    return cleaned


@lru_cache(maxsize=4096)
def _known_key(key: str) -> tuple[str, bool]:
    """The cleaned key and whether it names a secret; records repeat a few keys very often."""
    name = clean_text(key)
    return name, is_secret(name)


def _not_finite(value: float) -> dict[str, str | None]:
    if math.isnan(value):
        return {"value": None, "reason": "nan"}
    return {"value": None, "reason": "inf" if value > 0 else "-inf"}


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is repeated")
    return found
