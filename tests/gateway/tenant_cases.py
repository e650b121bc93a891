"""Tenants for the tests of a gateway that tells them apart, and a client that names one."""

from typing import Any

from tests.gateway.harness import CHAT, DONE, FINISH, ROLE, Gate, Script, event, streams, token
from text.markers import digest_of, marker_of

MARKER = marker_of(bytes(range(16)))
KEY = "sk-acme-very-secret"
TENANTS: dict[str, Any] = {
    "signs": [{"kind": "header"}, {"kind": "claim"}],
    "members": [
        {"name": "acme", "marker_sha256": [digest_of(MARKER)]},
        {"name": "bolt", "tokens_per_second": 100, "burst_tokens": 50, "concurrent": 2},
        {"name": "cell", "routes": ["chat"]},
    ],
}
USAGE = event({"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 70}})


def with_tenants(**changes: Any) -> dict[str, Any]:
    return {**TENANTS, **changes}


def members(*more: dict[str, Any]) -> dict[str, Any]:
    return with_tenants(members=[*TENANTS["members"], *more])


def billing() -> Script:
    """Stream three tokens and report 30 and 70."""
    return streams(ROLE, token("a"), FINISH, USAGE, DONE)


async def ask(gate: Gate, tenant: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    sent = {**headers, "x-tenant-id": tenant} if tenant else headers
    path = gate.url + "/v1/chat/completions"
    async with gate.client.post(path, json=CHAT, headers=sent) as got:
        return got.status, dict(got.headers), await got.read()


async def metrics(gate: Gate) -> str:
    async with gate.client.get(gate.url + "/metrics") as got:
        return await got.text()
