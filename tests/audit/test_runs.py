import json
import math
import sqlite3
import threading
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from audit.errors import (
    AuditError,
    CanonicalError,
    JournalModeRefused,
    PayloadTooLarge,
    SchemaNotReady,
    UnknownRun,
)
from audit.store import AuditStore
from tests.audit.conftest import open_run


def test_opening_a_run_twice_keeps_the_first(store: AuditStore) -> None:
    open_run(store)
    open_run(store, spec={"fault": "another"}, requested_by="eve")
    run = store.run("run-1")
    assert run is not None
    assert (run.requested_by, run.spec) == ("ada", {"fault": "gateway/stream-stall"})
    assert run.event_count == 1
    assert store.verify_chain("run-1") == []


def test_the_first_payload_under_a_key_wins(store: AuditStore, now: datetime) -> None:
    open_run(store)
    first = store.append("run-1", "verdict", "decision", {"v": "FAIL"}, now)
    later = store.append("run-1", "verdict", "other", {"v": "PASS"}, now + timedelta(seconds=1))
    assert (first.created, later.created) == (True, False)
    assert (later.seq, later.hash, later.stored) == (first.seq, first.hash, {"v": "FAIL"})
    assert [event.kind for event in store.events("run-1")] == ["run_opened", "decision"]


def test_the_same_key_in_another_run_is_another_event(store: AuditStore, now: datetime) -> None:
    open_run(store)
    open_run(store, "run-2")
    store.append("run-1", "k", "note", {"n": 1}, now)
    assert store.append("run-2", "k", "note", {"n": 2}, now).stored == {"n": 2}


def test_events_of_a_kind_are_found_in_all_runs_from_a_time_on(
    store: AuditStore, now: datetime
) -> None:
    minute = timedelta(minutes=1)
    for number, name in enumerate(["run-1", "run-2", "run-3"]):
        open_run(store, name)
        store.append(name, "k", "note", {"run": name}, now + number * minute)
        store.append(name, "other", "decision", {}, now + number * minute)
    store.finish_run("run-1", "PASS", 0, now + minute)
    store.finish_run("run-2", "PASS", 0, now + 2 * minute)
    found = [store.events_since("note", now + number * minute) for number in range(4)]
    assert [[event.run_id for event in events] for events in found] == [
        ["run-1", "run-2", "run-3"],
        ["run-2", "run-3"],
        ["run-3"],
        [],
    ]


def test_the_events_of_a_kind_are_found_by_an_index(tmp_path: Path) -> None:
    file = tmp_path / "audit.db"
    made = AuditStore(f"sqlite:///{file}")
    made.upgrade()
    made.close()
    query = "EXPLAIN QUERY PLAN SELECT * FROM events WHERE kind = 'a' AND at >= 'b' ORDER BY at"
    with closing(sqlite3.connect(file)) as connection:
        plan = [row[3] for row in connection.execute(query)]
    assert plan == ["SEARCH events USING INDEX ix_events_kind_at (kind=? AND at>?)"]


def test_finishing_twice_keeps_the_first_outcome(store: AuditStore, now: datetime) -> None:
    open_run(store)
    store.finish_run("run-1", "FAIL", 1, now)
    again = store.finish_run("run-1", "PASS", 0, now + timedelta(hours=1))
    assert (again.created, again.stored["outcome"]) == (False, "FAIL")
    run = store.run("run-1")
    assert run is not None
    assert (run.outcome, run.exit_code) == ("FAIL", 1)
    assert store.verify_chain("run-1") == []


def test_what_comes_after_the_finish_is_kept_too(store: AuditStore, now: datetime) -> None:
    open_run(store)
    store.finish_run("run-1", "PASS", 0, now)
    store.append("run-1", "late", "note", {}, now)
    assert store.verify_chain("run-1") == []


@pytest.mark.parametrize("act", ["append", "finish", "segment", "hold"])
def test_a_run_that_was_not_opened_is_unknown(store: AuditStore, now: datetime, act: str) -> None:
    with pytest.raises(UnknownRun):
        match act:
            case "append":
                store.append("nobody", "k", "note", {}, now)
            case "finish":
                store.finish_run("nobody", "PASS", 0, now)
            case "segment":
                store.put_segment("nobody", "s", 0, [], now)
            case _:
                store.acquire_hold("t", "nobody", 10, now)
    assert store.list_holds() == []


def test_the_history_is_newest_first_and_limited(store: AuditStore, now: datetime) -> None:
    for number in range(5):
        open_run(store, f"run-{number}", at=now + timedelta(minutes=number))
    store.set_stop("drill", "ada", now)
    assert [run.run_id for run in store.history(3)] == ["run-4", "run-3", "run-2"]
    assert len(store.history()) == 5


