"""Which requests are valid, and which are bad (C20, C25)."""

from fractions import Fraction

import pytest
from pydantic import ValidationError

from slo.objective import Indicator, Objective
from slo.records import Outcome
from slo.verdict import Verdict, combine
from tests.canary.build import record

INDICATOR = Indicator(
    max_gap_seconds=2.0, max_ttft_seconds=5.0, max_e2e_seconds=30.0, bad_flags=("empty",)
)


@pytest.mark.parametrize("outcome", [item for item in Outcome if item is not Outcome.CLIENT_ABORT])
def test_every_end_but_ok_is_bad_and_a_truncated_stream_is_no_ok(outcome):
    item = record(1, outcome=outcome)
    assert INDICATOR.is_valid(item)
    assert INDICATOR.is_bad(item) is (outcome is not Outcome.OK)


@pytest.mark.parametrize(
    "changes",
    [{"max_gap_s": 2.1}, {"ttft_s": 5.1}, {"e2e_s": 30.1}, {"flags": ("rep4", "empty")}],
)
def test_a_broken_bound_is_bad(changes):
    assert INDICATOR.is_bad(record(1, **changes))


@pytest.mark.parametrize(
    "changes",
    [{"max_gap_s": 2.0}, {"ttft_s": 5.0}, {"e2e_s": 30.0}, {"flags": ("rep4",)}, {"ttft_s": None}],
)
def test_a_kept_bound_is_good(changes):
    assert not INDICATOR.is_bad(record(1, **changes))


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({"ttft_s": None, "e2e_s": 0.4}, False),
        ({"ttft_s": None, "e2e_s": 5.2}, True),
        ({"ttft_s": 0.1, "max_gap_s": 0.5, "e2e_s": 9.0}, False),
        ({"ttft_s": 0.1, "max_gap_s": 3.0, "e2e_s": 9.0}, True),
        ({"ttft_s": 6.0, "max_gap_s": 0.0, "e2e_s": 7.0}, True),
    ],
)
def test_a_client_that_gave_up_counts_only_after_a_stall(changes, counts):
    item = record(1, outcome=Outcome.CLIENT_ABORT, **changes)
    assert INDICATOR.is_valid(item) is counts
    if counts:
        assert INDICATOR.is_bad(item)


def test_without_a_first_token_bound_the_gap_bound_judges_the_wait():
    item = record(1, outcome=Outcome.CLIENT_ABORT, ttft_s=None, e2e_s=2.5)
    assert Indicator().is_valid(item)
    assert not Indicator(max_gap_seconds=None).is_valid(item)


def test_a_probe_is_never_valid():
    assert not INDICATOR.is_valid(record(1, probe=True, outcome=Outcome.TIMEOUT))


@pytest.mark.parametrize("ratio", [0.0, 1.0, 1.5, float("nan"), float("inf")])
def test_an_objective_is_a_ratio_between_zero_and_one(ratio):
    with pytest.raises(ValidationError):
        Objective(name="x", objective_ratio=ratio)


def test_the_budget_is_exact():
    assert Objective(name="x", objective_ratio=0.985).budget_ratio == Fraction(3, 200)


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([], Verdict.INCONCLUSIVE),
        (["PASS"], Verdict.PASS),
        (["PASS", "INCONCLUSIVE"], Verdict.INCONCLUSIVE),
        (["PASS", "INCONCLUSIVE", "FAIL"], Verdict.FAIL),
    ],
)
def test_nothing_is_never_a_pass(verdicts, expected):
    assert combine(Verdict(item) for item in verdicts) is expected
