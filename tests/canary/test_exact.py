"""Tails of the hypergeometric law tie out with SciPy and add up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import fisher_exact, hypergeom

from canary.exact import chance_of_at_least, chance_of_at_most


@st.composite
def tables(draw: st.DrawFn) -> tuple[int, int, int, int]:
    total = draw(st.integers(1, 400))
    drawn, marked = draw(st.integers(0, total)), draw(st.integers(0, total))
    hits = draw(st.integers(max(0, drawn + marked - total), min(drawn, marked)))
    return hits, drawn, marked, total


@given(tables())
def test_both_tails_are_scipys(table):
    hits, drawn, marked, total = table
    law = hypergeom(total, marked, drawn)
    assert chance_of_at_least(*table) == pytest.approx(law.sf(hits - 1), rel=1e-8, abs=1e-12)
    assert chance_of_at_most(*table) == pytest.approx(law.cdf(hits), rel=1e-8, abs=1e-12)


@given(tables())
def test_the_tails_overlap_in_what_was_seen(table):
    assert chance_of_at_least(*table) + chance_of_at_most(*table) >= 1.0 - 1e-9


def test_it_is_fishers_test():
    found = fisher_exact([[8, 92], [1, 199]], alternative="greater").pvalue
    assert chance_of_at_least(8, 100, 9, 300) == pytest.approx(found)


@pytest.mark.parametrize("table", [(3, 2, 5, 10), (0, 8, 8, 10), (1, 11, 2, 10), (-1, 1, 1, 2)])
def test_a_table_that_cannot_be_is_refused(table):
    with pytest.raises(ValueError, match="no table"):
        chance_of_at_least(*table)
    with pytest.raises(ValueError, match="no table"):
        chance_of_at_most(*table)
