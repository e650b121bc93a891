"""A chunk is passed on when it comes (C82)."""

import asyncio
import time
from pathlib import Path

import pytest

from tests.gateway.harness import CHAT, DONE, END, FINISH, SSE_HEAD, Gate, Seen, Stub, chunk, token


async def test_each_event_arrives_before_the_next_one_is_sent(tmp_path: Path):
    """The stub sends an event only after the client got the one before: held back would hang."""
    arrived = asyncio.Event()
    events = [token("x" * 200) for _ in range(6)] + [FINISH, DONE]

    async def script(seen: Seen) -> None:
        await seen.send(SSE_HEAD)
        for each in events:
            arrived.clear()
            await seen.send(chunk(each))
            await arrived.wait()
        await seen.send(END)

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        async with gate.client.post(gate.url + "/v1/chat/completions", json=CHAT) as got:
            for each in events:
                data = b""
                while data != each:
                    async with asyncio.timeout(5):
                        data += await got.content.readany()
                arrived.set()
            assert await got.content.readany() == b""


async def test_headers_arrive_before_the_first_event_is_there(tmp_path: Path):
    go = asyncio.Event()

    async def script(seen: Seen) -> None:
        await seen.send(SSE_HEAD)
        await go.wait()
        await seen.send(chunk(DONE) + END)

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        async with asyncio.timeout(5):
            async with gate.client.post(gate.url + "/v1/chat/completions", json=CHAT) as got:
                assert got.status == 200
                go.set()
                await got.read()


async def test_the_delay_added_to_each_event_is_under_five_milliseconds(tmp_path: Path):
    sent: list[float] = []

    async def script(seen: Seen) -> None:
        await seen.send(SSE_HEAD)
        for _ in range(40):
            await asyncio.sleep(0.01)
            sent.append(time.monotonic())
            await seen.send(chunk(token("x" * 180)))
        await seen.send(chunk(FINISH + DONE) + END)

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        got_at: list[float] = []
        async with gate.client.post(gate.url + "/v1/chat/completions", json=CHAT) as got:
            while await got.content.readany():
                got_at.append(time.monotonic())
        added = sorted(there - here for here, there in zip(sent, got_at, strict=False))
        assert added[len(added) // 2] < 0.005  # the median: one busy core must not decide it


async def test_a_client_that_reads_slowly_does_not_make_the_replica_look_stalled(tmp_path: Path):
    """Its socket is full for a while: that time is in no gap and in no latency of the service."""
    events = [token("x" * 60_000) for _ in range(150)]

    async def script(seen: Seen) -> None:
        await seen.send(SSE_HEAD)
        for each in events:
            await seen.send(chunk(each))
        await seen.send(chunk(FINISH + DONE) + END)

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        async with gate.client.post(gate.url + "/v1/chat/completions", json=CHAT) as got:
            await got.content.readany()
            await asyncio.sleep(2.0)
            body = await got.read()
        assert body.endswith(DONE)
        record = await gate.record()
    assert record.outcome == "ok"
    assert record.at - record.accepted >= 2.0
    assert record.max_gap_s < 1.0
    assert record.e2e_s < 1.5


@pytest.mark.parametrize("limit", [1.5, 60.0], ids=["our limit passes", "the client leaves"])
async def test_nor_does_one_that_never_reads_on(tmp_path: Path, limit: float):
    """Whether it leaves or our own limit ends it: nothing of that was the replica's."""
    events = [token("x" * 60_000) for _ in range(150)]

    async def script(seen: Seen) -> None:
        await seen.send(SSE_HEAD)
        for each in events:
            await seen.send(chunk(each))

    options = {"timeout_seconds": limit}
    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}, options) as gate:
        async with gate.client.post(gate.url + "/v1/chat/completions", json=CHAT) as got:
            await got.content.readany()
            await asyncio.sleep(2.5)
        record = await gate.record()
    assert record.outcome == "client_abort"
    assert record.at - record.accepted >= min(limit, 2.0)
    assert record.max_gap_s < 1.0
