"""Each way a run can go, over real activities and a SIMULATED gateway."""

import asyncio
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.testing import WorkflowEnvironment

from api.runs import ended
from audit.markdown import render
from audit.replay import replay
from audit.report import assemble
from targets.errors import TargetRejected
from tests.workflows.conftest import POLICY, World, errors, experiment, mended, open_world, slo
from tests.workflows.test_cancel_everywhere import STEPS, Strike
from workflows import queues
from workflows.state import AbortInput, ApproveInput


async def outcome(world: World, document: dict[str, Any]) -> dict[str, Any]:
    handle = await world.start(document)
    result: dict[str, Any] = await handle.result()
    return result


async def test_a_null_fault_passes_and_leaves_the_world_as_it_was(world: World) -> None:
    result = await outcome(world, experiment())
    assert (result["outcome"], result["exit_code"]) == ("PASS", 0), result
    world.gateway.assert_steady()
    assert [hold.state for hold in world.store.list_holds()] == ["free"]
    assert world.store.engines([world.run_id()]) == {world.run_id(): "simulated"}
    assert replay(world.store, world.run_id()) == []


async def test_a_broken_chaos_arm_fails_the_run(world: World) -> None:
    result = await outcome(world, experiment(fault=errors(0.2)))
    assert (result["outcome"], result["exit_code"]) == ("FAIL", 1), result
    world.gateway.assert_steady()


async def test_a_remedy_that_helps_is_proven_against_the_hold_out(world: World) -> None:
    result = await outcome(world, mended())
    assert (result["outcome"], result["exit_code"]) == ("PASS", 0), result
    kinds = world.kinds()
    assert kinds.index("injected") < kinds.index("remedy_applied") < kinds.index("withdrawn")
    world.gateway.assert_steady()
    report = assemble(world.store, world.run_id())
    assert report["tested"]["fault"] == mended()["fault"]["template"]
    trial = next(phase for phase in report["phases"] if phase["mode"] == "remedy")
    assert trial["verdict"] == "FAIL"  # the JSON keeps the judge's word
    text = render(report)
    for part in (
        f"| fault | {report['tested']['fault']} |",
        "| remedy | HELPS |",
        "| met again under the fault | PASS |",
        "| recovery after withdrawal | PASS |",
        "## Fault seen",
        "| hold-out |",
        "| chaos |",
    ):
        assert part in text, text
    assert replay(world.store, world.run_id()) == []


async def test_a_remedy_waits_for_its_cooldown_on_the_route_where_an_earlier_run_tried_it(
    world: World,
) -> None:
    assert (await outcome(world, mended()))["outcome"] == "PASS"
    again = await outcome(world, mended())
    assert (again["outcome"], again["exit_code"]) == ("INCONCLUSIVE", 2), again
    assert "the cooldown is 600 s; a person has to look" in " ".join(again["reasons"])
    assert world.gateway.acts.count("attach breaker") == 1
    world.gateway.assert_steady()
    assert [replay(world.store, row.run_id) for row in world.store.history()] == [[], []]
    policy = {**POLICY, "limits": {"cooldown": "0s"}}
    remediation = {"policy": policy, "under_fault": True, "recover_within": "3m"}
    assert (await outcome(world, mended(remediation=remediation)))["outcome"] == "PASS"


async def test_a_ramp_goes_through_its_shares_and_injects_once(world: World) -> None:
    document = mended(arms={"chaos": {"share": 0.5, "ramp": [0.05, 0.5]}, "unit": "request"})
    result = await outcome(world, document)
    assert (result["outcome"], result["exit_code"]) == ("PASS", 0), result
    assert world.gateway.acts.count("attach fault") == 1
    assert world.gateway.acts.count("attach split") == 2
    assert replay(world.store, world.run_id()) == []


async def test_a_ramp_that_burns_too_much_ends_before_the_next_share(world: World) -> None:
    arms = {"chaos": {"share": 0.5, "ramp": [0.4, 0.5]}, "unit": "request"}
    guard = {"abort_burn_rate": 10, "budget_share": 0.05}
    document = experiment(fault=errors(1.0), arms=arms, guard=guard)
    result = await outcome(world, document)
    assert (result["outcome"], result["exit_code"]) == ("FAIL", 1), result
    assert world.gateway.acts.count("attach split") == 1


async def test_the_guard_goes_on_watching_while_a_remedy_is_tried(
    time_skipping: WorkflowEnvironment, tmp_path: Path
) -> None:
    strike = Strike(STEPS.index("apply_remedy"))
    async with open_world(time_skipping, tmp_path, strike) as world:

        async def everything_breaks() -> None:
            world.gateway.base_bad_ratio = 0.9

        strike.act = everything_breaks
        result = await outcome(world, mended())
        assert (result["outcome"], result["exit_code"]) == ("FAIL", 1), result
        assert "guard" in " ".join(result["reasons"]).lower()
        world.gateway.assert_steady()


async def test_a_lease_that_ends_before_the_fault_is_put_on_is_told_and_breaks_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def too_late(*_: object) -> dict[str, Any]:
        raise TargetRejected("the lease is lapsed", "lease_closed")

    monkeypatch.setattr(world.gateway, "attach", too_late)
    result = await outcome(world, experiment())
    assert (result["outcome"], result["exit_code"]) == ("INCONCLUSIVE", 2), result
    assert result["reasons"][0].startswith("The lease was over before the act: ")
    assert "attach fault" not in world.gateway.acts
    world.gateway.assert_steady()
    assert replay(world.store, world.run_id()) == []


