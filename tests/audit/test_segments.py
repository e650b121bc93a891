import time
import zlib
from datetime import datetime

import pytest

from audit.errors import CanonicalError, PayloadTooLarge, SegmentConflict, SegmentCorrupt
from audit.segments import pack, unpack
from audit.store import AuditStore
from slo.records import Outcome, Page, RequestRecord
from tests.audit.conftest import open_run


def record(seq: int) -> RequestRecord:
    return RequestRecord(
        seq=seq,
        at=1_790_000_000.125 + seq / 100,
        accepted=1_790_000_000.0 + seq / 100,
        route="chat",
        unit=f"{seq * 2_654_435_761 % 2**32:08x}",
        first_of_unit=seq % 4 == 0,
        arm="chaos" if seq % 2 else "control",
        treatment="",
        replica="vllm-1" if seq % 2 else "vllm-0",
        assigned="vllm-1" if seq % 2 else "vllm-0",
        fallback=False,
        exposed=("stall",) if seq % 2 else (),
        touched=(),
        tenant="team-a",
        probe=False,
        outcome=Outcome.OK,
        status=200,
        ttft_s=0.1 / (seq + 3),
        max_gap_s=0.02,
        e2e_s=0.5 + seq / 7000,
        tokens=4,
        prompt_tokens=12,
        flags=(),
    )


def page(first: int, count: int) -> Page:
    return Page(
        now=1_790_000_010.5,
        after=first - 1,
        next=first + count - 1,
        epoch="e1",
        gap=False,
        in_flight={"control": 1, "chaos": 2},
        oldest_in_flight=None,
        lease=None,
        records=[record(seq) for seq in range(first, first + count)],
    )


def test_pages_read_back_as_the_very_same_pages(store: AuditStore, now: datetime) -> None:
    open_run(store)
    pages = [page(1, 30), page(31, 0), page(31, 5)]
    ref = store.put_segment("run-1", "compare", 0, [p.to_json() for p in pages], now)
    assert (ref.count, ref.first_seq, ref.last_seq, ref.created) == (35, 1, 35, True)
    (loaded,) = store.load_segments("run-1", "compare")
    assert [Page.from_json(raw) for raw in loaded] == pages


def test_segments_load_in_order_of_their_index(store: AuditStore, now: datetime) -> None:
    open_run(store)
    for index in (2, 0, 10, 1):
        store.put_segment("run-1", "s", index, [{"index": index}], now)
    store.put_segment("run-1", "other/s", 0, [], now)
    assert [s[0]["index"] for s in store.load_segments("run-1", "s")] == [0, 1, 2, 10]
    assert store.streams("run-1") == ["other/s", "s"]
    assert store.load_segments("run-1", "none") == []
    assert store.verify_chain("run-1") == []


def test_the_same_segment_again_changes_nothing(store: AuditStore, now: datetime) -> None:
    open_run(store)
    first = store.put_segment("run-1", "s", 0, [{"a": 1, "b": 2}], now)
    again = store.put_segment("run-1", "s", 0, [{"b": 2, "a": 1}], now)
    assert (again.created, again.digest) == (False, first.digest)
    assert len(store.events("run-1", "segment")) == 1


def test_other_content_under_the_same_index_is_a_conflict(store: AuditStore, now: datetime) -> None:
    open_run(store)
    store.put_segment("run-1", "s", 0, [{"a": 1}], now)
    with pytest.raises(SegmentConflict, match="segment 0 of 's'"):
        store.put_segment("run-1", "s", 0, [{"a": 2}], now)
    assert store.load_segments("run-1", "s") == [[{"a": 1}]]
    assert store.verify_chain("run-1") == []


def test_a_segment_without_records_has_no_sequences(store: AuditStore, now: datetime) -> None:
    open_run(store)
    ref = store.put_segment("run-1", "s", 0, [{"records": []}, {"records": "odd"}], now)
    assert (ref.count, ref.first_seq, ref.last_seq) == (0, None, None)
    assert store.verify_chain("run-1") == []


def test_secrets_in_evidence_are_masked(store: AuditStore, now: datetime) -> None:
    open_run(store)
    store.put_segment("run-1", "s", 0, [{"records": [{"seq": 1, "cookie": "c", "tokens": 4}]}], now)
    assert store.load_segments("run-1", "s")[0][0]["records"] == [
        {"seq": 1, "cookie": "[redacted]", "tokens": 4}
    ]


def test_a_segment_over_the_limit_is_refused() -> None:
    pages = [{"x": "y" * 91}]
    assert pack(pages, limit=101).raw_bytes == 101
    with pytest.raises(PayloadTooLarge, match="101 bytes"):
        pack(pages, limit=100)


def test_a_stream_has_a_name(store: AuditStore, now: datetime) -> None:
    open_run(store)
    with pytest.raises(CanonicalError):
        store.put_segment("run-1", "", 0, [], now)
    assert store.streams("run-1") == []


def test_a_planted_blob_cannot_fill_the_memory() -> None:

    packer = zlib.compressobj()
    chunk = b"\0" * 2**20
    blob = b"".join(packer.compress(chunk) for _ in range(65)) + packer.flush()
    assert len(blob) < 100_000
    with pytest.raises(SegmentCorrupt, match="allowed size"):
        unpack(blob)


def test_five_thousand_records_are_put_and_loaded_quickly(
    store: AuditStore, now: datetime, capsys: pytest.CaptureFixture[str]
) -> None:
    open_run(store)
    pages = [page(first, 500).to_json() for first in range(0, 5000, 500)]
    started = time.perf_counter()
    ref = store.put_segment("run-1", "s", 0, pages, now)
    put = time.perf_counter()
    (loaded,) = store.load_segments("run-1", "s")
    ended = time.perf_counter()
    (event,) = store.events("run-1", "segment")
    size = store._read(lambda c: c.exec_driver_sql("SELECT length(blob) FROM segments").scalar())
    with capsys.disabled():
        print(  # noqa: T201
            f"\n5,000 records: put {put - started:.3f} s, load {ended - put:.3f} s,"
            f" {event.payload['raw_bytes']} bytes packed to {size}"
        )
    assert (ref.count, loaded) == (5000, pages)
    assert ended - started < 10
