"""What a fault leaves alone, and what happens to the requests it holds when it ends."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from slo.records import Outcome
from tests.gateway.effects import TENANT, Case, ask, replica
from tests.gateway.harness import DONE, END, FINISH, GOOD, SSE_HEAD, Gate, Seen, Stub, chunk, token

CANNOT = {
    "a quota without a tenant": Case("gateway/quota-overrun", {}, bool),
    "another upstream": Case("gateway/dependency-latency", {"upstream": "z", "delay": 9.0}, bool),
    "a header that is not there": Case(
        "gateway/headers", {"side": "answer", "action": "remove", "name": "x-none"}, bool
    ),
    "no token with a claim": Case(
        "gateway/tenant-confusion", {"kind": "claim", "tenant": "o"}, bool, headers=TENANT
    ),
    "a stream for embeddings": Case("gateway/constant-embeddings", {}, bool),
    "no tool call": Case("gateway/tool-calls", {"kind": "truncated"}, bool),
    "a cut after the end": Case("gateway/stream-cut", {"after_tokens": 4}, bool),
}


@pytest.mark.parametrize("name", CANNOT)
async def test_a_fault_that_is_drawn_and_cannot_act_touches_nothing(
    tmp_path: Path, name: str
) -> None:
    case = CANNOT[name]
    async with Stub(replica) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.lease()
        await gate.fault(case.template, {"probability": 1.0, **case.parameters})
        assert (await ask(gate, stub, case)).body == b"".join(GOOD)
        record = await gate.record()
        assert (record.outcome, record.touched, record.exposed) == (Outcome.OK, (), ("F",))


LAPSES: dict[str, dict[str, Any]] = {
    "gateway/stream-stall": {"after_tokens": 1, "stall": 30.0},
    "gateway/latency-per-token": {"delay": 30.0},
    "gateway/slow-drip": {"piece_bytes": 50, "pause": 30.0},
    "gateway/latency-fixed": {"delay": 30.0},
}


@pytest.mark.parametrize("template", LAPSES)
async def test_a_lease_that_lapses_in_the_middle_lets_the_rest_through_at_once(
    tmp_path: Path, template: str
) -> None:
    async with Stub(replica) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.lease(seconds=0.4)
        await gate.fault(template, {"probability": 1.0, **LAPSES[template]})
        got = await ask(gate, stub, Case(template, {}, bool))
        assert got.body == b"".join(GOOD)
        assert 0.2 < got.seconds < 5
        record = await gate.record()
        assert (record.outcome, record.touched) == (Outcome.OK, ("F",))


async def test_a_cut_that_lapses_while_it_loses_tokens_loses_no_more(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def script(seen: Seen) -> None:
        await seen.send(SSE_HEAD + chunk(token("a")) + chunk(token("b")))
        await go_on.wait()
        await seen.send(chunk(token("c")) + chunk(FINISH) + chunk(DONE) + END)

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.lease()
        cut = {"after_tokens": 1, "probability": 1.0, "ending": "abrupt", "done": True}
        await gate.fault("gateway/stream-cut", cut)
        asking = asyncio.create_task(gate.chat())
        async with asyncio.timeout(5):
            while not (await gate.ok("GET", "/leases/L"))["items"]["F"]["touched"]:
                await asyncio.sleep(0.005)
        await gate.ok("DELETE", "/leases/L/items/F")
        go_on.set()
        assert (await asking)[1] == token("a") + token("c") + FINISH + DONE


async def test_a_cut_ends_the_work_of_the_replica_too(tmp_path: Path) -> None:
    gone = asyncio.Event()

    async def script(seen: Seen) -> None:
        await seen.send(SSE_HEAD + chunk(token("a")) + chunk(token("b")))
        await seen.gone()
        gone.set()

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.lease()
        cut = {"after_tokens": 1, "probability": 1.0, "ending": "clean"}
        await gate.fault("gateway/stream-cut", cut)
        assert (await gate.chat())[1] == token("a")
        async with asyncio.timeout(1):
            await gone.wait()


async def test_a_held_back_answer_that_the_replica_breaks_off_breaks_off_for_the_client(
    tmp_path: Path,
) -> None:
    async def script(seen: Seen) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n"
        await seen.send(head + b'{"choices": [')
        seen.writer.close()

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.lease()
        await gate.fault("gateway/tool-calls", {"kind": "truncated", "probability": 1.0})
        got = await ask(gate, stub, Case("", {}, bool, path="/tools"))
        assert (got.broken, got.body) == (True, b'{"choices": [')
        record = await gate.record()
        assert (record.outcome, record.touched) == (Outcome.TRANSPORT, ())
