"""Records and pages: exact round trips, and no non-finite number (C94)."""

import json
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slo.objective import Indicator
from slo.records import Outcome, Page, RequestRecord
from slo.tenancy import Tenancy
from tests.canary.build import page, record

SECONDS = st.floats(0, 1e6, allow_nan=False)
NAMES = st.lists(st.text(max_size=4), max_size=2).map(tuple)
TENANCIES = st.builds(
    Tenancy,
    refusal=st.sampled_from(["", "quota", "wait"]),
    billed=st.integers(0, 10**6),
    queued_s=SECONDS,
    signs=NAMES,
    echo=st.text(max_size=4),
    planted=NAMES,
    markers=NAMES,
)
RECORDS = st.builds(
    record,
    st.integers(0, 10**9),
    at=st.floats(1e9, 3e9),
    accepted=st.floats(1e9, 3e9),
    unit=st.text(max_size=8),
    tenant=st.text(max_size=8),
    arm=st.sampled_from(["control", "chaos", ""]),
    outcome=st.sampled_from(Outcome),
    ttft_s=st.none() | SECONDS,
    max_gap_s=SECONDS,
    e2e_s=SECONDS,
    flags=st.lists(st.text(max_size=4), max_size=2).map(tuple),
    touched=st.lists(st.text(max_size=4), max_size=2).map(tuple),
    probe=st.booleans(),
    tenancy=st.none() | TENANCIES,
    client_run_id=st.sampled_from(["", "019b2f5c-7def-7e3a-9f1c-0123456789ab"]),
)


@given(RECORDS)
def test_a_record_survives_strict_json(item):
    text = json.dumps(item.to_json(), allow_nan=False)
    assert RequestRecord.from_json(json.loads(text)) == item


@given(st.lists(RECORDS, max_size=4), st.none() | st.floats(1e9, 3e9), st.booleans())
def test_a_page_survives_strict_json(records, oldest, more):
    made = page(records, oldest_in_flight=oldest, more=more, in_flight={"chaos": 1})
    assert Page.from_json(json.loads(json.dumps(made.to_json(), allow_nan=False))) == made


def test_unknown_keys_are_ignored_and_more_is_optional():
    raw = page([record(1)]).to_json() | {"new": 1}
    raw["records"][0]["newer"] = 2
    del raw["more"]
    assert Page.from_json(raw) == page([record(1)])


def test_a_record_without_a_run_of_its_client_is_written_as_before_there_were_any():
    old = record(1).to_json()
    assert "client_run_id" not in old
    assert RequestRecord.from_json(old).to_json() == old
    run = "019b2f5c-7def-7e3a-9f1c-0123456789ab"
    assert RequestRecord.from_json({**old, "client_run_id": run}).client_run_id == run


@pytest.mark.parametrize("value", [nan, inf, -inf])
@pytest.mark.parametrize("name", ["at", "accepted", "ttft_s", "max_gap_s", "e2e_s"])
def test_a_time_that_is_not_finite_is_refused_at_once(name, value):
    with pytest.raises(ValueError, match="not finite"):
        record(1, **{name: value})
    with pytest.raises(ValueError, match="not finite"):
        RequestRecord.from_json(record(1).to_json() | {name: value})


@pytest.mark.parametrize("name", ["now", "oldest_in_flight"])
def test_a_page_time_that_is_not_finite_is_refused(name):
    with pytest.raises(ValueError, match="not finite"):
        page([], **{name: nan})


def test_a_wait_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="not finite"):
        Tenancy(queued_s=nan)


@pytest.mark.parametrize("refusal", ["identity", "quota", "concurrent", "queue", "wait", ""])
def test_what_a_tenants_own_rules_refused_is_no_event_of_the_service(refusal: str):
    refused = record(1, outcome=Outcome.SHED, tenancy=Tenancy(refusal=refusal))
    assert Indicator().is_valid(refused) == (refusal in ("wait", ""))
    assert Indicator().is_valid(record(1, outcome=Outcome.SHED))


def test_an_unknown_outcome_is_refused():
    with pytest.raises(ValueError, match="unknown outcome"):
        RequestRecord.from_json(record(1).to_json() | {"outcome": "fine"})
