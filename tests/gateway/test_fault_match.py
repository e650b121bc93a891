"""Match rules: who is met by a fault, and who is in no count of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from faults.match import Asked, Match
from tests.gateway.harness import CHAT, SPLIT, Gate, Stub, good

ERROR = {"status": 503, "probability": 1.0}


@pytest.mark.parametrize(
    ("rules", "allowed", "refused"),
    [
        ({"model": "fr-*"}, Asked(model="fr-1"), Asked(model="de-1")),
        ({"adapter": "?r"}, Asked(adapter="fr"), Asked()),
        ({"tenant": "acme"}, Asked(tenant="acme"), Asked(tenant="Acme")),
        ({"path": "/v1/*"}, Asked(path="/v1/chat/completions"), Asked(path="/v2/x")),
        ({"arm": "chaos"}, Asked(arm="chaos"), Asked()),
        ({"tenant": "a", "arm": "chaos"}, Asked(tenant="a", arm="chaos"), Asked(tenant="a")),
        ({}, Asked(), None),
    ],
    ids=str,
)
def test_a_request_is_met_if_every_rule_matches(
    rules: dict[str, str], allowed: Asked, refused: Asked | None
) -> None:
    match = Match(**rules)
    assert match.is_empty is (not rules)
    assert match.allows(allowed)
    assert refused is None or not match.allows(refused)


@pytest.mark.parametrize(
    ("match", "met"),
    [
        ({"model": "m"}, "base"),
        ({"model": "fr*"}, "adapter"),
        ({"adapter": "*r-?"}, "adapter"),
        ({"adapter": "m"}, ""),
        ({"tenant": "acme"}, "tenant"),
        ({"path": "/v1/completions"}, "path"),
    ],
    ids=str,
)
async def test_only_what_matches_is_exposed_and_touched(
    tmp_path: Path, match: dict[str, str], met: str
) -> None:
    requests: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
        "base": ("/v1/chat/completions", CHAT, {}),
        "adapter": ("/v1/chat/completions", {**CHAT, "model": "fr-1"}, {}),
        "tenant": ("/v1/chat/completions", {**CHAT, "model": "x"}, {"x-tenant-id": "acme"}),
        "path": ("/v1/completions?a=1", {**CHAT, "model": "x"}, {"x-tenant-id": "b"}),
    }
    options = {"models": ["m", "fr-1", "x"]}
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}, options) as gate:
        await gate.lease()
        await gate.fault("gateway/error", ERROR, match=match)
        for path, body, headers in requests.values():
            async with gate.client.post(gate.url + path, json=body, headers=headers) as got:
                await got.read()
        for name, record in zip(requests, await gate.wait_records(4), strict=True):
            expected = ("F",) if name == met else ()
            assert (record.exposed, record.touched) == (expected, expected), name
            assert (record.status == 503) == (name == met)


async def test_an_arm_is_met_on_whatever_replica_it_is(tmp_path: Path) -> None:
    async with Stub(good()) as one, Stub(good()) as two:
        async with Gate(tmp_path, {"a": one.url, "b": two.url}) as gate:
            await gate.lease()
            await gate.put("S", "split", SPLIT)
            await gate.fault("gateway/error", ERROR, match={"arm": "control"})
            for n in range(20):
                await gate.chat(f"c{n}")
            records = await gate.wait_records(20)
            assert {record.arm for record in records} == {"control", "chaos"}
            assert all((record.arm == "control") == bool(record.exposed) for record in records)


@pytest.mark.parametrize("match", [{"modl": "m"}, {"model": ""}, {"model": 3}], ids=json.dumps)
async def test_a_wrong_rule_is_refused(tmp_path: Path, match: Any) -> None:
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.lease()
        spec = {
            "template": "null",
            "replicas": ["a"],
            "max_seconds": 9.0,
            "match": match,
        }
        body = {"kind": "fault", "spec": spec}
        status, document = await gate.admin("PUT", "/leases/L/items/F", body)
        assert status == 400 and "match" in document["message"]
