"""kill -9 and SIGTERM of the worker, at each step of a run: another worker goes on, or the fault
ends by itself; never two injections, never a hold freed without proof.
"""

import signal

import pytest

from tests.kill.documents import errors, experiment, lasting, mended
from tests.kill.runs import SLACK_SECONDS, Run, now
from tests.kill.side_by_side import side_by_side
from tests.kill.workers import Json, Point, until
from tests.kill.world import Lane, World

pytestmark = [
    pytest.mark.kill,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(900),
]

STEPS = [
    Point("preflight", "before"),
    Point("observe", "before", "steady"),
    Point("open_lease", "after"),
    Point("inject", "before"),
    Point("inject", "after"),
    Point("observe", "before", "compare"),
    Point("apply_remedy", "after"),
    Point("observe", "before", "remedy-1"),
    Point("withdraw", "before"),
    Point("withdraw", "after"),
    Point("observe", "before", "recovery"),
    Point("settle_hold", "after"),
    Point("conclude", "after"),
]
REMEDIAL = ("apply_remedy", "remedy-1")


def document(lane: Lane, point: Point, lease: float) -> dict[str, object]:
    kind = mended if any(word in str(point) for word in REMEDIAL) else experiment
    return kind(lane.name, f"at-{point}", lease)


@side_by_side
async def test_a_worker_killed_at_any_step_is_replaced_and_the_run_goes_on(world: World) -> None:
    async def strike(lane: Lane, point: Point) -> None:
        first = lane.worker(point)
        run = await Run.start(lane, document(lane, point, 20.0))
        await first.reached()
        await first.kill()
        lane.worker()
        result = await run.result()
        assert result["outcome"] == "PASS", result
        await run.left_clean("PASS")

    await world.each({str(p): lambda lane, p=p: strike(lane, p) for p in STEPS})


@side_by_side
async def test_a_worker_killed_between_two_stored_pages_is_resumed_from_what_is_stored(
    world: World,
) -> None:
    async def strike(lane: Lane) -> None:
        first = lane.worker()
        document = lasting(lane.name, "in-mid-observe", 20.0, observe={"max": "45s"})
        run = await Run.start(lane, document)

        def stored() -> list[list[Json]]:
            return lane.store.load_segments(run.run_id, "compare")

        await until(lambda: len(stored()) >= 1, "a stored segment", 60)
        before = stored()
        await first.kill()
        lane.worker()
        result = await run.result()
        assert (result["outcome"], result["exit_code"]) == ("INCONCLUSIVE", 2), result
        assert not any("expired" in reason for reason in result["reasons"]), result
        segments = stored()
        assert segments[: len(before)] == before
        assert len(segments) > len(before)
        pages = [page for segment in segments for page in segment]
        read = [record["seq"] for page in pages for record in page["records"]]
        # Nothing twice, nothing left out: what ended while no worker was there is read too.
        assert read == sorted(set(read))
        assert all(not page["gap"] for page in pages), [page["gap"] for page in pages]
        await run.left_clean("INCONCLUSIVE")

    await world.each({"mid-observe": strike})


@side_by_side
async def test_a_worker_that_comes_back_after_the_lease_finds_the_fault_off_and_claims_nothing(
    world: World,
) -> None:
    async def strike(lane: Lane, lease: float) -> None:
        first = lane.worker()
        run = await Run.start(lane, lasting(lane.name, f"lapses-{lease:g}", lease))
        await run.fault_touches()
        await first.kill()
        killed = now()
        off = await run.fault_is_off(lease + 10)
        world.measured(f"worker killed, fault off (lease {lease:g} s)", off - killed)
        assert off - killed <= lease + SLACK_SECONDS
        assert [act["act"] for act in run.acts()][-1] == "lapse"
        lane.worker()
        result = await run.result()
        assert (result["outcome"], result["exit_code"]) == ("INCONCLUSIVE", 2), result
        assert any("expired" in reason for reason in result["reasons"]), result
        await run.left_clean("INCONCLUSIVE")

    await world.each({f"{s:g} s": lambda lane, s=s: strike(lane, s) for s in (6.0, 20.0)})


@side_by_side
async def test_a_worker_killed_in_a_remedy_loses_the_remedy_with_the_fault(world: World) -> None:
    async def strike(lane: Lane) -> None:
        first = lane.worker(Point("observe", "before", "remedy-1"))
        run = await Run.start(lane, mended(lane.name, "remedy-lapses"))
        await first.reached()
        await first.kill()
        await run.fault_is_off(16)
        routes = {route["name"]: route for route in await lane.admin.routes()}
        breaker = routes[lane.name]["breaker"]
        assert breaker["threshold_ratio"] == breaker["base_threshold_ratio"] == 0.9
        lane.worker()
        result = await run.result()
        assert result["outcome"] == "INCONCLUSIVE", result
        await run.left_clean("INCONCLUSIVE")

    await world.each({"remedy": strike})


@side_by_side
async def test_a_worker_told_to_go_hands_over_and_the_run_passes(world: World) -> None:
    async def strike(lane: Lane, stream: str, lease: float) -> None:
        first = lane.worker()
        name = f"handed-over-{stream}"
        # A mild fault is looked at for some seconds, so that the phase is seen on a busy machine.
        mild = experiment(lane.name, name, lease, fault=errors(0.2))
        asked = mended(lane.name, name, lease) if stream == "remediating" else mild
        run = await Run.start(lane, asked)
        await run.in_phase(stream)
        second = lane.worker()
        await second.ready()
        await first.kill(signal.SIGTERM)
        assert first.says("handed over")
        result = await run.result()
        assert result["outcome"] == "PASS", result
        await run.left_clean("PASS")

    await world.each(
        {
            "observing": lambda lane: strike(lane, "observing", 6.0),
            "remediating": lambda lane: strike(lane, "remediating", 20.0),
        }
    )


@side_by_side
async def test_a_worker_that_freezes_and_thaws_injects_nothing_twice_and_claims_nothing(
    world: World,
) -> None:
    """It is taken for dead; its late acts meet what the other worker has done meanwhile."""

    async def strike(lane: Lane) -> None:
        first = lane.worker()
        run = await Run.start(lane, experiment(lane.name, "thawed", 20.0))
        await run.fault_touches()
        first.signal(signal.SIGSTOP)
        lane.worker()
        result = await run.result()
        # Tasks that the server hands to the frozen one cost time: the lease may not last for that.
        expired = any("expired" in reason for reason in result["reasons"])
        assert result["outcome"] == ("INCONCLUSIVE" if expired else "PASS"), result
        before = run.acts()
        first.signal(signal.SIGCONT)
        following = await Run.start(lane, experiment(lane.name, "next", 20.0))
        assert (await following.result())["outcome"] == "PASS"
        assert run.acts()[: len(before)] == before
        assert all(act["act"] == "close" for act in run.acts()[len(before) :])
        await run.left_clean(result["outcome"])

    await world.each({"frozen": strike})
