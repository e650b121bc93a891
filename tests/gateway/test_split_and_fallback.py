"""Splits, breakers and fallback as the records show them."""

import asyncio
import socket
from collections import Counter
from pathlib import Path

from scipy.stats import binomtest

from gateway.routing import point, unit_hash
from slo.records import Outcome
from tests.gateway.harness import SPLIT, Gate, Seen, Stub, answer, good

REMEDY = {"threshold_ratio": 0.01, "holdout_share": 0.2, "salt": "r", "replicas": ["*"]}
SMALL = {"breaker": {"threshold_ratio": 0.05, "window": 50, "min": 10, "open_seconds": 0.2}}


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def bad(seen: Seen) -> None:
    await seen.send(answer(b"{}", "Content-Type: application/json", status="503 Down"))


async def test_a_split_sends_each_conversation_to_one_arm_and_keeps_it_there(tmp_path: Path):
    async with Stub(good()) as one, Stub(good()) as two:
        async with Gate(tmp_path, {"a": one.url, "b": two.url}) as gate:
            await gate.lease()
            await gate.put("S", "split", {**SPLIT, "share": 0.3})
            names = [f"c{n % 60}" for n in range(180)]
            await asyncio.gather(*(gate.chat(name) for name in names))
            records = await gate.wait_records(180)
            by_unit = {}
            for record in records:
                by_unit.setdefault(record.unit, set()).add((record.arm, record.replica))
            assert len(by_unit) == 60
            assert all(len(seen) == 1 for seen in by_unit.values())
            assert set().union(*by_unit.values()) == {("control", "a"), ("chaos", "b")}
            chaos = sum(("chaos", "b") in seen for seen in by_unit.values())
            assert binomtest(chaos, 60, 0.3).pvalue > 1e-4
            firsts = Counter(record.unit for record in records if record.first_of_unit)
            assert firsts == dict.fromkeys(by_unit, 1)
            expected = {unit_hash(name) for name in names}
            assert set(by_unit) == expected


async def test_the_unit_of_a_request_split_is_the_request(tmp_path: Path):
    async with Stub(good()) as one, Stub(good()) as two:
        async with Gate(tmp_path, {"a": one.url, "b": two.url}) as gate:
            await gate.lease()
            await gate.put("S", "split", {**SPLIT, "unit": "request"})
            await asyncio.gather(*(gate.chat("same") for _ in range(40)))
            records = await gate.wait_records(40)
            assert len({record.unit for record in records}) == 40
            assert all(record.first_of_unit for record in records)
            assert {record.arm for record in records} == {"control", "chaos"}


async def test_after_a_split_is_gone_there_are_no_arms_and_units_are_new_again(tmp_path: Path):
    async with Stub(good()) as one, Stub(good()) as two:
        async with Gate(tmp_path, {"a": one.url, "b": two.url}) as gate:
            await gate.lease()
            await gate.put("S", "split", SPLIT)
            await gate.chat("c")
            await gate.ok("DELETE", "/leases/L/items/S")
            await gate.chat("c")
            first, second = await gate.wait_records(2)
            assert first.arm in {"control", "chaos"}
            assert (second.arm, second.first_of_unit) == ("", True)


async def test_a_replica_that_cannot_be_reached_is_left_for_another_and_recorded(tmp_path: Path):
    async with Stub(good()) as stub:
        down = f"http://127.0.0.1:{closed_port()}"
        async with Gate(tmp_path, {"a": down, "b": stub.url}) as gate:
            await gate.lease()
            await gate.put("S", "split", SPLIT)
            for n in range(12):
                assert (await gate.chat(f"c{n}"))[0] == 200
            records = await gate.wait_records(12)
            for record in records:
                assert record.replica == "b"
                assert record.assigned == ("a" if record.arm == "control" else "b")
                assert record.fallback == (record.arm == "control")
            assert any(record.fallback for record in records)
            view = (await gate.ok("GET", "/routes"))["routes"][0]["replicas"][0]["breaker"]
            failed = sum(record.fallback for record in records)
            assert (view["bad"], view["total"]) == (failed, failed)


async def test_with_no_replica_in_reach_the_request_ends_once_as_transport(tmp_path: Path):
    down = {name: f"http://127.0.0.1:{closed_port()}" for name in "ab"}
    async with Gate(tmp_path, down) as gate:
        assert (await gate.chat())[0] == 502
        record = await gate.record()
        assert (record.outcome, record.replica) == (Outcome.TRANSPORT, "")


async def test_a_bad_replica_loses_its_traffic_but_for_probes(tmp_path: Path):
    options = {"breaker": {**SMALL["breaker"], "open_seconds": 3600}}
    async with Stub(good()) as one, Stub(bad) as two:
        async with Gate(tmp_path, {"a": one.url, "b": two.url}, options) as gate:
            await gate.lease()
            await gate.put("S", "split", SPLIT)
            for n in range(60):
                await gate.chat(f"c{n}")
            assert (await gate.ok("GET", "/routes"))["routes"][0]["replicas"][1]["breaker"][
                "state"
            ] == "open"
            before = len(two.seen)
            for n in range(40):
                assert (await gate.chat(f"d{n}"))[0] == 200
            assert len(two.seen) == before
            records = (await gate.wait_records(100))[60:]
            chaos = [record for record in records if record.arm == "chaos"]
            assert chaos
            assert all(r.fallback and (r.assigned, r.replica) == ("b", "a") for r in chaos)


