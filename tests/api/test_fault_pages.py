"""docs/faults.md is what the catalogue says, and `faults` shows the same."""

import os
from pathlib import Path

import pytest

from api.cli import run
from api.fault_pages import page, rows
from faults.catalog import CATALOG
from faults.match import Match

PAGE = Path(__file__).resolve().parents[2] / "docs" / "faults.md"


def test_the_page_is_made_from_the_catalogue() -> None:
    if os.environ.get("BURNPROOF_GOLDEN_WRITE") == "1":
        PAGE.write_text(page(), encoding="utf-8")
    told = "docs/faults.md is behind the catalogue: run with BURNPROOF_GOLDEN_WRITE=1"
    assert PAGE.read_text(encoding="utf-8") == page(), told


def test_every_parameter_has_its_kind_and_its_meaning() -> None:
    for model in (Match, *(info.parameters for info in CATALOG.values())):
        for row in rows(model):
            assert row.kind and row.default and row.meaning, f"{model.__name__}.{row.key}"


def test_bounds_are_those_of_the_model_with_their_unit() -> None:
    found = {row.key: row for row in rows(CATALOG["gateway/slow-drip"].parameters)}
    assert found["pause"][1:4] == ("duration", "`20ms`", "≥ 1ms, ≤ 1m")
    assert found["piece_bytes"][1:4] == ("whole number", "`16`", "≥ 1, ≤ 65,536")


def test_the_list_and_a_template_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["faults", "list"]) == 0
    listed = capsys.readouterr().out
    assert all(template in listed for template in CATALOG)
    assert run(["faults", "show", "gateway/stream-cut"]) == 0
    shown = capsys.readouterr().out
    assert "after_tokens" in shown and "breaks" in shown


@pytest.mark.parametrize(
    "words", [["show", "gateway/stream-cot"], ["verify", "gateway/stream-cot"]], ids=" ".join
)
def test_a_misspelt_template_is_one_line_with_the_nearest(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["faults", *words]) == 3
    assert 'did you mean "gateway/stream-cut"?' in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["null", "--all"]], ids=str)
def test_verify_wants_one_template_or_all(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["faults", "verify", *words]) == 3
    assert "--all" in capsys.readouterr().err
