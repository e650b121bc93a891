"""Each scenario sends the commands it sent before, with the arguments it sent before."""

import json

import pytest
from temporalio.client import WorkflowHistory

from tests.golden.snapshot import SNAPSHOTS, stored
from tests.golden.transcript import commands, transcript
from tests.replay.scenarios import SCENARIOS, play, play_with, to_the_end
from tests.workflows.conftest import experiment
from workflows.plans import END_MARGIN_SECONDS

WHAT_TO_DO = (
    "the commands of a workflow changed. One added, removed, renamed or reordered breaks runs that "
    "are under way: put it behind a patch, or deploy it under a new build id, and record new "
    "histories. A changed argument breaks nothing: `make golden`, and review the diff"
)
MOST_EVENTS = 120


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
async def test_a_scenario_sends_the_commands_it_sent_before(scenario: str) -> None:
    for workflow, history in (await play(scenario)).items():
        text = transcript(history)
        assert text == stored(f"transcripts/{workflow}/{scenario}.txt", text), WHAT_TO_DO


def test_every_transcript_is_told_by_a_scenario() -> None:
    names = {path.stem for path in SNAPSHOTS.glob("transcripts/*/*.txt")}
    assert names == set(SCENARIOS)


async def test_the_longest_story_stays_short_in_history() -> None:
    histories = await play("remedy-helps")
    sizes = {name: len(history.events) for name, history in histories.items()}
    print(f"events of the main story: {sizes}")  # noqa: T201
    assert max(sizes.values()) <= MOST_EVENTS


async def test_a_fault_that_lasts_twice_as_long_adds_nothing_to_history() -> None:
    """Watching, renewing and beating leave no event, however long they last.

    Workflow tasks are not counted: their number says how answers happened to fall together.
    """
    short, double = [await play_for(minutes) for minutes in (2, 4)]
    assert (lasted(short), lasted(double)) == (120 - END_MARGIN_SECONDS, 240 - END_MARGIN_SECONDS)
    sizes = {"2 minutes": len(short.events), "4 minutes": len(double.events)}
    print(f"events by how long the fault lasts: {sizes}")  # noqa: T201
    assert max(sizes.values()) <= MOST_EVENTS
    assert told(short) == told(double)


def told(history: WorkflowHistory) -> list[str]:
    """The commands and messages, without the time limits that come from the document."""
    return sorted(name.partition(" [")[0] for name, _ in commands(history))


async def play_for(minutes: int) -> WorkflowHistory:
    """Play a null fault that is watched to the end of its time."""
    document = experiment(
        fault={"template": "null", "duration": f"{minutes}m"},
        judge={"metrics": ["errors", "slo_bad"], "stop_on_pass": False},
        observe={"max": f"{minutes}m"},
    )
    return (await play_with(lambda world: to_the_end(world, document)))["FaultExperiment"]


def lasted(history: WorkflowHistory) -> int:
    """Seconds of the gateway's clock for which the arms were compared."""
    for event in history.events:
        for payload in event.activity_task_completed_event_attributes.result.payloads:
            report = json.loads(payload.data)
            if report.get("mode") == "compare":
                return round(report["ended_at"] - report["started_at"])
    raise AssertionError("nothing was compared")
