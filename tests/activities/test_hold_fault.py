"""A lease is renewed only while its run answers; nothing else may keep a fault alive."""

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from temporalio.testing import ActivityEnvironment

from activities.lease import HoldFaultInput, HoldFaultResult, Leases
from activities.ports import Answer
from targets.errors import TargetTimeout, TargetUnavailable
from tests.activities.fakes import FakeAudit, FakeGateway, FakeHolds, FakeRuns, clock
from tests.activities.fly import fly, now

INPUT = HoldFaultInput(run_id="r", lease_id="r.lease", hold="route/chat", seconds=20.0)


class Scene:
    """One held lease."""

    def __init__(self, *answers: Answer) -> None:
        self.gateway = FakeGateway()
        self.gateway.put("r.lease", "r", fault="fault")
        self.holds = FakeHolds()
        self.runs = FakeRuns(*answers)
        self.beats: list[float] = []
        self.ended_at = 0.0
        self.environment = ActivityEnvironment()
        self.environment.on_heartbeat = lambda *_: self.beats.append(now())
        self.at: dict[float, Callable[[], object]] = {}

    async def _hold(self) -> HoldFaultResult:
        leases = Leases(self.gateway, FakeAudit(), self.holds, self.runs, clock)
        for seconds, act in self.at.items():
            asyncio.get_running_loop().call_later(seconds, act)
        try:
            result: HoldFaultResult = await self.environment.run(leases.hold_fault, INPUT)
            return result
        finally:
            self.ended_at = now()

    def play(self) -> HoldFaultResult:
        return fly(self._hold())

    def most_silent(self) -> float:
        """Longest time between two beats, the ends included, seconds."""
        marks = [0.0, *self.beats, self.ended_at]
        return max(later - earlier for earlier, later in itertools.pairwise(marks))


def test_a_run_that_answers_keeps_its_lease_until_it_is_closed() -> None:
    scene = Scene(*[Answer.ALIVE] * 60, Answer.CLOSED)
    assert scene.play() == HoldFaultResult(ended="run_closed", renewals=60)
    assert scene.gateway.renewals == [5.0 * i for i in range(60)]
    assert len(scene.holds.renewed) == 60


def test_a_run_that_is_closed_gets_no_renewal_at_all() -> None:
    scene = Scene(Answer.CLOSED)
    assert scene.play() == HoldFaultResult(ended="run_closed", renewals=0)
    assert scene.gateway.renewals == [] and scene.ended_at == 0.0


def test_a_run_that_falls_silent_gets_no_renewal_after_ten_seconds() -> None:
    scene = Scene(Answer.ALIVE, Answer.ALIVE, *[Answer.SILENT] * 100)
    scene.runs.answer_takes = 0.1
    assert scene.play().ended == "run_silent"
    last_answer = 0.1 + 5.0 + 0.1
    assert max(scene.gateway.renewals) <= last_answer + 10.0
    assert scene.ended_at <= last_answer + 10.0 + 5.0 + 0.2


@pytest.mark.parametrize(("ago", "renewed"), [(1.0, [0.0, 0.0, 5.0]), (12.0, [])])
def test_a_run_counts_as_alive_when_it_asked_to_be_held(ago: float, renewed: list[float]) -> None:
    """A worker killed before the first answer: its successor has no beat to go on from."""
    scene = Scene(*[Answer.SILENT] * 100)
    asked = clock() - timedelta(seconds=ago)
    scene.environment.info = replace(scene.environment.info, scheduled_time=asked, attempt=2)
    assert scene.play().ended == "run_silent"
    assert scene.gateway.renewals == renewed


def test_an_attempt_long_after_any_sign_of_life_renews_nothing_until_an_answer() -> None:
    scene = Scene(*[Answer.SILENT] * 100)
    assert scene.play() == HoldFaultResult(ended="run_silent", renewals=0)
    assert scene.gateway.renewals == []
    late = Scene(*[Answer.SILENT] * 3, Answer.ALIVE, Answer.CLOSED)
    assert late.play() == HoldFaultResult(ended="run_closed", renewals=1)
    assert late.gateway.renewals == [3.0]


@pytest.mark.parametrize(("silent_for", "renewed"), [(6.0, [0.0, 0.0]), (12.0, [])])
def test_an_attempt_that_took_over_goes_on_with_the_credit_that_was_left(
    silent_for: float, renewed: list[float]
) -> None:
    scene = Scene(*[Answer.SILENT] * 100)
    answered_at = clock().timestamp() - silent_for
    info = replace(scene.environment.info, heartbeat_details=[answered_at], attempt=2)
    scene.environment.info = info
    assert scene.play().ended == "run_silent"
    assert scene.gateway.renewals == renewed
    assert scene.ended_at >= 10.0  # it goes on asking for as long as a fresh attempt


def test_a_silence_shorter_than_ten_seconds_is_forgiven() -> None:
    scene = Scene(Answer.ALIVE, Answer.SILENT, Answer.ALIVE, Answer.SILENT, *[Answer.ALIVE] * 9)
    scene.at[60.0] = lambda: scene.runs.script.extend([Answer.CLOSED])
    assert scene.play().ended == "run_closed"
    assert scene.ended_at >= 60.0


@pytest.mark.parametrize("state", ["lapsed", "closed", "dropped"])
def test_a_lease_that_is_over_is_not_renewed_again(state: str) -> None:
    scene = Scene()
    scene.at[12.0] = lambda: scene.gateway.put("r.lease", "r", state)
    assert scene.play() == HoldFaultResult(ended="lease_closed", renewals=3)
    assert scene.ended_at == 15.0


def test_a_lease_lapses_while_its_gateway_is_away_and_only_answers_count_as_renewals() -> None:
    scene = Scene(*[Answer.ALIVE] * 6, Answer.CLOSED)
    scene.gateway.failures = [TargetUnavailable("gone"), TargetTimeout("late")]
    assert scene.play() == HoldFaultResult(ended="run_closed", renewals=4)
    assert len(scene.holds.renewed) == 4


def test_it_beats_each_second_even_when_everything_is_slow() -> None:
    scene = Scene(*[Answer.ALIVE] * 5, Answer.CLOSED)
    scene.gateway.takes = 14.0
    scene.runs.answer_takes = 3.0
    scene.play()
    assert scene.ended_at > 80.0
    assert scene.most_silent() <= 1.0


def test_a_hung_audit_database_does_not_hold_up_renewals() -> None:
    scene = Scene(*[Answer.ALIVE] * 10, Answer.CLOSED)
    scene.holds.hangs = True
    assert scene.play().renewals == 10
    gaps = [b - a for a, b in zip(scene.gateway.renewals, scene.gateway.renewals[1:], strict=False)]
    assert max(gaps) <= 8.0 < INPUT.seconds


def test_a_broken_audit_database_does_not_end_the_holding() -> None:
    scene = Scene(*[Answer.ALIVE] * 10, Answer.CLOSED)
    scene.holds.fails = OSError("disk full")
    assert scene.play() == HoldFaultResult(ended="run_closed", renewals=10)


def test_a_cancel_ends_it_at_once_and_leaves_no_beat_behind() -> None:
    scene = Scene()
    scene.at[7.5] = scene.environment.cancel
    with pytest.raises(asyncio.CancelledError):
        scene.play()
    assert scene.ended_at == 7.5
    assert scene.gateway.renewals == [0.0, 5.0]
