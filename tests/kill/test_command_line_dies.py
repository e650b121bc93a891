"""The command line is only a client: whatever becomes of it, the run is ended in order."""

import signal

import pytest

from tests.kill.documents import experiment
from tests.kill.runs import Run, command
from tests.kill.workers import Point
from tests.kill.world import Lane, World

pytestmark = [
    pytest.mark.kill,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(420),
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
        following = await Run.start(lane, experiment(lane.name, "next"))
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
