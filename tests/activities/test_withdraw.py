"""A withdrawal is proven, not believed, and needs nothing but the gateway."""

import itertools

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.lease import DRAIN_SECONDS, Leases, RemovalProof, WithdrawInput
from targets.errors import TargetTimeout, TargetUnavailable
from tests.activities.fakes import FakeAudit, FakeGateway, FakeHolds, FakeRuns, clock
from tests.activities.fly import fly, now

INPUT = WithdrawInput(
    run_id="r", lease_id="r.lease", route="chat", model="tiny", replicas=("a", "b")
)


class Scene:
    def __init__(self) -> None:
        self.gateway = FakeGateway()
        self.gateway.put("r.lease", "r", split="split", fault="fault")
        self.audit = FakeAudit()
        self.beats: list[float] = []
        self.took = 0.0

    async def _withdraw(self) -> RemovalProof:
        environment = ActivityEnvironment()
        environment.on_heartbeat = lambda *_: self.beats.append(now())
        leases = Leases(self.gateway, self.audit, FakeHolds(), FakeRuns(), clock)
        try:
            proof: RemovalProof = await environment.run(leases.withdraw, INPUT)
            return proof
        finally:
            self.took = now()

    def play(self) -> RemovalProof:
        return fly(self._withdraw())


def test_it_closes_the_lease_and_looks_from_inside_the_path() -> None:
    scene = Scene()
    proof = scene.play()
    assert proof.is_proven() and proof.probes == {"a": 200, "b": 200}
    assert not scene.gateway.is_open("r.lease")
    assert ("r", "withdrawn") in scene.audit.events


def test_it_waits_until_no_request_is_touched_any_more() -> None:
    scene = Scene()
    scene.gateway.touching = [3, 2, 1, 0]
    assert scene.play().still_touching == 0
    assert [name for name, _ in scene.gateway.acts].index("probe") == 4, (
        "probed before it was still"
    )


def test_requests_that_stay_touched_leave_it_unproven() -> None:
    scene = Scene()
    scene.gateway.touching = [1] * 1000
    with pytest.raises(ApplicationError) as failed:
        scene.play()
    assert (failed.value.type, failed.value.non_retryable) == ("NotWithdrawn", False)
    assert DRAIN_SECONDS <= scene.took < DRAIN_SECONDS + 1
    assert ("r", "withdrawn") not in scene.audit.events


def test_a_lease_that_is_still_shown_open_leaves_it_unproven() -> None:
    scene = Scene()
    scene.gateway.leaves_items = True
    with pytest.raises(ApplicationError, match="still shows the lease") as failed:
        scene.play()
    assert failed.value.type == "NotWithdrawn"


def test_a_probe_that_still_meets_the_fault_leaves_it_unproven() -> None:
    scene = Scene()
    scene.gateway.still_exposes = ("fault",)
    with pytest.raises(ApplicationError, match="fault") as failed:
        scene.play()
    assert failed.value.type == "NotWithdrawn"


@pytest.mark.parametrize("error", [TargetUnavailable("gone"), TargetTimeout("late")])
def test_a_gateway_that_does_not_answer_is_asked_again(error: Exception) -> None:
    scene = Scene()
    scene.gateway.failures = [error]
    with pytest.raises(ApplicationError) as failed:
        scene.play()
    assert (failed.value.type, failed.value.non_retryable) == ("NotWithdrawn", False)
    assert scene.play().is_proven(), "the next attempt proves it"


def test_a_lease_that_was_never_opened_is_withdrawn_all_the_same() -> None:
    scene = Scene()
    scene.gateway.leases.clear()
    assert scene.play().is_proven()
    assert not scene.gateway.is_open("r.lease"), "a late opening would be refused"


@pytest.mark.parametrize("state", ["lapsed", "dropped"])
def test_a_lease_that_ended_before_is_told_as_such(state: str) -> None:
    scene = Scene()
    scene.gateway.put("r.lease", "r", state)
    proof = scene.play()
    assert proof.is_proven() and proof.lapsed_before


def test_a_broken_audit_database_does_not_touch_it() -> None:
    scene = Scene()
    scene.audit.fails = OSError("disk full")
    assert scene.play().is_proven()


def test_a_hung_audit_database_costs_it_three_seconds() -> None:
    scene = Scene()
    scene.audit.hangs = True
    assert scene.play().is_proven()
    assert scene.took <= 3.5


def test_it_beats_while_the_gateway_is_slow() -> None:
    scene = Scene()
    scene.gateway.takes = 9.0
    assert scene.play().is_proven()
    marks = [0.0, *scene.beats, scene.took]
    assert scene.took > 30.0
    assert max(b - a for a, b in itertools.pairwise(marks)) <= 1.0
