"""A hold is freed by proof, and quarantined without."""

import pytest
from temporalio.testing import ActivityEnvironment

from activities.conclude import Conclusion, SettleHoldInput, SettleHoldResult
from activities.lease import RemovalProof
from audit.records import HoldState
from tests.activities.fakes import FakeAudit, FakeHolds, clock
from tests.activities.fly import fly

TARGET = "route/chat"
PROOF = RemovalProof(at=1000.0, lease_state="closed", still_touching=0)


def settle(holds: FakeHolds, **known: object) -> SettleHoldResult:
    conclusion = Conclusion(FakeAudit(), holds, clock)
    input = SettleHoldInput.model_validate({"run_id": "r", **known})
    result: SettleHoldResult = fly(ActivityEnvironment().run(conclusion.settle_hold, input))
    return result


@pytest.fixture
def holds() -> FakeHolds:
    made = FakeHolds()
    made.put(TARGET, "r")
    return made


@pytest.mark.parametrize("known", [{"proof": PROOF}, {"nothing_injected": True}])
def test_a_proven_clean_up_frees_the_hold(holds: FakeHolds, known: dict[str, object]) -> None:
    assert settle(holds, **known) == SettleHoldResult(freed=(TARGET,))
    assert holds.state(TARGET) is HoldState.FREE and holds.proofs[TARGET]


@pytest.mark.parametrize(
    "known",
    [
        {},
        {"failed": ("withdraw",)},
        {"proof": PROOF, "failed": ("remedy-1",)},
        {"nothing_injected": True, "failed": ("withdraw",)},
        {"proof": PROOF.model_copy(update={"lease_state": "open"})},
        {"proof": PROOF.model_copy(update={"still_touching": 1})},
        {"proof": PROOF.model_copy(update={"active_items": ("fault",)})},
    ],
)
def test_anything_less_quarantines_it(holds: FakeHolds, known: dict[str, object]) -> None:
    assert settle(holds, **known) == SettleHoldResult(quarantined=(TARGET,))
    assert holds.state(TARGET) is HoldState.QUARANTINED


def test_the_holds_of_others_are_left_alone(holds: FakeHolds) -> None:
    holds.put("route/other", "another run")
    settle(holds)
    assert holds.state("route/other") is HoldState.HELD


def test_a_hold_that_is_quarantined_is_not_freed_by_a_late_proof(holds: FakeHolds) -> None:
    settle(holds)
    assert settle(holds, proof=PROOF) == SettleHoldResult()
    assert holds.state(TARGET) is HoldState.QUARANTINED