async def test_a_global_stop_that_the_run_meets_at_its_target_is_a_stop_and_no_failure(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> dict[str, Any]:
        raise TargetRejected("stopped: the pager rang", "stopped")

    monkeypatch.setattr(world.gateway, "open_lease", refuse)
    result = await outcome(world, experiment())
    assert (result["outcome"], result["exit_code"]) == ("INCONCLUSIVE", 2), result
    assert "the global stop (stopped: the pager rang)" in result["reasons"][0]
    assert [hold.state for hold in world.store.list_holds()] == ["free"]


async def test_an_abort_that_comes_before_the_run_begins_is_heeded(
    time_skipping: WorkflowEnvironment, tmp_path: Path
) -> None:
    handle = await time_skipping.client.start_workflow(
        "FaultExperiment",
        experiment(),
        id=f"fx-{uuid.uuid4().hex}",
        task_queue=queues.MAIN,
        start_signal="abort",
        start_signal_args=[AbortInput(by="a person")],
    )
    async with open_world(time_skipping, tmp_path) as world:
        result = await handle.result()
        assert result["exit_code"] != 0
        assert world.gateway.acts == []


async def test_who_asked_cannot_approve_and_nobody_can_before_it_waits(world: World) -> None:
    document = experiment(
        metadata={"name": "scenario", "requestedBy": "ann"},
        approval={"required": True, "within": "1h"},
    )
    handle = await world.client.start_workflow(
        "FaultExperiment",
        document,
        id=f"fx-{uuid.uuid4().hex}",
        task_queue=queues.MAIN,
        start_signal="approve",
        start_signal_args=[ApproveInput(by="eve")],
    )
    while (await handle.query("view"))["phase"] != "waiting for approval":
        pass
    own = await handle.execute_update("approve", ApproveInput(by="ann"))
    assert own["accepted"] is False
    assert world.gateway.acts == []
    note = "ticket 7, https://bob:hidden@tickets.example/7"
    other = await handle.execute_update("approve", ApproveInput(by="bob", note=note))
    assert other["accepted"] is True
    assert (await handle.result())["outcome"] == "PASS"
    report = assemble(world.store, world.run_id())
    refused, approved = report["approvals"]
    assert (refused["kind"], refused["by"]) == ("approval_refused", "ann")
    assert refused["why"] == "who asked cannot approve"
    assert (approved["kind"], approved["by"]) == ("approved", "bob")
    assert approved["note"] == "ticket 7, https://[redacted]@tickets.example/7"
    assert refused["at"] <= approved["at"]
    text = render(report)
    assert "- approved by bob (claimed) at " in text
    assert "- approval refused to ann (claimed) at " in text
    assert "hidden" not in text


async def test_an_approval_that_nobody_gave_in_time_is_on_the_record(world: World) -> None:
    document = experiment(approval={"required": True, "within": "1m"})
    with pytest.raises(WorkflowFailureError):
        await outcome(world, document)
    report = assemble(world.store, world.run_id())
    assert (report["outcome"], report["exit_code"]) == ("CONFIGURATION", 3)
    (expired,) = report["approvals"]
    assert (expired["kind"], expired["why"]) == ("approval_expired", "nobody approved in time")
    assert "- approval expired at " in render(report)


async def test_traffic_too_little_for_the_guard_is_inconclusive_and_nothing_is_broken(
    world: World,
) -> None:
    world.gateway.rate = 3.0
    document = experiment(
        slos=[slo(0.95)],
        guard={"abort_burn_rate": 10, "budget_share": 0.05, "min_requests": 100},
        steady_state={"window": "30s", "min_requests": 50},
    )
    result = await outcome(world, document)
    assert (result["outcome"], result["exit_code"]) == ("INCONCLUSIVE", 2), result
    assert "guard" in " ".join(result["reasons"])
    assert "attach fault" not in world.gateway.acts
    world.gateway.assert_steady()
    assert [hold.state for hold in world.store.list_holds()] == ["free"]


async def test_a_remedy_that_is_no_tighter_than_what_is_in_force_is_not_tried(
    world: World,
) -> None:
    loose = {**POLICY, "actions": [{**POLICY["actions"][0], "threshold": 0.2}]}
    document = mended(remediation={"policy": loose, "under_fault": True, "recover_within": "3m"})
    result = await outcome(world, document)
    assert result["exit_code"] != 0
    assert "attach breaker" not in world.gateway.acts
    world.gateway.assert_steady()


async def test_a_target_in_use_is_called_busy_and_names_the_run_that_holds_it(world: World) -> None:
    first = await world.start(experiment(approval={"required": True, "within": "1h"}))
    while (await first.query("view"))["phase"] != "waiting for approval":
        pass
    holder = world.run_id()
    refused = await ended(asyncio.create_task((await world.start(experiment())).result()))
    assert (refused.outcome, refused.exit_code) == ("CONFIGURATION", 3)
    assert f"is busy: run {holder} holds it; follow or abort it" in refused.reasons[0]
    second = next(row for row in world.store.history() if row.run_id != holder)
    (reason, *_) = assemble(world.store, second.run_id)["reasons"]
    assert reason.startswith("It was not begun: ")
    assert replay(world.store, second.run_id) == []
    await first.execute_update("abort", AbortInput(by="kim"))
    await first.result()


async def test_a_run_under_a_global_stop_is_refused_by_that_stop(world: World) -> None:
    world.store.set_stop("drill", "kim", datetime.now(UTC))
    with pytest.raises(WorkflowFailureError):
        await outcome(world, experiment())
    report = assemble(world.store, world.run_id())
    assert (report["outcome"], report["exit_code"]) == ("CONFIGURATION", 3)
    said = "It was not begun: a global stop is in force (drill); `burnproof release`."
    assert report["reasons"][0] == said
    assert replay(world.store, world.run_id()) == []
