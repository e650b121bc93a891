"""The rules of holds, as a table: from each state, each act by each actor ends so."""

import sqlite3
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from audit.errors import (
    CanonicalError,
    HoldError,
    HoldNotOwned,
    HoldRefused,
    ProofMissing,
    RunFinished,
)
from audit.records import HoldState
from audit.store import AuditStore
from tests.audit.conftest import NOW, open_run

T = "route/chat"
LATER = NOW + timedelta(seconds=60)
PROOF = {"active_items": [], "still_touching": 0}
FREE, HELD, QUARANTINED = HoldState.FREE, HoldState.HELD, HoldState.QUARANTINED

STARTS: dict[str, Callable[[AuditStore], object]] = {
    "never held": lambda s: None,
    "held by a": lambda s: s.acquire_hold(T, "a", 10, NOW),
    "released by a": lambda s: (
        s.acquire_hold(T, "a", 10, NOW),
        s.release_hold(T, "a", PROOF, NOW),
    ),
    "quarantined by a": lambda s: (
        s.acquire_hold(T, "a", 10, NOW),
        s.quarantine_hold(T, "a", "still touching", NOW),
    ),
}
ACTS: dict[str, Callable[[AuditStore], object]] = {
    "a acquires": lambda s: s.acquire_hold(T, "a", 10, NOW),
    "b acquires": lambda s: s.acquire_hold(T, "b", 10, NOW),
    "b acquires after expiry": lambda s: s.acquire_hold(T, "b", 10, LATER),
    "a releases": lambda s: s.release_hold(T, "a", PROOF, NOW),
    "a releases after expiry": lambda s: s.release_hold(T, "a", PROOF, LATER),
    "b releases": lambda s: s.release_hold(T, "b", PROOF, NOW),
    "a releases without proof": lambda s: s.release_hold(T, "a", {}, NOW),
    "sweep frees a's": lambda s: s.release_hold(T, "a", PROOF, NOW, by_sweep=True),
    "sweep frees a's after expiry": lambda s: s.release_hold(T, "a", PROOF, LATER, by_sweep=True),
    "sweep frees b's after expiry": lambda s: s.release_hold(T, "b", PROOF, LATER, by_sweep=True),
    "a quarantines": lambda s: s.quarantine_hold(T, "a", "residue", NOW),
    "b quarantines": lambda s: s.quarantine_hold(T, "b", "residue", NOW),
    "sweep quarantines b's": lambda s: s.quarantine_hold(T, "b", "residue", NOW, by_sweep=True),
    "a person clears": lambda s: s.clear_quarantine(T, "ada", "looked at it", NOW),
}
TABLE = {
    "never held": {
        "a acquires": HELD,
        "b acquires": HELD,
        "b acquires after expiry": HELD,
        "a releases": HoldNotOwned,
        "a releases after expiry": HoldNotOwned,
        "b releases": HoldNotOwned,
        "a releases without proof": ProofMissing,
        "sweep frees a's": HoldNotOwned,
        "sweep frees a's after expiry": HoldNotOwned,
        "sweep frees b's after expiry": HoldNotOwned,
        "a quarantines": HoldNotOwned,
        "b quarantines": HoldNotOwned,
        "sweep quarantines b's": QUARANTINED,
        "a person clears": HoldNotOwned,
    },
    "held by a": {
        "a acquires": HELD,
        "b acquires": HoldRefused,
        "b acquires after expiry": HoldRefused,
        "a releases": FREE,
        "a releases after expiry": FREE,
        "b releases": HoldNotOwned,
        "a releases without proof": ProofMissing,
        "sweep frees a's": FREE,
        "sweep frees a's after expiry": FREE,
        "sweep frees b's after expiry": HoldNotOwned,
        "a quarantines": QUARANTINED,
        "b quarantines": HoldNotOwned,
        "sweep quarantines b's": HoldNotOwned,
        "a person clears": HoldNotOwned,
    },
    "released by a": {
        "a acquires": HELD,
        "b acquires": HELD,
        "b acquires after expiry": HELD,
        "a releases": FREE,
        "a releases after expiry": FREE,
        "b releases": HoldNotOwned,
        "a releases without proof": ProofMissing,
        "sweep frees a's": FREE,
        "sweep frees a's after expiry": FREE,
        "sweep frees b's after expiry": HoldNotOwned,
        "a quarantines": HoldNotOwned,
        "b quarantines": HoldNotOwned,
        "sweep quarantines b's": QUARANTINED,
        "a person clears": HoldNotOwned,
    },
    "quarantined by a": {
        "a acquires": HoldRefused,
        "b acquires": HoldRefused,
        "b acquires after expiry": HoldRefused,
        "a releases": HoldRefused,
        "a releases after expiry": HoldRefused,
        "b releases": HoldRefused,
        "a releases without proof": ProofMissing,
        "sweep frees a's": HoldRefused,
        "sweep frees a's after expiry": HoldRefused,
        "sweep frees b's after expiry": HoldRefused,
        "a quarantines": QUARANTINED,
        "b quarantines": HoldNotOwned,
        "sweep quarantines b's": HoldNotOwned,
        "a person clears": FREE,
    },
}
ROWS = [
    pytest.param(start, act, end, id=f"{start}, {act}")
    for start, acts in TABLE.items()
    for act, end in acts.items()
]


