"""The examples are read by the same code as a user's files, and may run on the local stack."""

from pathlib import Path

import pytest

from faults.blast_radius import AdmitInput, admit
from faults.parse import load_experiment, objectives
from faults.resolve import RouteFacts, resolve_arms, resolve_target
from tests.faults.documents import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*/experiment.yaml"))
LOCAL = [RouteFacts(name="chat", labels={"tier": "chat"}, replicas=("a", "b"), risk=0.1)]


def load(path):
    return load_experiment(str(path), lambda name: Path(name).read_text(encoding="utf-8"))[0]


def test_there_are_examples():
    assert {path.parent.name for path in EXAMPLES} >= {"aa-null", "stall-the-chat-stream"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_an_example_may_run_on_the_local_stack(path):
    spec = load(path)
    target = resolve_target(spec.target, LOCAL)
    arms = resolve_arms(spec.arms.chaos.replicas, target.replicas)
    assert (arms.control, arms.chaos) == (("a",), ("b",))
    report = admit(AdmitInput(spec=spec, control=arms.control, chaos=arms.chaos, rate=24.0))
    assert report.admitted, report.refusals
    assert report.warnings == ()
    assert report.plan.enough
    assert (path.parent / "README.md").is_file()


def test_the_stall_lies_between_the_two_thresholds_and_breaks_the_promise():
    spec = load(ROOT / "examples" / "stall-the-chat-stream" / "experiment.yaml")
    probability, share = spec.fault.parameters.probability, spec.arms.chaos.share
    action = spec.remediation.policy["actions"][0]
    assert action["threshold"] < probability < 0.05
    (objective,) = objectives(spec)
    assert 1 - probability * share < objective.objective_ratio
    assert objective.objective_ratio == spec.remediation.policy["when"]["compliance_below"]
