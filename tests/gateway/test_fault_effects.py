"""Each fault through a running gateway: on, seen by a client, off, and seen to be off."""

import asyncio
import base64
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from multidict import CIMultiDictProxy

from faults.catalog import CATALOG
from slo.records import Outcome
from tests.gateway.harness import (
    DONE,
    END,
    FINISH,
    GOOD,
    ROLE,
    SSE_HEAD,
    Gate,
    Seen,
    Stub,
    answer,
    chunk,
    event,
    token,
)
from tests.gateway.shapes import joined_arguments, tool_chunk

JSON = "Content-Type: application/json"
ARGUMENTS = '{"city": "Oslo", "days": 3}'
TOOL_EVENTS = (
    ROLE,
    event(tool_chunk(ARGUMENTS[:9], "weather")),
    event(tool_chunk(ARGUMENTS[9:])),
    event(tool_chunk(None, finish="tool_calls")),
    DONE,
)
CLAIMS = {"sub": "me", "tenant": "acme"}


def bearer(claims: dict[str, str]) -> str:
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    return "Bearer " + ".".join(
        base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (*parts, b"signature")
    )


async def replica(seen: Seen) -> None:
    """Answer as the path says."""
    path = seen.line.split()[1]
    if path.startswith("/v1/embeddings"):
        packed = base64.b64encode(struct.pack("<3f", 1, 2, 3)).decode()
        vectors = [packed, packed] if b"base64" in seen.body else [[1.0, 2.0], [3.0, 4.0]]
        data = [{"index": i, "embedding": vector} for i, vector in enumerate(vectors)]
        await seen.send(answer(json.dumps({"data": data}).encode(), JSON, "X-Request-Id: 7"))
    elif path.startswith("/tools"):
        call = {"function": {"name": "weather", "arguments": ARGUMENTS}}
        body = json.dumps({"choices": [{"message": {"tool_calls": [call]}}]}).encode()
        await seen.send(answer(body, JSON))
    else:
        events = TOOL_EVENTS if b"weather" in seen.body else GOOD
        await seen.send(SSE_HEAD)
        for each in events:
            await seen.send(chunk(each))
        await seen.send(END)


@dataclass
class Got:
    """What the client saw, and what the replica did."""

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes
    seconds: float
    broken: bool
    seen: list[Seen] = field(default_factory=list)

    @property
    def document(self) -> Any:
        return json.loads(self.body)


@dataclass
class Case:
    """One way to use a template."""

    template: str
    parameters: dict[str, Any]
    holds: Callable[[Got], bool]
    path: str = "/v1/chat/completions"
    body: dict[str, Any] = field(default_factory=lambda: {"model": "m", "stream": True})
    headers: dict[str, str] = field(default_factory=dict)
    outcome: Outcome = Outcome.OK


async def ask(gate: Gate, stub: Stub, case: Case) -> Got:
    loop, before = asyncio.get_running_loop(), len(stub.seen)
    began, body, broken = loop.time(), b"", False
    url = gate.url + case.path
    async with gate.client.post(url, json=case.body, headers=case.headers) as response:
        try:
            while piece := await response.content.readany():
                body += piece
        except aiohttp.ClientPayloadError:
            broken = True
        status, headers = response.status, response.headers
    return Got(status, headers, body, loop.time() - began, broken, stub.seen[before:])


def spoilt_events(got: Got) -> int:
    found = 0
    for raw in got.body.split(b"\n\n"):
        if raw and raw != DONE.strip():
            try:
                json.loads(raw.removeprefix(b"data: "))
            except ValueError:
                found += 1
    return found


def sent_tenants(got: Got) -> list[str]:
    return got.seen[0].header("x-tenant-id")


def vectors(got: Got) -> list[Any]:
    return [entry["embedding"] for entry in got.document["data"]]


def is_retry_date(got: Got) -> bool:
    text = got.headers.get("Retry-After", "")
    return text.endswith("GMT") and bool(parsedate_to_datetime(text))


