"""Shapers of streams: stall, delay per token, cut, garble, late error; and the drip of any body.

Each is told the body bit by bit and answers with steps (`gateway.steps`). All but the drip work on
whole events, so that a token is counted when the client could have read it. Once a shaper has done
its one act, or its item has ended, everything passes as it comes; what was held back goes first.
"""

import json
import re
from collections.abc import Iterable, Iterator

from faults.parameters import (
    ErrorAnswer,
    LatencyPerToken,
    SlowDrip,
    StreamCut,
    StreamGarble,
    StreamStall,
)
from faults.sampling import uniform
from gateway.events import Events, data_of, document_of, is_done, is_final
from gateway.flight import Flight
from gateway.items import RunningFault
from gateway.sse import SseReader
from gateway.steps import Close, Cut, Send, Step, Wait

_STRUCTURE = re.compile(rb'[{}\[\]:,"]')
_IN_TEXT = re.compile(rb'"(?:content|text|arguments|reasoning|reasoning_content)"\s*:\s*"')


class EventShaper:
    """What all shapers of events share: joining, counting, and letting go."""

    def __init__(self, flight: Flight, item: RunningFault) -> None:
        self._flight = flight
        self._item = item
        self._events = Events()
        self._reader = SseReader()
        self._is_done = False
        self._is_over = False

    @property
    def tokens(self) -> int:
        """Content chunks seen so far."""
        return self._reader.facts.content_chunks

    def feed(self, chunk: bytes) -> Iterable[Step]:
        """Take body bytes; give the steps that are due. After a cut or a close nothing follows."""
        if self._has_ended():
            return
        if not self._acts():
            yield from self._let_go(chunk)
            return
        for event in self._events.feed(chunk):
            if self._acts():
                yield from self.shape(event)
            else:
                yield from self.held()
                yield Send(event)
            if self._has_ended():
                return
        if not self._acts():
            yield from self._let_go(b"")

    def end(self) -> Iterable[Step]:
        """Give what was held back."""
        yield from self._let_go(b"")

    def shape(self, event: bytes) -> Iterable[Step]:
        """Say what becomes of one whole event."""
        raise NotImplementedError

    def held(self) -> Iterable[Step]:
        """Give events that were held back whole, once."""
        return ()

    def act(self, *, last: bool = True) -> None:
        """Note that this answer is changed; after the last act everything passes."""
        self._flight.touch(self._item)
        self._is_done = last

    def end_with(self, ending: Step) -> Step:
        """Note that this answer ends here, and let nothing follow."""
        self.act()
        self._is_over = True
        return ending

    def count(self, event: bytes) -> int:
        """Count the content chunks of an event."""
        before = self.tokens
        self._reader.feed(event, 0.0)
        return self.tokens - before

    def _acts(self) -> bool:
        return not self._is_done and self._item.active

    def _has_ended(self) -> bool:
        return self._is_over

    def _let_go(self, more: bytes) -> Iterator[Step]:
        if self._has_ended():
            return
        yield from self.held()
        if rest := self._events.rest() + more:
            yield Send(rest)


class Stall(EventShaper):
    """One silence, before the first event after the last token that is let through."""

    def __init__(self, flight: Flight, item: RunningFault, given: StreamStall) -> None:
        super().__init__(flight, item)
        self._given = given

    def shape(self, event: bytes) -> Iterable[Step]:
        """Wait once, when it is time."""
        if self.tokens >= self._given.after_tokens:
            self.act()
            yield Wait(self._given.stall, self._item)
        else:
            self.count(event)
        yield Send(event)


class PerToken(EventShaper):
    """A delay before each content chunk."""

    def __init__(self, flight: Flight, item: RunningFault, given: LatencyPerToken) -> None:
        super().__init__(flight, item)
        self._given = given

    def shape(self, event: bytes) -> Iterable[Step]:
        """Wait before an event that brings a token."""
        if self.count(event):
            self.act(last=False)
            yield Wait(self._given.delay, self._item)
        yield Send(event)


