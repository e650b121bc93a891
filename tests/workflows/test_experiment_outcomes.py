"""Each way a run can go, over real activities and a SIMULATED gateway."""

from typing import Any

from audit.replay import replay
from tests.workflows.conftest import World, errors, experiment, mended


async def outcome(world: World, document: dict[str, Any]) -> dict[str, Any]:
    handle = await world.start(document)
    result: dict[str, Any] = await handle.result()
    return result


async def test_a_null_fault_passes_and_leaves_the_world_as_it_was(world: World) -> None:
    result = await outcome(world, experiment())
    assert (result["outcome"], result["exit_code"]) == ("PASS", 0), result
    world.gateway.assert_steady()
    assert [hold.state for hold in world.store.list_holds()] == ["free"]
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
    assert replay(world.store, world.run_id()) == []
