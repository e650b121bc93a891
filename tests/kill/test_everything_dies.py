"""What needs a stack to itself: server, gateway, worker, supervisor killed; everything stopped."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from api.client import connect
from api.stack.options import EngineKind, StackOptions, TrafficKind
from api.stack.state import StackState
from api.stack.supervisor import LocalStack
from audit.store import AuditStore
from settings import TemporalSettings
from targets.gateway_admin import GatewayAdmin
from tests.kill.documents import experiment, lasting
from tests.kill.runs import SLACK_SECONDS, Command, Run, command, now
from tests.kill.side_by_side import side_by_side
from tests.kill.workers import until
from tests.kill.world import Lane
from tests.stack.helpers import GONE_LIMIT_S, Up, nothing_left

pytestmark = [
    pytest.mark.kill,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(420),
]

TRAFFIC_RATE = 15


@asynccontextmanager
async def only_lane(state: StackState, directory: Path) -> AsyncIterator[Lane]:
    """The stack's own route, namespace and audit database as a lane."""
    address = TemporalSettings(address=state.temporal_address, namespace="default")
    store = AuditStore(state.audit_url)
    admin = GatewayAdmin(state.gateway_url, state.admin_token_file.read_text().strip())
    try:
        yield Lane(
            name=state.route,
            env={**state.environment(), "BURNPROOF_STACK_DIR": str(directory / "no-stack-here")},
            client=await connect(address),
            store=store,
            admin=admin,
            admin_log=state.directory / "journal" / "admin.jsonl",
            nursery=None,  # type: ignore[arg-type] # the stack starts the workers here
            tag=state.tag,
            directory=directory,
        )
    finally:
        await admin.aclose()
        store.close()


@asynccontextmanager
async def only_stack(directory: Path) -> AsyncIterator[tuple[LocalStack, Lane]]:
    """A stack that nobody shares and in which nothing comes back by itself."""
    options = StackOptions(
        directory=directory / "stack",
        engine=EngineKind.SIMULATED,
        traffic=TrafficKind.SINGLE,
        rate=TRAFFIC_RATE,
        ui=False,
        restart=False,
    )
    async with LocalStack(options) as stack, only_lane(stack.state, directory) as lane:
        yield stack, lane


@side_by_side
async def test_worker_server_and_gateway_killed_at_once_leave_no_fault_and_claim_nothing(
    tmp_path: Path,
) -> None:
    async with only_stack(tmp_path) as (stack, lane):
        for lease in (6.0, 20.0):
            run = await Run.start(lane, lasting(lane.name, f"all-at-once-{lease:g}", lease))
            await run.fault_touches()
            await stack.kill(["worker", "temporal", "gateway"])
            await stack.start("temporal")
            await stack.start("gateway")
            state = await lane.admin.state()
            assert state["dropped_at_start"] == [f"{run.run_id}.lease"]
            assert await lane.admin.open_leases() == []
            assert run.acts()[-1]["act"] == "drop"
            hold = lane.store.hold(lane.hold)
            assert hold is not None
            assert (hold.state, hold.run_id) == ("held", run.run_id)
            await stack.start("worker")
            result = await run.result()
            assert (result["outcome"], result["exit_code"]) == ("INCONCLUSIVE", 2), result
            await run.left_clean("INCONCLUSIVE")
        assert "leases dropped: ['all-at-once" in stack.events_log.read_text()


