"""Tell in a reader's words what a run tested, and what each phase of it found. Pure.

Everything is read from stored events, and nothing is computed from requests: a number that no
summary kept is not told. A record that was changed may hold anything in any place, so whatever has
not the expected form is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_GROUPS = {
    "arms": ("control", "chaos"),
    "treatment": ("treated", "hold-out"),
}
"""What the two groups of a comparison are called; see `canary.config.JudgeConfig.groups`."""

_REMEDY_WORDS = {"FAIL": "HELPS", "PASS": "DOES NOT HELP"}


def tested(spec: object) -> dict[str, Any] | None:
    """Return fault, share, hypothesis and objectives of a stored document; None: it is none."""
    document = _mapping(spec)
    experiment = _mapping(document.get("spec"))
    fault = _mapping(experiment.get("fault"))
    if "template" not in fault:
        return None
    arms = _mapping(experiment.get("arms"))
    chaos = _mapping(arms.get("chaos"))
    objectives = document.get("objectives")
    return {
        "hypothesis": experiment.get("hypothesis"),
        "fault": fault["template"],
        "parameters": _mapping(fault.get("parameters")),
        "duration_seconds": fault.get("duration"),
        "share": chaos.get("share"),
        "unit": arms.get("unit"),
        "slos": [
            {
                "name": objective.get("name"),
                "objective_ratio": objective.get("objective_ratio"),
                "indicator": _mapping(objective.get("indicator")),
            }
            for objective in map(_mapping, objectives if isinstance(objectives, list) else [])
        ],
    }


def groups(payload: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each metric's units and bad units by group, as the observation's report kept them."""
    judge = _mapping(_mapping(payload.get("result")).get("judge"))
    asked = _mapping(_mapping(payload.get("input")).get("judge"))
    names = _GROUPS.get(str(asked.get("groups", "arms")), _GROUPS["arms"])
    metrics = judge.get("metrics")
    return [
        {
            "metric": metric.get("name"),
            "groups": {
                name: _counted(metric.get(f"n_{field}"), metric.get(f"bad_{field}"))
                for name, field in zip(names, ("control", "chaos"), strict=True)
            },
        }
        for metric in map(_mapping, metrics if isinstance(metrics, list) else [])
    ]


def phase_words(mode: object, *, under_fault: bool) -> str:
    """Return what a phase is called; there are two recoveries, and only one is the fault's end."""
    if mode == "recovery":
        return "met again under the fault" if under_fault else "recovery after withdrawal"
    return str(mode)


def verdict_words(mode: object, verdict: object, reason: object) -> str:
    """Return a verdict for people: in a remedy's trial the group *without* it is the suspect."""
    if mode == "remedy" and reason == "verdict":
        return _REMEDY_WORDS.get(str(verdict), str(verdict))
    return str(verdict)


def _counted(units: object, bad: object) -> dict[str, Any]:
    ratio = bad / units if isinstance(bad, int) and isinstance(units, int) and units else None
    return {"units": units, "bad": bad, "bad_ratio": ratio}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
