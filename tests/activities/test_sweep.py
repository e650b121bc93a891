"""The sweep frees what dead runs left, and touches nothing else."""

import pytest
from temporalio.testing import ActivityEnvironment

from activities.sweep import Sweeper, SweepInput, SweepResult
from audit.records import HoldState
from targets.errors import TargetUnavailable
from tests.activities.fakes import FakeAudit, FakeGateway, FakeHolds, FakeRuns, clock
from tests.activities.fly import fly

TARGET = "route/chat"


class Scene:
    """One run with a lease and a hold; `is_open` is what Temporal says of it (None: nothing)."""

    def __init__(self, is_open: bool | None) -> None:
        self.gateway, self.audit = FakeGateway(), FakeAudit()
        self.holds, self.runs = FakeHolds(), FakeRuns()
        self.gateway.put("r.lease", "r", fault="fault")
        self.audit.remember("r", "workflow-r", outcome="")
        self.holds.put(TARGET, "r")
        self.runs.open["workflow-r"] = is_open

    def sweep(self) -> SweepResult:
        sweeper = Sweeper(self.gateway, self.audit, self.holds, self.runs, clock)
        result: SweepResult = fly(ActivityEnvironment().run(sweeper.sweep, SweepInput()))
        return result


def test_a_dead_run_loses_its_lease_and_its_hold_and_gets_a_record() -> None:
    scene = Scene(is_open=False)
    assert scene.sweep() == SweepResult(freed=(TARGET,), closed_leases=("r.lease",))
    assert not scene.gateway.is_open("r.lease")
    assert scene.holds.state(TARGET) is HoldState.FREE and scene.holds.proofs[TARGET]
    assert scene.audit.finished == {"r": "INCONCLUSIVE"}
    assert "terminated" in scene.audit.events["r", "swept"]["reasons"][0]


def test_a_run_that_recorded_its_own_end_keeps_it() -> None:
    scene = Scene(is_open=False)
    scene.audit.remember("r", "workflow-r", outcome="PASS")
    assert scene.sweep().freed == (TARGET,)
    assert scene.audit.finished == {}


def test_a_live_run_is_left_alone() -> None:
    scene = Scene(is_open=True)
    assert scene.sweep() == SweepResult(left=(TARGET,))
    assert scene.gateway.is_open("r.lease") and scene.holds.state(TARGET) is HoldState.HELD


def test_a_run_that_temporal_cannot_be_asked_about_is_left_alone() -> None:
    scene = Scene(is_open=None)
    assert scene.sweep() == SweepResult(left=(TARGET,))
    assert scene.gateway.is_open("r.lease") and scene.holds.state(TARGET) is HoldState.HELD


def test_a_strangers_lease_is_not_touched() -> None:
    scene = Scene(is_open=False)
    scene.gateway.put("stranger.lease", "a run we never opened", fault="fault")
    scene.sweep()
    assert scene.gateway.is_open("stranger.lease")


def test_a_quarantined_hold_waits_for_a_person() -> None:
    scene = Scene(is_open=False)
    scene.holds.put(TARGET, "r", HoldState.QUARANTINED)
    assert scene.sweep() == SweepResult(closed_leases=("r.lease",))
    assert scene.holds.state(TARGET) is HoldState.QUARANTINED


def test_requests_that_are_still_touched_keep_the_hold() -> None:
    scene = Scene(is_open=False)
    scene.gateway.touching = [2, 2]
    assert scene.sweep().freed == ()
    assert scene.holds.state(TARGET) is HoldState.HELD
    assert scene.sweep().freed == (TARGET,), "the next sweep finds it still"


def test_a_lease_that_does_not_close_keeps_the_hold() -> None:
    scene = Scene(is_open=False)
    scene.gateway.leaves_items = True
    assert scene.sweep().freed == ()
    assert scene.holds.state(TARGET) is HoldState.HELD


def test_a_gateway_that_cannot_be_asked_proves_nothing() -> None:
    scene = Scene(is_open=False)
    scene.gateway.failures = [TargetUnavailable("gone")]
    with pytest.raises(TargetUnavailable):
        scene.sweep()
    assert scene.holds.state(TARGET) is HoldState.HELD
