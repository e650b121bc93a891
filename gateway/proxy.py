"""The data path: a request in, the same bytes to a replica, the same bytes back, one record.

Order: tenant, breaker, split, fault hooks, upstream, outcome. Bytes are never decoded, re-framed
in meaning, or held back: a chunk is written to the client first and read for the record
afterwards. The two hard parts are ends. A client that leaves cancels this handler, which closes
the replica's socket at once, so that no slot works for nobody; and an answer that breaks off must
break off for the client too: the connection is closed without the end mark, never completed
politely.
"""

import asyncio
import hmac
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from gateway.answers import ClientGone, answer, refuse, untouched, write
from gateway.core import Core
from gateway.encodings import Decoder, decode_body, decoder_for
from gateway.fault_hooks import InjectedAnswer, before_sending, hold_back
from gateway.flight import Cause, Flight
from gateway.outcome import HTTP_ERROR_FROM, read_json_answer, read_request
from gateway.routes import RouteState
from gateway.shaping import Close, Cut, Send, Shaper, Step, shape_headers, shaper_for
from gateway.sse import SseReader
from gateway.upstream import (
    HOP_BY_HOP,
    ConnectFailed,
    Outgoing,
    Upstream,
    UpstreamLost,
    connection_tokens,
    origin_form,
    request_headers,
)

log = logging.getLogger("gateway.proxy")

MAX_BODY_BYTES = 32 * 1024 * 1024
"""Largest request body: it is read whole to find its model."""

NOT_SUCCESS_FROM = 300

MAX_JUDGED_BYTES = 4 * 1024 * 1024
"""Bytes of a plain answer kept to read usage and flags; longer ones pass unread."""

HELD_FROM_SECONDS = 0.01
"""A write that takes longer waited for the client's socket; a shorter one is our own work."""


@dataclass(slots=True)
class Exchange:
    """One request with what is needed to answer it."""

    request: web.Request
    flight: Flight
    route: RouteState
    outgoing: Outgoing
    response: web.StreamResponse | None = None


