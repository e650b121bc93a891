"""One upstream behind two proxies, ours and nginx, and exchanges by chance that both must agree on.

A plan says what a client sends and what the upstream answers, to the byte and to the cut. Both
proxies carry it out; each answer is held against the plan, so that nginx confirms that the plan is
HTTP and not our idea of it. Broken answers must be broken for the client too, and what came of them
must be a beginning of what was sent.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gateway.metrics import CLIENTS, IDLE_REPLICAS, IN_FLIGHT, JOURNAL_SEQ, TASKS
from tests.gateway.harness import Seen, Stub
from tests.gateway.nginx import nginx
from tests.gateway.processes import GatewayProcess, gateway_process
from tests.gateway.raw_client import Got, read_answer

PATIENCE_SECONDS = 30.0
"""An exchange that has not ended by then hangs."""

AT_ONCE = 16
REST_SECONDS = 30.0
"""Time to come to rest. An idle connection to the upstream is let go after 4 s."""


@dataclass
class Plan:
    """One exchange."""

    method: str
    sent: bytes
    """The request as the client writes it, but for its target's number."""
    body: bytes
    """What the upstream must get."""
    headers: list[tuple[str, str]]
    minor: int
    status: int
    kind: str
    """Framing of the answer: length, chunked, close or none."""
    answer_headers: list[tuple[str, str]]
    answer: bytes
    writes: list[bytes]
    """The answer's bytes, cut as the upstream writes them."""
    breaks: bool = False
    """The upstream breaks its answer off."""
    leaves: bool = False
    """The client goes away without reading."""
    leaves_early: bool = False
    """It goes before its request is whole."""
    reuses: bool = False
    """On a connection that has served, if there is one."""
    cuts: list[int] = field(default_factory=list)
    """Sizes of the pieces in which the client writes."""

    def kinds(self) -> Iterator[str]:
        """Say what this exchange is, in the words of the tally."""
        yield f"method {self.method}"
        chunked = b"\r\nTransfer-Encoding: chunked\r\n" in self.sent
        yield "request " + ("in chunks" if chunked else "with a body" if self.body else "bare")
        yield f"answer framed by {self.kind}" if self.kind != "none" else "answer without a body"
        yield f"status {self.status // 100}xx"
        if max(len(self.body), len(self.answer)) >= 100_000:
            yield "100 kB"
        if not self.minor:
            yield "HTTP/1.0"
        if self.leaves:
            yield "client leaves " + ("in its request" if self.leaves_early else "unread")
        if self.breaks:
            yield "upstream breaks off"
        if b"x-trailer: 1" in self.sent or b"x-trailer: 1" in b"".join(self.writes):
            yield "trailers"


def make_plan(chance: random.Random) -> Plan:
    """Draw one exchange."""
    method = chance.choice(["POST", "POST", "POST", "PUT", "GET", "DELETE", "HEAD"])
    body = chance.randbytes(_size(chance)) if method in {"POST", "PUT"} else b""
    minor = 0 if chance.random() < 0.1 else 1
    headers = [(f"X-{chance.choice('abAB')}", _value(chance)) for _ in range(chance.randrange(5))]
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    head = f"{method} /plan?n=NUMBER HTTP/1.{minor}\r\nHost: h\r\n{lines}"
    if body and minor and chance.random() < 0.5:
        sent = head.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + _chunks(chance, body)
    elif body or chance.random() < 0.3:
        sent = head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body
    else:
        sent = head.encode() + b"\r\n"
    status = chance.choice([200, 200, 200, 201, 400, 404, 429, 500, 503, 204, 304])
    answer = chance.randbytes(_size(chance))
    kind = chance.choice(["length", "chunked", "chunked", "close"])
    if status in {204, 304} or method == "HEAD":
        kind, answer = "none", b""
    given = [(f"X-{chance.choice('cdCD')}", _value(chance)) for _ in range(chance.randrange(5))]
    raw = f"HTTP/1.1 {status} Said\r\n" + "".join(f"{n}: {v}\r\n" for n, v in given)
    framed = answer
    if kind == "length":
        raw += f"Content-Length: {len(answer)}\r\n"
    elif kind == "chunked":
        raw += "Transfer-Encoding: chunked\r\n"
        framed = _chunks(chance, answer)
    plan = Plan(
        method, sent, body, headers, minor, status, kind, given, answer, [raw.encode() + b"\r\n"]
    )
    if kind in {"length", "chunked"} and framed and chance.random() < 0.15:
        plan.breaks = True
        framed = framed[: chance.randrange(len(framed))]
    plan.leaves = chance.random() < 0.1
    plan.writes = _cut(chance, plan.writes[0] + framed)
    plan.cuts = [len(piece) for piece in _cut(chance, sent)]
    plan.reuses = chance.random() < 0.5
    if plan.leaves and chance.random() < 0.5:
        plan.leaves_early = True
        plan.cuts = plan.cuts[: chance.randrange(len(plan.cuts))]
    return plan


