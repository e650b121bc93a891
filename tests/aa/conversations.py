"""What the clients of one A/A run will say. Drawn from the run's number alone, so known before.

Conversations differ on purpose, and each is like itself: a conversation keeps its prompt length
(which the engine's time to a first token depends on), and a few ask for more tokens than the
engine has, in each of their requests. Whoever counts such requests one by one sees evidence where
there is one draw.
"""

import json
import random
from dataclasses import dataclass

CONVERSATIONS = 150
MOST_REQUESTS = 8

GOES_ON = 0.64
"""Chance that a client asks again; cut at 8 requests, the mean is 2.7: 400 requests a run."""

MEDIAN_CHARACTERS = 200
LENGTH_SD = 1.0
"""Median length of prompts, and the spread of its logarithm between conversations."""

MOST_CHARACTERS = 1600

TOO_LONG = 0.05
"""Share of the conversations whose every request is refused by the engine with a 400."""

TOO_MANY_TOKENS = 100_000


@dataclass(frozen=True)
class Conversation:
    """One client: its key and the bodies it sends, one after another."""

    key: str
    bodies: tuple[bytes, ...]
    refused: bool


def conversations(run: int, model: str) -> list[Conversation]:
    """Draw the clients of a run."""
    rng = random.Random(f"conversations of run {run}")
    return [_draw(rng, f"run{run}-client{number}", model) for number in range(CONVERSATIONS)]


def _draw(rng: random.Random, key: str, model: str) -> Conversation:
    requests = 1
    while requests < MOST_REQUESTS and rng.random() < GOES_ON:
        requests += 1
    length = min(MOST_CHARACTERS, round(MEDIAN_CHARACTERS * rng.lognormvariate(0.0, LENGTH_SD)))
    refused = rng.random() < TOO_LONG
    tokens = TOO_MANY_TOKENS if refused else rng.randint(2, 4)
    return Conversation(
        key, tuple(_body(model, length, turn, tokens) for turn in range(requests)), refused
    )


def _body(model: str, length: int, turn: int, tokens: int) -> bytes:
    prompt = f"turn {turn} ".ljust(length, "x")
    message = {"role": "user", "content": prompt}
    return json.dumps(
        {"model": model, "messages": [message], "max_tokens": tokens, "stream": True}
    ).encode()
