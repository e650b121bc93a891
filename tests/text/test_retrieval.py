"""accuracy@k: what a search by vectors finds, and what equal vectors make of it (A13)."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text.retrieval import accuracy_at

AXES = [[float(place == axis) for place in range(6)] for axis in range(6)]


def test_a_search_that_is_always_right_and_one_that_is_always_wrong() -> None:
    assert accuracy_at(1, AXES, AXES) == 1.0
    assert accuracy_at(1, AXES, AXES[1:] + AXES[:1]) == 0.0
    assert accuracy_at(6, AXES, AXES[1:] + AXES[:1]) == 1.0


def test_length_does_not_matter() -> None:
    longer = [[each * 7 for each in axis] for axis in AXES]
    assert accuracy_at(1, AXES, longer) == 1.0


@given(st.integers(1, 50), st.integers(1, 9), st.sampled_from([0.0, 0.125, -3.0]))
def test_equal_vectors_find_by_chance_and_not_by_the_order_of_the_index(
    documents: int, k: int, component: float
) -> None:
    same = [[component] * 8] * documents
    assert accuracy_at(k, same, same) == pytest.approx(min(1.0, k / documents))


def test_half_of_a_tie_is_half_a_find() -> None:
    assert accuracy_at(1, [[1.0, 0.0]], [[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]) == 0.5
    assert accuracy_at(1, [[1.0, 1.0]], [[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]]) == 0.0
    assert accuracy_at(2, [[1.0, 1.0]], [[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]]) == 0.5


def test_without_ties_it_is_the_share_of_ranks_up_to_k() -> None:
    chance = random.Random(5)
    queries = [[chance.gauss(0, 1) for _ in range(4)] for _ in range(30)]
    documents = [[each + chance.gauss(0, 1) for each in query] for query in queries]
    ranks = []
    for own, query in enumerate(queries):
        near = [_cosine(query, document) for document in documents]
        ranks.append(sorted(near, reverse=True).index(near[own]))
    assert accuracy_at(5, queries, documents) == sum(rank < 5 for rank in ranks) / 30


def _cosine(one: list[float], other: list[float]) -> float:
    return (
        sum(a * b for a, b in zip(one, other, strict=True)) / math.hypot(*one) / math.hypot(*other)
    )


def test_a_vector_without_a_number_finds_nothing() -> None:
    assert accuracy_at(5, [[math.nan, 1.0]], [[1.0, 0.0]]) == 0.0


@pytest.mark.parametrize(
    ("k", "queries", "documents"), [(0, 1, 1), (1, 0, 1), (1, 2, 1)], ids=["k", "none", "few"]
)
def test_what_has_no_answer_is_an_error(k: int, queries: int, documents: int) -> None:
    with pytest.raises(ValueError, match="accuracy"):
        accuracy_at(k, [[1.0]] * queries, [[1.0]] * documents)