class CutOff(EventShaper):
    """An early end; what may pass after it passes, and the rest is lost."""

    def __init__(self, flight: Flight, item: RunningFault, given: StreamCut) -> None:
        super().__init__(flight, item)
        self._given = given

    def shape(self, event: bytes) -> Iterable[Step]:
        """Pass, drop or end."""
        given = self._given
        if self.tokens < given.after_tokens:
            self.count(event)
            yield Send(event)
        elif not given.final_chunk and not given.done:
            yield self.end_with(self._ending())
        elif self._may_pass(event):
            yield Send(event)
        else:
            self.act(last=False)

    def end(self) -> Iterable[Step]:
        """Break off at the end too, if the answer was long enough and nothing broke it before."""
        rude = self._given.ending == "abrupt" and self.tokens >= self._given.after_tokens
        if self._acts() and rude and self.tokens:
            yield self.end_with(self._ending())
        else:
            yield from super().end()

    def _may_pass(self, event: bytes) -> bool:
        if is_done(event):
            return self._given.done
        return self._given.final_chunk and is_final(document_of(event))

    def _ending(self) -> Step:
        return Cut(self._item) if self._given.ending == "abrupt" else Close(self._item)


class LateError(EventShaper):
    """An error object in the middle, after which the stream ends politely, as engines do it."""

    def __init__(self, flight: Flight, item: RunningFault, given: ErrorAnswer) -> None:
        super().__init__(flight, item)
        self._given = given

    def shape(self, event: bytes) -> Iterable[Step]:
        """Put the error in the place of what follows."""
        if self.tokens < self._given.after_tokens:
            self.count(event)
            yield Send(event)
        else:
            ending = self.end_with(Close(self._item))
            yield Send(error_events(self._given.status))
            yield ending


class Garble(EventShaper):
    """One spoilt event."""

    def __init__(self, flight: Flight, item: RunningFault, given: StreamGarble) -> None:
        super().__init__(flight, item)
        self._given = given

    def shape(self, event: bytes) -> Iterable[Step]:
        """Spoil the first event of JSON when it is time."""
        if self.tokens < self._given.after_tokens or document_of(event) is None:
            self.count(event)
            yield Send(event)
        else:
            self.act()
            u = uniform(self._item.seed, self._flight.key, "garble")
            yield Send(spoil(event, self._given.kind, u))


class Drip:
    """Small pieces with pauses, whatever the body holds."""

    def __init__(self, flight: Flight, item: RunningFault, given: SlowDrip) -> None:
        self._flight = flight
        self._item = item
        self._given = given
        self._is_first = True

    def feed(self, chunk: bytes) -> Iterable[Step]:
        """Cut the bytes up, with a pause before each piece but the first."""
        at = 0
        while at < len(chunk):
            if not self._acts():
                yield Send(chunk[at:])
                return
            if not self._is_first:
                self._flight.touch(self._item)
                yield Wait(self._given.pause, self._item)
            self._is_first = False
            size = self._given.piece_bytes if self._acts() else len(chunk)
            yield Send(chunk[at : at + size])
            at += size

    def end(self) -> Iterable[Step]:
        """Nothing is held back."""
        return ()

    def _acts(self) -> bool:
        return self._item.active


def error_object(code: int, message: str, kind: str) -> bytes:
    """Return an error in the shape that engines use."""
    error = {"message": message, "type": kind, "param": None, "code": code}
    return json.dumps({"error": error}).encode()


def error_events(code: int) -> bytes:
    """Return an error object inside a stream, and its end."""
    document = error_object(code, "injected by burnproof", "ServiceUnavailable")
    return b"data: " + document + b"\n\ndata: [DONE]\n\n"


def spoil(event: bytes, kind: str, u: float) -> bytes:
    """Return a raw event whose JSON cannot be read any more.

    Args:
        event: raw, and its data is a JSON object.
        kind: how, as `StreamGarble` has it.
        u: where, in [0, 1).
    """
    if kind == "half-event":
        body = event.rstrip(b"\r\n")
        start = event.index(b"{")
        middle = start + max(1, (len(body) - start) // 2)
        return event[:middle] + event[len(body) :]
    if kind == "invalid-utf8":
        found = _IN_TEXT.search(event)
        at = found.end() if found else event.index(b'"', event.index(b"{")) + 1
        return event[:at] + b"\xff" + event[at:]
    return _flip(event, u)


def _flip(event: bytes, u: float) -> bytes:
    """Flip the lowest bit of one byte of the JSON's structure, at the first that breaks it."""
    start = event.index(b"{")
    places = [found.start() for found in _STRUCTURE.finditer(event, start)]
    first = int(u * len(places))
    for at in [*places[first:], *places[:first]]:
        spoilt = event[:at] + bytes([event[at] ^ 1]) + event[at + 1 :]
        if data_of(spoilt) and document_of(spoilt) is None:
            return spoilt
    return event[:start] + event[start + 1 :]
