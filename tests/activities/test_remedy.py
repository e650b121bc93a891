"""What a plan knows of earlier runs: the same act, on the same route, within its cooldown."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from temporalio.testing import ActivityEnvironment

from activities.remedy import ApplyRemedyInput, PlanRemediationInput, Remedies
from audit.asynchronous import AsyncAuditStore
from audit.store import AuditStore
from remediation.plan import Plan, PlanInput
from remediation.policy import RemediationPolicy
from tests.activities.fakes import T0, FakeGateway
from tests.workflows.conftest import POLICY

GIVEN = PlanInput(policy=RemediationPolicy.model_validate(POLICY), compliance=0.9, requests=2000)


class Scene:
    def __init__(self, folder: Path) -> None:
        self.store = AuditStore(f"sqlite:///{folder / 'audit.db'}")
        self.store.upgrade()
        self.gateway = FakeGateway()
        self.now = T0

    def remedies(self) -> Remedies:
        return Remedies(self.gateway, AsyncAuditStore(self.store), self._clock)

    def _clock(self) -> datetime:
        return self.now

    def open(self, run_id: str) -> None:
        self.store.open_run(
            run_id, "w", "n", "FaultExperiment", {}, requested_by="ann", trigger="ui", at=T0
        )
        self.gateway.put(f"{run_id}.lease", run_id)

    async def apply(self, run_id: str, route: str = "chat") -> None:
        given = ApplyRemedyInput(
            run_id=run_id,
            route=route,
            lease_id=f"{run_id}.lease",
            item_id="remedy-1",
            trial=1,
            action=GIVEN.policy.actions[0],
            salt="s",
        )
        await ActivityEnvironment().run(self.remedies().apply, given)

    async def plan(self, run_id: str, route: str = "chat") -> Plan:
        given = PlanRemediationInput(run_id=run_id, route=route, given=GIVEN)
        found: Plan = await ActivityEnvironment().run(self.remedies().plan, given)
        return found


@pytest.fixture
async def scene(tmp_path: Path) -> Scene:
    scene = Scene(tmp_path)
    for run_id in ("one", "two", "three"):
        scene.open(run_id)
    await scene.apply("one")
    return scene


async def test_an_act_tried_by_an_earlier_run_is_held_back_until_its_cooldown_is_over(
    scene: Scene,
) -> None:
    scene.now += timedelta(seconds=599)
    held_back = await scene.plan("two")
    assert held_back.escalate
    assert "599 s ago" in held_back.why
    scene.now += timedelta(seconds=2)
    assert (await scene.plan("three")).actions


async def test_a_trial_on_another_route_or_of_the_run_itself_holds_nothing_back(
    scene: Scene,
) -> None:
    assert (await scene.plan("two", route="search")).actions
    assert (await scene.plan("one")).actions


async def test_a_repeated_plan_is_the_one_on_the_trail(scene: Scene) -> None:
    first = await scene.plan("two")
    scene.now += timedelta(hours=1)
    assert await scene.plan("two") == first