def test_the_table_covers_every_state_and_act() -> None:
    assert set(TABLE) == set(STARTS)
    assert all(set(acts) == set(ACTS) for acts in TABLE.values())


@pytest.mark.parametrize(("start", "act", "end"), ROWS)
def test_the_rule(store: AuditStore, start: str, act: str, end: object) -> None:
    for run in "ab":
        open_run(store, run)
    STARTS[start](store)
    before = store.hold(T)
    if isinstance(end, HoldState):
        ACTS[act](store)
        hold = store.hold(T)
        assert hold is not None
        assert hold.state is end
        assert (hold.run_id is None) == (end is FREE)
    else:
        with pytest.raises(end):
            ACTS[act](store)
        after = store.hold(T)
        assert after == before
    for run in ("a", "b"):
        assert store.verify_chain(run) == []
    assert store.verify_holds() == []


def test_a_refusal_says_who_has_it(store: AuditStore) -> None:
    for run in "ab":
        open_run(store, run)
    store.acquire_hold(T, "a", 10, NOW)
    with pytest.raises(HoldRefused, match="held by run a until 2026-12-01T12:00:10") as refused:
        store.acquire_hold(T, "b", 10, NOW)
    assert refused.value.hold.run_id == "a"
    store.quarantine_hold(T, "a", "two requests still touched", NOW)
    with pytest.raises(HoldRefused, match="quarantined by run a: two requests still touched"):
        store.acquire_hold(T, "b", 10, NOW)


def test_renewal_gives_more_time_never_less_and_no_event(store: AuditStore) -> None:
    open_run(store, "a")
    store.acquire_hold(T, "a", 10, NOW)
    events = len(store.events("a"))
    assert store.renew_hold(T, "a", 30, NOW)
    assert store.renew_hold(T, "a", 1, NOW)
    hold = store.hold(T)
    assert hold is not None
    assert hold.expires_at == NOW + timedelta(seconds=30)
    assert not hold.expired(NOW)
    assert store.renew_hold(T, "a", 5, LATER), "its owner may renew what has expired"
    assert len(store.events("a")) == events


def test_only_the_owner_of_a_held_target_renews(store: AuditStore) -> None:
    for run in "ab":
        open_run(store, run)
    assert not store.renew_hold(T, "a", 10, NOW)
    store.acquire_hold(T, "a", 10, NOW)
    assert not store.renew_hold(T, "b", 10, NOW)
    store.quarantine_hold(T, "a", "residue", NOW)
    assert not store.renew_hold(T, "a", 10, NOW)


def test_a_late_attempt_of_a_finished_run_takes_nothing(store: AuditStore) -> None:
    open_run(store, "a")
    store.finish_run("a", "PASS", 0, NOW)
    with pytest.raises(RunFinished):
        store.acquire_hold(T, "a", 10, NOW)
    assert store.list_holds() == []


def test_a_finished_run_may_still_release(store: AuditStore) -> None:
    open_run(store, "a")
    store.acquire_hold(T, "a", 10, NOW)
    store.finish_run("a", "PASS", 0, NOW)
    assert store.release_hold(T, "a", PROOF, NOW).state is FREE


