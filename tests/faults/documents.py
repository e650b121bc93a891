"""Documents that the tests start from; each call returns a fresh one."""

import copy
from pathlib import Path
from typing import Any

from faults.experiment import ExperimentSpec
from faults.parse import parse_experiment

ROOT = Path(__file__).parents[2]


def slo(target: float) -> dict[str, Any]:
    """An OpenSLO document on the gateway's own records."""
    bad = {"metricSource": {"type": "burnproof-gateway", "spec": {"gapOver": "2s"}}}
    return {
        "apiVersion": "openslo/v1",
        "kind": "SLO",
        "metadata": {"name": "chat-availability"},
        "spec": {
            "service": "chat",
            "budgetingMethod": "Occurrences",
            "timeWindow": [{"duration": "30d", "isRolling": True}],
            "indicator": {
                "metadata": {"name": "bad-requests"},
                "spec": {"ratioMetric": {"bad": bad}},
            },
            "objectives": [{"target": target}],
        },
    }


EXPERIMENT: dict[str, Any] = {
    "apiVersion": "burnproof/v1",
    "kind": "Experiment",
    "metadata": {"name": "stall"},
    "target": {"route": "chat"},
    "slos": [slo(0.985)],
    "hypothesis": "withstands",
    "arms": {"chaos": {"share": 0.5}, "unit": "request"},
    "fault": {
        "template": "gateway/stream-stall",
        "parameters": {"after_tokens": 2, "stall": "4s", "probability": 0.04},
        "duration": "6m",
    },
}


def document(**changes: Any) -> dict[str, Any]:
    """Return an experiment; a key `a__b` changes `b` inside `a`, None removes."""
    made = copy.deepcopy(EXPERIMENT)
    for dotted, value in changes.items():
        *parents, last = dotted.split("__")
        part = made
        for name in parents:
            part = part.setdefault(name, {})
        if value is None:
            del part[last]
        else:
            part[last] = value
    return made


def spec(**changes: Any) -> ExperimentSpec:
    return parse_experiment(document(**changes))
