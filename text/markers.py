"""Markers: words planted in one tenant's data, to see whether they turn up in another's answers.

A marker means nothing and occurs nowhere by chance: 32 random hexadecimal digits behind a prefix.
Configurations and records hold its SHA-256 or its owner's name, never the marker.
"""

import re
from collections.abc import Mapping
from hashlib import sha256

PREFIX = "bpc-"
_MARKER = re.compile(PREFIX + r"[0-9a-f]{32}(?![0-9a-f])")


def marker_of(random: bytes) -> str:
    """Return the marker that 16 random bytes make.

    Raises:
        ValueError: not 16 bytes.
    """
    if len(random) != 16:
        raise ValueError("a marker is made of 16 random bytes")
    return PREFIX + random.hex()


def digest_of(marker: str) -> str:
    """Return what a configuration has for a marker or an API key."""
    return sha256(marker.encode("utf-8", "surrogatepass")).hexdigest()


def owners_in(text: str, owners: Mapping[str, str]) -> tuple[str, ...]:
    """Return whose markers stand in a text, sorted. `owners`: digest of a marker to its owner."""
    if PREFIX not in text:
        return ()
    found = {owners.get(digest_of(marker)) for marker in _MARKER.findall(text)}
    return tuple(sorted(owner for owner in found if owner is not None))