EMBED = {"model": "m", "input": ["a", "b"]}
TENANT = {"x-tenant-id": "acme"}
ERROR, TRUNCATED = Outcome.HTTP_ERROR, Outcome.TRUNCATED
TWO = ROLE + GOOD[1] + GOOD[2]
CASES = {
    "pareto": Case("gateway/latency-pareto", {"base": 0.2, "cap": 0.2}, lambda g: g.seconds > 0.19),
    "fixed": Case("gateway/latency-fixed", {"delay": 0.2}, lambda g: 0.19 < g.seconds < 2),
    "per token": Case("gateway/latency-per-token", {"delay": 0.1}, lambda g: g.seconds > 0.29),
    "by upstream": Case(
        "gateway/dependency-latency", {"upstream": "a*", "delay": 0.2}, lambda g: g.seconds > 0.19
    ),
    "status": Case("gateway/error", {"status": 502}, lambda g: g.status == 502, outcome=ERROR),
    "error in the stream": Case(
        "gateway/error",
        {"in_stream": True},
        lambda g: g.status == 200 and b'"error"' in g.body,
        outcome=Outcome.STREAM_ERROR,
    ),
    "error after two tokens": Case(
        "gateway/error",
        {"in_stream": True, "after_tokens": 2},
        lambda g: g.body.startswith(TWO + b'data: {"error"') and g.body.endswith(DONE),
        outcome=Outcome.STREAM_ERROR,
    ),
    "limit without a time": Case(
        "gateway/rate-limit",
        {},
        lambda g: g.status == 429 and "Retry-After" not in g.headers,
        outcome=ERROR,
    ),
    "limit in seconds": Case(
        "gateway/rate-limit",
        {"retry_after": 2.5},
        lambda g: g.headers.get("Retry-After") == "3",
        outcome=ERROR,
    ),
    "limit with a date": Case(
        "gateway/rate-limit",
        {"retry_after": 60.0, "form": "http-date"},
        is_retry_date,
        outcome=ERROR,
    ),
    "quota": Case(
        "gateway/quota-overrun",
        {"limit": 5},
        lambda g: g.status == 429 and "tenant acme" in g.document["error"]["message"],
        headers=TENANT,
        outcome=ERROR,
    ),
    "stall": Case(
        "gateway/stream-stall", {"after_tokens": 1, "stall": 0.2}, lambda g: g.seconds > 0.19
    ),
    "abrupt cut": Case(
        "gateway/stream-cut",
        {"after_tokens": 2},
        lambda g: g.broken and g.body == TWO,
        outcome=TRUNCATED,
    ),
    "clean cut": Case(
        "gateway/stream-cut",
        {"after_tokens": 2, "ending": "clean"},
        lambda g: not g.broken and g.body == TWO,
        outcome=TRUNCATED,
    ),
    "cut with the final chunk": Case(
        "gateway/stream-cut",
        {"after_tokens": 2, "ending": "clean", "final_chunk": True},
        lambda g: g.body == TWO + FINISH,
    ),
    "cut with DONE": Case(
        "gateway/stream-cut",
        {"after_tokens": 0, "ending": "clean", "done": True},
        lambda g: g.body == DONE,
    ),
    "flipped": Case("gateway/stream-garble", {}, lambda g: spoilt_events(g) == 1),
    "halved": Case(
        "gateway/stream-garble", {"kind": "half-event"}, lambda g: spoilt_events(g) == 1
    ),
    "no UTF-8": Case(
        "gateway/stream-garble", {"kind": "invalid-utf8"}, lambda g: b"\xff" in g.body
    ),
    "drip": Case(
        "gateway/slow-drip",
        {"piece_bytes": 100, "pause": 0.02},
        lambda g: g.seconds > 0.02 * (len(b"".join(GOOD)) // 100 - 1) and g.body == b"".join(GOOD),
    ),
    "drip of a plain answer": Case(
        "gateway/slow-drip",
        {"piece_bytes": 4, "pause": 0.01},
        lambda g: g.seconds > 0.1 and len(vectors(g)) == 2,
        path="/v1/embeddings",
        body=EMBED,
    ),
    "header of the request removed": Case(
        "gateway/headers",
        {"side": "request", "action": "remove", "name": "X-Extra"},
        lambda g: not g.seen[0].header("x-extra"),
        headers={"x-extra": "1"},
    ),
    "header of the request set": Case(
        "gateway/headers",
        {"side": "request", "action": "set", "name": "X-Extra", "value": "2"},
        lambda g: g.seen[0].header("x-extra") == ["2"],
        headers={"x-extra": "1"},
    ),
    "header of the answer doubled": Case(
        "gateway/headers",
        {"side": "answer", "action": "duplicate", "name": "X-Request-Id"},
        lambda g: g.headers.getall("X-Request-Id") == ["7", "7"],
        path="/v1/embeddings",
        body=EMBED,
    ),
    "header of the answer set": Case(
        "gateway/headers",
        {"side": "answer", "action": "set", "name": "Content-Type", "value": "text/plain"},
        lambda g: g.headers["Content-Type"] == "text/plain",
    ),
    "tenant repeated": Case(
        "gateway/tenant-confusion",
        {"kind": "repeat-header", "tenant": "other"},
        lambda g: sent_tenants(g) == ["acme", "other"],
        headers=TENANT,
    ),
    "tenant header": Case(
        "gateway/tenant-confusion",
        {"kind": "header", "tenant": "other"},
        lambda g: sent_tenants(g) == ["other"],
        headers=TENANT,
    ),
    "tenant claim": Case(
        "gateway/tenant-confusion",
        {"kind": "claim", "tenant": "other"},
        lambda g: (
            bearer({**CLAIMS, "tenant": "other"}).split(".")[2]
            == g.seen[0].header("authorization")[0].split(".")[2]
            and b'"tenant":"other"'
            in base64.urlsafe_b64decode(g.seen[0].header("authorization")[0].split(".")[1] + "==")
            and sent_tenants(g) == ["acme"]
        ),
        headers={**TENANT, "authorization": bearer(CLAIMS)},
    ),
    "tenant route": Case(
        "gateway/tenant-confusion",
        {"kind": "route", "tenant": "other"},
        lambda g: g.seen[0].line.split()[1] == "/t/other/chat?x=acme",
        path="/t/acme/chat?x=acme",
        headers=TENANT,
    ),
    "constant embeddings": Case(
        "gateway/constant-embeddings",
        {},
        lambda g: vectors(g) == [[pytest.approx(0.5**0.5)] * 2] * 2,
        path="/v1/embeddings",
        body=EMBED,
    ),
    "constant embeddings in base64": Case(
        "gateway/constant-embeddings",
        {"vector": "zeros"},
        lambda g: [base64.b64decode(vector) for vector in vectors(g)] == [bytes(12)] * 2,
        path="/v1/embeddings",
        body={**EMBED, "encoding_format": "base64"},
    ),
    "streamed tool call": Case(
        "gateway/tool-calls",
        {"kind": "missing-required"},
        lambda g: joined_arguments(g.body) == '{"city": "Oslo"}',
        body={
            "stream": True,
            "tools": [{"function": {"name": "weather", "parameters": {"required": ["days"]}}}],
        },
    ),
    "plain tool call": Case(
        "gateway/tool-calls",
        {"kind": "truncated"},
        lambda g: (
            ARGUMENTS.startswith(
                text := g.document["choices"][0]["message"]["tool_calls"][0]["function"][
                    "arguments"
                ]
            )
            and text != ARGUMENTS
        ),
        path="/tools",
        body={"model": "m"},
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_a_fault_is_seen_by_a_client_while_it_is_on_and_never_else(
    tmp_path: Path, name: str
) -> None:
    case = CASES[name]
    async with Stub(replica) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        before = await ask(gate, stub, case)
        assert not case.holds(before)
        await gate.lease()
        await gate.fault(case.template, {"probability": 1.0, **case.parameters})
        during = await ask(gate, stub, case)
        assert case.holds(during), during
        if "Content-Length" in during.headers:
            assert int(during.headers["Content-Length"]) == len(during.body)
        removed = await gate.ok("DELETE", "/leases/L/items/F")
        assert removed["observed"]["active_items"] == []
        after = await ask(gate, stub, case)
        assert (after.status, after.body, after.broken) == (before.status, before.body, False)
        assert not case.holds(after)
        records = await gate.wait_records(3)
        assert [record.touched for record in records] == [(), ("F",), ()]
        assert records[1].outcome is case.outcome


def test_every_template_that_acts_has_a_case() -> None:
    covered = {case.template for case in CASES.values()}
    assert covered == {info.id for info in CATALOG.values() if info.expects_effect}


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
