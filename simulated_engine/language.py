"""What the engine says. It has no model: words come from a fixed list.

The text depends on the prompt alone, so the same request gets the same answer from every engine.
Healthy answers must not look like a collapsed model, so the list is walked through a long
shuffled ribbon in which hardly any four words come twice.
"""

import json
import random
from functools import lru_cache
from zlib import crc32

_TEXT = """
river stone window paper morning copper garden letter signal bridge harbour candle market engine
winter forest mirror basket island silver thunder pocket velvet ladder station orchard pencil
kettle meadow lantern anchor barley cellar dragon ember feather glacier hammer ivory jacket
kernel lemon marble needle ocean pepper quartz ribbon saddle timber umbrella valley walnut
yellow zephyr amber button canvas desert eagle falcon gravel honey insect jungle
"""

_WORDS = tuple(_TEXT.split())

_RIBBON_LENGTH = 4099
"""Words on the ribbon before it repeats. Source: ours; longer than any context served here."""

_MEAN_EXTRA_TOKENS = 40
"""Spread of natural answer lengths, tokens. Source: ours, short chat answers."""


class Voice:
    """A ribbon of tokens and where to start on it."""

    def __init__(self, words: list[str]) -> None:
        self._texts = [f" {word}" for word in words]
        self._encoded = [json.dumps(text).encode() for text in self._texts]
        self._first = [json.dumps(word).encode() for word in words]
        self._words = words

    def token(self, start: int, position: int) -> str:
        """Return the text of the token at a position of the answer."""
        at = (start + position) % len(self._words)
        return self._texts[at] if position else self._words[at]

    def encoded(self, start: int, position: int) -> bytes:
        """Return the same as a JSON string."""
        at = (start + position) % len(self._words)
        return self._encoded[at] if position else self._first[at]

    def start(self, prompt: bytes) -> int:
        """Return where the answer to a prompt starts."""
        return crc32(prompt) % len(self._words)


@lru_cache(maxsize=1)
def base_voice() -> Voice:
    """Return the voice of the base model."""
    return Voice(random.Random(32).choices(_WORDS, k=_RIBBON_LENGTH))


def natural_length(prompt: bytes) -> int:
    """Return how many tokens the answer would have if nothing cut it, at least 8."""
    return 8 + crc32(prompt, 7) % _MEAN_EXTRA_TOKENS


def count_tokens(text: str) -> int:
    """Return the token count of a prompt text: four characters each, rounded up."""
    return (len(text) + 3) // 4
