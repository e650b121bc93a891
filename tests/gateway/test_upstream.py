"""Sockets to the replicas: a dead idle one is nobody's failure, and nothing else is repeated."""

import asyncio
from pathlib import Path

import pytest

from gateway.http1 import pool
from slo.records import Outcome
from tests.gateway.harness import END, GOOD, SSE_HEAD, Gate, Seen, Stub, chunk, good


class DiesOnReuse:
    """Answers the first request of each connection; the second kills it without a byte."""

    def __init__(self) -> None:
        self.used: set[int] = set()

    async def __call__(self, seen: Seen) -> None:
        key = id(seen.writer)
        if key in self.used:
            seen.writer.close()
            return
        self.used.add(key)
        await good()(seen)


async def test_a_request_that_dies_on_a_reused_socket_is_sent_once_more_and_counted_as_ours(
    tmp_path: Path,
):
    async with Stub(DiesOnReuse()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        for _ in range(6):
            assert await gate.chat() == (200, b"".join(GOOD))
        records = await gate.wait_records(6)
        assert all(record.outcome is Outcome.OK and not record.fallback for record in records)
        async with gate.client.get(gate.url + "/metrics") as got:
            text = await got.text()
        resets = len(stub.seen) - 6
        assert resets > 0
        name = 'burnproof_gateway_idle_socket_resets_total{route="chat",replica="a"}'
        assert f"{name} {resets}\n" in text
        view = (await gate.ok("GET", "/routes"))["routes"][0]["replicas"][0]["breaker"]
        assert (view["bad"], view["total"]) == (0, 6)


async def test_a_second_death_on_a_fresh_socket_is_final(tmp_path: Path):
    answered = 0

    async def script(seen: Seen) -> None:
        nonlocal answered
        if answered:
            seen.writer.close()
            return
        answered += 1
        await good()(seen)

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        assert (await gate.chat())[0] == 200
        assert (await gate.chat())[0] == 502
        assert len(stub.seen) == 3
        assert (await gate.wait_records(2))[1].outcome is Outcome.TRANSPORT


async def test_a_request_on_a_fresh_socket_is_never_sent_twice_nor_elsewhere(tmp_path: Path):
    async def script(seen: Seen) -> None:
        seen.writer.close()

    async with Stub(script) as one, Stub(script) as two:
        async with Gate(tmp_path, {"a": one.url, "b": two.url}) as gate:
            assert (await gate.chat())[0] == 502
            assert len(one.seen) + len(two.seen) == 1


async def test_an_answer_that_began_is_never_repeated(tmp_path: Path):
    class BreaksOnReuse(DiesOnReuse):
        async def __call__(self, seen: Seen) -> None:
            if id(seen.writer) in self.used:
                await seen.send(SSE_HEAD + chunk(GOOD[1]))
            await super().__call__(seen)

    async with Stub(BreaksOnReuse()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.chat()
        with pytest.raises(Exception, match="payload"):
            await gate.chat()
        assert len(stub.seen) == 2
        assert (await gate.wait_records(2))[1].outcome is Outcome.TRUNCATED


async def test_an_idle_socket_is_not_used_after_its_time(tmp_path: Path, monkeypatch):
    assert pool.IDLE_SECONDS < 5  # the engine's own limit
    monkeypatch.setattr(pool, "IDLE_SECONDS", 0.1)

    async def script(seen: Seen) -> None:
        await seen.send(SSE_HEAD + chunk(b"".join(GOOD)) + END)

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.chat()
        await gate.chat()
        assert stub.connections == 1
        await asyncio.sleep(0.25)
        await gate.chat()
        assert stub.connections == 2


async def test_sockets_are_kept_between_requests(tmp_path: Path):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        for _ in range(10):
            await gate.chat()
        assert stub.connections == 1
