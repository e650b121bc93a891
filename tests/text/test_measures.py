import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text.entropy import entropy_bits
from text.repetition import rep4, repetition_ratio

# Worked by hand: (text, entropy in bits over whitespace tokens, rep4).
WORKED = [
    pytest.param("one", 0.0, None, id="one word has no entropy and no 4-gram"),
    pytest.param("a b c d e f g h", 3.0, 0.0, id="eight different words are three bits"),
    pytest.param(
        "a b c d " * 4, 2.0, 9 / 13, id="a phrase four times has 4 of 13 4-grams distinct"
    ),
    pytest.param("a a a a", 0.0, 0.0, id="a single 4-gram cannot repeat"),
    pytest.param("a a a a a", 0.0, 0.5, id="two equal 4-grams are half repetition"),
]


@pytest.mark.parametrize(("text", "bits", "ratio"), WORKED)
def test_worked_examples_come_out(text, bits, ratio):
    assert entropy_bits(text) == pytest.approx(bits, abs=1e-12)
    assert rep4(text) == (None if ratio is None else pytest.approx(ratio, abs=1e-12))


@pytest.mark.parametrize("text", ["", "   ", "\n\n\n"])
def test_a_text_without_words_has_no_value_rather_than_zero(text):
    assert entropy_bits(text) is None
    assert rep4(text) is None


def test_an_n_gram_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        repetition_ratio(["a"], 0)


@given(st.lists(st.sampled_from("abcde"), min_size=1, max_size=60))
def test_entropy_lies_between_zero_and_that_of_all_words_different(tokens):
    bits = entropy_bits(" ".join(tokens))
    assert bits is not None
    assert 0.0 <= bits <= math.log2(len(tokens)) + 1e-9
    assert entropy_bits(" ".join(reversed(tokens))) == bits


@given(st.lists(st.sampled_from("abc"), min_size=4, max_size=60))
def test_repeating_a_text_never_lowers_its_repetition(tokens):
    once = rep4(" ".join(tokens))
    twice = rep4(" ".join(tokens + tokens))
    assert once is not None
    assert twice is not None
    assert 0.0 <= once <= twice < 1.0
