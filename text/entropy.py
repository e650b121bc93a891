"""Entropy of the words of one text.

It measures the spread of words inside a single text, which grows with its length: two texts may
only be compared within one length band. It is not the entropy of a model's next-token
distribution, for which log-probabilities would be needed.
"""

from collections import Counter
from math import log2

from text.repetition import words


def entropy_bits(text: str) -> float | None:
    """Return the Shannon entropy over whitespace tokens, in bits; None for a text without any.

    Source: Shannon 1948, H = -sum p log2 p.
    """
    tokens = words(text)
    if not tokens:
        return None
    total = len(tokens)
    # Sorted, so that the sum does not depend on the order in which the words came.
    counts = sorted(Counter(tokens).values())
    return max(0.0, -sum(count / total * log2(count / total) for count in counts))
