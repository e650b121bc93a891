"""Recompute every stored decision from what was stored, and name each field that differs.

A decision event holds the name of a pure function, its whole input, the streams of evidence it read
and its result. Replay loads that, calls the function that bears the name today, and compares
canonical JSON. A name carries a version (`observe/1`): a rule that changes gets a new name, so an
old verdict is always judged by the rule it was made with.

It first checks the record itself: recomputing from evidence that was changed proves nothing. It
asks no clock, no network and no other run. Functions are imported when they are first needed.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from audit.canonical import dumps, prepare
from audit.errors import AuditError
from audit.events import KIND_DECISION, Event
from audit.store import AuditStore

Recompute = Callable[[dict[str, Any], list[dict[str, Any]]], Any]
"""Takes the stored input and the stored pages, returns the result (models are turned to JSON)."""

OUTCOME_FUNCTION = "outcome/1"

UNDECIDED: Mapping[str, Any] = {"outcome": "INCONCLUSIVE", "exit_code": 2}
"""All that a run may claim that ended without a decision: the sweep closed it."""

FUNCTIONS: Mapping[str, tuple[str, str]] = {
    "observe/1": ("canary.session", "observe"),
    OUTCOME_FUNCTION: ("faults.outcome", "decide_outcome"),
    "admit/1": ("faults.blast_radius", "admit"),
    "plan/1": ("remediation.plan", "plan"),
}
"""Where each decision's function lies: module and name."""

_NOTHING = object()


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A field that is not what it must be. For a broken record, `stored` tells what is wrong."""

    run: str
    field: str
    stored: Any
    recomputed: Any


def default_registry() -> dict[str, Recompute]:
    """Return every decision that this version can recompute."""
    return {name: _late(module, attribute) for name, (module, attribute) in FUNCTIONS.items()}


def replay(
    store: AuditStore,
    run_id: str,
    registry: Mapping[str, Recompute] | None = None,
    expected_head: str | None = None,
) -> list[Mismatch]:
    """Verify the run's record, then recompute all its decisions; empty means all as stored.

    Args:
        store: where the run is kept.
        run_id: the run.
        registry: functions by their versioned names; by default those of `FUNCTIONS`.
        expected_head: a head hash kept elsewhere (see `AuditStore.verify_chain`).
    """
    known = default_registry() if registry is None else registry
    found = [
        Mismatch(run_id, problem.field, problem.message, None)
        for problem in store.verify_chain(run_id, expected_head)
    ]
    last_outcome: Mapping[str, Any] = UNDECIDED
    for event in store.events(run_id, KIND_DECISION):
        try:
            payload = event.payload
            found += _replay_decision(store, event, payload, known)
        except AuditError as error:
            found.append(Mismatch(run_id, f"events[{event.seq}]", f"cannot be read: {error}", None))
            continue
        if payload.get("function") == OUTCOME_FUNCTION and isinstance(payload.get("result"), dict):
            last_outcome = payload["result"]
    return found + _compare_run(store, run_id, last_outcome)


def by_signature(function: Callable[..., Any]) -> Recompute:
    """Call a typed pure function with stored JSON.

    Each argument is read from the input under its own name, by its type hint. A function of one
    argument may also be given the whole input for it. An argument `pages` gets the stored pages.

    Raises:
        TypeError: (when called) the input has names that the function does not know.
    """
    hints = typing.get_type_hints(function)
    parameters = inspect.signature(function).parameters
    names = [name for name in parameters if name != "pages"]

    def recompute(inputs: dict[str, Any], pages: list[dict[str, Any]]) -> Any:
        named = {names[0]: inputs} if len(names) == 1 and set(inputs) != set(names) else inputs
        if unknown := sorted(set(named) - set(names)):
            raise TypeError(f"the function knows no argument {', '.join(unknown)}")
        arguments = {
            name: TypeAdapter(hints.get(name, Any)).validate_json(dumps(value))
            for name, value in named.items()
        }
        if "pages" in parameters:
            arguments["pages"] = _pages(pages)
        return function(**arguments)

    return recompute


def differences(stored: Any, recomputed: Any, path: str) -> list[tuple[str, Any, Any]]:
    """Return the dotted path of each leaf whose canonical JSON differs, with both values."""
    if isinstance(stored, dict) and isinstance(recomputed, dict):
        return [
            difference
            for key in sorted({*stored, *recomputed})
            for difference in differences(
                stored.get(key, _NOTHING), recomputed.get(key, _NOTHING), f"{path}.{key}"
            )
        ]
    if isinstance(stored, list) and isinstance(recomputed, list):
        size = max(len(stored), len(recomputed))
        padded = [[*side, *[_NOTHING] * (size - len(side))] for side in (stored, recomputed)]
        return [
            difference
            for index, (left, right) in enumerate(zip(*padded, strict=True))
            for difference in differences(left, right, f"{path}.{index}")
        ]
    if stored is _NOTHING or recomputed is _NOTHING:
        left = "(nothing)" if stored is _NOTHING else stored
        right = "(nothing)" if recomputed is _NOTHING else recomputed
        return [(path, left, right)]
    return [] if dumps(stored) == dumps(recomputed) else [(path, stored, recomputed)]


def _replay_decision(
    store: AuditStore, event: Event, payload: dict[str, Any], known: Mapping[str, Recompute]
) -> list[Mismatch]:
    run_id, field = event.run_id, f"events[{event.seq}]"
    name = payload.get("function")
    recompute = known.get(name) if isinstance(name, str) else None
    if recompute is None:
        return [Mismatch(run_id, f"{field}.function", name, "no such function in this version")]
    streams = payload.get("streams", [])
    if not isinstance(streams, list) or not all(isinstance(each, str) for each in streams):
        return [Mismatch(run_id, f"{field}.streams", streams, "is no list of names")]
    pages: list[dict[str, Any]] = []
    for stream in streams:
        for segment in store.load_segments(run_id, stream):
            pages.extend(segment)
    stored = payload.get("result")
    try:
        result = recompute(payload.get("input", {}), pages)
    except Exception as error:  # whatever the function raises on this input is the finding
        text = f"{type(error).__name__}: {error}"
        return [Mismatch(run_id, f"{field}.result", stored, text)]
    recomputed = prepare(to_jsonable_python(result))
    return [
        Mismatch(run_id, path, left, right)
        for path, left, right in differences(stored, recomputed, f"{field}.result")
    ]


def _compare_run(store: AuditStore, run_id: str, decided: Mapping[str, Any]) -> list[Mismatch]:
    """The run must have ended with the outcome that was decided last, or claim nothing."""
    run = store.run(run_id)
    if run is None or run.finished_at is None:
        return []
    return [
        Mismatch(run_id, f"runs.{name}", getattr(run, name), decided.get(name))
        for name in ("outcome", "exit_code")
        if name in decided and getattr(run, name) != decided[name]
    ]


def _late(module: str, attribute: str) -> Recompute:
    def recompute(inputs: dict[str, Any], pages: list[dict[str, Any]]) -> Any:
        return by_signature(getattr(import_module(module), attribute))(inputs, pages)

    return recompute


def _pages(raw: Sequence[dict[str, Any]]) -> list[Any]:
    from slo.records import Page

    return [Page.from_json(page) for page in raw]
