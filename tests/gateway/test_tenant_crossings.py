"""What of one tenant turns up at another is seen: signs, bills, markers, and who was served."""

from pathlib import Path

import pytest

from tests.gateway.effects import bearer
from tests.gateway.harness import CHAT, DONE, FINISH, ROLE, Gate, Seen, Stub, answer, streams, token
from tests.gateway.tenant_cases import KEY, MARKER, TENANTS, ask, billing, metrics, with_tenants
from text.markers import digest_of


async def test_a_marker_in_anothers_answer_is_seen_and_never_written_down(tmp_path: Path):
    half = len(MARKER) // 2
    tenants = with_tenants(
        signs=[{"kind": "header"}, {"kind": "key"}],
        members=[{**TENANTS["members"][0], "key_sha256": [digest_of(KEY)]}, {"name": "eel"}],
    )
    script = streams(ROLE, token(f"x{MARKER[:half]}"), token(MARKER[half:] + "."), FINISH, DONE)
    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}, tenants=tenants) as gate:
        await ask(gate, "acme", **{"x-api-key": KEY})
        await ask(gate, "eel")
        body = {**CHAT, "prompt": MARKER}
        headers = {"x-tenant-id": "eel"}
        async with gate.client.post(gate.url + "/v1/x", json=body, headers=headers) as got:
            await got.read()
        own, leaked, quoted = await gate.wait_records(3)
        text = await metrics(gate)
        await gate.server.core.journal.flush()
    leaks = []
    for record in (own, leaked, quoted):
        assert record.tenancy is not None and record.tenancy.markers == ("acme",)
        leaks.append(record.tenancy.leaked(record.tenant))
    assert leaks == [(), ("acme",), ()]
    assert 'crossings_total{kind="marker",tenant="eel",other="acme"} 1' in text
    kept = "".join(path.read_text() for path in (tmp_path / "state").rglob("*") if path.is_file())
    assert '"leaked"' not in kept and "acme" in kept
    for secret in (MARKER, KEY):
        assert secret not in kept + text


async def test_a_replica_that_says_it_served_another_is_noted(tmp_path: Path):
    async def script(seen: Seen) -> None:
        tenant = seen.header("x-tenant-id")[-1]
        await seen.send(answer(b"{}", "Content-Type: application/json", f"X-Served: {tenant}"))

    tenants = with_tenants(echo_header="X-Served")
    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}, tenants=tenants) as gate:
        await ask(gate, "acme")
        await gate.lease()
        parameters = {"kind": "repeat-header", "tenant": "bolt", "probability": 1}
        await gate.fault("gateway/tenant-confusion", parameters)
        await ask(gate, "acme")
        fine, confused = await gate.wait_records(2)
    assert fine.tenancy is not None and fine.tenancy.echo == ""
    assert confused.tenancy is not None and confused.tenancy.echo == "bolt"


CONFUSIONS = {
    "repeat-header": ("/v1/x", {}, "repeated"),
    "header": ("/v1/x", {"authorization": bearer({"tenant": "acme"})}, "disagreeing"),
    "claim": ("/v1/x", {"authorization": bearer({"tenant": "acme"})}, "disagreeing"),
    "route": ("/t/acme/x", {}, "disagreeing"),
}


@pytest.mark.parametrize("mode", ["refuse", "count"])
@pytest.mark.parametrize("kind", CONFUSIONS)
async def test_a_confused_proxy_in_front_is_found_out(tmp_path: Path, kind: str, mode: str):
    """The fault acts in a gateway before ours, as a broken proxy would."""
    path, extra, problem = CONFUSIONS[kind]
    signs = [*TENANTS["signs"], {"kind": "path", "after": "/t/"}]
    tenants = with_tenants(signs=signs, on_conflict=mode)
    (tmp_path / "front").mkdir()
    async with Stub(billing()) as stub, Gate(tmp_path, {"a": stub.url}, tenants=tenants) as gate:
        async with Gate(tmp_path / "front", {"ours": gate.url}) as front:
            await front.lease()
            parameters = {"kind": kind, "tenant": "bolt", "probability": 1}
            await front.fault("gateway/tenant-confusion", parameters)
            headers = {"x-tenant-id": "acme", **extra}
            async with front.client.post(front.url + path, json=CHAT, headers=headers) as got:
                await got.read()
            record, text = await gate.record(), await metrics(gate)
    assert record.tenancy is not None
    action = "refused" if mode == "refuse" else "counted"
    assert f'sign_problems_total{{problem="{problem}",action="{action}"}} 1' in text
    assert "bolt" in (record.tenant, *record.tenancy.signs)
    assert "acme" in (record.tenant, *record.tenancy.signs)
    if mode == "refuse":
        assert (record.outcome, record.tenancy.billed, len(stub.seen)) == ("shed", 0, 0)
        assert got.status in (400, 403)
    else:
        assert (record.outcome, record.tenancy.billed) == ("ok", 100)
