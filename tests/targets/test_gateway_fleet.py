"""Two real gateways of one route: killed, restarted, cut off, late; and equal arms over both."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.lease import Leases, RemovalProof, WithdrawInput
from activities.observe import Observation, ObserveInput
from canary.config import JudgeConfig, ObserveConfig
from canary.report import ObserveReport, StopReason
from canary.session import observe
from slo.records import Page
from slo.verdict import Verdict
from targets.errors import TargetError, TargetNotFound, TargetRejected, TargetUnavailable
from targets.gateway_admin import GatewayAdmin
from targets.gateway_fleet import GatewayFleet, connect
from tests.activities.fakes import FakeAudit, FakeHolds, FakeRuns, clock
from tests.canary.build import CHAT
from tests.gateway.harness import SPLIT, TOKEN, Gate
from tests.targets.gateways import ROUND, Wire, fleet, pair, port_of, two_gates

ERROR = {
    "template": "gateway/error",
    "parameters": {"status": 503, "probability": 1.0},
    "replicas": ["a", "b"],
    "max_seconds": 60.0,
    "seed": 1,
}
LEASE = 4.0
"""Seconds: tests that wait for its end are slow for that long."""


async def inject(admin: GatewayFleet, seconds: float = LEASE) -> Page:
    """Open, split, break; return the page on which it begins."""
    await admin.open_lease("r.lease", "r", "chat", seconds)
    await admin.attach("r.lease", "S", "split", SPLIT)
    await admin.attach("r.lease", "F", "fault", ERROR)
    return await read(admin)


async def asked(gates: dict[str, Gate]) -> list[int]:
    """What a client gets of each gateway."""
    return [(await gate.chat())[0] for gate in gates.values()]


async def read(admin: GatewayFleet, before: Page | None = None) -> Page:
    after = None if before is None else before.next
    cursors = None if before is None else before.cursors
    raw = await admin.journal("chat", after, 30.0, "r.lease", cursors=cursors)
    return Page.from_json(raw)


def compare(*pages: Page) -> ObserveReport:
    judge = JudgeConfig(share=0.5, metrics=("errors",), stop_on_fail=False)
    config = ObserveConfig(
        mode="compare", objectives=(CHAT,), judge=judge, lease_id="r.lease", max_seconds=60.0
    )
    return observe(config, pages)


async def proven(admin: GatewayFleet, seconds: float) -> RemovalProof:
    """Withdraw as a run does: try until it is proven."""
    leases = Leases(admin, FakeAudit(), FakeHolds(), FakeRuns(), clock)
    wanted = WithdrawInput(
        run_id="r", lease_id="r.lease", route="chat", model="m", replicas=("a", "b")
    )
    async with asyncio.timeout(seconds):
        while True:
            try:
                proof: RemovalProof = await ActivityEnvironment().run(leases.withdraw, wanted)
                return proof
            except ApplicationError as refused:
                assert refused.type == "NotWithdrawn"
                await asyncio.sleep(0.1)


async def test_a_fault_holds_on_both_and_is_withdrawn_from_both(tmp_path: Path) -> None:
    async with two_gates(tmp_path) as (gates, admin):
        first = await inject(admin, 10.0)
        assert await asked(gates) == [503, 503]
        await admin.renew_lease("r.lease", 10.0)
        page = await read(admin, first)
        assert [(r.gateway, r.gateway_seq, r.touched) for r in page.records] == [
            ("one", 1, ("F",)),
            ("two", 1, ("F",)),
        ]
        assert page.lease is not None
        assert page.lease["gateways"] == {"one": "open", "two": "open"}
        proof = await proven(admin, 10.0)
        assert proof.is_proven()
        assert (proof.lease_state, proof.probes) == ("closed", {"a": 200, "b": 200})
        assert await asked(gates) == [200, 200]


async def test_one_that_is_killed_makes_a_gap_and_the_rest_is_proven_clean(tmp_path: Path) -> None:
    async with pair(tmp_path) as gateways, fleet(gateways.urls) as admin:
        first = await inject(admin)
        gateways.kill("two")
        with pytest.raises(TargetUnavailable, match="gateway two"):
            await admin.renew_lease("r.lease", LEASE)
        report = compare(first, await read(admin, first))
        assert (report.reason, report.verdict) == (StopReason.GAP, Verdict.INCONCLUSIVE)
        assert report.mixed == ("Gateway two does not answer.",)
        with pytest.raises(TargetUnavailable, match="gateway two does not confirm the close"):
            await admin.close_lease("r.lease")
        assert await gateways.ask("one") == 200, "the other is closed at once"
        proof = await proven(admin, 15.0)
        assert proof.is_proven()
        assert proof.lapsed_before, "the run must not credit itself with that end"
        assert proof.probes == {"a": 200, "b": 200}


async def test_one_that_is_restarted_has_no_fault_and_makes_a_gap(tmp_path: Path) -> None:
    async with pair(tmp_path) as gateways, fleet(gateways.urls) as admin:
        first = await inject(admin, 10.0)
        gateways.kill("two")
        gateways.start("two")
        assert [await gateways.ask(name) for name in ("one", "two")] == [503, 200]
        report = compare(first, await read(admin, first))
        assert (report.reason, report.verdict) == (StopReason.GAP, Verdict.INCONCLUSIVE)
        assert set(report.mixed) == {
            "Gateway two is not the process that it was.",
            "At gateway two the lease is dropped.",
        }
        with pytest.raises(TargetRejected) as refused:
            await admin.renew_lease("r.lease", 10.0)
        assert refused.value.code == "lease_closed"
        assert (await proven(admin, 5.0)).lease_state == "dropped"
        assert [await gateways.ask(name) for name in ("one", "two")] == [200, 200]


async def test_one_that_is_cut_off_is_proven_clean_by_time_and_not_before(tmp_path: Path) -> None:
    async with pair(tmp_path) as gateways:
        wire = Wire(port_of(gateways.urls["two"]))
        async with fleet({"one": gateways.urls["one"], "two": await wire.up()}) as admin:
            first = await inject(admin)
            await wire.cut()
            assert await gateways.ask("two") == 503, "it still serves, with the fault on"
            withdrawing = asyncio.create_task(proven(admin, 20.0))
            while await gateways.state_of("two") == "open":
                assert not withdrawing.done(), "called clean while the fault was on"
                await asyncio.sleep(0.05)
            assert await gateways.state_of("two") == "lapsed"
            assert await gateways.ask("two") == 200
            assert (await withdrawing).is_proven()
            report = compare(first, await read(admin, first))
            assert report.reason is StopReason.GAP
            assert "Gateway two does not answer." in report.mixed


async def test_one_that_comes_late_has_no_fault_and_is_named(tmp_path: Path) -> None:
    async with two_gates(tmp_path) as (gates, admin):
        async with fleet({"one": gates["one"].url}) as alone:
            first = await inject(alone, 10.0)
        assert await asked(gates) == [503, 200]
        page = await read(admin, first)
        report = compare(first, page)
        assert (report.reason, report.verdict) == (StopReason.GAP, Verdict.INCONCLUSIVE)
        assert report.mixed == ("At gateway two the lease is unknown.",)
        assert compare(page).reason is StopReason.LEASE_LOST
        with pytest.raises(TargetNotFound):
            await admin.renew_lease("r.lease", 10.0)
        assert (await proven(admin, 5.0)).lease_state == "closed"
        with pytest.raises(TargetRejected, match="never reopens"):
            await admin.open_lease("r.lease", "r", "chat", 10.0)


async def test_nothing_begins_while_one_does_not_answer_and_a_stop_reaches_the_others(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as gateways, fleet(gateways.urls) as admin:
        gateways.kill("two")
        begin = (
            admin.routes(),
            admin.open_lease("r.lease", "r", "chat", 1.0),
            admin.attach("r.lease", "F", "fault", ERROR),
        )
        for call in begin:
            with pytest.raises(TargetError, match="gateway two"):
                await call
        with pytest.raises(TargetUnavailable, match="gateway two"):
            await admin.stop("enough")
        assert (await admin.state())["stopped"]
        gateways.start("two")
        await admin.stop("enough")
        both = await admin.state()
        assert all(each["stopped"] for each in both["gateways"].values())
        await admin.release()
        assert not (await admin.state())["stopped"]


async def test_gateways_that_would_treat_requests_differently_get_no_lease(tmp_path: Path) -> None:
    async with two_gates(tmp_path) as (gates, admin):
        file = gates["two"].file
        document = json.loads(file.read_text())
        document["routes"][0]["timeout_seconds"] = 7
        file.write_text(json.dumps(document))
        await gates["two"].ok("POST", "/reload")
        with pytest.raises(TargetRejected) as refused:
            await admin.open_lease("r.lease", "r", "chat", 1.0)
        assert refused.value.code == "gateways_differ"
        assert await admin.open_leases() == []


async def test_a_removal_that_one_does_not_confirm_ends_the_lease_in_the_end(
    tmp_path: Path,
) -> None:
    now = [0.0]
    async with two_gates(tmp_path) as (gates, watching):
        members = {name: GatewayAdmin(gate.url, TOKEN) for name, gate in gates.items()}
        admin = GatewayFleet(members, renewal_round_seconds=ROUND, clock=lambda: now[0])
        try:
            await inject(admin, 10.0)
            await gates["two"].server.stop()
            with pytest.raises(TargetUnavailable):
                await admin.detach("r.lease", "F")
            assert await watching.open_leases() != [], "it may only be slow"
            now[0] = 11.0
            with pytest.raises(TargetUnavailable, match="in 10 s"):
                await admin.detach("r.lease", "F")
            assert await watching.open_leases() == []
            now[0] = 22.0
            assert (await admin.detach("r.lease", "F"))["state"] == "removed"
        finally:
            await admin.aclose()


async def test_equal_arms_over_both_are_the_same_units_and_raise_no_alarm(tmp_path: Path) -> None:
    units = 300
    async with two_gates(tmp_path) as (gates, admin):
        await admin.open_lease("r.lease", "r", "chat", 60.0)
        await admin.attach("r.lease", "S", "split", SPLIT)
        first = await read(admin)
        for n in range(units):
            for name in ("one", "two") if n % 2 else ("two", "one"):
                await gates[name].chat(f"c{n}")
        last = await read(admin, first)
    by_unit: dict[str, set[tuple[str, str]]] = {}
    for record in last.records:
        by_unit.setdefault(record.unit, set()).add((record.arm, record.assigned))
    assert len(by_unit) == units
    assert all(len(found) == 1 for found in by_unit.values()), "one unit, one arm, one replica"
    assert {r.gateway for r in last.records} == {"one", "two"}
    chaos = sum(arm == "chaos" for found in by_unit.values() for arm, _ in found)
    assert 110 < chaos < 190
    report = compare(first, last)
    assert report.judge is not None
    assert (report.judge.units_control + report.judge.units_chaos) == units, "each counts once"
    assert report.judge.fail_seq is None
    assert not report.judge.srm_alarm


async def test_another_worker_reads_on_where_the_stored_page_ends(tmp_path: Path) -> None:
    audit = FakeAudit()
    config = ObserveConfig(mode="steady", objectives=(CHAT,), max_seconds=1.5)
    wanted = ObserveInput(run_id="r", stream="s", route="chat", config=config)
    async with two_gates(tmp_path) as (gates, admin):
        sending = True

        async def traffic(gate: Gate) -> int:
            count = 0
            while sending:
                await gate.chat()
                count += 1
            return count

        senders = [asyncio.create_task(traffic(gate)) for gate in gates.values()]
        for last in (False, True):
            environment = ActivityEnvironment()
            if not last:
                asyncio.get_running_loop().call_later(0.6, environment.cancel)
            observation = Observation(admin, audit, clock, poll_seconds=0.03)
            try:
                report: ObserveReport = await environment.run(observation.observe, wanted)
            except asyncio.CancelledError:
                assert not last
        sending = False
        await asyncio.gather(*senders)
    assert report.reason is StopReason.LIMIT_TIME
    pages = [Page.from_json(raw) for part in audit.segments["r", "s"] for raw in part]
    assert observe(config, pages) == report, "a replay of the stored evidence says the same"
    records = [record for page in pages for record in page.records]
    assert [r.seq for r in records] == list(range(1, len(records) + 1))
    assert [r.at for r in records] == sorted(r.at for r in records)
    for name in ("one", "two"):
        mine = [r.gateway_seq for r in records if r.gateway == name]
        assert mine == list(range(mine[0], mine[0] + len(mine))), "none lost, none twice"
        assert len(mine) > 20


def test_addresses_become_names_and_one_address_is_no_fleet() -> None:
    assert isinstance(connect(("http://a:1",), TOKEN), GatewayAdmin)
    made: Any = connect(("http://b:1", "http://me@a:1/g"), TOKEN)
    assert list(made._members) == ["a:1/g", "b:1"]
    with pytest.raises(ValueError, match="twice"):
        connect(("http://a:1", "https://a:1"), TOKEN)
