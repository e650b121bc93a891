"""Today's code walks through yesterday's runs: what a deploy does to runs that are under way.

The sandbox stays on, and the suite runs this file under two hash seeds: iterating a set replays
under the seed it was recorded with and fails under another. A replay that cannot fail proves
nothing, so histories are spoilt here on purpose, one way after another.
"""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    Interceptor,
    Replayer,
    StartActivityInput,
    StartLocalActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)
from temporalio.workflow import NondeterminismError, _Definition

from tests.replay.record import HISTORIES
from tests.replay.scenarios import SCENARIOS
from worker import WORKFLOWS

FILES = sorted(HISTORIES.glob("*/*.json"))
REGISTERED = {_Definition.must_from_class(one).name: one for one in WORKFLOWS}
WHY = "record it: make record-histories SCENARIO=…, and review the diff"

Json = dict[str, Any]


def load(path: Path) -> Json:
    history: Json = json.loads(path.read_text())
    return history


class Listener(Interceptor):
    """Notes the activities that the replayed code asks for, beyond the end of the history too."""

    asked: list[str] = []  # noqa: RUF012  # the SDK makes the inner objects itself

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor]:
        asked = self.asked = []

        class Out(WorkflowOutboundInterceptor):
            def start_activity(self, input: StartActivityInput) -> Any:
                asked.append(input.activity)
                return super().start_activity(input)

            def start_local_activity(self, input: StartLocalActivityInput) -> Any:
                asked.append(input.activity)
                return super().start_local_activity(input)

        class In(WorkflowInboundInterceptor):
            def init(self, outbound: WorkflowOutboundInterceptor) -> None:
                super().init(Out(outbound))

        return In


async def replay(history: Json, listener: Listener | None = None) -> None:
    replayer = Replayer(
        workflows=WORKFLOWS,
        data_converter=pydantic_data_converter,
        interceptors=[listener] if listener is not None else [],
    )
    await replayer.replay_workflow(WorkflowHistory.from_json("replayed", history))


def scheduled(history: Json) -> list[str]:
    """The activities of a history, local ones included, in order."""
    names = []
    for event in history["events"]:
        if "activityTaskScheduledEventAttributes" in event:
            names.append(event["activityTaskScheduledEventAttributes"]["activityType"]["name"])
        elif "markerRecordedEventAttributes" in event:
            names.append("a local activity")
    return names


def test_the_corpus_has_every_scenario_and_nothing_else() -> None:
    assert {path.stem for path in FILES} == set(SCENARIOS), WHY


@pytest.mark.parametrize("workflow", sorted(REGISTERED))
def test_every_registered_workflow_has_a_history(workflow: str) -> None:
    assert list((HISTORIES / workflow).glob("*.json")), f"{workflow} has no history: {WHY}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
async def test_a_recorded_run_replays_under_the_code_of_today(path: Path) -> None:
    await replay(load(path))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_history_says_nothing_of_the_machine_it_was_recorded_on(path: Path) -> None:
    text = path.read_text()
    assert "/site-packages/" not in text
    assert str(Path(__file__).parents[2]) not in text
    assert set(_values(load(path), "identity")) <= {"recorder"}


def _values(node: Any, key: str) -> list[str]:
    if isinstance(node, dict):
        own = [node[key]] if key in node else []
        return own + [found for value in node.values() for found in _values(value, key)]
    if isinstance(node, list):
        return [found for item in node for found in _values(item, key)]
    return []


def rename_an_activity(history: Json) -> None:
    _attributes(history, "activityTaskScheduledEventAttributes")["activityType"]["name"] = "old"


def take_out_the_last_upsert(history: Json) -> None:
    key = "upsertWorkflowSearchAttributesEventAttributes"
    last = max(i for i, event in enumerate(history["events"]) if key in event)
    del history["events"][last]
    for number, event in enumerate(history["events"], start=1):
        event["eventId"] = str(number)


def turn_a_child_into_another(history: Json) -> None:
    key = "startChildWorkflowExecutionInitiatedEventAttributes"
    _attributes(history, key)["workflowType"]["name"] = "Old"


def _attributes(history: Json, key: str) -> Json:
    found: Json = next(event[key] for event in history["events"] if key in event)
    return found


@pytest.mark.parametrize(
    "spoil", [rename_an_activity, take_out_the_last_upsert, turn_a_child_into_another]
)
async def test_a_history_that_the_code_could_not_have_made_is_refused(
    spoil: Callable[[Json], None],
) -> None:
    history = load(HISTORIES / "FaultExperiment" / "remedy-helps.json")
    await replay(copy.deepcopy(history))
    spoil(history)
    with pytest.raises(NondeterminismError):
        await replay(history)


async def test_a_run_that_holds_its_fault_goes_on_holding_it_after_a_replay() -> None:
    history = load(HISTORIES / "FaultExperiment" / "held.json")
    names = scheduled(history)
    assert {"hold_fault", "inject"} <= set(names) and "withdraw" not in names
    listener = Listener()
    await replay(history, listener)
    assert [n for n in listener.asked if n != "parse_experiment"] == [
        n for n in names if n != "a local activity"
    ]


@pytest.mark.parametrize("step", ["admit", "preflight", "open_lease", "inject", "hold_fault"])
async def test_a_bad_deploy_stops_a_held_run_without_ending_it(step: str) -> None:
    """The run must wait for good code, its lease lapsing meanwhile; never end with nothing undone.

    Code that asks for another activity than history has is stopped there: it must neither fail the
    run (which would skip its undo) nor start a withdrawal out of turn.
    """
    history = load(HISTORIES / "FaultExperiment" / "held.json")
    event = next(
        found
        for found in history["events"]
        if found.get("activityTaskScheduledEventAttributes", {}).get("activityType", {}).get("name")
        == step
    )
    event["activityTaskScheduledEventAttributes"]["activityType"]["name"] = f"{step}_v0"
    listener = Listener()
    with pytest.raises(NondeterminismError):
        await replay(history, listener)
    assert "withdraw" not in listener.asked and "conclude" not in listener.asked


@pytest.mark.parametrize("workflow", sorted(REGISTERED))
def test_no_workflow_fails_on_a_bug_or_on_nondeterminism(workflow: str) -> None:
    kinds = _Definition.must_from_class(REGISTERED[workflow]).failure_exception_types
    assert list(kinds) == [ApplicationError], "a bad deploy would end the run with no undo"
    assert _Definition.must_from_class(REGISTERED[workflow]).sandboxed
