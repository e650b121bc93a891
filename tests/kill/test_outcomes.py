"""What a run may claim, and the exit code a script sees, through the real command line."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from tests.kill.documents import errors, experiment, lasting, mended, stalls
from tests.kill.runs import Command, command
from tests.kill.side_by_side import side_by_side
from tests.kill.world import Lane, World

pytestmark = [
    pytest.mark.kill,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(900),
]

Json = dict[str, Any]
STEADY_SECONDS = 12.0
"""Somewhat more than the window of traffic before the fault: what came before is out of sight."""


async def finishes(lane: Lane, document: Json, code: int, outcome: str, **more: Any) -> str:
    """Run a document through the command line; check code, outcome and what is left."""
    lane.worker()
    one = command(lane, document)
    run = await one.run()
    assert await one.code() == code, one.output()
    await run.left_clean(outcome, **more)
    said = one.output()
    assert outcome in said, said
    assert "SIMULATED" in said
    return said


@side_by_side
async def test_each_end_has_its_exit_code(world: World) -> None:
    async def passes(lane: Lane) -> None:
        await finishes(lane, experiment(lane.name, "passes"), 0, "PASS")

    async def fails(lane: Lane) -> None:
        document = experiment(lane.name, "fails", hypothesis="withstands")
        await finishes(lane, document, 1, "FAIL")

    async def is_aborted(lane: Lane) -> None:
        lane.worker()
        one = command(lane, lasting(lane.name, "is-aborted"))
        run = await one.run()
        await run.fault_touches()
        abort = Command(lane, "abort", run.handle.id, "--reason", "enough")
        assert await abort.code() == 0, abort.output()
        assert await one.code() == 2, one.output()
        await run.left_clean("INCONCLUSIVE")

    async def touches_nothing(lane: Lane) -> None:
        document = experiment(lane.name, "touches-nothing", hypothesis="withstands")
        document["fault"] = stalls(after_tokens=1000, stall="4s")
        said = await finishes(lane, document, 3, "NOT_INJECTED")
        assert "none was affected" in said

    async def has_no_traffic(lane: Lane) -> None:
        lane.quiet()
        await asyncio.sleep(STEADY_SECONDS)
        lane.worker()
        one = command(lane, experiment(lane.name, "has-no-traffic"))
        run = await one.run()
        assert await one.code() == 2, one.output()
        await run.left_clean("INCONCLUSIVE", injected=0)

    async def has_too_little_traffic(lane: Lane) -> None:
        lane.quiet()
        lane.drive(rate=0.5)
        await asyncio.sleep(STEADY_SECONDS)
        try:
            lane.worker()
            one = command(lane, experiment(lane.name, "has-too-little"))
            run = await one.run()
            assert await one.code() == 2, one.output()
            await run.left_clean("INCONCLUSIVE", injected=0)
        finally:
            lane.quiet()

    async def loses_its_traffic(lane: Lane) -> None:
        document = lasting(lane.name, "loses-its-traffic", observe={"max": "12s"})
        document["recovery"] = {"within": "5s", "window": "5s", "min_requests": 20}
        lane.worker()
        one = command(lane, document)
        run = await one.run()
        await run.fault_touches()
        lane.quiet()
        assert await one.code() == 2, one.output()
        await run.left_clean("INCONCLUSIVE")

    cases: dict[str, Callable[[Lane], Awaitable[None]]] = {
        "0 pass": passes,
        "1 fail": fails,
        "2 aborted": is_aborted,
        "3 nothing touched": touches_nothing,
        "2 no traffic": has_no_traffic,
        "2 too little traffic": has_too_little_traffic,
        "2 traffic lost": loses_its_traffic,
    }
    await world.each(cases)


@side_by_side
async def test_a_fault_that_expires_while_the_remedy_is_tried_is_credited_to_nobody(
    world: World,
) -> None:
    async def strike(lane: Lane) -> None:
        document = mended(lane.name, "expires")
        document["fault"] = errors(duration="14s")
        # A threshold that the replica never crosses: nothing changes until the fault ends.
        document["remediation"]["policy"]["actions"][0]["threshold"] = 0.85
        said = await finishes(lane, document, 2, "INCONCLUSIVE")
        assert "expired" in said
        assert "The remedy did it" not in said

    await world.each({"expires": strike})


@side_by_side
async def test_an_engine_that_is_healthy_and_hangs_is_refused_before_any_fault(
    world: World,
) -> None:
    async def strike(lane: Lane) -> None:
        async with httpx.AsyncClient(trust_env=False) as http:
            assert (await http.get(f"{world.hung_url}/health")).status_code == 200
        document = experiment("hung", "hangs")
        document["steady_state"]["deadline"] = "1s"
        lane.worker()
        one = command(lane, document)
        run = await one.run()
        assert await one.code() == 3, one.output()
        assert "replica b gave no token before any fault" in one.output()
        assert run.acts() == []
        hold = lane.store.hold("route/hung")
        assert hold is not None
        assert hold.state == "free"
        assert run.kinds().count("injected") == 0

    await world.each({"hung": strike})


@side_by_side
async def test_a_document_that_is_wrong_is_one_line_and_starts_nothing(world: World) -> None:
    async def typo(lane: Lane) -> None:
        document = lasting(lane.name, "typo")
        parameters = document["fault"]["parameters"]
        parameters["stal"] = parameters.pop("stall")
        one = command(lane, document)
        assert await one.code() == 3
        lines = one.output().strip().splitlines()
        line = next(line for line in lines if "fault.parameters.stal:" in line)
        assert "experiment.yaml:" in line
        assert 'did you mean "stall"?' in line
        assert "Traceback" not in one.output()
        assert "workflow" not in one.output()

    async def usage(lane: Lane) -> None:
        one = Command(lane, "run")
        assert await one.code() == 3
        assert "Traceback" not in one.output()

    async def absent(lane: Lane) -> None:
        one = Command(lane, "run", "/no/such/experiment.yaml")
        assert await one.code() == 3
        assert "/no/such/experiment.yaml" in one.output()
        assert "Traceback" not in one.output()

    async def unknown_route(lane: Lane) -> None:
        lane.worker()
        one = command(lane, lasting("no-such-route", "unknown-route"))
        assert await one.code() == 3
        assert "no-such-route" in one.output()

    cases: dict[str, Callable[[Lane], Awaitable[None]]] = {
        "typo": typo,
        "usage": usage,
        "absent": absent,
        "unknown route": unknown_route,
    }
    await world.each(cases)
