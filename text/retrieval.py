"""How well a search by vectors finds what it should: accuracy at k over pairs that belong together.

Decides nothing: it gives one number. The hard part is the tie. An embedding service that answers
one and the same vector makes every document equally near, and then the order of the index decides,
which says nothing about the search; so whoever is tied shares the places that are left, as if they
were drawn by chance.
"""

import math
from collections.abc import Sequence
from operator import mul

Vector = Sequence[float]

TIE = 1e-9
"""Difference of two similarities, in [-1, 1], that is none. Source: ours: far above the rounding of
vectors that came as 32-bit floats and are equal."""


def accuracy_at(k: int, queries: Sequence[Vector], documents: Sequence[Vector]) -> float:
    """Return the share of queries that find their document among the k nearest, in [0, 1].

    Query i belongs to document i; further documents only stand in the way. Near is by the cosine;
    a vector of no length is equally far from all. With one and the same vector everywhere this is
    k / documents.

    Raises:
        ValueError: there is no query, k is below 1, or a query has no document.
    """
    if not queries or k < 1 or len(documents) < len(queries):
        raise ValueError("accuracy needs k of 1 or more, a query, and a document for each query")
    ready = [_unit(document) for document in documents]
    return sum(_credit(k, _unit(query), ready, own) for own, query in enumerate(queries)) / len(
        queries
    )


def _credit(k: int, query: Vector, documents: Sequence[Vector], own: int) -> float:
    """Return the chance, in [0, 1], that a query's document is among the k nearest."""
    near = [sum(map(mul, query, document)) for document in documents]
    ahead = sum(each > near[own] + TIE for each in near)
    tied = sum(abs(each - near[own]) <= TIE for each in near)
    return min(1.0, max(0, k - ahead) / tied) if tied else 0.0  # no number is near to nothing


def _unit(vector: Vector) -> Vector:
    length = math.hypot(*vector)
    return [each / length for each in vector] if length else vector
