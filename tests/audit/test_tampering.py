"""Each test changes one thing in the database, as somebody with SQL access could."""

import sqlite3
import zlib
from datetime import datetime
from pathlib import Path

import pytest

from audit.errors import SegmentCorrupt
from audit.replay import replay
from audit.store import AuditStore
from tests.audit.conftest import NOW, open_run

PAGES = [{"records": [{"seq": 7, "tokens": 3}, {"seq": 8, "tokens": 4}]}]


@pytest.fixture
def written(store: AuditStore) -> AuditStore:
    open_run(store)
    for number in range(4):
        store.append("run-1", f"note/{number}", "note", {"n": number}, NOW)
    store.put_segment("run-1", "compare", 0, PAGES, NOW)
    store.finish_run("run-1", "INCONCLUSIVE", 2, NOW)
    open_run(store, "run-2")
    assert store.verify_chain("run-1") == []
    return store


def change(path: Path, sql: str, *values: object) -> None:
    with sqlite3.connect(path) as connection:
        assert connection.execute(sql, values).rowcount > 0
    connection.close()


def fields(store: AuditStore) -> set[str]:
    problems = store.verify_chain("run-1")
    assert {problem.run for problem in problems} <= {"run-1"}
    assert all(problem.message for problem in problems)
    assert {m.field for m in replay(store, "run-1", {})} == {p.field for p in problems}
    return {problem.field for problem in problems}


@pytest.mark.parametrize(
    ("sql", "field"),
    [
        ("UPDATE events SET payload = '{\"n\":9}' WHERE seq = 3", "events[3].payload"),
        ("UPDATE events SET payload = 'no json' WHERE seq = 3", "events[3].payload"),
        ("UPDATE events SET kind = 'other' WHERE seq = 3", "events[3].hash"),
        ("UPDATE events SET key = 'other' WHERE seq = 3", "events[3].hash"),
        ("UPDATE events SET at = '2026-12-02' WHERE seq = 3", "events[3].hash"),
        ("UPDATE events SET hash = 'ü' WHERE seq = 3", "events[3].hash"),
        ("UPDATE events SET prev_hash = 'ü' WHERE seq = 3", "events[3].prev_hash"),
        ("UPDATE runs SET outcome = 'FAIL'", "runs.outcome"),
        ("UPDATE runs SET outcome = NULL", "runs.outcome"),
        ("UPDATE runs SET exit_code = 1", "runs.exit_code"),
        ("UPDATE runs SET finished_at = '2026'", "runs.finished_at"),
        ("UPDATE runs SET spec = '{}'", "runs.spec"),
        ("UPDATE runs SET requested_by = 'eve'", "runs.requested_by"),
        ("UPDATE runs SET name = 'eve'", "runs.name"),
        ("UPDATE runs SET kind = 'eve'", "runs.kind"),
        ("UPDATE runs SET workflow_id = 'eve'", "runs.workflow_id"),
        ("UPDATE runs SET trigger = 'eve'", "runs.trigger"),
        ("UPDATE runs SET parent_run_id = 'eve'", "runs.parent_run_id"),
        ("UPDATE runs SET opened_at = 'eve'", "runs.opened_at"),
        ("UPDATE runs SET event_count = 1", "runs.event_count"),
        ("UPDATE runs SET head_hash = 'x'", "runs.head_hash"),
        ("UPDATE segments SET digest = 'x'", "segments[compare/0].digest"),
        ("UPDATE segments SET count = 9", "segments[compare/0].count"),
        ("UPDATE segments SET first_seq = 1", "segments[compare/0].first_seq"),
        ("UPDATE segments SET last_seq = 1", "segments[compare/0].last_seq"),
        ("UPDATE segments SET raw_bytes = 1", "segments[compare/0].raw_bytes"),
        ("UPDATE events SET payload = CAST(x'ff' AS TEXT) WHERE seq = 3", "events[3]"),
        ("UPDATE events SET kind = CAST(x'ff' AS TEXT) WHERE seq = 3", "events[3]"),
        ("UPDATE events SET kind = x'ff' WHERE seq = 3", "events[3]"),
        ("UPDATE events SET seq = 'x' WHERE seq = 3", "events[x]"),
        ("UPDATE segments SET blob = 'text'", "segments[compare/0].blob"),
        ("UPDATE segments SET blob = x'00'", "segments[compare/0].blob"),
        ("DELETE FROM segments", "segments[compare/0]"),
    ],
)
def test_a_change_is_named_by_its_field(written: AuditStore, path: Path, sql, field) -> None:
    table = sql.split()[1] if sql.startswith("UPDATE") else "segments"
    glue = "AND" if "WHERE" in sql else "WHERE"
    assert table in {"events", "runs", "segments"}
    change(path, f"{sql} {glue} run_id = 'run-1'")
    assert field in fields(written)
    assert written.verify_chain("run-2") == []


