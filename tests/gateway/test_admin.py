"""The admin API refuses in one line, and no secret leaves it."""

import logging
from pathlib import Path

import pytest

from tests.gateway.harness import SPLIT, TOKEN, Gate, Stub, good

LEASE = {"lease_id": "L", "run_id": "R", "route": "chat", "seconds": 5}
FAULT = {
    "template": "gateway/stream-stall",
    "parameters": {"after_tokens": 2, "stall": 1.0, "probability": 0.5},
    "replicas": ["a"],
    "max_seconds": 60,
}


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN])
async def test_no_call_works_without_the_token(tmp_path: Path, header: str | None):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        headers = {} if header is None else {"Authorization": header}
        for method, path in (("GET", "/state"), ("POST", "/stop"), ("GET", "/no/such/path")):
            url = f"{gate.url}/_burnproof{path}"
            async with gate.client.request(method, url, headers=headers) as got:
                assert got.status == 401
                assert (await got.json())["error"] == "unauthorized"
        assert not (await gate.ok("GET", "/state"))["stopped"]
        assert stub.seen == []


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"lease_id":"L","lease_id":"M"}', "twice"),
        (b'{"seconds": NaN}', "NaN"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"lease_id":"L","run_id":"R","route":"chat"}', "seconds"),
        (b'{"lease_id":"L","run_id":"R","route":"chat","seconds":5,"x":1}', "x: "),
        (b'{"lease_id":"L","run_id":"R","route":"chat","seconds":"5"}', "seconds"),
        (b'{"lease_id":"L","run_id":"R","route":"chat","seconds":-1}', "seconds"),
        (b'{"lease_id":"L","run_id":"R","route":"chat","seconds":1e9}', "seconds"),
        (b'{"lease_id":"a\\nb","run_id":"R","route":"chat","seconds":5}', "lease_id"),
    ],
)
async def test_a_bad_body_is_refused_in_one_line_with_its_path(tmp_path: Path, raw, words):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        url = gate.url + "/_burnproof/leases"
        async with gate.client.post(url, data=raw, headers=headers) as got:
            assert got.status == 400
            document = await got.json()
        assert words in document["message"]
        assert "\n" not in document["message"]
        assert (await gate.ok("GET", "/leases"))["leases"] == []


@pytest.mark.parametrize(
    ("kind", "spec", "words"),
    [
        ("splt", SPLIT, "kind"),
        ("split", {**SPLIT, "share": 1.0}, "share"),
        ("split", {**SPLIT, "control": ["b"]}, "twice"),
        ("split", {**SPLIT, "chaos": ["z"]}, "no replica z"),
        ("split", {**SPLIT, "extra": 1}, "extra"),
        ("fault", {**FAULT, "template": "gateway/stall"}, "gateway/stream-stall"),
        ("fault", {**FAULT, "replicas": ["z"]}, "no replica z"),
        ("fault", {**FAULT, "parameters": {**FAULT["parameters"], "stal": 1}}, "stal"),
        (
            "fault",
            {**FAULT, "parameters": {**FAULT["parameters"], "probability": 2}},
            "probability",
        ),
        ("fault", {**FAULT, "max_seconds": 0}, "max_seconds"),
        ("breaker", {"threshold_ratio": 0, "salt": "s"}, "threshold_ratio"),
        ("breaker", {"threshold_ratio": 0.01, "salt": "s", "replicas": ["z"]}, "no replica z"),
    ],
)
async def test_a_bad_item_is_refused_in_one_line_and_nothing_is_attached(
    tmp_path: Path, kind: str, spec: dict, words: str
):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url, "b": stub.url}) as gate:
        await gate.lease()
        status, document = await gate.admin(
            "PUT", "/leases/L/items/I", {"kind": kind, "spec": spec}
        )
        assert (status, document["error"]) == (400, "invalid")
        assert words in document["message"] and "\n" not in document["message"]
        assert (await gate.ok("GET", "/leases/L"))["items"] == {}


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/leases/none", 404, "lease"),
        ("POST", "/leases/none/renew", 404, "lease"),
        ("PUT", "/leases/none/items/I", 404, "lease"),
        ("GET", "/journal?route=none", 404, "route"),
        ("GET", "/journal?after=x", 400, "invalid"),
        ("GET", "/journal?after=nan", 400, "invalid"),
        ("GET", "/journal?limit=0", 400, "invalid"),
        ("GET", "/counters", 400, "invalid"),
        ("GET", "/counters?route=chat&seconds=1e9", 400, "invalid"),
        ("GET", "/nothing", 404, "not_found"),
        ("DELETE", "/state", 404, "not_found"),
        ("GET", "", 404, "not_found"),
    ],
)
async def test_what_is_not_there_is_said(tmp_path: Path, method, path, status, code):
    body = {"seconds": 1} if path.endswith("renew") else {"kind": "fault", "spec": FAULT}
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        found, document = await gate.admin(method, path, None if method == "GET" else body)
        assert (found, document["error"]) == (status, code)


async def test_an_unknown_route_is_named_with_those_there_are(tmp_path: Path):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        status, document = await gate.admin("POST", "/leases", {**LEASE, "route": "chta"})
        assert (status, document["error"]) == (404, "route")
        assert "chat" in document["message"]


async def test_health_and_metrics_need_no_token_and_no_replica(tmp_path: Path):
    async with Gate(tmp_path, {"a": "http://127.0.0.1:9"}) as gate:
        for path in ("/healthz", "/metrics"):
            async with gate.client.get(gate.url + path) as got:
                assert got.status == 200
        assert await gate.records() == []


async def test_every_act_is_one_line_of_the_admin_log_and_renewals_are_not(tmp_path: Path):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.lease()
        await gate.put("F", "fault", FAULT)
        await gate.ok("POST", "/leases/L/renew", {"seconds": 5})
        await gate.ok("DELETE", "/leases/L/items/F")
        await gate.ok("POST", "/leases/L/close")
        await gate.ok("POST", "/stop", {"reason": "r"})
        await gate.ok("POST", "/release")
        await gate.server.core.leases.settle_writes()
        lines = (tmp_path / "state/admin.jsonl").read_text().splitlines()
    import json

    acts = [json.loads(line)["act"] for line in lines]
    assert acts == ["open", "attach", "detach", "close", "stop", "release"]


async def test_the_token_is_in_no_file_page_or_log(tmp_path: Path, caplog):
    caplog.set_level(logging.DEBUG)
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.lease()
        await gate.put("F", "fault", FAULT)
        await gate.chat("c", **{"x-burnproof-probe": TOKEN, "x-burnproof-replica": "a"})
        await gate.chat("c", Authorization="Bearer sk-users-own-key")
        await gate.admin("PUT", "/leases/L/items/X", {"kind": "fault", "spec": {}})
        await gate.ok("POST", "/leases/L/close")
        pages = str(await gate.ok("GET", "/journal?after=-1")) + str(await gate.ok("GET", "/state"))
        async with gate.client.get(gate.url + "/metrics") as got:
            pages += await got.text()
        assert stub.seen[1].header("authorization") == ["Bearer sk-users-own-key"]
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "token"]
    assert len(files) >= 3
    for secret in (TOKEN, "sk-users-own-key"):
        assert secret not in pages and secret not in caplog.text
        for path in files:
            assert secret.encode() not in path.read_bytes(), path
