from datetime import datetime, timedelta

import pytest

from audit.errors import CanonicalError
from audit.records import StopState
from audit.store import AuditStore


def test_nothing_is_stopped_at_first(store: AuditStore) -> None:
    assert store.stop_state() == StopState(False)


def test_a_stop_stays_until_a_person_lifts_it(store: AuditStore, now: datetime) -> None:
    store.set_stop("incident 7", "ada", now)
    state = store.stop_state()
    assert (state.stopped, state.reason, state.by) == (True, "incident 7", "ada")
    again = store.set_stop("another", "eve", now + timedelta(seconds=1))
    assert (again.reason, again.by) == ("incident 7", "ada")
    assert not store.clear_stop("bob", now + timedelta(seconds=2)).stopped
    assert store.stop_state().by == "bob"


def test_each_change_is_an_event_and_a_repeat_is_none(store: AuditStore, now: datetime) -> None:
    store.clear_stop("ada", now)
    store.set_stop("one", "ada", now)
    store.set_stop("two", "ada", now)
    store.clear_stop("ada", now)
    store.set_stop("three", "ada", now)
    told = [(e.payload["stopped"], e.payload["reason"]) for e in store.events("system", "stop")]
    assert told == [(True, "one"), (False, ""), (True, "three")]
    assert store.verify_chain("system") == []


def test_a_stop_has_a_name(store: AuditStore, now: datetime) -> None:
    with pytest.raises(CanonicalError):
        store.set_stop("why", "", now)
    with pytest.raises(CanonicalError):
        store.clear_stop("", now)