@side_by_side
async def test_stop_all_withdraws_everything_now_and_refuses_runs_until_release(
    tmp_path: Path,
) -> None:
    async with only_stack(tmp_path) as (_, lane):
        run = await Run.start(lane, lasting(lane.name, "stopped", 20.0))
        await run.fault_touches()
        stop = Command(lane, "stop", "--all", "--reason", "something is wrong")
        assert await stop.code() == 0, stop.output()
        assert await lane.admin.open_leases() == []
        stopped = [one for one in lane.admin_log.read_text().splitlines() if '"stop"' in one]
        assert len(stopped) == 1
        assert run.acts()[-1]["act"] == "close"
        assert (await run.result())["outcome"] == "INCONCLUSIVE"
        await run.left_clean("INCONCLUSIVE")

        refused = command(lane, experiment(lane.name, "refused"))
        assert await refused.code() == 3, refused.output()
        assert "something is wrong" in refused.output()
        again = await refused.run()
        assert again.acts() == []

        release = Command(lane, "release")
        assert await release.code() == 0, release.output()
        after = await Run.start(lane, experiment(lane.name, "after"))
        assert (await after.result())["outcome"] == "PASS"
        await after.left_clean("PASS")


@side_by_side
async def test_a_withdrawal_that_cannot_be_proven_quarantines_the_target_until_a_person_looks(
    tmp_path: Path,
) -> None:
    async with only_stack(tmp_path) as (stack, lane):
        document = lasting(lane.name, "unproven")
        document["lease"]["withdraw_within"] = "6s"
        one = command(lane, document)
        run = await one.run()
        await run.fault_touches()
        await stack.kill("gateway", signal.SIGSTOP)
        await run.handle.signal("abort", {"by": "ada", "reason": "now"})
        assert await one.code() == 4, one.output()
        assert "CLEANUP_FAILED" in one.output()
        hold = lane.store.hold(lane.hold)
        assert hold is not None
        assert hold.state == "quarantined"
        assert run.freed() == []
        await stack.kill("gateway", signal.SIGCONT)
        # A renewal that lay in the frozen gateway's socket may have given it one more lease.
        await run.fault_is_off(30)
        assert [act["act"] for act in run.acts()][-1] in {"lapse", "close"}
        await lane.sweep()
        still = lane.store.hold(lane.hold)
        assert still is not None
        assert still.state == "quarantined"

        refused = command(lane, experiment(lane.name, "refused"))
        assert await refused.code() == 3, refused.output()
        assert "quarantined" in refused.output()
        clear = Command(lane, "holds", "clear", lane.hold, "--reason", "looked at it")
        assert await clear.code() == 0, clear.output()
        after = await Run.start(lane, experiment(lane.name, "after"))
        assert (await after.result())["outcome"] == "PASS"
        await after.left_clean("PASS")


@side_by_side
async def test_a_supervisor_killed_in_mid_fault_leaves_nothing_and_the_next_stack_tells_the_truth(
    tmp_path: Path,
) -> None:
    up = Up(tmp_path / "stack", ("--no-ui", "--rate", str(TRAFFIC_RATE)))
    up.start()
    try:
        state = await asyncio.to_thread(up.wait_ready)
        async with only_lane(state, tmp_path) as lane:
            run = await Run.start(lane, lasting(lane.name, "unsupervised", 20.0))
            await run.fault_touches()
            os.kill(up.process.pid, signal.SIGKILL)
            up.process.wait()
            killed = now()
            await until(lambda: nothing_left(state), "no process left", GONE_LIMIT_S)
            assert now() - killed <= GONE_LIMIT_S + SLACK_SECONDS
    finally:
        await asyncio.to_thread(up.clean)
    second = Up(tmp_path / "stack", ("--no-ui", "--rate", str(TRAFFIC_RATE)))
    second.start()
    try:
        async with only_lane(await asyncio.to_thread(second.wait_ready), tmp_path) as lane:
            found = Run(lane, run.handle.id, run.run_id)
            result = await found.result()
            assert (result["outcome"], result["exit_code"]) == ("INCONCLUSIVE", 2), result
            assert found.acts()[-1]["act"] == "drop"
            await found.left_clean("INCONCLUSIVE")
    finally:
        os.kill(second.process.pid, signal.SIGTERM)
        await asyncio.to_thread(second.process.wait, 30)
        await asyncio.to_thread(second.clean)