def test_the_history_of_a_target_lies_in_the_chains(store: AuditStore) -> None:
    for run in "ab":
        open_run(store, run)
    store.acquire_hold(T, "a", 10, NOW)
    store.release_hold(T, "a", PROOF, LATER, by_sweep=True)
    store.acquire_hold(T, "b", 10, LATER)
    store.quarantine_hold(T, "b", "residue", LATER)
    store.clear_quarantine(T, "ada", "looked at it")
    told = [
        (run, event.payload["version"], event.payload["action"], event.payload["run_id"])
        for run in ("a", "b", "system")
        for event in store.events(run, "hold")
    ]
    assert sorted(told, key=lambda item: item[1]) == [
        ("a", 1, "acquired", "a"),
        ("system", 2, "released", "a"),
        ("b", 3, "acquired", "b"),
        ("b", 4, "quarantined", "b"),
        ("system", 5, "cleared", "b"),
    ]
    freed = store.events("system", "hold")[0].payload
    assert (freed["proof"], freed["by_sweep"], freed["expired"]) == (PROOF, True, True)
    assert store.verify_chain("system") == []


def test_clearing_needs_a_name_and_a_reason(store: AuditStore) -> None:
    open_run(store, "a")
    STARTS["quarantined by a"](store)
    for by, reason in (("", "why"), ("ada", " ")):
        with pytest.raises(CanonicalError):
            store.clear_quarantine(T, by, reason)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_hold_lasts_a_positive_finite_time(store: AuditStore, seconds: float) -> None:
    open_run(store, "a")
    with pytest.raises(CanonicalError):
        store.acquire_hold(T, "a", seconds, NOW)


@pytest.mark.parametrize(
    ("sql", "field"),
    [
        ("UPDATE holds SET state = 'free'", f"holds[{T}].state"),
        ("UPDATE holds SET run_id = 'b'", f"holds[{T}].run_id"),
        ("UPDATE holds SET version = 7", f"holds[{T}].version"),
        ("DELETE FROM holds", f"holds[{T}]"),
    ],
)
def test_a_hold_changed_behind_its_events_is_named(
    store: AuditStore, path: Path, sql: str, field: str
) -> None:
    open_run(store, "a")
    store.acquire_hold(T, "a", 10, NOW)
    with sqlite3.connect(path) as connection:
        connection.execute(sql)
    connection.close()
    (problem,) = store.verify_holds()
    assert (problem.run, problem.field) == ("a", field)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["acquire", "renew", "release", "sweep", "quarantine", "clear"]),
        st.sampled_from("ab"),
        st.integers(0, 15),
    ),
    max_size=12,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_whatever_is_tried_nobody_loses_a_hold_but_by_the_rules(
    store: AuditStore, steps: list[tuple[str, str, int]]
) -> None:
    for run in "ab":
        open_run(store, run)
    target, now = f"t{datetime.now().timestamp()}", NOW  # noqa: DTZ005  # a fresh name
    for act, run, seconds in steps:
        now += timedelta(seconds=seconds)
        before = store.hold(target)
        _try(store, target, (act, run), now)
        after = store.hold(target)
        if before is None or after is None:
            continue
        if before.state is QUARANTINED and after.state is not QUARANTINED:
            assert act == "clear"
        if before.state is HELD and after.run_id != before.run_id:
            assert run == before.run_id
            assert act in {"release", "sweep"}
        assert after.version - before.version in {0, 1}
    assert store.verify_holds() == []


def _try(store: AuditStore, target: str, step: tuple[str, str], now: datetime) -> None:
    act, run = step
    try:
        match act:
            case "acquire":
                store.acquire_hold(target, run, 10, now)
            case "renew":
                store.renew_hold(target, run, 10, now)
            case "release":
                store.release_hold(target, run, PROOF, now)
            case "sweep":
                store.release_hold(target, run, PROOF, now, by_sweep=True)
            case "quarantine":
                store.quarantine_hold(target, run, "residue", now)
            case _:
                store.clear_quarantine(target, "ada", "looked at it", now)
    except HoldError:
        return
