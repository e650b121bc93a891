"""Put one run's record together: as a plain dict for programs, as Markdown for people.

Everything in it is read from events; nothing is judged anew. It always says whether the record was
found intact, and gives the head hash, which a careful reader keeps elsewhere. Payloads of kinds it
does not know are listed in the timeline by name only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from audit.errors import CanonicalError, UnknownRun
from audit.events import KIND_DECISION, KIND_HOLD, KIND_OPENED, KIND_SEGMENT, SYSTEM_RUN, Event
from audit.records import RunRecord
from audit.replay import OUTCOME_FUNCTION, Mismatch
from audit.runs import engine_of
from audit.store import AuditStore
from audit.tested import groups, tested

_PHASE_FIELDS = (
    *("mode", "verdict", "reason", "why", "requests", "counted"),
    *("started_at", "ended_at", "slo", "effect"),
)

RECEIPT_KINDS = frozenset(
    {
        *("receipt", "lease_opened", "injected", "withdrawn"),
        *("remedy_applied", "remedy_reverted", "swept"),
    }
)
"""Events that tell what was observed after an act; of another kind, a `receipt` inside counts."""


SIMULATED_ENGINE = "simulated"
"""What a worker calls the engine that is no model."""

APPROVAL_KINDS = frozenset({"approved", "approval_refused", "approval_expired"})
"""Events that tell who consented to a run, who was refused, and that nobody did in time."""


def assemble(
    store: AuditStore, run_id: str, mismatches: Sequence[Mismatch] | None = None
) -> dict[str, Any]:
    """Return the run's report; `mismatches` is what a replay found, if one was made.

    Raises:
        UnknownRun: there is no such run.
    """
    run = store.run(run_id)
    if run is None:
        raise UnknownRun(f"no run {run_id!r} was opened")
    problems = store.verify_chain(run_id)
    events = store.events(run_id)
    told = [(event, _payload(event)) for event in events]
    outcome = _last_outcome(told)
    report: dict[str, Any] = {
        "run": _run(run),
        "engine": (engine := _engine(events)),
        "is_simulated": engine == SIMULATED_ENGINE if engine else None,
        "tested": _tested(told),
        "outcome": run.outcome,
        "exit_code": run.exit_code,
        "reasons": _texts(outcome.get("reasons")),
        "rests_on": _texts(outcome.get("rests_on")),
        "phases": [_phase(event, payload) for event, payload in told if _is_phase(payload)],
        "receipts": [
            {"seq": event.seq, "at": event.at, "key": event.key, "receipt": receipt}
            for event, payload in told
            if (receipt := _receipt(event, payload)) is not None
        ],
        "approvals": [
            {"seq": event.seq, "kind": event.kind, **payload}
            for event, payload in told
            if event.kind in APPROVAL_KINDS
        ],
        "evidence": _evidence(told),
        "holds": _holds(store, run_id, told),
        "children": [_run(child) for child in store.children(run_id)],
        "timeline": [
            {"seq": event.seq, "at": event.at, "kind": event.kind, "key": event.key}
            for event in events
        ],
        "record": {
            "events": len(events),
            "head_hash": run.head_hash,
            "problems": [{"run": p.run, "field": p.field, "message": p.message} for p in problems],
        },
        "replay": None,
    }
    if mismatches is not None:
        report["replay"] = {
            "decisions": sum(event.kind == KIND_DECISION for event in events),
            "mismatches": [
                {"run": m.run, "field": m.field, "stored": m.stored, "recomputed": m.recomputed}
                for m in mismatches
            ],
        }
    return report


def _engine(events: Sequence[Event]) -> str | None:
    """Return the engine that the record names; one from before it was written says nothing."""
    return next((engine_of(e) or None for e in events if e.kind == KIND_OPENED), None)


def _tested(told: Sequence[tuple[Event, dict[str, Any]]]) -> dict[str, Any] | None:
    return next((tested(p.get("spec")) for e, p in told if e.kind == KIND_OPENED), None)


def _texts(value: object) -> list[str]:
    """Return the texts of a list; a record that was changed may hold anything in its place."""
    return [str(item) for item in value] if isinstance(value, list) else []


def _run(run: RunRecord) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "workflow_id": run.workflow_id,
        "name": run.name,
        "kind": run.kind,
        "parent_run_id": run.parent_run_id,
        "requested_by": run.requested_by,
        "trigger": run.trigger,
        "opened_at": run.opened_at,
        "finished_at": run.finished_at,
        "outcome": run.outcome,
    }


def _last_outcome(told: Sequence[tuple[Event, dict[str, Any]]]) -> dict[str, Any]:
    for _, payload in reversed(told):
        result = payload.get("result")
        if payload.get("function") == OUTCOME_FUNCTION and isinstance(result, dict):
            return result
    return {}


def _is_phase(payload: dict[str, Any]) -> bool:
    name = str(payload.get("function", ""))
    return name.startswith("observe/") and isinstance(payload.get("result"), dict)


def _phase(event: Event, payload: dict[str, Any]) -> dict[str, Any]:
    result = payload["result"]
    told = {name: result[name] for name in _PHASE_FIELDS if name in result}
    given = payload.get("input")
    return {
        "seq": event.seq,
        "at": event.at,
        "key": event.key,
        **told,
        "under_fault": isinstance(given, dict) and given.get("lease_id") is not None,
        "metrics": groups(payload),
    }


def _receipt(event: Event, payload: dict[str, Any]) -> Any:
    return payload if event.kind in RECEIPT_KINDS else payload.get("receipt")


def _evidence(told: Sequence[tuple[Event, dict[str, Any]]]) -> list[dict[str, Any]]:
    streams: dict[str, dict[str, Any]] = {}
    for event, payload in told:
        if event.kind != KIND_SEGMENT:
            continue
        name = str(payload.get("stream"))
        empty = {"stream": name, "segments": 0, "records": 0, "raw_bytes": 0, "digests": []}
        stream = streams.setdefault(name, empty)
        stream["segments"] += 1
        stream["records"] += payload.get("count", 0)
        stream["raw_bytes"] += payload.get("raw_bytes", 0)
        stream["digests"].append(payload.get("digest"))
    return [streams[name] for name in sorted(streams)]


def _holds(
    store: AuditStore, run_id: str, told: Sequence[tuple[Event, dict[str, Any]]]
) -> list[dict[str, Any]]:
    """The run's own changes of holds, and those that others made in its name."""
    changes = [(e.at, payload) for e, payload in told if e.kind == KIND_HOLD]
    if run_id != SYSTEM_RUN:
        for event in store.events(SYSTEM_RUN, KIND_HOLD):
            payload = _payload(event)
            if payload.get("run_id") == run_id:
                changes.append((event.at, payload))
    changes.sort(key=lambda change: (change[0], change[1].get("version", 0)))
    return [{"at": at, **payload} for at, payload in changes]


def _payload(event: Event) -> dict[str, Any]:
    """A payload that cannot be read is among the problems already."""
    try:
        return event.payload
    except CanonicalError:
        return {}
