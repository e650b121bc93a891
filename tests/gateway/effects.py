"""One replica that answers anything, and a client that notes what it saw of it."""

import asyncio
import base64
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from multidict import CIMultiDictProxy

from slo.records import Outcome
from tests.gateway.harness import (
    DONE,
    END,
    GOOD,
    ROLE,
    SSE_HEAD,
    Gate,
    Seen,
    Stub,
    answer,
    chunk,
    event,
)
from tests.gateway.shapes import tool_chunk

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


TENANT = {"x-tenant-id": "acme"}