class Proxy:
    """Handles every path that is not the gateway's own."""

    def __init__(self, core: Core, upstream: Upstream, token: str) -> None:
        self._core = core
        self._upstream = upstream
        self._token = token.encode()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve one request and leave its record, however it ends."""
        headers = request.headers
        probe = self._is_probe(headers.get("x-burnproof-probe", ""))
        flight = self._core.begin(
            headers.get("x-conversation-id", ""),
            headers.get("x-tenant-id", ""),
            probe=probe,
            pinned=headers.get("x-burnproof-replica", "") if probe else "",
        )
        try:
            return await self._serve(request, flight)
        except (ClientGone, aiohttp.web.RequestPayloadError):
            flight.cause = Cause.CLIENT
            _break_off(request)
            return web.Response()
        except asyncio.CancelledError:
            flight.cause = Cause.LOST if self._core.stopping else Cause.CLIENT
            raise
        finally:
            self._core.finish(flight)

    def _is_probe(self, given: str) -> bool:
        return bool(given) and hmac.compare_digest(given.encode("utf-8", "replace"), self._token)

    async def _serve(self, request: web.Request, flight: Flight) -> web.StreamResponse:
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return await refuse(request, flight, 413, f"the limit is {MAX_BODY_BYTES} bytes")
        encoding = request.headers.get("Content-Encoding", "")
        model, flight.wants_stream = (
            read_request(decode_body(body, encoding)) if body else (None, False)
        )
        route = self._core.enter(flight, model)
        if route is None:
            return await refuse(request, flight, 404, "no route serves this model")
        if flight.pinned and flight.pinned not in route.load:
            return await refuse(request, flight, 404, "no such replica on this route")
        target = origin_form(request.raw_path)
        flight.path = target.partition("?")[0]
        outgoing = Outgoing(
            request.method,
            target,
            request_headers(request.headers.items(), body),
            body,
        )
        exchange = Exchange(request, flight, route, outgoing)
        try:
            async with asyncio.timeout(route.config.timeout_seconds):
                return await self._forward(exchange)
        except TimeoutError:
            return await self._time_out(exchange)

    async def _time_out(self, exchange: Exchange) -> web.StreamResponse:
        exchange.flight.cause = Cause.CLIENT if exchange.flight.client_holds else Cause.TIMEOUT
        if exchange.response is None:
            return await refuse(exchange.request, exchange.flight, 504, "the replica took too long")
        _break_off(exchange.request)
        return exchange.response

    async def _forward(self, exchange: Exchange) -> web.StreamResponse:
        """Try replicas until one is reached; only a failed connect goes on to the next."""
        route, flight = exchange.route, exchange.flight
        tried: set[str] = set()
        while True:
            now = self._core.clock.mono()
            choice = route.choose(flight, now, frozenset(tried))
            name = choice.replica
            flight.replica, flight.fallback = name, choice.fallback
            route.load[name] += 1
            try:
                return await self._attempt(exchange, name)
            except ConnectFailed:
                if not flight.probe:
                    route.observe(name, True, self._core.clock.mono())
                tried.add(name)
            except UpstreamLost:
                flight.cause = Cause.LOST
                return await refuse(exchange.request, flight, 502, "the replica broke off")
            finally:
                route.load[name] -= 1
            if flight.pinned or len(tried) == len(route.load):
                flight.replica, flight.cause = "", Cause.LOST
                return await refuse(exchange.request, flight, 502, "no replica can be reached")

    async def _attempt(self, exchange: Exchange, name: str) -> web.StreamResponse:
        route, flight = exchange.route, exchange.flight
        outgoing = exchange.outgoing
        if route.arm_faults(flight):
            given = await before_sending(flight, outgoing)
            if isinstance(given, InjectedAnswer):
                return await self._inject(exchange, given)
            outgoing = given
        count = partial(self._core.count_reset, route.config.name, name)
        upstream = await self._upstream.send(route.bases[name], outgoing, count)
        try:
            return await self._pass_on(exchange, upstream)
        finally:
            upstream.close()

    async def _inject(self, exchange: Exchange, injected: InjectedAnswer) -> web.StreamResponse:
        flight = exchange.flight
        if injected.content_type.startswith("text/event-stream"):
            reader = SseReader()
            reader.feed(injected.body, self._core.clock.mono())
            flight.facts, flight.is_stream = reader.facts, True
        headers = CIMultiDict(injected.headers)
        headers["Content-Type"] = injected.content_type
        flight.cause = Cause.COMPLETE
        return await answer(exchange.request, flight, injected.status, headers, injected.body)

    async def _pass_on(
        self, exchange: Exchange, upstream: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        """Stream the replica's answer to the client."""
        request, flight = exchange.request, exchange.flight
        headers, status, shaper = response_headers(upstream), upstream.status, None
        if flight.armed:
            if request.method != "HEAD":
                shaper = shaper_for(flight, status, headers)
            status, headers = shape_headers(flight, status, headers)
        response = untouched(flight, status, headers, upstream.reason)
        flight.status = status
        reading = Reading.of(upstream, flight)
        if shaper is not None:
            return await self._pass_shaped(exchange, upstream, shaper, response, reading)
        if upstream.content.total_bytes:  # the body's begin is here: no need for two packets
            response.send_headers_with_body()
        await self._begin(exchange, response)
        try:
            async for chunk in upstream.content.iter_any():
                await self._write(response, reading, chunk, last=upstream.content.at_eof())
        except (aiohttp.ClientError, OSError):
            return self._broke_off(exchange, reading)
        return await self._complete(exchange, reading)

    async def _begin(self, exchange: Exchange, response: web.StreamResponse) -> None:
        try:
            await response.prepare(exchange.request)
        except ConnectionError as error:
            raise ClientGone from error
        exchange.response = response

    def _broke_off(self, exchange: Exchange, reading: "Reading") -> web.StreamResponse:
        """End as the answer ended: in the middle, without an end mark."""
        exchange.flight.cause = Cause.LOST
        reading.end()
        _break_off(exchange.request)
        return exchange.response or web.Response()

    async def _complete(self, exchange: Exchange, reading: "Reading") -> web.StreamResponse:
        assert exchange.response is not None
        reading.end()
        try:
            await exchange.response.write_eof()
        except ConnectionError as error:
            raise ClientGone from error
        exchange.flight.cause = Cause.COMPLETE
        return exchange.response

    async def _pass_shaped(
        self,
        exchange: Exchange,
        upstream: aiohttp.ClientResponse,
        shaper: Shaper,
        response: web.StreamResponse,
        reading: "Reading",
    ) -> web.StreamResponse:
        """Pass an answer on as its shaper says, step by step.

        The headers leave with the first step. Where that is the body's end, the answer was held
        back whole, so that its new length is known and said, if the replica said the old one.
        """
        steps: Iterable[Step]
        try:
            async for chunk in upstream.content.iter_any():
                for step in shaper.feed(chunk):
                    if exchange.response is None:
                        await self._begin(exchange, response)
                    if await self._perform(step, response, reading):
                        return await self._end_early(step, exchange, reading)
            lost = False
        except (aiohttp.ClientError, OSError):
            lost = True
        steps = shaper.end()
        if exchange.response is None:
            steps = list(steps)
            is_known = not lost and all(isinstance(step, Send) for step in steps)
            if is_known and upstream.content_length is not None:
                response.content_length = sum(len(s.data) for s in steps if isinstance(s, Send))
            await self._begin(exchange, response)
        for step in steps:
            if await self._perform(step, response, reading):
                return await self._end_early(step, exchange, reading)
        if lost:
            return self._broke_off(exchange, reading)
        return await self._complete(exchange, reading)

    async def _perform(self, step: Step, response: web.StreamResponse, reading: "Reading") -> bool:
        """Do one step; say whether it ends the answer."""
        if isinstance(step, Send):
            await self._write(response, reading, step.data)
        elif isinstance(step, Cut | Close):
            return True
        else:
            await hold_back(step.item, step.seconds)
        return False

    async def _end_early(
        self, step: Step, exchange: Exchange, reading: "Reading"
    ) -> web.StreamResponse:
        if isinstance(step, Cut):
            return self._broke_off(exchange, reading)
        return await self._complete(exchange, reading)

    async def _write(
        self,
        response: web.StreamResponse,
        reading: "Reading",
        piece: bytes,
        *,
        last: bool = False,
    ) -> None:
        """Pass a piece on, then read it; the time for which a slow client held us is its own.

        What the replica did meanwhile cannot be seen: a gap behind a full socket is a lower bound.
        """
        flight, now = reading.flight, self._core.clock.mono()
        before = flight.held_s
        try:
            await write(response, piece, last=last)
        except asyncio.CancelledError:
            flight.client_holds = True
            raise
        finally:  # also when it gives up, or our own limit passes
            waited = self._core.clock.mono() - now
            if waited > HELD_FROM_SECONDS:
                flight.held_s += waited
        reading.take(piece, now - before)


