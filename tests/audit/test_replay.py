"""Decisions of the real pure rooms, stored and recomputed; then changed, and found."""

import json
import sqlite3
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from audit.canonical import dumps, prepare
from audit.events import decision
from audit.replay import FUNCTIONS, by_signature, default_registry, differences, replay
from audit.store import AuditStore
from canary.config import JudgeConfig, ObserveConfig
from canary.session import observe
from faults.blast_radius import AdmitInput, admit
from faults.outcome import OutcomeInput, PhaseSummary, decide_outcome
from faults.parse import load_experiment
from remediation.plan import PlanInput, plan
from remediation.policy import read_policy
from slo.objective import Objective
from slo.records import Page
from tests.audit.conftest import NOW, open_run
from tests.audit.test_segments import page

ROOT = Path(__file__).resolve().parents[2]
STREAM = "compare/1"


def pages() -> list[Page]:
    return [page(first, 200) for first in range(1, 1001, 200)]


def config() -> ObserveConfig:
    return ObserveConfig(
        mode="compare",
        objectives=(Objective(name="chat", objective_ratio=0.985),),
        judge=JudgeConfig(share=0.5, unit="request"),
        max_seconds=600,
    )


@pytest.fixture
def finished(store: AuditStore, now: datetime) -> AuditStore:
    """A run with evidence in two segments, one observation and one outcome."""
    open_run(store)
    raw = [p.to_json() for p in pages()]
    store.put_segment("run-1", STREAM, 0, raw[:3], now)
    store.put_segment("run-1", STREAM, 1, raw[3:], now)
    report = observe(config(), pages())
    told = decision("observe/1", config(), report, [STREAM])
    store.append("run-1", "observe", "decision", told, now)
    compare = PhaseSummary(verdict=report.verdict.value, reason=str(report.reason), why=report.why)
    given = OutcomeInput(hypothesis="withstands", compare=compare, expects_effect=False)
    outcome = decide_outcome(given)
    told = decision("outcome/1", given, outcome)
    store.append("run-1", "outcome", "decision", told, now)
    store.finish_run("run-1", outcome.outcome, outcome.exit_code, now)
    return store


def test_a_run_as_stored_recomputes_to_the_last_bit(finished: AuditStore) -> None:
    assert replay(finished, "run-1") == []
    assert len(finished.events("run-1", "decision")) == 2
    result = finished.events("run-1", "decision")[0].payload["result"]
    assert result["requests"] == 1000, "the fold really read the evidence"


def test_every_registered_decision_exists_in_its_room() -> None:
    assert set(default_registry()) == {"observe/1", "outcome/1", "admit/1", "plan/1"}
    for module, name in FUNCTIONS.values():
        assert callable(getattr(import_module(module), name))


def store_decision(store: AuditStore, told: dict[str, Any], key: str = "late") -> None:
    store.append("run-1", key, "decision", told, NOW)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        pytest.param("observe/1", {}, id="observe"),
        pytest.param("outcome/1", {}, id="outcome"),
        pytest.param("admit/1", {}, id="admit"),
        pytest.param("plan/1", {}, id="plan"),
    ],
)
def test_an_input_that_a_function_refuses_is_a_mismatch_not_a_crash(
    store: AuditStore, function: str, inputs: dict
) -> None:
    open_run(store)
    store_decision(store, decision(function, inputs, {"verdict": "PASS"}))
    (mismatch,) = replay(store, "run-1")
    assert mismatch.field == "events[2].result"
    assert "ValidationError" in mismatch.recomputed


def test_an_admission_and_a_plan_recompute_from_the_shipped_example(store: AuditStore) -> None:
    filename = str(ROOT / "examples/stall-the-chat-stream/experiment.yaml")
    spec, _ = load_experiment(filename, lambda name: Path(name).read_text())
    assert spec.remediation is not None
    asked = AdmitInput(spec=spec, control=("a",), chaos=("b",), rate=24.0)
    admitted = admit(asked)
    policy = read_policy(spec.remediation.policy)
    given = PlanInput(policy=policy, compliance=0.97, requests=2000)
    planned = plan(given)
    assert planned.actions
    open_run(store)
    for name, inputs, result in (("admit/1", asked, admitted), ("plan/1", given, planned)):
        told = decision(name, inputs, result)
        store_decision(store, told, name)
    assert replay(store, "run-1") == []


def test_a_result_that_was_not_decided_is_named_field_by_field(finished: AuditStore) -> None:
    told = finished.events("run-1", "decision")[0].payload
    told["result"]["verdict"] = "PASS"
    told["result"]["slo"][0]["total"] = 7
    del told["result"]["why"]
    store_decision(finished, told)
    found = {mismatch.field: mismatch for mismatch in replay(finished, "run-1")}
    seq = finished.events("run-1")[-1].seq
    assert set(found) == {
        f"events[{seq}].result.{name}" for name in ("verdict", "slo.0.total", "why")
    }
    assert found[f"events[{seq}].result.slo.0.total"].stored == 7
    assert found[f"events[{seq}].result.why"].stored == "(nothing)"


