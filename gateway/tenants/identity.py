"""Which tenant a request names: every sign is read, and all must say the same.

A header that comes twice, a path with dots in it, a name that another server would read otherwise:
each is how one tenant's request gets onto another's bill, so none of them is guessed at. A claim of
a bearer token is compared with the other signs and names nobody by itself, since its signature is
not checked here; only an API key proves who asks.

Pure but for a bounded memory of signs that were read before: a client sends the same ones again.
"""

import base64
import binascii
import json
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

from gateway.http1.heads import RequestHead
from gateway.names import NAME_PATTERN
from gateway.tenants.config import (
    ClaimSign,
    HeaderSign,
    KeySign,
    PathSign,
    Sign,
    TenantsConfig,
)
from text.markers import digest_of

MAX_TOKEN_BYTES = 8 * 1024
"""Longest bearer token that is read. Source: ours: common servers take heads of 8 KiB."""

KNOWN = 1024
"""Sets of signs that are remembered."""

MAX_KNOWN_BYTES = 8 * 1024
"""Longest set of signs that is remembered: 8 MiB at most of them."""

_is_name = re.compile(NAME_PATTERN).match
_dots = re.compile(r"(?:^|/)(?:\.|%2e){1,2}(?:/|$)|//|%2f|%5c|\\", re.IGNORECASE).search


class Problem(StrEnum):
    """What is wrong with the signs of a request; the first that holds is named."""

    MALFORMED = "malformed"
    """A sign holds what is no name, or what another server may read otherwise."""
    UNKNOWN_KEY = "unknown_key"
    REPEATED = "repeated"
    """A sign comes more than once, be it with the same value."""
    DISAGREEING = "disagreeing"
    MISSING = "missing"
    UNKNOWN = "unknown"
    """A tenant that is not in the configuration."""
    WRONG_ROUTE = "wrong_route"
    """A tenant that may not use this route."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What the signs say."""

    tenant: str
    """The first tenant that is named; empty if none is."""
    others: tuple[str, ...] = ()
    """Further tenants that the signs name."""
    problem: Problem | None = None


class Signs:
    """Reads the signs of one configuration."""

    def __init__(self, config: TenantsConfig) -> None:
        # What is checked goes before what is only said.
        self._signs = sorted(config.signs, key=lambda sign: not isinstance(sign, KeySign))
        self._keys = {
            digest: member.name for member in config.members for digest in member.key_sha256
        }
        self._wanted = {
            _header_of(sign): sign for sign in config.signs if not isinstance(sign, PathSign)
        }
        self._sizes = frozenset(map(len, self._wanted))
        self._reads_path = any(isinstance(sign, PathSign) for sign in self._signs)
        self._known = lru_cache(maxsize=KNOWN)(self._say)

    def read(self, head: RequestHead, path: str) -> Identity:
        """Say whom the signs name, and what is wrong with them."""
        found: list[tuple[bytes, bytes]] = []
        size = 0
        for name, value in head.pairs:
            if len(name) in self._sizes:
                low = name.lower().replace(b"_", b"-")  # some servers read `_` as `-`
                if low in self._wanted:
                    found.append((low, value.strip(b" \t")))
                    size += len(value)
        path = path if self._reads_path else ""
        named = head.named.intersection(self._wanted) if head.named else head.named
        say = self._known if size + len(path) <= MAX_KNOWN_BYTES else self._say
        return say(tuple(found), path, named)

    def _say(
        self, pairs: tuple[tuple[bytes, bytes], ...], path: str, cut_off: frozenset[bytes]
    ) -> Identity:
        """Read sign by sign. `cut_off`: headers that go no further than here."""
        found: dict[bytes, list[bytes]] = {}
        for header, value in pairs:
            found.setdefault(header, []).append(value)
        problems = set[Problem]()
        named: dict[str, None] = {}
        compared: dict[str, None] = {}
        for sign in self._signs:
            if isinstance(sign, PathSign):
                names = _in_path(sign, path, problems)
            else:
                header = _header_of(sign)
                values = found.get(header, [])
                if values and header in cut_off:
                    problems.add(Problem.MALFORMED)
                if len(values) > 1:
                    problems.add(Problem.REPEATED)
                names = self._names(sign, values, problems)
            (compared if isinstance(sign, ClaimSign) else named).update(dict.fromkeys(names))
        tenant = next(iter(named), "")
        others = tuple(name for name in {**named, **compared} if name != tenant)
        if tenant and others:
            problems.add(Problem.DISAGREEING)
        problem = next((each for each in Problem if each in problems), None)
        if problem is None and not tenant:
            problem = Problem.MISSING
        return Identity(tenant, others, problem)

    def _names(
        self,
        sign: HeaderSign | KeySign | ClaimSign,
        values: list[bytes],
        problems: set[Problem],
    ) -> list[str]:
        names: list[str] = []
        for value in values:
            if isinstance(sign, KeySign):
                name = self._keys.get(digest_of(_bare(value).decode("latin-1"))) if value else ""
                if name is None:
                    problems.add(Problem.UNKNOWN_KEY)
                names += [name] if name else []
            elif isinstance(sign, ClaimSign):
                found = claims_of(_bare(value), sign.name)
                names += _checked(found or (), problems)
                if found is None:
                    problems.add(Problem.MALFORMED)
                elif len(found) > 1:
                    problems.add(Problem.REPEATED)
            else:
                parts = [part.strip(b" \t") for part in value.split(b",")]
                if len(parts) > 1:
                    problems.add(Problem.REPEATED)  # two headers that a proxy has joined
                names += _checked([part.decode("latin-1") for part in parts if part], problems)
        return names


def _header_of(sign: Sign) -> bytes:
    if isinstance(sign, PathSign):
        return b""
    return (sign.name if isinstance(sign, HeaderSign) else sign.header).encode()


def _checked(names: tuple[str, ...] | list[str], problems: set[Problem]) -> list[str]:
    fine = [name for name in names if _is_name(name) and not name.endswith("\n")]
    if len(fine) < len(names):
        problems.add(Problem.MALFORMED)
    return fine


def _in_path(sign: PathSign, path: str, problems: set[Problem]) -> list[str]:
    if not path.startswith(sign.after):
        return []
    if _dots(path):
        problems.add(Problem.MALFORMED)
    name = path[len(sign.after) :].partition("/")[0]
    return _checked([name], problems) if name else []


def _bare(value: bytes) -> bytes:
    """Return a credential without the word that says what it is."""
    scheme, _, rest = value.partition(b" ")
    return rest.strip(b" \t") if scheme.lower() == b"bearer" else value


def claims_of(token: bytes, claim: str) -> tuple[str, ...] | None:
    """Return every value that a bearer token gives a claim; its signature is not checked.

    Returns:
        None if the token looks like one with claims and cannot be read; nothing if it is another
        kind of credential, or has no such claim.
    """
    if token.count(b".") != 2:
        return ()
    return None if len(token) > MAX_TOKEN_BYTES else _read_claims(token, claim)


def _read_claims(token: bytes, claim: str) -> tuple[str, ...] | None:
    part = token.split(b".")[1]
    found: list[Any] = []

    def keep(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found[:] = [value for name, value in pairs if name == claim]  # the outermost comes last
        return dict(pairs)

    try:
        raw = base64.b64decode(part + b"=" * (-len(part) % 4), altchars=b"-_", validate=True)
        document = json.loads(raw, object_pairs_hook=keep)
    except (binascii.Error, ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or not all(isinstance(value, str) for value in found):
        return None
    return tuple(found)
