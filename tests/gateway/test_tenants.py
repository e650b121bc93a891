"""Tenants through a running gateway: told apart, billed, and kept from one another (C86)."""

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.config import GatewayConfig
from gateway.metrics import Metrics
from gateway.tenants.desk import Desk
from slo.objective import Indicator
from slo.records import Outcome, RequestRecord
from tests.gateway.effects import bearer
from tests.gateway.harness import (
    CHAT,
    ROLE,
    TOKEN,
    Gate,
    Seen,
    Stub,
    answer,
    good,
    streams,
    token,
)
from tests.gateway.tenant_cases import TENANTS, ask, billing, members, metrics, with_tenants


async def test_a_request_is_billed_to_its_tenant_as_the_engine_counted(tmp_path: Path):
    async with Stub(billing()) as stub, Gate(tmp_path, {"a": stub.url}, tenants=TENANTS) as gate:
        assert (await ask(gate, "acme"))[0] == 200
        record = await gate.record()
        text = await metrics(gate)
    assert (record.tenant, record.outcome) == ("acme", Outcome.OK)
    assert record.tenancy is not None and record.tenancy.billed == 100
    assert 'burnproof_gateway_tenant_tokens_total{tenant="acme"} 100' in text
    assert 'burnproof_gateway_tenant_in_flight{tenant="acme"} 0' in text


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ([], 401, "tenant_missing"),
        ([("x-tenant-id", "nobody")], 403, "tenant_unknown"),
        ([("x-tenant-id", "acme"), ("x-tenant-id", "bolt")], 400, "tenant_repeated"),
        ([("x-tenant-id", "acme"), ("authorization", bearer({"tenant": "bolt"}))], 403, None),
        ([("x-tenant-id", "a b")], 400, "tenant_malformed"),
    ],
    ids=str,
)
async def test_a_sign_that_is_not_clear_is_refused_and_no_replica_is_blamed(
    tmp_path: Path, headers, status: int, code: str | None
):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}, tenants=TENANTS) as gate:
        async with gate.client.post(gate.url + "/v1/x", json=CHAT, headers=headers) as got:
            error = (await got.json())["error"]
            assert got.status == status
        record = await gate.record()
        assert stub.seen == []
        buckets = (await gate.ok("GET", "/counters?route=chat&seconds=60"))["buckets"]
        assert gate.server.core.routes["chat"].base["a"].window.total == 0
    assert error["code"] == (code or "tenant_disagreeing")
    assert (record.outcome, record.tenant, record.replica) == (Outcome.SHED, "", "")
    assert record.tenancy is not None and record.tenancy.refusal == "identity"
    assert not Indicator().is_valid(record)
    assert sum(each["total"] for each in buckets) == 0


async def test_counting_lets_a_conflict_pass_and_writes_down_the_other_tenant(tmp_path: Path):
    tenants = with_tenants(on_conflict="count")
    async with Stub(billing()) as stub, Gate(tmp_path, {"a": stub.url}, tenants=tenants) as gate:
        assert (await ask(gate, "acme", authorization=bearer({"tenant": "bolt"})))[0] == 200
        record, text = await gate.record(), await metrics(gate)
    assert record.tenancy is not None
    assert (record.tenant, record.tenancy.signs, record.tenancy.billed) == ("acme", ("bolt",), 100)
    prefix = "burnproof_gateway_tenant_"
    assert prefix + 'sign_problems_total{problem="disagreeing",action="counted"} 1' in text
    assert prefix + 'crossings_total{kind="sign",tenant="acme",other="bolt"} 1' in text


async def test_unknown_tenants_share_one_pool_where_there_is_one(tmp_path: Path):
    tenants = with_tenants(others={"tokens_per_second": 1, "burst_tokens": 10})
    async with Stub(billing()) as stub, Gate(tmp_path, {"a": stub.url}, tenants=tenants) as gate:
        assert [(await ask(gate, name))[0] for name in ("x", "y", "", "acme")] == [
            200,
            429,
            429,
            200,
        ]
        first = (await gate.wait_records(4))[0]
        assert first.tenant == "x"


