"""Write a run's report as Markdown. Pure: it takes the dict of `audit.report.assemble`.

Texts in a record come from people and from engines, so each is put on one line, cut, and robbed of
what would break a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from audit.canonical import dumps
from audit.errors import CanonicalError
from audit.tested import phase_words, verdict_words

_CELL = 160
_DIGEST = 12


def render(report: dict[str, Any]) -> str:
    """Return the report as Markdown text."""
    return "\n".join([*_head(report), *_body(report), *_record(report)]) + "\n"


def _head(report: dict[str, Any]) -> Iterator[str]:
    run = report["run"]
    yield f"# {_cell(run['name'])}: {report['outcome'] or 'not finished'}"
    yield ""
    yield f"- run `{_cell(run['run_id'])}` ({_cell(run['kind'])}), exit code {report['exit_code']}"
    if report["is_simulated"]:
        yield "- **SIMULATED engine: this says nothing about a real one**"
    elif report["engine"]:
        yield f"- engine {_cell(report['engine'])}"
    yield f"- requested by {_cell(run['requested_by'])}, trigger {_cell(run['trigger'])}"
    yield f"- from {run['opened_at']} to {run['finished_at'] or 'now'}"
    if run["parent_run_id"]:
        yield f"- part of run `{_cell(run['parent_run_id'])}`"
    for told in report["approvals"]:
        yield f"- {_approval(told)}"
    for reason in report["reasons"]:
        yield f"- {_cell(reason, 400)}"


def _approval(told: dict[str, Any]) -> str:
    """Tell of consent; names are what people claim to be."""
    why = f" ({_cell(told['why'])})" if told.get("why") else ""
    if told["kind"] == "approval_expired":
        return f"approval expired at {_cell(told.get('at'))}{why}"
    word = "approved" if told["kind"] == "approved" else "approval refused to"
    note = f": {_cell(told['note'])}" if told.get("note") else ""
    who = _cell(told.get("by") or "somebody without a name")
    by = f"by {who}" if told["kind"] == "approved" else who
    return f"{word} {by} (claimed) at {_cell(told.get('at'))}{why}{note}"


def _body(report: dict[str, Any]) -> Iterator[str]:
    phases = [
        [_phase(p), _verdict(p), p.get("reason"), p.get("counted"), p.get("why")]
        for p in report["phases"]
    ]
    yield from _tested(report["tested"])
    yield from _table("Phases", ["phase", "verdict", "ended by", "counted", "why"], phases)
    yield from _table("Fault seen", ["phase", "touched", "exposed", "state"], _effects(report))
    yield from _table("Groups", ["phase", "metric", "group", "units", "bad"], _groups(report))
    receipts = [[r["at"], r["key"], r["receipt"]] for r in report["receipts"]]
    yield from _table("Receipts", ["at", "act", "what was observed"], receipts)
    evidence = [
        [e["stream"], e["segments"], e["records"], " ".join(str(d)[:_DIGEST] for d in e["digests"])]
        for e in report["evidence"]
    ]
    yield from _table("Evidence", ["stream", "segments", "records", "SHA-256"], evidence)
    holds = [
        [h["at"], h.get("target"), h.get("action"), h.get("reason") or h.get("proof") or ""]
        for h in report["holds"]
    ]
    yield from _table("Holds", ["at", "target", "change", "on what"], holds)
    children = [
        [c["run_id"], c["kind"], c["outcome"] or "not finished"] for c in report["children"]
    ]
    yield from _table("Started by this run", ["run", "kind", "outcome"], children)
    timeline = [[t["seq"], t["at"], t["kind"], t["key"]] for t in report["timeline"]]
    yield from _table("Timeline", ["#", "at", "kind", "key"], timeline)


def _tested(told: dict[str, Any] | None) -> Iterator[str]:
    if told is None:
        return
    rows = [
        ["hypothesis", told["hypothesis"]],
        ["fault", told["fault"]],
        *([name, value] for name, value in told["parameters"].items()),
        ["duration", f"{told['duration_seconds']} s"],
        ["share", f"{told['share']} of {told['unit']}s"],
        *(
            [f"SLO {slo['name']}", f"{slo['objective_ratio']} good; {_bounds(slo['indicator'])}"]
            for slo in told["slos"]
        ),
    ]
    yield from _table("Tested", ["what", "value"], rows)


def _bounds(value: Any) -> str:
    """Return a mapping of bounds as words; what is not set is left out."""
    bounds = [f"{name} {bound}" for name, bound in value.items() if bound is not None]
    return ", ".join(bounds) or "no bounds"


def _phase(phase: dict[str, Any]) -> str:
    return phase_words(phase.get("mode"), under_fault=phase["under_fault"])


def _verdict(phase: dict[str, Any]) -> str:
    return verdict_words(phase.get("mode"), phase.get("verdict"), phase.get("reason"))


def _effects(report: dict[str, Any]) -> list[list[Any]]:
    found = [(phase, phase.get("effect")) for phase in report["phases"]]
    return [
        [_phase(phase), effect.get("touched"), effect.get("exposed"), effect.get("state")]
        for phase, effect in found
        if isinstance(effect, dict)
    ]


def _groups(report: dict[str, Any]) -> list[list[Any]]:
    return [
        [_phase(phase), metric["metric"], name, told["units"], _bad(told)]
        for phase in report["phases"]
        for metric in phase["metrics"]
        for name, told in metric["groups"].items()
    ]


def _bad(told: dict[str, Any]) -> str:
    """Tell a count of bad units; a latency has none."""
    ratio = told["bad_ratio"]
    return "" if ratio is None else f"{told['bad']} ({ratio:.2%})"


def _record(report: dict[str, Any]) -> Iterator[str]:
    record, replay = report["record"], report["replay"]
    yield ""
    yield "## Record"
    yield ""
    intact = "intact" if not record["problems"] else "**CHANGED AFTER IT WAS WRITTEN**"
    yield f"- {record['events']} events, {intact}, head `{record['head_hash']}`"
    for problem in record["problems"]:
        yield f"- `{_cell(problem['field'])}`: {_cell(problem['message'])}"
    if replay is None:
        yield "- not replayed for this report"
        return
    yield f"- {replay['decisions']} decisions recomputed, {len(replay['mismatches'])} differ"
    for item in replay["mismatches"]:
        yield (
            f"- `{_cell(item['field'])}`: stored {_cell(item['stored'])}, "
            f"recomputed {_cell(item['recomputed'])}"
        )


def _table(title: str, columns: list[str], rows: list[list[Any]]) -> Iterator[str]:
    if not rows:
        return
    yield from ("", f"## {title}", "")
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(_cell(value) for value in row)} |"


def _cell(value: Any, limit: int = _CELL) -> str:
    if value is None:
        return ""
    try:
        text = value if isinstance(value, str) else dumps(value).decode("utf-8")
    except CanonicalError:  # a column that was changed may hold bytes
        text = repr(value)
    flat = " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("`", "'")
    flat = "".join(char if char.isprintable() else "\ufffd" for char in flat.replace("<", "&lt;"))
    return flat if len(flat) <= limit else flat[: limit - 1].rstrip("\\") + "…"