def test_children_are_listed_under_their_parent(store: AuditStore) -> None:
    open_run(store)
    open_run(store, "child", parent_run_id="run-1")
    assert [run.run_id for run in store.children("run-1")] == ["child"]
    assert store.run("nobody") is None


def test_numbers_and_texts_that_json_cannot_hold_are_stored_safely(
    store: AuditStore, now: datetime
) -> None:
    open_run(store, spec={"burn": math.nan})
    payload = {"p": math.nan, "q": [math.inf, -math.inf], "text": "a\x00b\ud83d"}
    ref = store.append("run-1", "odd", "note", payload, now)
    pages = [{"records": [{"seq": 1, "ttft_s": math.inf, "text": "\udc00\x00"}]}]
    store.put_segment("run-1", "s", 0, pages, now)
    event = store.events("run-1", "note")[0]
    assert event.payload == ref.stored
    assert event.payload == {
        "p": {"value": None, "reason": "nan"},
        "q": [{"value": None, "reason": "inf"}, {"value": None, "reason": "-inf"}],
        "text": "ab\ufffd",
    }
    assert json.loads(event.payload_text, parse_constant=pytest.fail) == event.payload
    (page,) = store.load_segments("run-1", "s")[0]
    assert page["records"][0]["ttft_s"] == {"value": None, "reason": "inf"}
    assert page["records"][0]["text"] == "\ufffd"
    assert store.verify_chain("run-1") == []


def test_secrets_never_reach_the_database(store: AuditStore, now: datetime, path) -> None:
    secret = "s3cr3t-value-123"
    open_run(store, spec={"gateway": {"admin_token": secret}})
    store.append("run-1", "k", "note", {"headers": {"Authorization": f"Bearer {secret}"}}, now)
    store.append("run-1", "l", "note", {"error": f"refused: Bearer {secret}"}, now)
    store.close()
    assert secret.encode() not in path.read_bytes()


def test_an_event_over_the_limit_is_refused_with_advice(store: AuditStore, now: datetime) -> None:
    open_run(store)
    store.append("run-1", "fits", "note", {"x": "y" * (256 * 1024 - 8)}, now)
    with pytest.raises(PayloadTooLarge, match="segment"):
        store.append("run-1", "big", "note", {"x": "y" * (256 * 1024 - 7)}, now)
    assert [event.key for event in store.events("run-1")] == ["run/opened", "fits"]


@pytest.mark.parametrize(
    "changes",
    [
        {"requested_by": ""},
        {"name": "n" * 201},
        {"spec": {"a": object()}},
        {"at": datetime(2026, 1, 1)},  # noqa: DTZ001
    ],
)
def test_a_run_that_cannot_be_kept_as_it_is_is_refused(store: AuditStore, changes: dict) -> None:
    with pytest.raises(CanonicalError):
        open_run(store, **changes)
    assert store.run("run-1") is None


@pytest.mark.parametrize("key", ["", "k" * 501, "a\x00"])
def test_a_key_that_cannot_be_kept_is_refused(store: AuditStore, now: datetime, key: str) -> None:
    open_run(store)
    with pytest.raises(CanonicalError):
        store.append("run-1", key, "note", {}, now)


def test_threads_that_append_to_one_run_make_one_chain(store: AuditStore, now: datetime) -> None:
    open_run(store)
    errors: list[BaseException] = []

    def work(name: int) -> None:
        try:
            for index in range(10):
                store.append("run-1", f"{name}/{index}", "note", {"i": index}, now)
                store.append("run-1", f"shared/{index}", "note", {"by": name}, now)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert store.verify_chain("run-1") == []
    assert len(store.events("run-1")) == 1 + 80 + 10


def test_a_database_without_the_schema_is_refused_with_advice(tmp_path) -> None:
    store = AuditStore(f"sqlite:///{tmp_path / 'empty.db'}")
    with pytest.raises(SchemaNotReady, match="upgrade"):
        store.history()
    store.upgrade()
    assert store.history() == []
    store.close()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_a_database_in_memory_is_refused(url: str) -> None:
    with pytest.raises(AuditError, match="file"):
        AuditStore(url)


def test_every_connection_is_in_wal_and_flushes_each_commit(store: AuditStore) -> None:
    def pragmas(connection):
        names = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        return [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names]

    assert store._database.read(pragmas) == ["wal", 2, 1, 30_000]


def test_a_database_that_cannot_enter_wal_is_refused(tmp_path) -> None:
    path = tmp_path / "a.db"
    store = AuditStore(f"sqlite:///file:{path}?vfs=unix-none&uri=true")
    with pytest.raises(JournalModeRefused, match="WAL"):
        store.upgrade()
    store.close()
