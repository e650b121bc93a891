"""What a fault does to an answer, as a list of small steps, and who makes that list.

A shaper is handed the body as it comes from the replica and says, step by step, what becomes of
it. It never waits and never writes: the data path does, so that the rule can be tested without a
socket. What was hard: a lease may end between two steps. So the steps are made lazily, the shaper
looks at its item again after each of them, and a wait ends by itself when the item does.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from gateway.items import RunningFault


@dataclass(frozen=True, slots=True)
class Send:
    """Hand these bytes to the client."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    """Hold everything back for so long, or until the item ends."""

    seconds: float
    item: RunningFault


@dataclass(frozen=True, slots=True)
class Cut:
    """Break the client's connection off here, without an end mark."""

    item: RunningFault


@dataclass(frozen=True, slots=True)
class Close:
    """End the body here as its framing says, whatever the replica still has to say."""

    item: RunningFault


Step = Send | Wait | Cut | Close


class Shaper(Protocol):
    """Shapes one answer. Made only when an armed fault drew the request."""

    def feed(self, chunk: bytes) -> Iterable[Step]:
        """Take body bytes as the replica sent them; what is not in the steps is held back."""
        ...

    def end(self) -> Iterable[Step]:
        """Hear that the replica's body has ended, and give what was held back."""
        ...


class Chain:
    """Several shapers on one answer: what the first sends is what the second is fed."""

    def __init__(self, first: Shaper, second: Shaper) -> None:
        self._first = first
        self._second = second
        self._over = False

    def feed(self, chunk: bytes) -> Iterable[Step]:
        """Feed the first, and the second with what it sends."""
        yield from self._through(self._first.feed(chunk))

    def end(self) -> Iterable[Step]:
        """End the first, then the second."""
        yield from self._through(self._first.end())
        if not self._over:
            yield from self._second.end()

    def _through(self, steps: Iterable[Step]) -> Iterable[Step]:
        for step in steps:
            if self._over:
                return
            if isinstance(step, Send):
                for inner in self._second.feed(step.data):
                    self._over |= isinstance(inner, Cut | Close)
                    yield inner
            elif isinstance(step, Cut | Close):
                self._over = True
                for inner in self._second.end():
                    if isinstance(inner, Send | Wait):
                        yield inner
                yield step
            else:
                yield step
