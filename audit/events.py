"""The chain of one run's events, and how to check it. Pure: no database, no clock.

An event's hash covers the hash before it and an envelope of six plain fields, of which one is the
digest of the payload's stored bytes. So anybody can recompute a chain with SHA-256 and an ordinary
JSON writer: no number is ever written again. It proves order and content; it does not prove that
nobody rewrote a whole chain, for which a head hash kept elsewhere is compared.

The hard part was to name what was changed. Each event therefore also keeps the digest of its
payload and the hash before it, and a check goes on from the *stored* hash after a break, so that
one changed event is one problem and not a hundred.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_jsonable_python

from audit.canonical import digest, dumps, loads
from audit.errors import CanonicalError

GENESIS = "0" * 64
"""What the first event of a run has as the hash before it."""

MAX_PAYLOAD_BYTES = 256 * 1024
"""Source: ours, 2026-12: an eighth of one Temporal payload; more belongs in a segment."""

MAX_NAME_CHARACTERS = 200
"""Source: ours, 2026-12: one length for SQLite, which has no limit, and PostgreSQL, which has."""

KIND_OPENED = "run_opened"
KIND_FINISHED = "run_finished"
KIND_SEGMENT = "segment"
KIND_HOLD = "hold"
KIND_STOP = "stop"
KIND_DECISION = "decision"
KEY_OPENED = "run/opened"
KEY_FINISHED = "run/finished"
SYSTEM_RUN = "system"
"""The run under which acts that belong to no run are kept: sweeps, manual acts, the stop switch."""


@dataclass(frozen=True, slots=True)
class Event:
    """One stored event, as it stands in the database; nothing in it has been checked."""

    run_id: str
    seq: int
    key: str
    kind: str
    at: str
    payload_text: str
    payload_sha256: str
    prev_hash: str
    hash: str

    @property
    def payload(self) -> dict[str, Any]:
        """The payload as a dict.

        Raises:
            CanonicalError: the stored text is no JSON object.
        """
        value = loads(self.payload_text)
        if not isinstance(value, dict):
            raise CanonicalError(f"the payload of event {self.seq} is no object")
        return value


@dataclass(frozen=True, slots=True)
class EventRef:
    """Where an event stands. `created` is False if the key was there before (first wins)."""

    seq: int
    hash: str
    stored: dict[str, Any]
    created: bool = True


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in the record that cannot be as it was written."""

    run: str
    field: str
    message: str


def check_name(what: str, value: str, limit: int = MAX_NAME_CHARACTERS) -> str:
    """Return the name if both databases can keep it as it is.

    Raises:
        CanonicalError: empty, too long, or with characters that cannot be stored.
    """
    if not value or len(value) > limit:
        raise CanonicalError(f"{what} must have 1 to {limit} characters, not {len(value)}")
    if "\x00" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise CanonicalError(f"{what} holds characters that cannot be stored: {value!r}")
    return str.__str__(value)


def envelope(event: Event) -> bytes:
    """Return the bytes that stand for an event in its chain."""
    return dumps(
        {
            "at": event.at,
            "key": event.key,
            "kind": event.kind,
            "payload_sha256": event.payload_sha256,
            "run_id": event.run_id,
            "seq": event.seq,
        }
    )


def link(prev_hash: str, enveloped: bytes) -> str:
    """Return the hash of an event: SHA-256 over the hash before, a line feed, and the envelope."""
    return digest(prev_hash.encode("ascii", "replace") + b"\n" + enveloped)


def check_chain(run_id: str, events: Sequence[Event]) -> list[Problem]:
    """Name every event that was changed, dropped, put in, or moved. Order as given matters."""
    problems: list[Problem] = []
    prev_hash, expected_seq = GENESIS, 1
    for event in events:
        field = f"events[{event.seq}]"
        if not is_well_typed(event):
            return [*problems, Problem(run_id, field, "holds a value of another type")]
        if event.seq != expected_seq:
            problems.append(
                Problem(run_id, f"{field}.seq", f"expected {expected_seq}: events are missing")
            )
        if event.prev_hash != prev_hash:
            problems.append(
                Problem(run_id, f"{field}.prev_hash", "does not follow the event before it")
            )
        problems.extend(_check_event(run_id, field, event))
        prev_hash, expected_seq = event.hash, event.seq + 1
    return problems


def is_well_typed(event: Event) -> bool:
    """Say whether each field has its type: SQLite keeps a text in a column of numbers."""
    number: object = event.seq
    texts: tuple[object, ...] = (event.run_id, event.key, event.kind, event.at, event.payload_text)
    hashes: tuple[object, ...] = (event.payload_sha256, event.prev_hash, event.hash)
    return isinstance(number, int) and all(isinstance(text, str) for text in texts + hashes)


def _check_event(run_id: str, field: str, event: Event) -> list[Problem]:
    problems: list[Problem] = []
    try:
        payload = event.payload_text.encode("utf-8")
        if digest(payload) != event.payload_sha256:
            problems.append(Problem(run_id, f"{field}.payload", "does not give its digest"))
        if link(event.prev_hash, envelope(event)) != event.hash:
            text = "at, key, kind, seq, a digest or the hash itself was changed"
            problems.append(Problem(run_id, f"{field}.hash", text))
    except (UnicodeEncodeError, CanonicalError) as error:
        problems.append(Problem(run_id, field, f"cannot be hashed: {error}"))
    return problems


def decision(
    function: str, inputs: Any, result: Any, streams: Sequence[str] = ()
) -> dict[str, Any]:
    """Build the payload of a decision, in the one form that `audit.replay` recomputes.

    Models among the inputs and in the result are turned to JSON, as replay does.
    """
    return {
        "function": function,
        "input": to_jsonable_python(inputs),
        "streams": list(streams),
        "result": to_jsonable_python(result),
    }
