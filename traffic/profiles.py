"""What synthetic users say, and when: pure, from a seeded generator.

A profile draws conversations: how many requests, which words, how long a user thinks in between.
It sends nothing. Lengths are drawn from a geometric law cut at 8 requests, and its exact mean is
known here, since a driver that is asked for a request rate has to start rate / mean conversations
a second.
"""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

MAX_REQUESTS = 8
"""Requests in the longest conversation. Source: ours; tests of stickiness need no more."""

_OPENINGS = (
    "What should I look at first when a service gets slow?",
    "Explain a circuit breaker to a new colleague.",
    "How do I keep bread fresh for a week?",
    "Write two sentences on the sea in winter.",
    "Which is heavier, a litre of water or a litre of oil?",
    "Give me a name for a small grey cat.",
    "Why does a queue grow faster than its load?",
    "Translate 'good morning' into Norwegian.",
)

_FOLLOW_UPS = (
    "Go on.",
    "Why is that?",
    "Say it in one sentence.",
    "And what if it rains?",
    "Give me an example.",
    "How sure are you?",
)


def arrival_gaps(seed: int, per_second: float) -> Iterator[float]:
    """Yield the gaps of a Poisson process, seconds, without end."""
    chance = random.Random(seed)
    while True:
        yield chance.expovariate(per_second)


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many requests a conversation has: geometric, cut at `MAX_REQUESTS`."""

    continue_ratio: float
    """Chance, in [0, 1], that another request follows."""
    fixed: int = 0
    """If not 0, every conversation has exactly this many requests."""

    def mean(self) -> float:
        """Return the exact mean number of requests."""
        if self.fixed:
            return float(self.fixed)
        return sum(self.continue_ratio**k for k in range(MAX_REQUESTS))

    def draw(self, chance: random.Random) -> int:
        """Draw one length, from 1 to `MAX_REQUESTS`."""
        if self.fixed:
            return self.fixed
        length = 1
        while length < MAX_REQUESTS and chance.random() < self.continue_ratio:
            length += 1
        return length


def parse_lengths(text: str) -> Lengths:
    """Read "geometric:MEAN" (mean before the cut, at least 1) or "fixed:N".

    Raises:
        ValueError: neither of the two, or a number out of range.
    """
    kind, _, number = text.partition(":")
    if kind == "geometric":
        mean = float(number or "3")
        if not 1 <= mean <= MAX_REQUESTS:
            raise ValueError(f"the mean must lie in [1, {MAX_REQUESTS}], got {number}")
        return Lengths(continue_ratio=1 - 1 / mean)
    if kind == "fixed":
        fixed = int(number)
        if not 1 <= fixed <= MAX_REQUESTS:
            raise ValueError(f"the length must lie in [1, {MAX_REQUESTS}], got {number}")
        return Lengths(continue_ratio=0.0, fixed=fixed)
    raise ValueError(f'lengths are "geometric:MEAN" or "fixed:N", got "{text}"')


@dataclass(frozen=True, slots=True)
class Conversation:
    """One user's plan."""

    unit: str
    """Conversation key, or empty when each request stands for itself."""
    prompts: tuple[str, ...]
    pauses: tuple[float, ...]
    """Seconds the user thinks before each request; the first is 0."""


@dataclass(frozen=True, slots=True)
class ChatProfile:
    """Short chats."""

    model: str
    max_tokens: int
    lengths: Lengths = field(default_factory=lambda: parse_lengths("geometric:3"))
    think_seconds: float = 0.2
    """Mean pause between an answer and the next request, exponentially distributed."""

    def conversation(self, unit: str, chance: random.Random) -> Conversation:
        """Draw one conversation."""
        length = self.lengths.draw(chance)
        prompts = [chance.choice(_OPENINGS)]
        prompts += [chance.choice(_FOLLOW_UPS) for _ in range(length - 1)]
        pauses = [0.0]
        pauses += [self._pause(chance) for _ in range(length - 1)]
        return Conversation(unit, tuple(prompts), tuple(pauses))

    def body(self, prompts: Sequence[str], answers: Sequence[str]) -> bytes:
        """Return the request body after `answers` were given to all but the last prompt."""
        messages = []
        for prompt, answer in zip(prompts, answers, strict=False):
            messages.append({"role": "user", "content": prompt})
            messages.append({"role": "assistant", "content": answer})
        messages.append({"role": "user", "content": prompts[-1]})
        body = {
            "model": self.model,
            "messages": messages,
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return json.dumps(body, separators=(",", ":")).encode()

    def _pause(self, chance: random.Random) -> float:
        return chance.expovariate(1 / self.think_seconds) if self.think_seconds > 0 else 0.0
