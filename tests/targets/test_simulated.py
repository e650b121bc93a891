"""The SIMULATED gateway says what it is, and makes the same traffic from the same seed."""

from slo.records import Page
from targets.simulated import SimulatedGateway


async def pages(seed: int) -> list[dict[str, object]]:
    gateway = SimulatedGateway(seed=seed)
    first = await gateway.journal("chat", tail_seconds=5.0)
    return [first, await gateway.journal("chat", after=Page.from_json(first).next)]


async def test_the_same_seed_makes_the_same_records_and_another_makes_others() -> None:
    assert await pages(1) == await pages(1)
    assert await pages(1) != await pages(2)


async def test_it_says_that_it_is_a_simulation() -> None:
    assert "SIMULATED" in str(await SimulatedGateway().state())


async def test_an_open_lease_is_no_steady_world() -> None:
    gateway = SimulatedGateway()
    await gateway.open_lease("l", "r", "chat", 20)
    try:
        gateway.assert_steady()
    except AssertionError as found:
        assert "l" in str(found)
    else:
        raise AssertionError("an open lease passed for a steady world")
    gateway.pass_lease_time(21)
    gateway.assert_steady()
