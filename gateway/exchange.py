"""One request from its head to its record: route, replica, faults, answer, end.

Bytes are never decoded, re-framed in meaning, or held back: what the replica sent is written to the
client in the turn of the loop in which it came, and read for the record after that. Nothing here
waits; the loop calls, and only a fault that was drawn gets a task of its own (`shaped.py`). The
two hard parts are ends. A client that leaves closes the replica's socket at once, so that no slot
works for nobody; and an answer that breaks off must break off for the client too: the connection
is closed without the end mark, never completed politely.
"""

import asyncio
import logging
from functools import partial

from gateway.answers import JSON, error_body, probe_labels
from gateway.core import Core
from gateway.encodings import decode_body
from gateway.fault_hooks import InjectedAnswer, before_sending
from gateway.flight import Cause, Flight
from gateway.http1.client import MAX_BODY_BYTES, ClientConnection
from gateway.http1.heads import Pairs, ReplyHead, RequestHead
from gateway.http1.pool import Pool
from gateway.http1.replica import ReplicaConnection
from gateway.http1.reply import Way, encode, interim_head, passed_head, way_of, whole
from gateway.outcome import Asked, read_request
from gateway.reading import Reading
from gateway.routes import RouteState
from gateway.shaped import ShapedBody
from gateway.shaping import shape_headers, shaper_for
from gateway.sse import SseReader
from gateway.steps import Shaper
from gateway.tenants.refusal import Refusal
from gateway.upstream import (
    Outgoing,
    changed_bytes,
    from_text,
    outgoing,
    request_bytes,
    to_text,
)

log = logging.getLogger("gateway.exchange")

HELD_FROM_SECONDS = 0.01
"""A pause that is longer waited for the client's socket; a shorter one is our own work."""

CONTINUE = 100
LENGTH = "Content-Length"