async def test_a_tenant_may_not_use_the_routes_of_others(tmp_path: Path):
    config = Gate(tmp_path, {"a": "http://127.0.0.1:1"}, tenants=TENANTS).config()
    other = config.routes[0].model_copy(update={"name": "other", "models": ("o",)})
    both = GatewayConfig.model_validate({**config.model_dump(), "routes": [*config.routes, other]})
    gate = Gate(tmp_path, {"a": "http://127.0.0.1:1"}, tenants=TENANTS)
    gate.config = lambda: both  # type: ignore[method-assign]
    async with gate:
        body = {**CHAT, "model": "o"}
        headers = {"x-tenant-id": "cell"}
        async with gate.client.post(gate.url + "/v1/x", json=body, headers=headers) as got:
            assert (got.status, (await got.json())["error"]["code"]) == (403, "tenant_wrong_route")


async def test_a_used_up_quota_is_refused_as_clients_expect_and_is_open_again_in_time(
    tmp_path: Path,
):
    async with Stub(billing()) as stub, Gate(tmp_path, {"a": stub.url}, tenants=TENANTS) as gate:
        assert (await ask(gate, "bolt"))[0] == 200  # 100 of 50 tokens: 50 are owed
        await gate.wait_records(1)
        began = asyncio.get_running_loop().time()
        status, headers, body = await ask(gate, "bolt")
        assert (await ask(gate, "acme"))[0] == 200, "another tenant's quota is its own"
        wait = int(headers["Retry-After"])
        await asyncio.sleep(began + wait - asyncio.get_running_loop().time())
        assert (await ask(gate, "bolt"))[0] == 200
        records = await gate.wait_records(4)
        assert gate.server.core.routes["chat"].base["a"].window.total == 3
        assert len(stub.seen) == 3
    error = json.loads(body)["error"]
    assert (status, error["type"], error["code"]) == (429, "tokens", "rate_limit_exceeded")
    assert (error["param"], wait) == (None, 1)
    assert headers["x-ratelimit-remaining-tokens"] == "0"
    refused = records[1]
    assert refused.tenancy is not None
    assert (refused.outcome, refused.tenancy.refusal) == (Outcome.SHED, "quota")
    assert refused.tenancy.billed == 0
    assert not Indicator().is_valid(refused)


async def test_what_a_client_asks_for_is_set_aside_and_given_back(tmp_path: Path):
    """400 twice and the prompt are set aside, 100 are used: the third finds too little."""
    tenants = members({"name": "dune", "tokens_per_second": 0.001, "burst_tokens": 1000})
    body, headers = {**CHAT, "max_tokens": 400, "n": 2}, {"x-tenant-id": "dune"}
    statuses = []
    async with Stub(billing()) as stub, Gate(tmp_path, {"a": stub.url}, tenants=tenants) as gate:
        for count in range(1, 4):
            async with gate.client.post(gate.url + "/v1/x", json=body, headers=headers) as got:
                statuses.append(got.status)
                await got.read()
            await gate.wait_records(count)
        assert int(got.headers["Retry-After"]) == pytest.approx(30_000, rel=0.2)
    assert statuses == [200, 200, 429]


@pytest.mark.parametrize("encoding", ["br", "gzip"])
async def test_a_body_or_an_answer_that_cannot_be_read_is_not_free(tmp_path: Path, encoding: str):
    async def script(seen: Seen) -> None:
        await seen.send(
            answer(b"\x8b" * 9, "Content-Type: application/json", "Content-Encoding: br")
        )

    body = gzip.compress(json.dumps(CHAT).encode()) if encoding == "gzip" else b"\x8b" * 400
    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}, tenants=TENANTS) as gate:
        headers = {"x-tenant-id": "acme", "Content-Encoding": encoding}
        async with gate.client.post(gate.url + "/v1/x", data=body, headers=headers) as got:
            assert got.status == 200
            await got.read()
        record = await gate.record()
    assert record.tenancy is not None and record.tenancy.billed > 256


async def test_an_error_of_the_replica_costs_nothing_and_a_half_answer_what_came(tmp_path: Path):
    async def script(seen: Seen) -> None:
        if b"fail" in seen.body:
            await seen.send(answer(b"{}", status="500 Oops"))
        else:
            await streams(ROLE, token("a"), token("b"))(seen)

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}, tenants=TENANTS) as gate:
        for prompt in ("fail", "go on"):
            body, headers = {**CHAT, "prompt": prompt}, {"x-tenant-id": "acme"}
            async with gate.client.post(gate.url + "/v1/x", json=body, headers=headers) as got:
                await got.read()
        failed, half = await gate.wait_records(2)
    assert failed.tenancy is not None and failed.tenancy.billed == 0
    assert half.tenancy is not None and half.outcome is Outcome.TRUNCATED
    assert half.tenancy.billed == pytest.approx(len(json.dumps(CHAT)) / 4 + 2, abs=8)


