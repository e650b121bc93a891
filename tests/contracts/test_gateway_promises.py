"""What the loop relies on at a gateway: the SIMULATED one and the real one keep the same promises.

Without this suite, scenarios over the SIMULATED gateway would prove nothing about the real one.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from activities.ports import GatewayControl
from slo.records import Page
from targets.errors import TargetError, TargetRejected
from targets.gateway_admin import GatewayAdmin
from targets.gateway_fleet import connect
from targets.simulated import SimulatedGateway
from tests.gateway.harness import TOKEN, Gate, Stub, completes

ROUTE = "chat"
SPLIT = {
    "experiment": "e",
    "salt": "s",
    "share": 0.5,
    "control": ["a"],
    "chaos": ["b"],
    "unit": "request",
}
FAULT = {
    "template": "gateway/error",
    "parameters": {"status": 503, "probability": 0.5},
    "replicas": ["b"],
    "max_seconds": 60.0,
    "seed": 1,
}
BREAKER = {"threshold_ratio": 0.01, "holdout_share": 0.2, "salt": "t", "replicas": ["*"]}


@asynccontextmanager
async def simulated(folder: Path) -> AsyncIterator[GatewayControl]:
    yield SimulatedGateway()


@asynccontextmanager
async def real(folder: Path) -> AsyncIterator[GatewayControl]:
    async with Stub(completes()) as a, Stub(completes()) as b:
        async with Gate(folder, {"a": a.url, "b": b.url}) as gate:
            admin = GatewayAdmin(gate.url, TOKEN)
            try:
                yield admin
            finally:
                await admin.aclose()


@asynccontextmanager
async def two(folder: Path) -> AsyncIterator[GatewayControl]:
    """Two gateways before the same replicas, driven as one."""
    for name in ("one", "two"):
        (folder / name).mkdir()
    async with Stub(completes()) as a, Stub(completes()) as b:
        urls = {"a": a.url, "b": b.url}
        async with Gate(folder / "one", urls) as one, Gate(folder / "two", urls) as other:
            admin = connect((one.url, other.url), TOKEN)
            try:
                yield admin
            finally:
                await admin.aclose()


@pytest.fixture(params=[simulated, real, two], ids=["SIMULATED", "real", "two real ones"])
async def gateway(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[GatewayControl]:
    async with request.param(tmp_path) as made:
        yield made


async def opened(gateway: GatewayControl, lease_id: str = "L") -> dict[str, Any]:
    return await gateway.open_lease(lease_id, "r", ROUTE, 20.0)


async def open_ids(gateway: GatewayControl) -> list[str]:
    return [lease["lease_id"] for lease in await gateway.open_leases()]


async def test_a_lease_is_opened_once_however_often_it_is_asked_for(
    gateway: GatewayControl,
) -> None:
    assert (await opened(gateway))["state"] == (await opened(gateway))["state"] == "open"
    assert await open_ids(gateway) == ["L"]
    assert (await gateway.open_leases())[0]["run_id"] == "r"


async def test_an_item_is_attached_once_and_the_receipt_says_which_time_it_was(
    gateway: GatewayControl,
) -> None:
    await opened(gateway)
    for item, kind, spec in (
        ("S", "split", SPLIT),
        ("F", "fault", FAULT),
        ("B", "breaker", BREAKER),
    ):
        first = await gateway.attach("L", item, kind, spec)
        again = await gateway.attach("L", item, kind, spec)
        assert (first["first"], again["first"]) == (True, False), kind
        assert first["state"] == again["state"] == "active"
        assert first["at"] > 0
    assert set((await gateway.open_leases())[0]["items"]) == {"S", "F", "B"}


async def test_an_item_with_the_same_name_and_another_content_is_refused(
    gateway: GatewayControl,
) -> None:
    await opened(gateway)
    await gateway.attach("L", "F", "fault", FAULT)
    with pytest.raises(TargetRejected) as refused:
        await gateway.attach("L", "F", "fault", {**FAULT, "seed": 2})
    assert refused.value.code == "item_conflict"


async def test_a_detach_is_done_however_often_and_of_whatever(gateway: GatewayControl) -> None:
    await opened(gateway)
    await gateway.attach("L", "F", "fault", FAULT)
    assert (await gateway.detach("L", "F"))["state"] == "removed"
    assert (await gateway.detach("L", "F"))["state"] in {"removed", "never_applied"}
    assert (await gateway.detach("L", "nothing"))["state"] == "never_applied"


async def test_a_close_takes_everything_along_and_can_be_repeated(gateway: GatewayControl) -> None:
    await opened(gateway)
    await gateway.attach("L", "S", "split", SPLIT)
    await gateway.attach("L", "F", "fault", FAULT)
    for _ in range(2):
        receipt = await gateway.close_lease("L")
        assert (receipt["state"], receipt["still_touching"]) == ("closed", 0)
        assert receipt["at"] > 0
    assert await open_ids(gateway) == []


@pytest.mark.parametrize("known", [True, False], ids=["a known lease", "a lease never opened"])
async def test_nothing_gets_through_a_closed_lease(gateway: GatewayControl, known: bool) -> None:
    if known:
        await opened(gateway)
    assert (await gateway.close_lease("L"))["state"] == "closed"
    with pytest.raises(TargetRejected) as late_open:
        await opened(gateway)
    with pytest.raises(TargetError) as late_renewal:
        await gateway.renew_lease("L", 20.0)
    with pytest.raises(TargetError) as late_attach:
        await gateway.attach("L", "F", "fault", FAULT)
    for late in (late_open, late_renewal, late_attach):
        assert late.value.code == "lease_closed" and not late.value.retryable
    assert await open_ids(gateway) == []


async def test_the_journal_reads_on_from_its_cursor_and_shows_the_lease(
    gateway: GatewayControl,
) -> None:
    await opened(gateway)
    await gateway.attach("L", "F", "fault", {**FAULT, "template": "null", "parameters": {}})
    for replica in ("a", "b"):
        assert (await gateway.probe("tiny", replica, 5.0))["status"] == 200
    first = Page.from_json(await gateway.journal(ROUTE, tail_seconds=60.0, lease_id="L"))
    probed = [r.replica for r in first.records if r.probe]
    assert list(dict.fromkeys(probed)) == ["a", "b"]
    assert len(probed) % 2 == 0, "each gateway asks each replica once"
    assert [r.seq for r in first.records] == list(range(first.after + 1, first.next + 1))
    assert first.lease is not None and first.lease["id"] == "L"
    assert first.lease["state"] == "open" and first.lease["items"]["F"]["state"] == "active"
    second = Page.from_json(await gateway.journal(ROUTE, after=first.next, cursors=first.cursors))
    assert (second.epoch, second.gap, second.after) == (first.epoch, False, first.next)
    assert all(r.seq > first.next for r in second.records)


async def test_the_route_names_its_replicas_and_the_threshold_in_force(
    gateway: GatewayControl,
) -> None:
    (route,) = [one for one in await gateway.routes() if one["name"] == ROUTE]
    assert [one["name"] for one in route["replicas"]] == ["a", "b"]
    base = route["breaker"]["threshold_ratio"]
    assert base == route["breaker"]["base_threshold_ratio"]
    await opened(gateway)
    await gateway.attach("L", "B", "breaker", BREAKER)
    (route,) = [one for one in await gateway.routes() if one["name"] == ROUTE]
    assert route["breaker"]["threshold_ratio"] == BREAKER["threshold_ratio"]
    await gateway.close_lease("L")
    (route,) = [one for one in await gateway.routes() if one["name"] == ROUTE]
    assert route["breaker"]["threshold_ratio"] == base
    assert not (await gateway.state())["stopped"]
