"""A run is named by its run id, the beginning of one, or its workflow id."""

from datetime import UTC, datetime
from io import StringIO

import pytest
from rich.console import Console

from api.live import print_result
from api.naming import Listed, choose
from workflows.state import FaultExperimentResult

OPEN = Listed("experiment/aa-null/11111111", "019a-0000-aaaaaaaa")
STALL = Listed("experiment/stall/22222222", "019a-0000-bbbbbbbb")
OLD = Listed(
    "experiment/aa-null/33333333", "019a-0000-cccccccc", datetime(2026, 11, 30, tzinfo=UTC)
)
ALL = [OPEN, STALL, OLD]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("aa-null-aaaaaaaa", OPEN),
        ("experiment/aa-null/11111111", OPEN),
        ("stall", STALL),
        ("experiment/stall", STALL),
        ("aa-null-cc", OLD),
        ("aa-null", OPEN),
    ],
)
def test_a_run_is_found_by_each_of_its_names_and_an_open_one_first(
    given: str, meant: Listed
) -> None:
    assert choose(given, ALL) is meant


def test_an_unknown_run_is_answered_with_those_that_are_open() -> None:
    with pytest.raises(ValueError, match=r"open now: aa-null-aaaaaaaa, stall-bbbbbbbb$"):
        choose("nothing", ALL)
    with pytest.raises(ValueError, match=r"open now: none$"):
        choose("", [OLD])


def test_several_that_begin_so_are_listed() -> None:
    other = Listed("experiment/aa-null/44444444", "019a-0000-dddddddd")
    with pytest.raises(ValueError, match=r"2 runs .* which of aa-null-aaaaaaaa, aa-null-dddddddd$"):
        choose("aa-null", [*ALL, other])


def test_the_commands_that_follow_a_verdict_stay_on_one_line() -> None:
    said = StringIO()
    name = f"{'a-long-name-' * 4}12345678"
    result = FaultExperimentResult(run_id=name, outcome="PASS", exit_code=0, reasons=())
    print_result(Console(file=said, width=40), result, is_simulated=False)
    assert f"  burnproof show {name}   burnproof replay {name}\n" in said.getvalue()