@pytest.mark.parametrize("usage", [None, {"prompt_tokens": 5, "completion_tokens": 0}])
async def test_a_whole_answer_without_a_figure_is_billed_by_its_length(tmp_path: Path, usage):
    choice = {"index": 0, "message": {"content": "word " * 200}, "finish_reason": "stop"}
    body = json.dumps({"choices": [choice], **({"usage": usage} if usage else {})}).encode()

    async def script(seen: Seen) -> None:
        await seen.send(answer(body, "Content-Type: application/json"))

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}, tenants=TENANTS) as gate:
        await ask(gate, "acme")
        record = await gate.record()
    assert record.tenancy is not None
    assert record.tenancy.billed == (6 if usage else -(-len(json.dumps(CHAT)) // 4) + 250)


async def test_a_tenant_has_no_more_requests_here_than_it_may(tmp_path: Path):
    release = asyncio.Event()

    async def script(seen: Seen) -> None:
        await release.wait()
        await good()(seen)

    tenants = members({"name": "dune", "concurrent": 2})
    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}, tenants=tenants) as gate:
        held = [asyncio.create_task(ask(gate, "dune")) for _ in range(2)]
        while len(stub.seen) < 2:
            await asyncio.sleep(0.005)
        status, headers, body = await ask(gate, "dune")
        release.set()
        assert [(await task)[0] for task in held] == [200, 200]
        await gate.wait_records(3)
        assert (await ask(gate, "dune"))[0] == 200
    assert (status, headers["Retry-After"]) == (429, "1")
    assert json.loads(body)["error"]["type"] == "requests"


async def test_probes_need_no_tenant_and_use_nobodys_quota(tmp_path: Path):
    async with Stub(billing()) as stub, Gate(tmp_path, {"a": stub.url}, tenants=TENANTS) as gate:
        for _ in range(5):
            assert (await ask(gate, "", **{"x-burnproof-probe": TOKEN}))[0] == 200
        records = await gate.wait_records(5)
    assert {record.tenancy for record in records} == {None}


def config_of(folder: Path, **changes: Any) -> GatewayConfig:
    return Gate(folder, {"a": "http://127.0.0.1:1"}, **changes).config()


async def test_a_new_configuration_keeps_requests_in_flight_and_what_they_set_aside(tmp_path: Path):
    release = asyncio.Event()

    async def script(seen: Seen) -> None:
        await release.wait()
        await billing()(seen)

    options = {"limit": {"in_flight": 1, "wait_seconds": 30}}
    before = members({"name": "dune", "tokens_per_second": 0.001, "burst_tokens": 700})
    after = members(
        {"name": "dune", "tokens_per_second": 0.002, "burst_tokens": 60}, {"name": "late"}
    )
    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}, options, before) as gate:
        held = [asyncio.create_task(ask(gate, "dune")) for _ in range(2)]
        core = gate.server.core
        assert core.desk is not None
        door = core.desk._doors["chat"]
        while not door.gate.waiting:
            await asyncio.sleep(0.005)
        document = json.loads(gate.file.read_text())
        document["routes"][0]["limit"]["in_flight"] = 5
        gate.file.write_text(json.dumps({**document, "tenants": after}))
        assert (await gate.ok("POST", "/reload"))["changed"]
        assert core.desk._doors["chat"] is door and door.gate.places == 5
        pool = core.desk._pools["dune"]
        assert pool.here == 2 and pool.bucket is not None
        level = pool.bucket.level
        release.set()
        assert [(await task)[0] for task in held] == [200, 200]
        await gate.wait_records(2)
        assert (door.gate.served, door.gate.waiting, pool.here) == (0, 0, 0)
        assert level <= 60
        assert pool.bucket.level == pytest.approx(60, abs=0.1), "what was set aside came back"
        assert (await ask(gate, "late"))[0] == 200


def test_without_tenants_and_limits_there_is_no_desk(tmp_path: Path):
    assert Desk.of(config_of(tmp_path), Metrics(), 0.0) is None
    assert Desk.of(config_of(tmp_path, options={"limit": {"in_flight": 1}}), Metrics(), 0.0)


async def test_a_record_without_tenants_is_as_it_was(tmp_path: Path):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await ask(gate, "anybody")
        record = await gate.record()
    assert (record.tenant, record.tenancy) == ("anybody", None)
    raw = record.to_json()
    assert "tenancy" not in raw
    assert RequestRecord.from_json(raw) == record