def test_a_function_of_another_version_is_named(finished: AuditStore) -> None:
    store_decision(finished, decision("observe/99", {}, {}))
    (mismatch,) = replay(finished, "run-1")
    assert (mismatch.field.endswith(".function"), mismatch.stored) == (True, "observe/99")


def test_a_run_that_ended_otherwise_than_decided_is_named(store: AuditStore, now: datetime) -> None:
    open_run(store)
    given = OutcomeInput(hypothesis="withstands", failure="the server went away")
    told = decision("outcome/1", given, decide_outcome(given))
    store.append("run-1", "outcome", "decision", told, now)
    store.finish_run("run-1", "PASS", 0, now)
    assert store.verify_chain("run-1") == []
    fields = [mismatch.field for mismatch in replay(store, "run-1")]
    assert fields == ["runs.outcome", "runs.exit_code"]


@pytest.mark.parametrize(
    ("outcome", "code", "named"),
    [
        ("INCONCLUSIVE", 2, []),
        ("PASS", 0, ["runs.outcome", "runs.exit_code"]),
        ("FAIL", 1, ["runs.outcome", "runs.exit_code"]),
    ],
)
def test_a_run_that_ended_without_a_decision_may_claim_nothing(
    store: AuditStore, now: datetime, outcome: str, code: int, named: list[str]
) -> None:
    open_run(store)
    store.finish_run("run-1", outcome, code, now)
    assert [mismatch.field for mismatch in replay(store, "run-1")] == named


def test_evidence_that_was_removed_shows_in_the_record_and_in_the_result(
    finished: AuditStore, path: Path
) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute('DELETE FROM segments WHERE "index" = 1')
    connection.close()
    fields = [mismatch.field for mismatch in replay(finished, "run-1")]
    assert f"segments[{STREAM}/1]" in fields
    assert "events[4].result.requests" in fields


class Pair(BaseModel, frozen=True):
    one: int
    two: float


def test_arguments_are_read_by_their_names_and_types() -> None:
    def add(first: Pair, second: int, third: int = 3) -> dict[str, float]:
        return {"sum": first.one + first.two + second + third}

    call = by_signature(add)
    assert call({"first": {"one": 1, "two": 0.5}, "second": 2}, []) == {"sum": 6.5}
    with pytest.raises(TypeError, match="no argument fourth"):
        call({"first": {"one": 1, "two": 0.5}, "second": 2, "fourth": 4}, [])
    with pytest.raises(TypeError, match="second"):
        call({"first": {"one": 1, "two": 0.5}}, [])


def test_a_function_of_one_argument_takes_the_whole_input_or_its_name() -> None:
    def total(pair: Pair) -> float:
        return pair.one + pair.two

    assert by_signature(total)({"one": 1, "two": 2}, []) == 3
    assert by_signature(total)({"pair": {"one": 1, "two": 2}}, []) == 3


@pytest.mark.parametrize(
    ("stored", "recomputed", "paths"),
    [
        pytest.param({"a": 1}, {"a": 1.0}, ["r.a"], id="an integer is not a float"),
        pytest.param({"a": 1}, {"a": True}, ["r.a"], id="a number is not a truth value"),
        pytest.param({"a": None}, {}, ["r.a"], id="null is not absent"),
        pytest.param([1, 2], [1], ["r.1"], id="a shorter list"),
        pytest.param({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, ["r.a.0.b"], id="deep inside"),
        pytest.param({"a": {}}, {"a": []}, ["r.a"], id="another container"),
        pytest.param(0.1 + 0.2, 0.3, ["r"], id="the last bit of a number"),
        pytest.param({"b": 1, "a": [2]}, {"a": [2], "b": 1}, [], id="order of keys is nothing"),
    ],
)
def test_differences_are_found(stored: object, recomputed: object, paths: list[str]) -> None:
    assert [path for path, _, _ in differences(stored, recomputed, "r")] == paths


def test_what_is_masked_when_stored_is_masked_when_compared(store: AuditStore) -> None:
    def leak(inputs: dict[str, Any], _pages: list[Any]) -> dict[str, Any]:
        return {"token": "fresh-secret", "n": inputs["n"], "q": float("inf")}

    open_run(store)
    store_decision(store, decision("leak/1", {"n": 1}, leak({"n": 1}, [])))
    assert replay(store, "run-1", {"leak/1": leak}) == []
    assert b"fresh-secret" not in dumps(prepare(leak({"n": 1}, [])))


def test_a_stored_observation_is_small_enough_for_an_event(finished: AuditStore) -> None:
    sizes = [len(event.payload_text) for event in finished.events("run-1", "decision")]
    assert max(sizes) < 64 * 1024
    assert json.loads(finished.events("run-1")[-1].payload_text)["outcome"]