async def test_half_open_lets_a_twentieth_of_the_units_through(tmp_path: Path):
    async with Stub(good()) as one, Stub(bad) as two:
        async with Gate(tmp_path, {"a": one.url, "b": two.url}, SMALL) as gate:
            route = gate.server.core.routes["chat"]
            opened = gate.server.core.clock.mono() - 1
            for _ in range(20):
                route.observe("b", True, opened, opened)
            pause = SMALL["breaker"]["open_seconds"]
            await gate.lease()
            await gate.put("S", "split", {**SPLIT, "control": ["b"], "chaos": ["a"], "share": 0.01})
            units = [f"c{n}" for n in range(120)]
            due: set[str] = set()
            for unit in units:
                rounds = [int((gate.server.core.clock.mono() - opened) / pause)]
                status, _ = await gate.chat(unit)
                rounds.append(int((gate.server.core.clock.mono() - opened) / pause))
                for number in range(rounds[0], rounds[1] + 1):
                    if point("half-open", f"b {number}", unit_hash(unit)) < 0.05:
                        due.add(unit)
                view = route.breaker_view("b", gate.server.core.clock.mono())
                if view["state"] == "open":  # two bad probes were proof enough
                    break
                assert (status == 503) <= (unit in due)
            assert 1 <= len(two.seen) <= len(due)


async def test_a_route_with_one_replica_is_served_by_it_however_bad_and_says_so(tmp_path: Path):
    async with Stub(bad) as stub, Gate(tmp_path, {"a": stub.url}, SMALL) as gate:
        for _ in range(30):
            assert (await gate.chat())[0] == 503
        view = (await gate.ok("GET", "/routes"))["routes"][0]
        assert view["replicas"][0]["breaker"]["state"] in {"open", "half_open"}
        assert len(stub.seen) == 30
        assert view["all_open_requests"] > 0
        assert all(record.outcome is Outcome.HTTP_ERROR for record in await gate.records())


async def test_a_burst_of_429_opens_and_a_burst_of_400_does_not(tmp_path: Path):
    for status, state in (("429 Too Many", "open"), ("400 Bad Request", "closed")):

        async def script(seen: Seen, status: str = status) -> None:
            await seen.send(answer(b"{}", status=status))

        options = {"breaker": {**SMALL["breaker"], "open_seconds": 3600}}
        folder = tmp_path / status[:3]
        folder.mkdir()
        async with Stub(script) as stub, Gate(folder, {"a": stub.url}, options) as gate:
            for _ in range(30):
                await gate.chat()
            view = (await gate.ok("GET", "/routes"))["routes"][0]["replicas"][0]["breaker"]
            assert (view["state"], view["total"]) == (state, 30 if state == "open" else 0)


async def test_a_tightened_breaker_moves_the_treated_and_leaves_the_hold_out(tmp_path: Path):
    options = {"breaker": {"threshold_ratio": 0.5, "window": 50, "min": 10, "open_seconds": 3600}}
    count = 0

    async def sometimes_bad(seen: Seen) -> None:
        nonlocal count
        count += 1
        await (bad if count % 4 == 0 else good())(seen)

    async with Stub(good()) as one, Stub(sometimes_bad) as two:
        async with Gate(tmp_path, {"a": one.url, "b": two.url}, options) as gate:
            await gate.lease()
            await gate.put("S", "split", SPLIT)
            for n in range(80):
                await gate.chat(f"c{n}")
            view = (await gate.ok("GET", "/routes"))["routes"][0]
            assert view["replicas"][1]["breaker"]["state"] == "closed"
            await gate.put("B", "breaker", REMEDY)
            view = (await gate.ok("GET", "/routes"))["routes"][0]
            assert view["breaker"] == {"threshold_ratio": 0.01, "base_threshold_ratio": 0.5}
            assert view["replicas"][1]["breaker"]["state"] == "open"
            for n in range(100):
                await gate.chat(f"d{n}")
            records = (await gate.wait_records(180))[80:]
            chaos = [record for record in records if record.arm == "chaos"]
            treated = [record for record in chaos if record.treatment == "treated"]
            held = [record for record in chaos if record.treatment == "holdout"]
            assert treated and held
            assert all(record.replica == "a" and record.fallback for record in treated)
            assert all(record.replica == "b" and not record.fallback for record in held)
            holdout = sum(record.treatment == "holdout" for record in records)
            assert binomtest(holdout, 100, 0.2).pvalue > 1e-4

            await gate.ok("DELETE", "/leases/L/items/B")
            await gate.chat("c-last")
            view = (await gate.ok("GET", "/routes"))["routes"][0]
            assert view["breaker"]["threshold_ratio"] == 0.5
            assert view["replicas"][1]["breaker"]["state"] == "closed"
            assert (await gate.wait_records(181))[-1].treatment == ""