def _size(chance: random.Random) -> int:
    return chance.choice([0, 1, 2, chance.randrange(100), chance.randrange(5000), 100_000])


def _value(chance: random.Random) -> str:
    return "".join(chance.choices("ab ,;=\"'/", k=chance.randrange(12))).strip()


def _chunks(chance: random.Random, body: bytes) -> bytes:
    sent = []
    while body:
        size = chance.choice([1, 7, 500, 70_000]) if len(sent) < 40 else len(body)
        extension = chance.choice([b"", b"", b";a=b"])
        sent.append(b"%x%b\r\n%b\r\n" % (len(body[:size]), extension, body[:size]))
        body = body[size:]
    trailer = chance.choice([b"", b"", b"x-trailer: 1\r\n"])
    return b"".join(sent) + b"0\r\n" + trailer + b"\r\n"


def _cut(chance: random.Random, data: bytes) -> list[bytes]:
    pieces = []
    while data and len(pieces) < 12:
        size = chance.choice([1, 2, 30, 1000, 100_000])
        pieces.append(data[:size])
        data = data[size:]
    return [*pieces, data] if data else pieces


class Upstream:
    """Answers by the plan whose number stands in the target."""

    def __init__(self, plans: dict[int, Plan]) -> None:
        self._plans = plans
        self._seen: dict[int, list[Seen]] = {}

    def seen(self, number: int) -> list[Seen]:
        """Return what came for a plan, and forget it."""
        return self._seen.pop(number, [])

    async def __call__(self, seen: Seen) -> None:
        """Answer one request."""
        number = int(seen.line.split("?n=")[1].split()[0])
        self._seen.setdefault(number, []).append(seen)
        plan = self._plans.get(number)
        if plan is None:  # its client left, and nobody waits for it any more
            seen.writer.close()
            return
        with suppress(ConnectionError):
            for piece in plan.writes:
                await seen.send(piece)
                await asyncio.sleep(0)
        if plan.kind == "close" or plan.breaks:
            seen.writer.close()


