"""One injection, written down before it is done, however often its answer is lost."""

import pytest
from temporalio.testing import ActivityEnvironment

from activities.admit import AdmitResult, parse_documents
from activities.inject import FaultItem, InjectInput, Injection, InjectResult, SplitSpec
from gateway.items import FaultSpec
from targets.errors import TargetRejected, TargetTimeout
from tests.activities.fakes import Acts, FakeAudit, FakeGateway, clock
from tests.activities.fly import fly
from tests.faults.documents import document
from workflows.plans import injection

INPUT = InjectInput(
    run_id="r",
    lease_id="r.lease",
    split=SplitSpec(
        experiment="r", salt="s", share=0.5, control=("a",), chaos=("b",), unit="request"
    ),
    fault=FaultItem(
        template="gateway/error",
        parameters={"status": 503, "probability": 0.1},
        replicas=("b",),
        max_seconds=60.0,
        seed=1,
    ),
)


class Scene:
    def __init__(self) -> None:
        self.acts: Acts = []
        self.gateway = FakeGateway(self.acts)
        self.gateway.put("r.lease", "r")
        self.audit = FakeAudit(self.acts)

    def play(self) -> InjectResult:
        injection = Injection(self.gateway, self.audit, clock)
        result: InjectResult = fly(ActivityEnvironment().run(injection.inject, INPUT))
        return result

    def attached(self) -> list[str]:
        return [about for name, about in self.acts if name == "attach"]


def test_the_intention_is_written_first_and_the_split_comes_before_the_fault() -> None:
    scene = Scene()
    assert scene.play().first
    kinds = [name if name == "attach" else about for name, about in scene.acts]
    assert kinds == ["inject_intended", "attach", "attach", "injected"]
    assert scene.attached()[1] == "fault"


def test_without_an_audit_trail_nothing_is_attached() -> None:
    scene = Scene()
    scene.audit.fails = OSError("disk full")
    with pytest.raises(OSError, match="disk full"):
        scene.play()
    assert scene.attached() == []
    assert scene.gateway.leases["r.lease"]["items"] == {}


def test_a_second_attempt_is_not_a_second_injection() -> None:
    scene = Scene()
    first, second = scene.play(), scene.play()
    assert (first.first, second.first) == (True, False)
    assert len(scene.gateway.leases["r.lease"]["items"]) == 2
    assert len([key for _, key in scene.audit.events if key.startswith("injected")]) == 1


def test_an_attempt_whose_answer_was_lost_is_found_by_the_next_one() -> None:
    scene = Scene()
    scene.gateway.failures = [TargetTimeout("late")]
    with pytest.raises(TargetTimeout):
        scene.play()
    assert scene.play().first
    assert len(scene.gateway.leases["r.lease"]["items"]) == 2


@pytest.mark.parametrize("state", ["lapsed", "closed", "dropped"])
def test_a_lease_that_is_over_takes_no_fault(state: str) -> None:
    scene = Scene()
    scene.gateway.put("r.lease", "r", state)
    with pytest.raises(TargetRejected):
        scene.play()
    assert scene.gateway.leases["r.lease"]["items"] == {}


def test_match_rules_of_a_document_reach_the_gateway_and_no_rule_is_not_sent() -> None:
    admitted = AdmitResult.model_construct(control=("a",), chaos=("b",))
    for rules in ({}, {"tenant": "acme", "path": "/v1/*"}):
        parsed = parse_documents(document(fault__match=rules))
        made = injection(parsed, admitted, "run", "lease", 0)
        sent = made.model_dump(mode="json")["fault"]
        assert sent.get("match", {}) == rules
        assert ("match" in sent) is bool(rules)
        assert FaultSpec.model_validate(sent).match.model_dump(exclude_none=True) == rules
