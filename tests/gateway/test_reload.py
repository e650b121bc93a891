"""The configuration is read again: whole or not at all, and no stream notices."""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.breaker import BreakerState
from slo.records import Outcome
from tests.gateway.harness import (
    DONE,
    END,
    FINISH,
    ROLE,
    SPLIT,
    SSE_HEAD,
    STALL,
    TOKEN,
    Gate,
    Script,
    Seen,
    Stub,
    chunk,
    good,
    token,
)
from tests.gateway.test_leases import Remote, start

Change = Callable[[dict[str, Any]], None]


def rewrite(gate: Gate, change: Change) -> None:
    document = json.loads(gate.file.read_text())
    change(document)
    gate.file.write_text(json.dumps(document))


def replicas(urls: dict[str, str]) -> Change:
    def change(document: dict[str, Any]) -> None:
        listed = [{"name": name, "url": url} for name, url in urls.items()]
        document["routes"][0]["replicas"] = listed

    return change


async def reload(gate: Gate, change: Change) -> Any:
    rewrite(gate, change)
    return await gate.ok("POST", "/reload")


def acts(gate: Gate) -> list[dict[str, Any]]:
    lines = (gate.folder / "state/admin.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def held(go: asyncio.Event) -> Script:
    """Begin an answer, and end it when told."""

    async def script(seen: Seen) -> None:
        await seen.send(SSE_HEAD + chunk(ROLE) + chunk(token("a")))
        await go.wait()
        await seen.send(chunk(token("b")) + chunk(FINISH) + chunk(DONE) + END)

    return script


async def begin(gate: Gate) -> aiohttp.ClientResponse:
    body = {"model": "m", "stream": True}
    response = await gate.client.post(gate.url + "/v1/chat/completions", json=body)
    await response.content.readuntil(b"\n\n")
    return response


async def test_a_stream_goes_on_with_its_replica_when_that_leaves(tmp_path: Path) -> None:
    go = asyncio.Event()
    async with Stub(held(go)) as old, Stub(good()) as new:
        async with Gate(tmp_path, {"a": old.url}) as gate:
            stream = await begin(gate)
            before = await gate.ok("GET", "/state")
            answer = await reload(gate, replicas({"b": new.url}))
            assert answer["routes"] == {"added": [], "removed": [], "changed": ["chat"]}
            assert (answer["changed"], answer["generation"]) == (True, 2)
            assert answer["hash"] != before["config"]["hash"]
            assert (await gate.chat())[0] == 200
            assert (len(old.seen), len(new.seen)) == (1, 1)
            (route,) = (await gate.ok("GET", "/routes"))["routes"]
            assert [each["name"] for each in route["replicas"]] == ["b"]
            assert route["in_flight"] == {"": 1}, "it blocks a PASS like any other"
            go.set()
            assert (await stream.content.read()).endswith(DONE)
            first, second = await gate.wait_records(2)
            assert [first.replica, second.replica] == ["b", "a"]
            assert [first.outcome, second.outcome] == [Outcome.OK, Outcome.OK]
            assert (await gate.ok("GET", "/state"))["epoch"] == before["epoch"]


async def test_a_stream_of_a_route_that_leaves_is_served_and_recorded_to_its_end(
    tmp_path: Path,
) -> None:
    go = asyncio.Event()

    def change(document: dict[str, Any]) -> None:
        document["routes"][0]["name"] = "talk"

    async with Stub(held(go)) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        stream = await begin(gate)
        answer = await reload(gate, change)
        assert answer["routes"] == {"added": ["talk"], "removed": ["chat"], "changed": []}
        assert (await gate.page("after=-1&route=chat")).in_flight == {"": 1}
        go.set()
        assert (await stream.content.read()).endswith(DONE)
        (record,) = await gate.wait_records(1)
        assert (record.route, record.outcome) == ("chat", Outcome.OK)
        page = await gate.page("after=-1&route=chat")
        assert [each.seq for each in page.records] == [1], "whoever watched it can read on"
        assert (await gate.admin("GET", "/journal?route=never"))[0] == 404


async def test_a_lease_stays_when_its_replicas_do(tmp_path: Path) -> None:
    async with Stub(good()) as a, Stub(good()) as b, Stub(good()) as c:
        async with Gate(tmp_path, {"a": a.url, "b": b.url}) as gate:
            await gate.lease()
            await gate.put("S", "split", SPLIT)
            await gate.fault("gateway/error", {"status": 503, "probability": 1}, replicas=["b"])
            arms = {n: (await gate.chat(f"c{n}"))[0] for n in range(20)}
            assert set(arms.values()) == {200, 503}
            answer = await reload(gate, replicas({"a": a.url, "b": b.url, "c": c.url}))
            assert answer["withdrawn"] == []
            assert (await gate.ok("GET", "/leases/L"))["state"] == "open"
            again = {n: (await gate.chat(f"c{n}"))[0] for n in range(20)}
            assert again == arms, "the split and the fault are as they were"
            assert c.seen == [], "a replica that is in no arm serves nobody while a split is on"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("leaves", "replica b of route chat left the configuration or moved"),
        ("moves", "replica b of route chat left the configuration or moved"),
        ("route", "route chat left the configuration"),
    ],
)
@pytest.mark.parametrize("named", ["b", "*"])
async def test_a_lease_whose_target_vanished_is_withdrawn_and_says_so(
    change: str, why: str, named: str, tmp_path: Path
) -> None:
    async with Stub(good()) as a, Stub(good()) as b:
        changes: dict[str, Change] = {
            "leaves": replicas({"a": a.url}),
            "moves": replicas({"a": a.url, "b": a.url}),
            "route": lambda document: document["routes"][0].update(name="talk"),
        }
        async with Gate(tmp_path, {"a": a.url, "b": b.url}) as gate:
            await gate.lease()
            await gate.fault("gateway/stream-stall", STALL, replicas=[named])
            stalled = [asyncio.create_task(gate.chat()) for _ in range(2)]
            async with asyncio.timeout(5):
                while not (await gate.ok("GET", "/leases/L"))["items"]["F"]["touched"]:
                    await asyncio.sleep(0.005)
            answer = await reload(gate, changes[change])
            assert answer["withdrawn"] == [{"lease_id": "L", "why": why}]
            assert [status for status, _ in await asyncio.gather(*stalled)] == [200, 200]
            lease = await gate.ok("GET", "/leases/L")
            assert (lease["state"], lease["why"]) == ("closed", why)
            status, said = await gate.admin("POST", "/leases/L/renew", {"seconds": 5.0})
            assert (status, said["error"]) == (409, "lease_closed")
            assert why in said["message"]
            assert (await gate.chat())[0] == 200
        told = {each["act"]: each for each in acts(gate)}
        assert told["close"]["why"] == why
        assert told["reload"]["withdrawn"] == answer["withdrawn"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda document: document.update(prot=1), "prot"),
        (lambda document: document["routes"][0].update(replicas=[]), "replicas"),
        (lambda document: document.update(port=1), "port: only a start can change it"),
        (lambda document: document.update(journal_dir="elsewhere"), "journal_dir: only a start"),
        (None, "not JSON"),
    ],
)
async def test_a_bad_file_changes_nothing_and_leaves_one_line(
    change: Change | None, words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.lease()
        before = (await gate.ok("GET", "/state"))["config"]
        rewrite(gate, replicas({"b": stub.url}))
        if change is None:
            gate.file.write_text("{")
        else:
            rewrite(gate, change)
        status, said = await gate.admin("POST", "/reload")
        assert (status, said["error"]) == (400, "config")
        assert words in said["message"]
        assert str(gate.file) in said["message"]
        assert [each.message.count("\n") for each in caplog.records] == [0]
        assert words in caplog.text
        assert (await gate.ok("GET", "/state"))["config"] == before
        assert (await gate.ok("GET", "/leases/L"))["state"] == "open"
        (route,) = (await gate.ok("GET", "/routes"))["routes"]
        assert [each["name"] for each in route["replicas"]] == ["a"]
        async with gate.client.get(gate.url + "/metrics") as got:
            text = await got.text()
        assert 'config_reloads_total{result="refused"} 1' in text
        assert "burnproof_gateway_config_generation 1" in text
    assert words in next(each["why"] for each in acts(gate) if each["act"] == "reload_refused")


async def test_a_reload_is_in_the_metrics_and_the_same_file_again_changes_nothing(
    tmp_path: Path,
) -> None:
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        assert (await gate.ok("POST", "/reload"))["changed"] is False
        answer = await reload(gate, lambda document: document["routes"][0].update(models=["m"]))
        async with gate.client.get(gate.url + "/metrics") as got:
            text = await got.text()
        assert "burnproof_gateway_config_generation 2" in text
        assert f'burnproof_gateway_config_info{{hash="{answer["hash"]}"}} 1' in text
        for result in ("applied", "unchanged"):
            assert f'config_reloads_total{{result="{result}"}} 1' in text
        async with gate.client.post(gate.url + "/v1/x", json={"model": "other"}) as got:
            assert got.status == 404, "the new list of models is in force"


async def test_a_breaker_is_kept_unless_its_replica_moves_and_old_streams_do_not_spoil_the_new(
    tmp_path: Path,
) -> None:
    go = asyncio.Event()

    async def breaks(seen: Seen) -> None:
        await seen.send(SSE_HEAD + chunk(ROLE) + chunk(token("a")))
        await go.wait()
        seen.writer.close()

    async with Stub(breaks) as old, Stub(good()) as new:
        options = {"breaker": {"window": 10, "min": 3}}
        async with Gate(tmp_path, {"a": old.url}, options) as gate:
            first = [await begin(gate) for _ in range(3)]
            go.set()
            for stream in first:
                with pytest.raises(aiohttp.ClientPayloadError):
                    await stream.content.read()
                stream.close()
            await gate.wait_records(3)
            state = gate.server.core.routes["chat"]
            opened = state.base["a"]
            assert opened.state is BreakerState.OPEN
            go.clear()
            late = [await begin(gate) for _ in range(3)]
            await reload(gate, lambda document: document["routes"][0].update(timeout_seconds=200))
            assert state.base["a"] is opened
            await reload(gate, replicas({"a": new.url}))
            assert state.base["a"].state is BreakerState.CLOSED
            go.set()
            for stream in late:
                with pytest.raises(aiohttp.ClientPayloadError):
                    await stream.content.read()
                stream.close()
            await gate.wait_records(6)
            assert state.base["a"].window.total == 0


async def test_a_hangup_reloads_the_process_and_a_bad_file_does_not_end_it(tmp_path: Path) -> None:
    async with Stub(good()) as a, Stub(good()) as b:
        gate = Gate(tmp_path, {"a": a.url})
        gate.file.write_text(gate.config().model_dump_json())
        process, url = start(gate.file)
        try:
            async with aiohttp.ClientSession() as client, asyncio.timeout(20):
                admin = Remote(client, url)
                assert await admin.chat() == 200
                rewrite(gate, replicas({"b": b.url}))
                process.send_signal(signal.SIGHUP)
                while (await admin.call("GET", "/state"))[1]["config"]["generation"] == 1:
                    await asyncio.sleep(0.01)
                assert await admin.chat() == 200
                assert (len(a.seen), len(b.seen)) == (1, 1)
                gate.file.write_text("{")
                process.send_signal(signal.SIGHUP)
                while not any(each["act"] == "reload_refused" for each in acts(gate)):
                    await asyncio.sleep(0.01)
                assert await admin.chat() == 200
        finally:
            os.kill(process.pid, signal.SIGTERM)
            out, _ = await asyncio.to_thread(process.communicate, timeout=20)
        assert process.returncode == 0, out
        assert [line for line in out.splitlines() if "not reloaded" in line and "JSON" in line]
        assert TOKEN not in out
