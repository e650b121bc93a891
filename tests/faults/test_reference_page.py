from faults.experiment import ExperimentSpec
from tests.faults.reference import check_page, rows

PAGE = "docs/experiments.md"


def test_the_page_lists_every_key_as_the_models_have_it():
    check_page(PAGE, {"experiment": ExperimentSpec})


def test_every_key_is_explained():
    unexplained = [row[0] for row in rows(ExperimentSpec, "") if not row[4]]
    assert unexplained == []
