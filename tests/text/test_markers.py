"""Markers are found whole, wherever they stand, and nowhere else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text.markers import digest_of, marker_of, owners_in

OWNERS = {digest_of(marker_of(bytes([n]) * 16)): f"t{n}" for n in range(3)}


@given(st.text(), st.text(), st.integers(0, 2))
def test_a_marker_is_found_in_any_text(before, after, owner):
    text = f"{before}{marker_of(bytes([owner]) * 16)} {after}"
    assert owners_in(text, OWNERS) == (f"t{owner}",)


@given(st.text())
def test_no_text_holds_one_by_chance(text):
    assert owners_in(text, OWNERS) == ()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda marker: marker[:-1],
        lambda marker: marker + "0",
        lambda marker: marker.upper(),
        lambda marker: marker.replace("-", ""),
        lambda marker: marker[:20] + " " + marker[20:],
        lambda marker: marker_of(b"x" * 16),
    ],
)
def test_what_is_not_the_marker_is_not_taken_for_it(spoil):
    assert owners_in(spoil(marker_of(bytes(16))), OWNERS) == ()


def test_several_owners_are_named_once_each_and_in_order():
    text = " ".join(marker_of(bytes([n]) * 16) for n in (2, 0, 2))
    assert owners_in(text, OWNERS) == ("t0", "t2")


def test_a_marker_is_made_of_sixteen_bytes():
    with pytest.raises(ValueError, match="16"):
        marker_of(b"short")