class Connections:
    """A client's connections to one proxy: some are used again, some are new."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._kept: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.reused = 0

    async def exchange(self, number: int, plan: Plan) -> Got:
        """Carry out a plan and read what comes."""
        reader, writer = await self._open(plan)
        got = Got()
        try:
            data = plan.sent.replace(b"NUMBER", b"%d" % number)
            with suppress(ConnectionError):
                for size in plan.cuts:
                    writer.write(data[:size])
                    data = data[size:]
                    await asyncio.sleep(0)
                if not plan.leaves_early:
                    writer.write(data)
                if plan.leaves:
                    await asyncio.sleep(0.002)
                    return got
            got = await read_answer(reader, is_head=plan.method == "HEAD")
            return got
        finally:
            if plan.leaves or got.closes or not plan.minor or plan.breaks:
                writer.transport.abort()
            else:
                self._kept.append((reader, writer))

    async def _open(self, plan: Plan) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while plan.reuses and self._kept:
            reader, writer = self._kept.pop()
            if not reader.at_eof():
                self.reused += 1
                return reader, writer
            writer.transport.abort()
        return await asyncio.open_connection("127.0.0.1", self._port)

    def close(self) -> None:
        """Close those that are kept."""
        for _, writer in self._kept:
            writer.transport.abort()


def check(plan: Plan, got: Got, seen: list[Seen], who: str) -> None:
    """Hold an answer, and what the upstream saw, against the plan."""
    if plan.leaves:
        return
    for each in seen:
        assert each.body == plan.body, who
        assert each.line.startswith(plan.method), who
        passed = [(key, value) for key, value in each.headers if key.lower() in {"x-a", "x-b"}]
        assert passed == plan.headers, who
    if plan.breaks:
        told = plan.minor == 0 and plan.kind == "chunked"  # only a reset could tell this client
        assert not got.whole or got.status == 502 or told, who
        assert got.status == 502 or plan.answer.startswith(got.body), who
        return
    assert (got.status, got.whole) == (plan.status, True), who
    assert got.body == plan.answer, who
    passed = [(key, value) for key, value in got.headers if key.lower() in {"x-c", "x-d"}]
    assert passed == plan.answer_headers, who


@dataclass
class Tally:
    """What was drawn, and what was left of it in the gateway."""

    exchanges: int = 0
    agreed: int = 0
    """Exchanges in which both proxies did what was planned."""
    kinds: Counter[str] = field(default_factory=Counter)
    files: tuple[int, int] = (0, 0)
    """Open files of the gateway, before and after."""
    tasks: tuple[int, int] = (0, 0)
    connections: tuple[int, int] = (0, 0)
    """Connections of clients, and idle ones to the upstream, after."""
    records: int = 0
    seconds: float = 0.0

    def lines(self) -> Iterator[str]:
        """Say it in lines."""
        yield f"{self.agreed} of {self.exchanges} exchanges agreed, in {self.seconds:.0f} s"
        for kind, count in sorted(self.kinds.items()):
            yield f"  {kind:<32}{count:>8}"
        yield f"files {self.files}, tasks {self.tasks} (before, after)"
        yield f"connections {self.connections} (clients, upstream), records {self.records}"


async def compare(folder: Path, port: int, count: int, seed: int) -> Tally:
    """Carry out so many exchanges by chance through both; nginx listens on `port`."""
    plans: dict[int, Plan] = {}
    tally, begun = Tally(count), time.monotonic()
    ours, theirs = Upstream(plans), Upstream(plans)
    numbers = iter(range(count))
    async with Stub(ours) as one, Stub(theirs) as two:
        async with (
            gateway_process(folder, {"a": one.url}) as gateway,
            nginx(folder, port, two.port),
        ):
            mine, other = Connections(gateway.port), Connections(port)
            before = await gateway.metrics()
            files = gateway.process.num_fds()

            async def work() -> None:
                for number in numbers:
                    plan = plans[number] = make_plan(random.Random(f"{seed}-{number}"))
                    tally.kinds.update(plan.kinds())
                    async with asyncio.timeout(PATIENCE_SECONDS):
                        got = await mine.exchange(number, plan)
                        expected = await other.exchange(number, plan)
                    what = f"exchange {number} of seed {seed}: {plan}"
                    check(plan, expected, theirs.seen(number), f"nginx, {what}")
                    check(plan, got, ours.seen(number), f"gateway, {what}")
                    tally.agreed += 1
                    del plans[number]
                    one.seen.clear()
                    two.seen.clear()

            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(AT_ONCE):
                        group.create_task(work())
            except BaseExceptionGroup as failed:
                raise failed.exceptions[0] from None
            finally:
                mine.close()
                other.close()
            tally.kinds["on a used connection"] = mine.reused
            tally.seconds = time.monotonic() - begun
            leavers = sum(n for kind, n in tally.kinds.items() if kind.startswith("client leaves"))
            tally.files = (files, files)
            tally.tasks = (int(before[TASKS]), 0)
            await _rest(gateway, tally, range(count - leavers, count + 1))
    return tally


async def _rest(gateway: GatewayProcess, tally: Tally, records: range) -> None:
    """Nothing hangs, nothing leaks, and each exchange left one record.

    A client that left may have taken its request along before we read it.
    """
    for _ in range(int(REST_SECONDS / 0.25)):
        figures = await gateway.metrics()
        tally.files = (tally.files[0], gateway.process.num_fds())
        tally.tasks = (tally.tasks[0], int(figures[TASKS]))
        tally.connections = (int(figures[CLIENTS]), int(figures[IDLE_REPLICAS]))
        tally.records = int(figures[JOURNAL_SEQ])
        if (
            figures[IN_FLIGHT] == 0
            and tally.connections == (0, 0)
            and tally.tasks[1] <= tally.tasks[0]
            and tally.files[1] <= tally.files[0]
        ):
            assert tally.records in records, tally
            return
        await asyncio.sleep(0.25)
    raise AssertionError(f"not at rest: {tally}")
