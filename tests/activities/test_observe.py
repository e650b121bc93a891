"""Watching survives the worker: what is stored is folded again, and the report is the same."""

import asyncio
import functools
import itertools
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.observe import Observation, ObserveInput
from canary.config import JudgeConfig, ObserveConfig
from canary.report import ObserveReport, StopReason
from canary.session import observe as fold
from slo.objective import Indicator, Objective
from slo.records import Page
from tests.activities.fakes import FakeAudit, ScriptedJournal, clock
from tests.activities.fly import fly, now

PAGES = 60
CONFIG = ObserveConfig(
    mode="compare",
    objectives=(Objective(name="o", objective_ratio=0.8, indicator=Indicator()),),
    judge=JudgeConfig(share=0.5, unit="request", metrics=("errors",), stop_on_pass=False),
    max_seconds=PAGES - 10.0,
)
INPUT = ObserveInput(run_id="r", stream="compare", route="chat", config=CONFIG)


class Scene:
    """One stream of evidence, watched by one attempt after another."""

    def __init__(self) -> None:
        self.journal = ScriptedJournal(pages=PAGES)
        self.audit = FakeAudit()
        self.beats: list[float] = []
        self.took = 0.0

    async def _attempt(self, cancel_at: float | None = None) -> ObserveReport:
        environment = ActivityEnvironment()
        environment.on_heartbeat = lambda *_: self.beats.append(now())
        if cancel_at is not None:
            asyncio.get_running_loop().call_later(cancel_at, environment.cancel)
        observation = Observation(self.journal, self.audit, clock, poll_seconds=1.0)
        try:
            report: ObserveReport = await environment.run(observation.observe, INPUT)
            return report
        finally:
            self.took = now()

    def play(self, cancel_at: float | None = None) -> ObserveReport:
        return fly(self._attempt(cancel_at))

    def seqs(self) -> list[int]:
        """The sequence numbers that are stored, in order."""
        segments = self.audit.segments["r", "compare"]
        return [record["seq"] for pages in segments for one in pages for record in one["records"]]

    def refolded(self) -> ObserveReport:
        segments = self.audit.segments["r", "compare"]
        return fold(CONFIG, (Page.from_json(one) for pages in segments for one in pages))


@functools.cache
def whole() -> ObserveReport:
    return Scene().play()


def test_what_is_stored_gives_the_report_and_is_stored_before_it() -> None:
    scene = Scene()
    report = scene.play()
    assert report.reason is StopReason.LIMIT_TIME and report.counted > 400
    assert scene.refolded() == report
    decision = scene.audit.events["r", "decision:observe:compare"]
    assert decision["result"] == report.model_dump(mode="json")
    assert decision["input"] == CONFIG.model_dump(mode="json")


@settings(max_examples=20)
@given(cuts=st.lists(st.floats(0.0, 50.0), min_size=1, max_size=3))
def test_an_attempt_that_takes_over_ends_with_the_same_bytes_wherever_the_cut_was(
    cuts: list[float],
) -> None:
    scene = Scene()
    for cut in cuts:
        try:
            scene.play(cancel_at=cut)
        except asyncio.CancelledError:
            continue
        break
    report = scene.play()
    assert report.model_dump_json() == whole().model_dump_json()
    assert scene.seqs() == list(range(len(scene.seqs()))), "a record was stored twice, or lost"
    assert scene.refolded() == report


@given(killed_after=st.integers(0, 49))
@settings(max_examples=12)
def test_an_attempt_that_is_killed_without_a_word_loses_nothing_either(killed_after: int) -> None:
    """No last flush: the pages since the last one are read again."""
    scene = Scene()

    async def kill() -> None:
        attempt = asyncio.ensure_future(scene._attempt())
        await asyncio.sleep(killed_after + 0.5)
        scene.audit.fails = OSError("this worker is gone")
        attempt.cancel()
        await asyncio.wait([attempt])

    fly(kill())
    scene.audit.fails = None
    assert scene.play().model_dump_json() == whole().model_dump_json()
    assert scene.seqs() == list(range(len(scene.seqs())))


def test_a_cancel_stores_the_pages_it_has() -> None:
    scene = Scene()
    with pytest.raises(asyncio.CancelledError):
        scene.play(cancel_at=4.5)
    assert scene.seqs() == list(range(50))


@pytest.mark.parametrize("spoil", ["hangs", "fails"])
def test_a_cancel_is_not_held_up_by_an_audit_database_that_is_away(spoil: str) -> None:
    scene = Scene()

    def away() -> None:
        scene.audit.hangs = spoil == "hangs"
        scene.audit.fails = OSError("disk full") if spoil == "fails" else None

    with pytest.raises(asyncio.CancelledError):
        fly(_at(scene, 4.2, away, cancel_at=4.5))
    assert scene.took <= 5.6


async def _at(
    scene: Scene, seconds: float, act: Callable[[], None], cancel_at: float | None = None
) -> ObserveReport:
    asyncio.get_running_loop().call_later(seconds, act)
    return await scene._attempt(cancel_at)


def test_two_attempts_at_once_collide_and_the_later_one_starts_over() -> None:
    scene = Scene()

    def other_attempt_stores() -> None:
        scene.audit.segments["r", "compare"].append([])

    with pytest.raises(ApplicationError) as failed:
        fly(_at(scene, 5.0, other_attempt_stores))
    assert (failed.value.type, failed.value.non_retryable) == ("Superseded", False)


def test_a_gateway_that_is_silent_for_half_a_minute_is_waited_for() -> None:
    scene = Scene()
    scene.journal.silent = (10.0, 39.0)
    assert scene.play().model_dump_json() == whole().model_dump_json()


def test_a_gateway_that_is_silent_for_longer_ends_the_watching() -> None:
    scene = Scene()
    scene.journal.silent = (10.0, 1000.0)
    with pytest.raises(ApplicationError) as failed:
        scene.play()
    assert (failed.value.type, failed.value.non_retryable) == ("GatewaySilent", True)
    assert 40.0 <= scene.took <= 43.0
    assert scene.seqs() == list(range(100)), "what was seen before is kept"


def test_it_beats_each_second_even_when_the_journal_is_slow() -> None:
    scene = Scene()
    scene.journal.takes = 7.0
    scene.play()
    marks = [0.0, *scene.beats, scene.took]
    assert scene.took > 300.0
    assert max(b - a for a, b in itertools.pairwise(marks)) <= 1.0
