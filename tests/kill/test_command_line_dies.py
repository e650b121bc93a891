"""The command line is only a client: whatever becomes of it, the run is ended in order."""

import signal

import pytest

from api import client as facade
from tests.kill.documents import experiment, lasting
from tests.kill.runs import Command, Run, command
from tests.kill.side_by_side import side_by_side
from tests.kill.workers import Point
from tests.kill.world import Lane, World

pytestmark = [
    pytest.mark.kill,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(900),
]

MOMENTS = (
    Point("preflight", "before"),
    Point("observe", "before", "compare"),
    Point("withdraw", "before"),
)
SIGNALS = {
    "two Ctrl-C": (signal.SIGINT, signal.SIGINT),
    "SIGTERM": (signal.SIGTERM,),
    "kill -9": (signal.SIGKILL,),
}


@side_by_side
async def test_a_signal_to_the_command_line_never_orphans_a_fault_or_a_lock(world: World) -> None:
    async def strike(lane: Lane, numbers: tuple[signal.Signals, ...], point: Point) -> None:
        worker = lane.worker(point)
        # A long lease: the gate holds the withdrawal up for as long as the command takes to end.
        one = command(lane, experiment(lane.name, f"left-alone-{point}", 60.0))
        run = await one.run()
        await worker.reached()
        for number in numbers:
            if one.process.poll() is None:
                one.process.send_signal(number)
        code = await one.code(30)
        if signal.SIGINT in numbers:
            assert code == 2
            assert f"burnproof follow {run.handle.id}" in one.output()
            assert f"burnproof abort {run.handle.id}" in one.output()
        assert "Traceback" not in one.output()
        worker.release()
        assert (await run.result())["outcome"] == "PASS"
        await run.left_clean("PASS")
        following = await Run.start(lane, lasting(lane.name, "next"))
        await following.in_phase("observing")
        await following.handle.cancel()
        await following.result()
        await following.left_clean("INCONCLUSIVE")

    await world.each(
        {
            f"{name} {point}": lambda lane, n=numbers, p=point: strike(lane, n, p)
            for name, numbers in SIGNALS.items()
            for point in MOMENTS
        }
    )


@side_by_side
async def test_a_signal_to_follow_leaves_the_run_alone(world: World) -> None:
    async def strike(lane: Lane, numbers: tuple[signal.Signals, ...]) -> None:
        lane.worker()
        run = await Run.start(lane, lasting(lane.name, "followed", 20.0))
        await run.fault_touches()
        one = Command(lane, "follow", run.handle.id)
        await one.says("observing")
        for number in numbers:
            if one.process.poll() is None:
                one.process.send_signal(number)
        code = await one.code(30)
        if signal.SIGINT in numbers:
            assert code == 2, one.output()
            assert f"burnproof abort {run.handle.id}" in one.output()
        assert "Traceback" not in one.output()
        assert (await facade.view(run.handle)).phase == "observing"
        assert (await facade.abort(lane.client, run.handle.id, "ada", "seen enough")).accepted
        assert (await run.result())["outcome"] == "INCONCLUSIVE"
        await run.left_clean("INCONCLUSIVE")

    await world.each({name: lambda lane, n=n: strike(lane, n) for name, n in SIGNALS.items()})
