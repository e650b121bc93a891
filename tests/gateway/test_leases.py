"""The dead-man's switch: what a lease holds ends with it, by itself, and never comes back."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import aiohttp
import pytest

from tests.gateway.harness import SPLIT, STALL, TOKEN, Gate, Stub, good

DELAY = {"alpha": 1.5, "base": 20.0, "probability": 1.0}


async def test_a_lease_ends_by_itself_without_any_call(tmp_path: Path):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.lease(seconds=0.3)
        await gate.fault("gateway/error", {"status": 500, "probability": 1.0})
        assert (await gate.chat())[0] == 500
        route = gate.server.core.routes["chat"]
        started = time.monotonic()
        async with asyncio.timeout(2):
            while route.faults["a"]:  # looked at in memory: no request helps the timer
                await asyncio.sleep(0.01)
        assert time.monotonic() - started < 0.5
        assert (await gate.chat())[0] == 200
        view = await gate.ok("GET", "/leases/L")
        assert (view["state"], view["items"]["F"]["state"]) == ("lapsed", "removed")
        receipt = await gate.ok("POST", "/leases/L/close", {})
        assert (receipt["state"], receipt["still_touching"]) == ("lapsed", 0)
        assert receipt["observed"]["active_items"] == receipt["removed"] == []


async def test_a_blocked_timer_cannot_prolong_a_fault(tmp_path: Path):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.lease(seconds=0.2)
        await gate.fault("gateway/error", {"status": 500, "probability": 1.0})
        book = gate.server.core.leases
        assert book._timer is not None
        book._timer.cancel()
        await asyncio.sleep(0.25)
        assert (await gate.chat())[0] == 200


async def test_a_caller_who_gives_up_takes_nobodys_lines_with_him(tmp_path: Path):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.lease()
        slow_disk = threading.Event()
        book = gate.server.core.leases
        book._executor.submit(slow_disk.wait)
        try:
            closing = asyncio.create_task(gate.ok("POST", "/leases/L/close", {}))
            async with asyncio.timeout(5):
                while book._ended.get("L") != "closed":
                    await asyncio.sleep(0.01)
            waiting = asyncio.create_task(book.settle_writes())
            await asyncio.sleep(0.01)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert waiting.cancelled()
        finally:
            slow_disk.set()
        assert (await closing)["state"] == "closed"
    lines = (tmp_path / "state" / "admin.jsonl").read_text().splitlines()
    acts = [json.loads(line)["act"] for line in lines]
    assert acts == ["open", "close"]


async def test_renewals_keep_it_and_their_end_ends_it(tmp_path: Path):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.lease(seconds=0.4)
        await gate.fault("gateway/error", {"status": 500, "probability": 1.0})
        for _ in range(4):
            await asyncio.sleep(0.2)
            assert (await gate.ok("POST", "/leases/L/renew", {"seconds": 0.4}))["state"] == "open"
        assert (await gate.chat())[0] == 500
        await asyncio.sleep(0.45)
        assert (await gate.chat())[0] == 200
        status, document = await gate.admin("POST", "/leases/L/renew", {"seconds": 1.0})
        assert (status, document["error"]) == (409, "lease_closed")


async def test_a_fault_also_ends_at_its_own_limit_while_its_lease_stays_open(tmp_path: Path):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.lease()
        await gate.fault("gateway/error", {"status": 500, "probability": 1.0}, max_seconds=0.2)
        assert (await gate.chat())[0] == 500
        await asyncio.sleep(0.25)
        assert (await gate.chat())[0] == 200
        view = await gate.ok("GET", "/leases/L")
        assert (view["state"], view["items"]["F"]["state"]) == ("open", "expired")
        page = await gate.page("after=-1&lease=L")
        assert page.lease is not None
        assert page.lease["items"]["F"] | {"at": 0} == {
            "kind": "fault",
            "state": "expired",
            "exposed": 1,
            "touched": 1,
            "still_touching": 0,
            "at": 0,
        }


@pytest.mark.parametrize("end", ["lapse", "close", "stop"])
async def test_a_late_inject_or_open_after_the_end_is_refused(tmp_path: Path, end: str):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.lease(seconds=0.2 if end == "lapse" else 20.0)
        if end == "lapse":
            await asyncio.sleep(0.25)
        elif end == "close":
            await gate.ok("POST", "/leases/L/close")
        else:
            await gate.ok("POST", "/stop", {"reason": "test"})
            await gate.ok("POST", "/release")
        body = {"kind": "split", "spec": SPLIT | {"control": ["a"], "chaos": ["b"]}}
        for method, path, document in (
            ("PUT", "/leases/L/items/S", body),
            ("POST", "/leases", {"lease_id": "L", "run_id": "R", "route": "chat", "seconds": 5}),
            ("POST", "/leases/L/renew", {"seconds": 5}),
        ):
            status, refusal = await gate.admin(method, path, document)
            assert (status, refusal["error"]) == (409, "lease_closed")
        assert (await gate.ok("GET", "/routes"))["routes"][0]["split"] is None


async def test_closing_a_lease_that_never_came_forbids_it(tmp_path: Path):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        for _ in range(2):
            receipt = await gate.ok("POST", "/leases/L/close")
            assert (receipt["state"], receipt["removed"]) == ("closed", [])
        body = {"lease_id": "L", "run_id": "R", "route": "chat", "seconds": 5}
        assert (await gate.admin("POST", "/leases", body))[0] == 409


async def test_opening_is_idempotent_and_a_route_has_one_lease(tmp_path: Path):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        views = await asyncio.gather(*(gate.lease() for _ in range(5)))
        assert {view["state"] for view in views} == {"open"}
        body = {"lease_id": "M", "run_id": "R", "route": "chat", "seconds": 5}
        status, refusal = await gate.admin("POST", "/leases", body)
        assert (status, refusal["error"]) == (409, "route_busy")
        assert [each["id"] for each in (await gate.ok("GET", "/leases?open=true"))["leases"]] == [
            "L"
        ]
        await gate.ok("POST", "/leases/L/close")
        assert (await gate.ok("POST", "/leases", body))["state"] == "open"


async def test_the_same_item_again_is_the_same_and_another_spec_is_a_conflict(tmp_path: Path):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url, "b": stub.url}) as gate:
        await gate.lease()
        first = await gate.put("S", "split", SPLIT)
        again = await gate.put("S", "split", SPLIT)
        assert (first["first"], again["first"], again["at"]) == (True, False, first["at"])
        other = {"kind": "split", "spec": {**SPLIT, "share": 0.1}}
        status, refusal = await gate.admin("PUT", "/leases/L/items/S", other)
        assert (status, refusal["error"]) == (409, "item_conflict")
        status, refusal = await gate.admin("PUT", "/leases/L/items/S2", other)
        assert (status, refusal["error"]) == (409, "item_conflict")
        assert (await gate.ok("GET", "/routes"))["routes"][0]["split"]["share"] == 0.5


async def test_removing_an_item_is_idempotent_and_final_even_before_it_came(tmp_path: Path):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url, "b": stub.url}) as gate:
        await gate.lease()
        await gate.put("S", "split", SPLIT)
        for _ in range(2):
            receipt = await gate.ok("DELETE", "/leases/L/items/S")
            assert receipt["state"] == "removed"
            assert receipt["observed"]["active_items"] == []
        assert (await gate.ok("DELETE", "/leases/L/items/T"))["state"] == "never_applied"
        for item in "ST":
            status, _ = await gate.admin(
                "PUT", f"/leases/L/items/{item}", {"kind": "split", "spec": SPLIT}
            )
            assert status == 409
        assert (await gate.ok("DELETE", "/leases/none/items/S"))["state"] == "never_applied"


@pytest.mark.parametrize("how", ["detach", "close", "lapse", "stop", "item-limit"])
@pytest.mark.parametrize("where", ["before-sending", "in-the-stream"])
async def test_a_request_that_is_held_back_goes_on_when_the_fault_ends(
    tmp_path: Path, how: str, where: str
):
    template = "gateway/latency-pareto" if where == "before-sending" else "gateway/stream-stall"
    parameters = DELAY if where == "before-sending" else STALL
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.lease(seconds=0.6 if how == "lapse" else 20.0)
        limit = {"max_seconds": 0.6} if how == "item-limit" else {}
        await gate.fault(template, parameters, **limit)
        held = [asyncio.create_task(gate.chat()) for _ in range(3)]
        route = gate.server.core.routes["chat"]
        (item,) = route.faults["a"]
        async with asyncio.timeout(5):
            while len(item.touching) < 3:
                await asyncio.sleep(0.005)
        view = await gate.ok("GET", "/leases/L")
        assert view["items"]["F"]["still_touching"] == 3
        started = time.monotonic()
        if how == "detach":
            receipt = await gate.ok("DELETE", "/leases/L/items/F")
            assert receipt["observed"]["touched"] == 3
        elif how == "close":
            receipt = await gate.ok("POST", "/leases/L/close")
            assert (receipt["state"], receipt["removed"]) == ("closed", ["F"])
        elif how == "stop":
            assert (await gate.ok("POST", "/stop", {"reason": "x"}))["closed"] == ["L"]
        results = await asyncio.wait_for(asyncio.gather(*held), 5)
        assert time.monotonic() - started < 2
        assert [status for status, _ in results] == [200, 200, 200]
        records = await gate.wait_records(3)
        assert all((record.touched, record.exposed) == (("F",), ("F",)) for record in records)
        view = await gate.ok("GET", "/leases/L")
        assert view["items"]["F"]["still_touching"] == 0


async def test_stop_withdraws_all_refuses_leases_serves_traffic_and_outlives_the_process(
    tmp_path: Path,
):
    async with Stub(good()) as stub:
        async with Gate(tmp_path, {"a": stub.url}) as gate:
            await gate.lease()
            await gate.fault("gateway/error", {"status": 500, "probability": 1.0})
            await gate.ok("POST", "/stop", {"reason": "drill"})
            assert (await gate.chat())[0] == 200
        async with Gate(tmp_path, {"a": stub.url}) as gate:
            state = await gate.ok("GET", "/state")
            assert (state["stopped"], state["stop_reason"]) == (True, "drill")
            body = {"lease_id": "M", "run_id": "R", "route": "chat", "seconds": 5}
            status, refusal = await gate.admin("POST", "/leases", body)
            assert (status, refusal["error"]) == (423, "stopped")
            assert (await gate.chat())[0] == 200
            assert (await gate.ok("POST", "/release"))["was_stopped"] is True
            assert (await gate.ok("POST", "/leases", body))["state"] == "open"


async def test_a_killed_gateway_comes_back_without_faults_and_says_so(tmp_path: Path):
    async with Stub(good()) as stub:
        gate = Gate(tmp_path, {"a": stub.url})
        config = tmp_path / "gateway.json"
        config.write_text(gate.config().model_dump_json())
        first, url = start(config)
        try:
            async with aiohttp.ClientSession() as client:
                admin = Remote(client, url)
                body = {"lease_id": "L", "run_id": "R", "route": "chat", "seconds": 30}
                assert (await admin.call("POST", "/leases", body))[0] == 200
                spec = {
                    "template": "gateway/error",
                    "parameters": {"status": 500, "probability": 1.0},
                    "replicas": ["a"],
                    "max_seconds": 60,
                }
                item = {"kind": "fault", "spec": spec}
                assert (await admin.call("PUT", "/leases/L/items/F", item))[0] == 200
                assert await admin.chat() == 500
                epoch = (await admin.call("GET", "/state"))[1]["epoch"]
        finally:
            os.kill(first.pid, signal.SIGKILL)
            first.communicate()
        second, url = start(config)
        try:
            async with aiohttp.ClientSession() as client:
                admin = Remote(client, url)
                assert await admin.chat() == 200
                state = (await admin.call("GET", "/state"))[1]
                assert state["dropped_at_start"] == ["L"]
                assert state["epoch"] != epoch
                status, refusal = await admin.call("POST", "/leases", body)
                assert (status, refusal["error"]) == (409, "lease_closed")
                status, refusal = await admin.call("PUT", "/leases/L/items/F", item)
                assert (status, refusal["error"]) == (409, "lease_closed")
                assert (await admin.call("GET", "/leases/L"))[1]["state"] == "dropped"
        finally:
            second.send_signal(signal.SIGTERM)
            out, _ = second.communicate(timeout=20)
        assert second.returncode == 0, out
        acts = [
            json.loads(line)
            for line in (tmp_path / "state/admin.jsonl").read_text().split("\n")
            if line
        ]
        assert [each["act"] for each in acts] == ["open", "attach", "drop"]
        assert acts[-1]["lease_id"] == "L"


async def test_a_terminated_gateway_lets_a_stream_end_and_frees_what_a_fault_holds(tmp_path: Path):
    """SIGTERM ends the stall, the answer is passed on whole, and the process ends with 0."""
    async with Stub(good()) as stub:
        gate = Gate(tmp_path, {"a": stub.url})
        config = tmp_path / "gateway.json"
        config.write_text(gate.config().model_dump_json())
        process, url = start(config)
        try:
            async with aiohttp.ClientSession() as client:
                admin = Remote(client, url)
                body = {"lease_id": "L", "run_id": "R", "route": "chat", "seconds": 30}
                assert (await admin.call("POST", "/leases", body))[0] == 200
                spec = {
                    "template": "gateway/stream-stall",
                    "parameters": STALL,
                    "replicas": ["a"],
                    "max_seconds": 60,
                }
                item = {"kind": "fault", "spec": spec}
                assert (await admin.call("PUT", "/leases/L/items/F", item))[0] == 200
                held = asyncio.create_task(admin.chat())
                async with asyncio.timeout(5):
                    while (await admin.call("GET", "/leases/L"))[1]["items"]["F"]["touched"] == 0:
                        await asyncio.sleep(0.01)
                process.send_signal(signal.SIGTERM)
                assert await asyncio.wait_for(held, 5) == 200
        finally:
            process.send_signal(signal.SIGTERM)
            out, _ = await asyncio.to_thread(process.communicate, timeout=20)
        assert process.returncode == 0, out
        (journal,) = (tmp_path / "state/journal").glob("*.jsonl")
        (line,) = journal.read_text().splitlines()
        assert (json.loads(line)["outcome"], json.loads(line)["touched"]) == ("ok", ["F"])


def start(config: Path) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway", "--config", str(config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())["listening"]


class Remote:
    """The few calls that a gateway in its own process is asked."""

    def __init__(self, client: aiohttp.ClientSession, url: str) -> None:
        self.client = client
        self.url = url

    async def call(self, method: str, path: str, body: object = None) -> tuple[int, dict]:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        url = self.url + "/_burnproof" + path
        async with self.client.request(method, url, json=body, headers=headers) as response:
            return response.status, json.loads(await response.read())

    async def chat(self) -> int:
        async with self.client.post(self.url + "/v1/x", json={"stream": True}) as response:
            await response.read()
            return response.status


def test_a_record_torn_at_any_byte_is_still_read(tmp_path: Path):
    from gateway.durable import DurableRecord

    record = DurableRecord(tmp_path / "one")
    record.lease({"lease_id": "A", "state": "open"})
    record.lease({"lease_id": "A", "state": "closed"})
    record.lease({"lease_id": "B", "state": "open"})
    whole = (tmp_path / "one/leases.jsonl").read_bytes()
    for size in range(0, len(whole) + 1, 3):
        folder = tmp_path / f"cut{size}"
        folder.mkdir()
        (folder / "leases.jsonl").write_bytes(whole[:size])
        found = DurableRecord(folder).recover(1.0)
        lines = [json.loads(line) for line in whole[:size].split(b"\n") if line.endswith(b"}")]
        opened = {line["lease_id"] for line in lines if line["state"] == "open"}
        closed = {line["lease_id"] for line in lines if line["state"] == "closed"}
        assert set(found.ended) == opened
        assert set(found.dropped) == opened - closed
        again = DurableRecord(folder).recover(2.0)
        assert (again.ended, again.dropped) == (found.ended, [])


async def test_a_lease_of_another_run_is_refused_and_not_handed_out(tmp_path: Path):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.lease()
        body = {"lease_id": "L", "run_id": "another", "route": "chat", "seconds": 20.0}
        status, said = await gate.admin("POST", "/leases", body)
    assert (status, said["error"]) == (409, "lease_conflict")