class Exchange:
    """One request that is being served."""

    def __init__(
        self, core: Core, pool: Pool, client: ClientConnection, head: RequestHead, flight: Flight
    ) -> None:
        self.flight = flight
        self.client = client
        self._core = core
        self._pool = pool
        self._head = head
        self._body = b""
        self._route: RouteState | None = None
        self._changed: Outgoing | None = None  # what a fault made of the request
        self._tried: frozenset[str] = frozenset()
        self._loaded = ""  # the replica that counts this request as outstanding
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._replica: ReplicaConnection | None = None
        self._reading: Reading | None = None
        self._unread: list[tuple[list[bytes], float]] = []
        self._way = Way.RAW
        self._reply: ReplyHead | None = None  # of a shaped answer that has not begun
        self._had_length = False
        self._unsent = b""  # the answer's head, until its first bytes are there
        self._begun = False
        self._closes = False
        self._shaped: ShapedBody | None = None
        self._paused_at: float | None = None
        self._awaits_drain = False
        self._ended = False

    # From the client's connection

    def on_whole(self, body: bytes) -> None:
        """Find the route and send the request on."""
        flight, head = self.flight, self._head
        self._body = body
        asked, plain = Asked(), body
        if body:
            plain = decode_body(body, head.text(b"content-encoding"))
            asked = read_request(plain)
        route = self._route = self._core.enter(flight, asked, plain)
        visit = flight.visit
        if visit is not None and visit.refusal is not None:
            visit.desk.turn_away(self, visit, visit.refusal)
        elif route is None:
            self._refuse(404, "no route serves this model")
        elif flight.pinned and flight.pinned not in route.names:
            self._refuse(404, "no such replica on this route")
        elif visit is None or visit.desk.admit(self, flight, asked, plain or body):
            self.proceed()

    def proceed(self) -> None:
        """Send the request on: it was let in, at once or when its turn came."""
        route = self._route
        if route is not None and not self._ended:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(route.config.timeout_seconds, self._time_out)
            self._try_replica(route)

    def turn_away(self, refusal: Refusal) -> None:
        """Answer in the name of the desk that did not let the request in."""
        self.flight.is_stream = self.flight.owes_end = False
        self._answer(refusal.status, refusal.headers, refusal.body, Cause.SHED)

    def on_too_large(self) -> None:
        """Refuse the request; its body is not read to its end."""
        self._closes = True
        self._refuse(413, f"the limit is {MAX_BODY_BYTES} bytes")

    def on_gone(self) -> None:
        """Let go of everything: nobody waits for this answer."""
        self._end(Cause.LOST if self._core.cut_off else Cause.CLIENT, keep=None)

    def on_paused(self) -> None:
        """Read no more of the replica until the client takes bytes again."""
        self._paused_at = self._core.clock.mono()
        if self._replica is not None:
            self._replica.pause()

    def on_resumed(self) -> None:
        """Go on; the time for which a slow client held us is its own.

        What the replica did meanwhile cannot be seen: a gap behind a full socket is a lower bound.
        """
        self._note_held()
        if self._replica is not None:
            self._replica.resume()
        if self._shaped is not None:
            self._shaped.resume()
        if self._awaits_drain:
            self._end(Cause.COMPLETE, keep=True)

    def _note_held(self) -> None:
        if self._paused_at is not None:
            held = self._core.clock.mono() - self._paused_at
            self._paused_at = None
            if held > HELD_FROM_SECONDS:
                self.flight.held_s += held

    # To a replica

    def _try_replica(self, route: RouteState) -> None:
        """Choose a replica and send; only a failed connect goes on to the next."""
        flight = self.flight
        choice = route.choose(flight, self._core.clock.mono(), self._tried)
        flight.replica, flight.fallback = choice.replica, choice.fallback
        self._loaded = choice.replica
        self._changed = None
        route.load[choice.replica] += 1
        if route.arm_faults(flight):
            self._task = asyncio.get_running_loop().create_task(self._meet_faults(route))
        else:
            self._send(route, fresh=False)

    async def _meet_faults(self, route: RouteState) -> None:
        try:
            given = await before_sending(self.flight, outgoing(self._head, self._body))
        except Exception:
            log.exception("a fault could not act")
            self._task = None
            self._refuse(500, "a fault could not act", Cause.LOST)
            return
        self._task = None
        if isinstance(given, InjectedAnswer):
            self._inject(given)
        else:
            self._changed = given
            self._send(route, fresh=False)

    def _send(self, route: RouteState, *, fresh: bool) -> None:
        address = self._pool.address(route.bases[self.flight.replica])
        connection = None if fresh else self._pool.take(address)
        if connection is None:
            failed = partial(self._connect_failed, route)
            self._task = self._pool.connect(address, self._connected, failed)
        else:
            self._connected(connection)

    def _connected(self, connection: ReplicaConnection) -> None:
        self._task = None
        self._replica = connection
        if self._changed is None:
            data = request_bytes(self._head, self._body, connection.address)
        else:
            data = changed_bytes(self._changed, connection.address)
        if self.flight.trace is not None:
            self.flight.trace.sent_at = self._core.clock.mono()
        connection.send(self, data, is_head=self._head.method == b"HEAD")

    def _connect_failed(self, route: RouteState) -> None:
        self._task = None
        name = self.flight.replica
        if not self.flight.probe:
            now = self._core.clock.mono()
            route.observe(name, True, now, self.flight.accepted_mono)
        self._unload()
        self._tried = self._tried | {name}
        if self.flight.pinned or self._tried.issuperset(route.names):
            self.flight.replica = ""
            self._refuse(502, "no replica can be reached", Cause.LOST)
        else:
            self._try_replica(route)

    def _unload(self) -> None:
        if self._loaded and self._route is not None:
            self._route.load[self._loaded] -= 1
            self._loaded = ""

    def _inject(self, injected: InjectedAnswer) -> None:
        flight = self.flight
        if injected.content_type.startswith("text/event-stream"):
            reader = SseReader(flight.new_facts())
            reader.feed(injected.body, self._core.clock.mono())
            flight.facts, flight.is_stream = reader.facts, True
        pairs = [(name.encode(), value.encode()) for name, value in injected.headers]
        pairs.append((b"Content-Type", injected.content_type.encode()))
        self._answer(injected.status, pairs, injected.body, Cause.COMPLETE)

    # From the replica's connection

    def on_interim(self, reply: ReplyHead) -> None:
        """Pass an answer of the 1xx kind on, but for the one that was given here."""
        if reply.status != CONTINUE and self._head.minor:
            self.client.write(interim_head(reply))

    def on_head(self, reply: ReplyHead) -> None:
        """Choose how the answer passes; its head leaves with its first bytes."""
        flight = self.flight
        self._body, self._changed = b"", None  # it will not be sent again
        shaper = self._meet_shaper(reply) if flight.armed else None
        flight.status = reply.status
        if flight.visit is not None:
            flight.visit.hear(reply.kept, flight.tenant)
        if flight.trace is not None:
            flight.trace.head_at = self._core.clock.mono() - flight.held_s
        self._way = way_of(self._head, reply, reshaped=shaper is not None)
        self._closes = self._way is Way.PLAIN or not self._head.keep_alive or self._core.stopping
        if shaper is None or self._way is Way.NOTHING:
            self._unsent = passed_head(reply, self._way, probe_labels(flight), close=self._closes)
        else:
            self._reply = reply
            self._shaped = ShapedBody(self, shaper)
        self._reading = Reading(flight, reply.status, reply.content_type, reply.content_encoding)
        if self._shaped is not None and not self._had_length:
            self.begin_shaped()  # there is no length to wait for

    def _meet_shaper(self, reply: ReplyHead) -> Shaper | None:
        """Let the faults at the answer's head; return who shapes its body, if anybody."""
        headers = to_text(reply.kept)
        self._had_length = reply.length is not None
        if reply.length is not None:
            headers[LENGTH] = str(reply.length)
        is_head = self._head.method == b"HEAD"
        shaper = None if is_head else shaper_for(self.flight, reply.status, headers)
        if LENGTH not in headers:
            reply.length = None
        reply.status, headers = shape_headers(self.flight, reply.status, headers)
        pairs = from_text(headers)
        reply.kept = [pair for pair in pairs if pair[0].lower() != b"content-length"]
        return shaper

    def begin_shaped(self, length: int | None = None) -> None:
        """Send the head of a shaped answer, once. `length`: what its body will have, if known."""
        reply, self._reply = self._reply, None
        if reply is None:
            return
        if length is not None and self._had_length:
            reply.length, self._way = length, Way.COUNTED
            self._closes = not self._head.keep_alive or self._core.stopping
        labels = probe_labels(self.flight)
        self._unsent = passed_head(reply, self._way, labels, close=self._closes)
        self.write_framed(b"", [], done=False)

    def on_body(self, raw: bytes, pieces: list[bytes], done: bool) -> None:
        """Pass bytes on at once."""
        if done:
            self._replica = None
        if self._shaped is not None:
            self._shaped.push(pieces, done=done)
            return
        self.write_framed(raw, pieces, done=done)
        if done:
            self.finish_body()

    def write_framed(self, raw: bytes, pieces: list[bytes], *, done: bool) -> None:
        """Write bytes of the body in the client's framing, and note them for reading."""
        data = encode(self._way, raw, pieces, done)
        if self._unsent:
            data, self._unsent = self._unsent + data, b""
            self._begun = True
        now = self._core.clock.mono() - self.flight.held_s
        if data:
            self.client.write(data)
        if pieces:
            if not self._unread:
                asyncio.get_running_loop().call_soon(self.read)
            self._unread.append((pieces, now))

    def finish_body(self) -> None:
        """The answer is written to its end: close the request once the client has taken it."""
        if self.client.paused:
            self._awaits_drain = True
        else:
            self._end(Cause.COMPLETE, keep=True)

    def on_lost(self, answered: bool) -> None:
        """The replica's connection broke: send once more, refuse, or break off."""
        replica, self._replica = self._replica, None
        route = self._route
        if replica is not None and replica.served > 1 and not answered and route is not None:
            self._core.count_reset(route.config.name, self.flight.replica)
            self._send(route, fresh=True)
        elif self._shaped is not None:
            self._shaped.lose()
        elif not self._begun:
            self._refuse(502, "the replica broke off", Cause.LOST)
        else:
            self.break_off(Cause.LOST)

    def set_reading(self, *, on: bool) -> None:
        """Let the replica send, or hold it."""
        if self._replica is not None:
            (self._replica.resume if on else self._replica.pause)()

    # Reading and ends

    def read(self) -> None:
        """Read what has been passed on."""
        unread, self._unread = self._unread, []
        if self._reading is not None:
            for pieces, now in unread:
                self._reading.take(pieces, now)

    def _time_out(self) -> None:
        if self._begun:  # a client that takes no bytes lets its own time pass
            self.break_off(Cause.CLIENT if self._paused_at is not None else Cause.TIMEOUT)
        else:
            self._refuse(504, "the replica took too long", Cause.TIMEOUT)

    def break_off(self, cause: Cause) -> None:
        """End the client's connection without the end mark."""
        self._end(cause, keep=None)
        self.client.break_off(hard=self._way is Way.PLAIN)

    def _refuse(self, status: int, message: str, cause: Cause = Cause.SHED) -> None:
        """Answer with an error of our own; nothing of the replica's answer has left."""
        self.flight.is_stream = self.flight.owes_end = False
        self._answer(status, JSON, error_body(status, message), cause)

    def _answer(self, status: int, pairs: Pairs, body: bytes, cause: Cause) -> None:
        self.flight.status = status
        self._reading = None
        head = self._head
        self._closes = self._closes or not head.keep_alive or self._core.stopping
        is_head = head.method == b"HEAD"
        pairs = [*pairs, *probe_labels(self.flight)]
        self.client.write(whole(status, pairs, body, close=self._closes, is_head=is_head))
        self._end(cause, keep=True)

    def _end(self, cause: Cause, *, keep: bool | None) -> None:
        """End the request, once. `keep` None: its connection is somebody else's business."""
        if self._ended:
            return
        self._ended = True
        self.flight.cause = cause
        self._note_held()
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        if self._shaped is not None:
            self._shaped.stop()
        if self._replica is not None:
            self._replica.abort()
            self._replica = None
        self._unload()
        asyncio.get_running_loop().call_soon(self._record)
        if keep is not None:
            self.client.done(keep=keep and not self._closes)

    def _record(self) -> None:
        """Leave the one record, after the last bytes were written, whatever reading them does."""
        try:
            self.read()
            if self._reading is not None:
                self._reading.end()
        finally:
            self._core.finish(self.flight)
