import pytest
from hypothesis import given
from hypothesis import strategies as st

from text.flags import FLAGS, response_flags

PHRASE = "the same four words "


@pytest.mark.parametrize(
    ("text", "tools", "flags"),
    [
        pytest.param("", (), ("empty",), id="no character at all is empty"),
        pytest.param("", ("{}",), (), id="a tool call without text is not empty"),
        pytest.param("\n\n\n", (), (), id="line breaks are an answer of a small model"),
        pytest.param(PHRASE * 5, (), ("rep4",), id="twenty looping words are flagged"),
        pytest.param((PHRASE * 5)[:-7], (), (), id="nineteen are too few to judge"),
        pytest.param(
            "The quick brown fox jumps over a lazy dog while seven wizards watch from hills "
            "and two old men argue about rain",
            (),
            (),
            id="ordinary prose carries no flag",
        ),
        pytest.param("nan", (), ("non_finite",), id="an answer of NaN is not finite"),
        pytest.param("x = [nan, -inf]", (), ("non_finite",), id="half of the words not finite"),
        pytest.param("The value nan marks a missing number", (), (), id="prose on NaN is finite"),
        pytest.param("", ('{"a": NaN}',), ("non_finite", "bad_tool_json"), id="NaN in arguments"),
        pytest.param("", ("{}", "{"), ("bad_tool_json",), id="one bad call of two is enough"),
    ],
)
def test_a_response_gets_the_flags_it_deserves(text, tools, flags):
    assert response_flags(text, tools) == flags


@given(st.text(), st.lists(st.text(), max_size=3))
def test_any_text_gets_known_flags_once_and_in_order(text, tools):
    flags = response_flags(text, tools)
    assert list(flags) == [flag for flag in FLAGS if flag in flags]
    assert response_flags(text, tuple(tools)) == flags


@given(st.lists(st.integers(), min_size=20, max_size=200, unique=True))
def test_words_that_are_all_different_never_count_as_a_loop(numbers):
    assert response_flags(" ".join(map(str, numbers)), ()) == ()
