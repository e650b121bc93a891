"""A full route through a running gateway: who waits, who goes next, and who gives up."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gateway.config import RouteConfig
from gateway.tenants.visit import Door
from slo.objective import Indicator
from slo.records import Outcome
from tests.gateway.harness import CHAT, GOOD, TOKEN, Gate, Seen, Stub, event, streams

TENANTS = {"members": [{"name": "noisy"}, {"name": "quiet"}, {"name": "heavy", "weight": 3}]}


@dataclass
class Full:
    """A gateway with one place, behind a replica that answers when it is told to."""

    gate: Gate
    order: list[str] = field(default_factory=list)
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    tasks: list[asyncio.Task[tuple[int, Any]]] = field(default_factory=list)
    tokens: dict[str, int] = field(default_factory=dict)
    """Tokens that an answer to a tenant takes; 1 if it is not here."""

    @property
    def door(self) -> Door:
        desk = self.gate.server.core.desk
        assert desk is not None
        return desk._doors["chat"]

    async def send(self, tenant: str, count: int = 1) -> list[asyncio.Task[tuple[int, Any]]]:
        """Send requests, and return when each has its place or waits."""
        made = []
        for _ in range(count):
            before = self.door.gate.waiting + self.door.gate.served
            made.append(asyncio.create_task(self._one(tenant)))
            while self.door.gate.waiting + self.door.gate.served == before:
                await asyncio.sleep(0.002)
        self.tasks += made
        return made

    async def _one(self, tenant: str) -> tuple[int, Any]:
        headers = {"x-tenant-id": tenant}
        url = self.gate.url + "/v1/x"
        async with self.gate.client.post(url, json=CHAT, headers=headers) as got:
            body = await got.read()
            return got.status, (dict(got.headers), body)


@asynccontextmanager
async def full(
    folder: Path, tenants: dict[str, Any] | None = TENANTS, **limit: Any
) -> AsyncIterator[Full]:
    async def script(seen: Seen) -> None:
        tenant = seen.header("x-tenant-id")
        made.order.append(tenant[0] if tenant else "")
        await made.turns.acquire()
        usage = {"prompt_tokens": 1, "completion_tokens": made.tokens.get(made.order[-1], 1)}
        await streams(*GOOD, event({"choices": [], "usage": usage}))(seen)

    options = {"limit": {"in_flight": 1, "wait_seconds": 20, **limit}}
    async with Stub(script) as stub:
        async with Gate(folder, {"a": stub.url}, options, tenants) as gate:
            made = Full(gate)
            try:
                yield made
            finally:
                for task in made.tasks:
                    task.cancel()
                await asyncio.gather(*made.tasks, return_exceptions=True)


async def test_a_quiet_tenant_goes_next_while_a_noisy_one_has_twenty_waiting(tmp_path: Path):
    async with full(tmp_path) as route:
        noisy = await route.send("noisy", 21)
        quiet = await route.send("quiet", 2)
        for _ in range(23):
            route.turns.release()
        statuses = [(await task)[0] for task in (*noisy, *quiet)]
        records = await route.gate.wait_records(23)
        assert (route.door.gate.served, route.door.gate.waiting) == (0, 0)
    assert statuses == [200] * 23
    assert route.order[:5].count("quiet") == 2
    waited = [each for each in records if each.tenancy and each.tenancy.queued_s > 0]
    assert len(waited) == 22
    assert all(each.ttft_s and each.tenancy and each.ttft_s >= each.tenancy.queued_s
               for each in waited)  # fmt: skip


async def test_weights_decide_between_two_that_both_wait(tmp_path: Path):
    async with full(tmp_path) as route:
        await route.send("noisy", 20)
        await route.send("heavy", 20)
        for _ in range(20):
            route.turns.release()
        while len(route.order) < 20:
            await asyncio.sleep(0.005)
    assert 12 <= route.order[:20].count("heavy") <= 16


async def test_what_an_answer_came_to_decides_and_not_what_was_expected_of_it(tmp_path: Path):
    """Both ask alike; the answers of one are nine times as long, so the other gets nine turns."""
    async with full(tmp_path) as route:
        route.tokens |= {"noisy": 900, "quiet": 100}
        await route.send("noisy", 10)
        await route.send("quiet", 40)
        for _ in range(30):
            route.turns.release()
        while len(route.order) < 30:
            await asyncio.sleep(0.005)
    assert 2 <= route.order[:30].count("noisy") <= 5


async def test_a_turn_that_comes_as_the_client_leaves_reaches_no_replica(tmp_path: Path):
    async with full(tmp_path) as route:
        await route.send("noisy")
        await route.send("quiet")
        (lane,) = (lane for lane in route.door.lanes.values() if lane.queue)
        exchange = next(iter(lane.queue)).go.args[0]  # type: ignore[attr-defined]
        exchange.on_gone()
        exchange.proceed()
        route.turns.release()
        assert (await route.tasks[0])[0] == 200
        await route.gate.wait_records(2)
        assert (route.door.gate.served, route.door.gate.waiting) == (0, 0)
        assert route.order == ["noisy"]


async def test_a_full_queue_refuses_its_own_tenant_only(tmp_path: Path):
    async with full(tmp_path, queue_per_tenant=1) as route:
        await route.send("noisy", 2)
        status, (headers, body) = await route._one("noisy")
        assert (status, headers["Retry-After"]) == (429, "1")
        assert json.loads(body)["error"]["code"] == "rate_limit_exceeded"
        await route.send("quiet")
        assert route.door.gate.waiting == 2


async def test_a_wait_ends_after_its_limit_and_counts_against_the_service(tmp_path: Path):
    async with full(tmp_path, wait_seconds=0.2) as route:
        await route.send("noisy")
        (late,) = await route.send("quiet")
        status, (_, body) = await late
        assert (status, json.loads(body)["error"]["type"]) == (503, "server_error")
        record = await route.gate.record()
        assert route.door.gate.waiting == 0
        route.turns.release()
        assert (await route.tasks[0])[0] == 200
    assert record.tenancy is not None
    assert (record.outcome, record.tenancy.refusal) == (Outcome.SHED, "wait")
    assert record.tenancy.queued_s == pytest.approx(0.2)
    assert Indicator().is_valid(record) and Indicator().is_bad(record)
    assert route.gate.server.core.routes["chat"].base["a"].window.total == 1


async def test_a_client_that_leaves_the_queue_gives_its_turn_away(tmp_path: Path):
    async with full(tmp_path) as route:
        (first,) = await route.send("noisy")
        (gone,) = await route.send("noisy")
        (last,) = await route.send("quiet")
        gone.cancel()
        while route.door.gate.waiting > 1:
            await asyncio.sleep(0.002)
        route.turns.release()
        route.turns.release()
        assert [(await task)[0] for task in (first, last)] == [200, 200]
        records = await route.gate.wait_records(3)
        assert route.order == ["noisy", "quiet"]
        assert (route.door.gate.served, route.door.gate.waiting) == (0, 0)
    assert [each.outcome for each in records].count(Outcome.CLIENT_ABORT) == 1


async def test_probes_pass_a_full_route(tmp_path: Path):
    async with full(tmp_path) as route:
        await route.send("noisy", 3)
        route.turns.release()
        headers = {"x-burnproof-probe": TOKEN}
        probe = asyncio.create_task(
            route.gate.client.post(route.gate.url + "/v1/x", json=CHAT, headers=headers)
        )
        while "" not in route.order:
            await asyncio.sleep(0.005)
        for _ in range(3):
            route.turns.release()
        (await probe).close()


async def test_a_limit_without_tenants_is_one_queue(tmp_path: Path):
    async with full(tmp_path, tenants=None, queue_per_tenant=1) as route:
        await route.send("a", 2)
        assert (await route._one("b"))[0] == 429
        route.turns.release()
        route.turns.release()
        assert [(await task)[0] for task in route.tasks] == [200, 200]
        records = await route.gate.wait_records(3)
    assert sorted(each.tenant for each in records) == ["a", "a", "b"]


async def test_a_hundred_clients_of_five_tenants_leave_nothing_behind(tmp_path: Path):
    """Half of them give up at some time: every place and every count comes back."""
    members = [{"name": f"t{n}", "concurrent": 15, "tokens_per_second": 1e6} for n in range(5)]
    tenants = {"members": members}
    async with full(tmp_path, tenants, in_flight=3, queue_per_tenant=10) as route:
        tasks = [asyncio.create_task(route._one(f"t{n % 5}")) for n in range(100)]
        for n, task in enumerate(tasks):
            route.turns.release()
            if n % 2:
                await asyncio.sleep(0.003)
                task.cancel()
        for _ in range(100):
            route.turns.release()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        desk = route.gate.server.core.desk
        assert desk is not None
        async with asyncio.timeout(10):
            while route.door.gate.served or route.door.gate.waiting:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0)
        assert {pool.here for pool in desk._pools.values()} == {0}
        for pool in desk._pools.values():
            assert pool.bucket is not None and pool.bucket.level > 0.9 * pool.bucket.burst
    assert {each[0] for each in done if isinstance(each, tuple)} <= {200, 429}
    assert sum(isinstance(each, tuple) for each in done) >= 50


def test_a_route_has_no_limit_unless_it_says_so():
    replica = {"name": "a", "url": "http://x"}
    assert RouteConfig.model_validate({"name": "r", "replicas": [replica]}).limit is None
