"""The journal: nothing is lost unseen, and nothing grows without bound."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gateway.journal import Journal
from slo.records import Outcome, Page, RequestRecord
from tests.gateway.harness import SPLIT, STALL, Gate, Stub, good


def record(seq: int, route: str = "r") -> RequestRecord:
    return RequestRecord(
        seq=seq,
        at=1000.0 + seq,
        accepted=999.0 + seq,
        route=route,
        unit="u" * 16,
        first_of_unit=True,
        arm="",
        treatment="",
        replica="a",
        assigned="a",
        fallback=False,
        exposed=(),
        touched=(),
        tenant="",
        probe=False,
        outcome=Outcome.OK,
        status=200,
        ttft_s=0.1,
        max_gap_s=0.0,
        e2e_s=1.0,
        tokens=1,
        prompt_tokens=0,
        flags=(),
    )


@pytest.fixture
def executor():
    with ThreadPoolExecutor(1) as pool:
        yield pool


async def seqs(journal: Journal, after: int, limit: int = 1000, route: str | None = None):
    found = await journal.read(after, limit, route)
    numbers = [RequestRecord.from_json(json.loads(entry.line)).seq for entry in found.entries]
    return numbers, found.next, found.gap, found.more


async def test_a_cursor_walks_over_every_record_once(tmp_path: Path, executor):
    journal = Journal(tmp_path, "e", 10**7, executor)
    assert await seqs(journal, -1) == await seqs(journal, 0) == ([], 0, False, False)
    for n in range(1, 26):
        journal.append(record(n))
    walked, cursor, pages = [], 0, 0
    while cursor < 25:
        numbers, cursor, gap, more = await seqs(journal, cursor, limit=10)
        assert not gap
        assert more == (cursor < 25)
        walked += numbers
        pages += 1
    assert (walked, pages) == (list(range(1, 26)), 3)
    assert await seqs(journal, 25) == ([], 25, False, False)


async def test_a_filter_moves_the_cursor_over_what_it_leaves_out(tmp_path: Path, executor):
    journal = Journal(tmp_path, "e", 10**7, executor)
    for n in range(1, 21):
        journal.append(record(n, "odd" if n % 2 else "even"))
    assert await seqs(journal, 0, 3, "odd") == ([1, 3, 5], 6, False, True)
    assert await seqs(journal, 6, 100, "odd") == (list(range(7, 20, 2)), 20, False, False)


async def test_what_left_the_ring_is_read_from_disk_without_a_gap(tmp_path: Path, executor):
    journal = Journal(tmp_path, "e", 10**7, executor, ring=10)
    for n in range(1, 101):
        journal.append(record(n))
    assert journal.first_in_ring == 91
    numbers, cursor, gap, more = await seqs(journal, 5, limit=30)
    assert (numbers, cursor, gap, more) == (list(range(6, 36)), 35, False, True)
    assert (await seqs(journal, -1, 10))[0] == list(range(1, 11))
    walked, cursor = [], 0
    while cursor < 100:
        numbers, cursor, gap, _ = await seqs(journal, cursor, limit=7)
        walked += numbers
        assert not gap
    assert walked == list(range(1, 101))


async def test_what_left_the_disk_too_is_a_gap_and_the_disk_stays_bounded(tmp_path: Path, executor):
    journal = Journal(tmp_path, "e", 64 * 1024, executor, ring=10)
    for n in range(1, 1001):
        journal.append(record(n))
        if n % 50 == 0:
            await journal.flush()
    assert journal.size_bytes() <= 64 * 1024 + 2 * 50 * 500
    numbers, _, gap, _ = await seqs(journal, 5, limit=10_000)
    assert gap
    assert numbers[0] > 6
    assert numbers == list(range(numbers[0], 1001))
    numbers, _, gap, _ = await seqs(journal, -1, limit=10_000)
    assert not gap  # who asks for the oldest kept has lost nothing
    assert numbers[-1] == 1000


async def test_a_new_process_removes_old_segments_to_stay_within_its_bound(
    tmp_path: Path, executor
):
    for epoch in "abc":
        journal = Journal(tmp_path, epoch, 64 * 1024, executor, ring=10)
        for n in range(1, 201):
            journal.append(record(n))
        await journal.flush()
        assert journal.size_bytes() <= 64 * 1024 + 200 * 500
        assert (await seqs(journal, -1, 1000))[0][-1] == 200


async def test_a_cursor_from_another_life_is_a_gap(tmp_path: Path, executor):
    journal = Journal(tmp_path, "e", 10**7, executor)
    journal.append(record(1))
    assert await seqs(journal, 500) == ([], 1, True, False)


def test_a_sequence_may_not_jump(tmp_path: Path, executor):
    journal = Journal(tmp_path, "e", 10**7, executor)
    with pytest.raises(ValueError, match="does not follow"):
        journal.append(record(2))


async def test_a_disk_that_refuses_is_counted_and_the_ring_still_serves(tmp_path: Path, executor):
    folder = tmp_path / "journal"
    journal = Journal(folder, "e", 10**7, executor)
    folder.rmdir()
    journal.append(record(1))
    await journal.flush()
    assert journal.write_errors == 1
    assert (await seqs(journal, 0))[0] == [1]


async def test_records_that_a_full_disk_lost_are_a_gap_once_the_ring_has_lost_them_too(
    tmp_path: Path, executor
):
    folder = tmp_path / "journal"
    journal = Journal(folder, "e", 10**7, executor, ring=5)
    for n in range(1, 41):
        journal.append(record(n))
        if n == 10:
            await journal.flush()
            folder.rename(tmp_path / "away")
        if n == 20:
            await journal.flush()
            (tmp_path / "away").rename(folder)
    assert journal.write_errors == 1
    numbers, _, gap, _ = await seqs(journal, 5, 100)
    assert gap
    assert numbers == [*range(6, 11), *range(21, 41)]
    assert (await seqs(journal, 25, 100))[:3] == (list(range(26, 41)), 40, False)


async def test_a_tail_starts_at_the_first_record_of_its_time(tmp_path: Path, executor):
    journal = Journal(tmp_path, "e", 10**7, executor)
    assert journal.cursor_for_tail(0.0) == 0
    for n in range(1, 11):
        journal.append(record(n))
    assert journal.cursor_for_tail(1005.0) == 4
    assert journal.cursor_for_tail(0.0) == 0
    assert journal.cursor_for_tail(9999.0) == 10


async def test_pages_of_a_running_gateway_hold_each_request_once_and_name_its_process(
    tmp_path: Path,
):
    async with Stub(good()) as stub:
        async with Gate(tmp_path, {"a": stub.url}) as gate:
            await asyncio.gather(*(gate.chat() for _ in range(25)))
            await gate.wait_records(25)
            walked, cursor = [], 0
            while True:
                page = await gate.page(f"after={cursor}&limit=10&route=chat")
                assert not page.gap and page.epoch == gate.server.core.epoch
                walked += page.records
                cursor = page.next
                if not page.more:
                    break
            assert [each.seq for each in walked] == list(range(1, 26))
            ends = [each.at for each in walked]
            assert ends == sorted(ends)
            assert (await gate.page("tail=60")).records == walked
            assert (await gate.page("tail=0")).records == []
            assert Page.from_json(page.to_json()) == page
            epoch = page.epoch
        async with Gate(tmp_path, {"a": stub.url}) as gate:
            page = await gate.page("after=25")
            assert page.gap and page.epoch != epoch


async def test_requests_in_flight_are_in_the_page_by_arm_with_the_oldest(tmp_path: Path):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url, "b": stub.url}) as gate:
        await gate.lease()
        await gate.put("S", "split", SPLIT)
        await gate.fault("gateway/stream-stall", STALL)
        before = (await gate.page()).now
        held = [asyncio.create_task(gate.chat(f"c{n}")) for n in range(8)]
        route = gate.server.core.routes["chat"]
        async with asyncio.timeout(5):
            while len(route.faults["a"][0].touching) < 8:
                await asyncio.sleep(0.005)
        page = await gate.page("after=-1&route=chat&lease=L")
        assert sum(page.in_flight.values()) == 8
        assert set(page.in_flight) == {"control", "chaos"}
        assert page.oldest_in_flight is not None
        assert before <= page.oldest_in_flight <= page.now
        assert page.lease is not None and page.lease["state"] == "open"
        assert (await gate.page("after=0&lease=unknown")).lease is None
        await gate.ok("DELETE", "/leases/L/items/F")
        await asyncio.gather(*held)
        await gate.wait_records(8)
        page = await gate.page()
        assert (page.in_flight, page.oldest_in_flight) == ({}, None)
