from faults.catalog import CATALOG
from faults.experiment import ExperimentSpec
from tests.faults.reference import ROOT, check_page, rows

PAGE = "docs/experiments.md"


def test_the_page_lists_every_key_as_the_models_have_it():
    templates = {info.id: info.parameters for info in CATALOG.values() if info.id != "null"}
    check_page(PAGE, {"experiment": ExperimentSpec, **templates})


def test_every_key_is_explained():
    unexplained = [row[0] for row in rows(ExperimentSpec, "") if not row[4]]
    assert unexplained == []


def test_every_template_has_its_section_with_its_undo_and_its_proof():
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    for info in CATALOG.values():
        assert f"### `{info.id}`" in text
        assert info.effect_check in text