class Reading:
    """What is read of one answer while it passes: its events, or its whole body if plain JSON."""

    def __init__(self, flight: Flight, decoder: Decoder | None, *, sse: bool, plain: bool) -> None:
        self.flight = flight
        self._decoder = decoder
        self._sse = SseReader() if sse else None
        self._plain = bytearray() if plain else None
        self._first_byte_at: float | None = None
        if self._sse is not None:
            flight.facts, flight.is_stream = self._sse.facts, True

    @classmethod
    def of(cls, upstream: aiohttp.ClientResponse, flight: Flight) -> "Reading":
        """Choose how to read an answer by its headers."""
        kind = upstream.headers.get("Content-Type", "").lower()
        decoder = decoder_for(upstream.headers.get("Content-Encoding", ""))
        fine = decoder is not None and upstream.status < HTTP_ERROR_FROM
        sse = fine and kind.startswith("text/event-stream")
        flight.owes_end = fine and flight.wants_stream and upstream.status < NOT_SUCCESS_FROM
        return cls(flight, decoder, sse=sse, plain=fine and not sse and "json" in kind)

    def take(self, piece: bytes, now: float) -> None:
        """Read a piece that was written at `now` (loop seconds)."""
        if self._first_byte_at is None:
            self._first_byte_at = now
        if self._decoder is None:
            return
        if self._sse is not None:
            self._sse.feed(self._decoder.decode(piece), now)
        elif self._plain is not None and len(self._plain) <= MAX_JUDGED_BYTES:
            self._plain += self._decoder.decode(piece)

    def end(self) -> None:
        """Read what could only be read whole."""
        if self._plain is not None and len(self._plain) <= MAX_JUDGED_BYTES:
            read_json_answer(bytes(self._plain), self._first_byte_at, self.flight.facts)


def response_headers(upstream: aiohttp.ClientResponse) -> CIMultiDict[str]:
    """Return the answer's headers without those of the connection, duplicates kept."""
    named = connection_tokens(upstream.headers.getall("Connection", ()))
    return CIMultiDict(
        [
            (key, value)
            for key, value in upstream.headers.items()
            if (low := key.lower()) not in HOP_BY_HOP and low not in named
        ]
    )


def _break_off(request: web.Request) -> None:
    """Close the client's connection without the end mark: what was sent stays sent."""
    if request.transport is not None:
        request.transport.close()
