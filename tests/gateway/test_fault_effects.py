"""Each fault through a running gateway: on, seen by a client, off, and seen to be off."""

import base64
import json
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest

from faults.catalog import CATALOG
from slo.records import Outcome
from tests.gateway.effects import (
    ARGUMENTS,
    CLAIMS,
    TENANT,
    Case,
    Got,
    ask,
    bearer,
    replica,
)
from tests.gateway.harness import (
    DONE,
    FINISH,
    GOOD,
    ROLE,
    Gate,
    Stub,
)
from tests.gateway.shapes import joined_arguments


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