def test_an_event_deleted_from_the_middle_is_named(written: AuditStore, path: Path) -> None:
    change(path, "DELETE FROM events WHERE run_id = 'run-1' AND seq = 3")
    assert {"events[4].seq", "events[4].prev_hash", "runs.event_count"} <= fields(written)


@pytest.mark.parametrize("keep", [0, 1, 4, 6])
def test_a_tail_cut_off_is_named(written: AuditStore, path: Path, keep: int) -> None:
    change(path, "DELETE FROM events WHERE run_id = 'run-1' AND seq > ?", keep)
    assert {"runs.event_count", "runs.head_hash"} <= fields(written)


def test_a_tail_cut_off_shows_even_when_the_row_is_put_right(
    written: AuditStore, path: Path
) -> None:
    """The row's outcome rests on the finishing event, so cutting it off shows."""
    change(path, "DELETE FROM events WHERE run_id = 'run-1' AND seq > 4")
    change(
        path,
        "UPDATE runs SET event_count = 4, head_hash = (SELECT hash FROM events WHERE seq = 4"
        " AND run_id = 'run-1') WHERE run_id = 'run-1'",
    )
    assert {"runs.outcome", "runs.exit_code", "runs.finished_at"} <= fields(written)


def test_events_that_changed_places_are_named(written: AuditStore, path: Path) -> None:
    for old, new in ((3, 90), (4, 3), (90, 4)):
        change(path, "UPDATE events SET seq = ? WHERE run_id = 'run-1' AND seq = ?", new, old)
    assert {"events[3].prev_hash", "events[3].hash", "events[4].hash"} <= fields(written)


def test_an_event_put_in_is_named(written: AuditStore, path: Path) -> None:
    change(
        path,
        "INSERT INTO events SELECT run_id, 8, 'forged', kind, at, payload, payload_sha256,"
        " prev_hash, hash FROM events WHERE run_id = 'run-1' AND seq = 3",
    )
    assert {"events[8].prev_hash", "events[8].hash", "runs.event_count"} <= fields(written)


def test_other_evidence_well_packed_is_named(written: AuditStore, path: Path) -> None:
    other = zlib.compress(b'[{"records":[{"seq":7,"tokens":3},{"seq":8,"tokens":99}]}]')
    change(path, "UPDATE segments SET blob = ?", other)
    assert fields(written) == {"segments[compare/0].blob"}
    with pytest.raises(SegmentCorrupt):
        written.load_segments("run-1", "compare")


def test_the_same_evidence_packed_anew_is_no_change(written: AuditStore, path: Path) -> None:
    """The digest is over the content, so another zlib is no tampering."""
    raw = b'[{"records":[{"seq":7,"tokens":3},{"seq":8,"tokens":4}]}]'
    change(path, "UPDATE segments SET blob = ?", zlib.compress(raw, 1))
    assert fields(written) == set()


def test_a_blob_with_something_behind_it_is_named(written: AuditStore, path: Path) -> None:
    change(path, "UPDATE segments SET blob = CAST(blob || x'0000' AS BLOB)")
    assert fields(written) == {"segments[compare/0].blob"}


def test_evidence_that_no_event_binds_is_named(written: AuditStore, path: Path) -> None:
    change(
        path,
        "INSERT INTO segments SELECT run_id, 'extra', 0, digest, raw_bytes, count, first_seq,"
        " last_seq, blob FROM segments",
    )
    assert fields(written) == {"segments[extra/0]"}


def test_a_run_that_was_removed_is_named(written: AuditStore, path: Path) -> None:
    change(path, "DELETE FROM runs WHERE run_id = 'run-1'")
    assert fields(written) == {"runs"}


def test_a_chain_built_anew_shows_against_a_head_kept_elsewhere(
    written: AuditStore, path: Path, now: datetime
) -> None:
    run = written.run("run-1")
    assert run is not None
    assert written.verify_chain("run-1", expected_head=run.head_hash) == []
    for table in ("segments", "events", "runs"):
        change(path, f"DELETE FROM {table} WHERE run_id = 'run-1'")
    open_run(written)
    written.finish_run("run-1", "FAIL", 1, now)
    assert written.verify_chain("run-1") == []
    (problem,) = written.verify_chain("run-1", expected_head=run.head_hash)
    assert problem.field == "head"
