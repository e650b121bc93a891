"""Delays of `gateway/latency-pareto` as drawn, as recorded and as a client's clock saw them.

A gateway process stands before an upstream that answers at once. Each request carries its number as
its tenant, so that its record is known; the record's unit is the hash of the key that the gateway
gave the request, and from the key the draw follows (`faults.sampling`). So each delay is known
three times. Some requests are spared by the fault's own probability: what they took is what the way
costs without it.
"""

import asyncio
import math
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from faults.sampling import draw_delay
from gateway.routing import unit_hash
from slo.records import Page, RequestRecord
from tests.gateway.processes import ROOT, Admin, gateway_process, started

SEED = 7
PROBABILITY = 0.9
"""Share of requests that are delayed; the others are the control."""

RAMP_SECONDS = 0.004
"""Between two connections: a crowd at once would end its first delays as a crowd."""

ALPHA_BIAS = 0.03
P99_ERROR = 0.021
"""Source: the specification's A9."""

TIMER_SECONDS = 0.0015
"""A delay may be so much shorter than its draw: the loop counts whole milliseconds, and rounds."""


@dataclass(frozen=True)
class Law:
    """A capped Pareto law: base x X, X ~ Pareto(alpha) with minimum 1, at most cap. Seconds."""

    alpha: float
    base: float
    cap: float

    @property
    def p99(self) -> float:
        """The delay that one request in a hundred exceeds."""
        return min(self.cap, self.base * 100 ** (1 / self.alpha))

    @property
    def capped_share(self) -> float:
        """Share of draws that are cut to the cap."""
        return float((self.base / self.cap) ** self.alpha)


@dataclass(frozen=True)
class Fit:
    """What some delays say about their law."""

    count: int
    alpha: float
    alpha_bias: float
    p99: float
    """By the fitted law, seconds."""
    p99_error: float
    """Ratio, against the law."""
    p99_measured: float
    """By the delays themselves, seconds."""

    @property
    def is_met(self) -> bool:
        """Whether both bounds hold."""
        return abs(self.alpha_bias) <= ALPHA_BIAS and abs(self.p99_error) <= P99_ERROR


def fit(delays: Sequence[float], law: Law) -> Fit:
    """Fit the tail index by maximum likelihood; what reached the cap counts as longer than it.

    Source: the likelihood of a censored exponential, since ln(X) of a Pareto X is exponential.
    """
    values = np.clip(np.asarray(delays, dtype=float), law.base, law.cap)
    whole = int(np.count_nonzero(values < law.cap))
    alpha = whole / float(np.log(values / law.base).sum())
    p99 = law.base * 100 ** (1 / alpha)
    return Fit(
        count=len(values),
        alpha=alpha,
        alpha_bias=alpha - law.alpha,
        p99=p99,
        p99_error=p99 / law.p99 - 1,
        p99_measured=float(np.quantile(values, 0.99)),
    )


def gaussian_like(delays: Sequence[float], seed: int = 1) -> list[float]:
    """Return Gaussian noise of the same mean and deviation; nothing waits a negative time."""
    chance = np.random.default_rng(seed)
    noise = chance.normal(statistics.fmean(delays), statistics.pstdev(delays), len(delays))
    return cast(list[float], np.maximum(noise, 0.0).tolist())


@dataclass(frozen=True, slots=True)
class Measured:
    """One request: seconds as drawn (None: spared), by its record, and by the client's clock."""

    drawn: float | None
    recorded: float
    seen: float


@dataclass(frozen=True)
class Run:
    """All requests of a run."""

    law: Law
    requests: list[Measured]
    seconds: float

    @property
    def delayed(self) -> list[Measured]:
        """Those that the fault delayed."""
        return [each for each in self.requests if each.drawn is not None]

    @property
    def way_seconds(self) -> float:
        """Median of what a spared request took."""
        return statistics.median(each.seen for each in self.requests if each.drawn is None)

    def drawn(self) -> list[float]:
        """Return the delays as drawn."""
        return [each.drawn for each in self.requests if each.drawn is not None]


class _Client(asyncio.Protocol):
    """One connection in a closed loop."""

    def __init__(self, load: "_Load") -> None:
        self._load = load
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._send()

    def _send(self) -> None:
        self._number = self._load.next()
        if self._number is None:
            self.transport.close()
            return
        body = b'{"model": "m", "messages": []}'
        self._answer, self._at = b"", time.monotonic()
        self.transport.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
            b"x-tenant-id: %d\r\nContent-Length: %d\r\n\r\n%b" % (self._number, len(body), body)
        )

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, found, body = self._answer.partition(b"\r\n\r\n")
        if found and len(body) >= int(head.lower().partition(b"content-length: ")[2].split()[0]):
            if not head.startswith(b"HTTP/1.1 200"):
                self._load.fail(head.decode("latin-1"))
                self.transport.close()
                return
            self._load.seen[cast(int, self._number)] = time.monotonic() - self._at
            self._send()

    def connection_lost(self, _error: Exception | None) -> None:
        self._load.lost(self._number is None)


class _Load:
    """So many requests over some connections."""

    def __init__(self, requests: int, connections: int) -> None:
        self.seen: dict[int, float] = {}
        self._numbers = iter(range(requests))
        self._open = connections
        self.done = asyncio.get_running_loop().create_future()

    def next(self) -> int | None:
        return next(self._numbers, None)

    def lost(self, was_over: bool) -> None:
        self._open -= 1
        if not was_over:
            self.fail("the gateway closed a connection")
        elif not self._open and not self.done.done():
            self.done.set_result(None)

    def fail(self, what: str) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError(what))


async def run(folder: Path, law: Law, draws: int, connections: int) -> Run:
    """Send requests until about `draws` of them were delayed; match what is known of each."""
    count = math.ceil(draws / PROBABILITY)
    async with AsyncExitStack() as stack:
        behind = started("proxies.upstream", cwd=ROOT / "benchmarks")
        _, port = await stack.enter_async_context(behind)
        replicas = {"a": f"http://127.0.0.1:{port}"}
        gateway = await stack.enter_async_context(gateway_process(folder, replicas))
        admin = Admin(gateway.url)
        try:
            async with _fault(admin, law):
                load, loop = _Load(count, connections), asyncio.get_running_loop()
                begun = time.monotonic()
                for _ in range(connections):
                    await loop.create_connection(lambda: _Client(load), "127.0.0.1", gateway.port)
                    await asyncio.sleep(RAMP_SECONDS)
                await load.done
                seconds = time.monotonic() - begun
            records = await _records(admin, count)
        finally:
            await admin.close()
    keys = {unit_hash(key): key for key in (f"{gateway.epoch}-{n}" for n in range(1, count + 1))}
    return Run(law, [_match(record, keys, load.seen, law) for record in records], seconds)


def _match(
    record: RequestRecord, keys: dict[str, str], seen: dict[int, float], law: Law
) -> Measured:
    drawn = None
    if record.touched:
        drawn = draw_delay(SEED, keys[record.unit], alpha=law.alpha, base=law.base, cap=law.cap)
    return Measured(drawn, record.e2e_s, seen.pop(int(record.tenant)))


@asynccontextmanager
async def _fault(admin: Admin, law: Law) -> AsyncIterator[None]:
    """Hold the fault on, by renewing its lease."""
    lease = {"lease_id": "L", "run_id": "R", "route": "chat", "seconds": 60.0}
    await admin("POST", "/leases", lease)
    parameters = {**vars(law), "probability": PROBABILITY}
    spec = {
        "template": "gateway/latency-pareto",
        "parameters": parameters,
        "replicas": ["*"],
        "max_seconds": 3600.0,
        "seed": SEED,
    }
    await admin("PUT", "/leases/L/items/F", {"kind": "fault", "spec": spec})

    async def renew() -> None:
        while True:
            await asyncio.sleep(5)
            await admin("POST", "/leases/L/renew", {"seconds": 60.0})

    renewing = asyncio.create_task(renew())
    try:
        yield
    finally:
        renewing.cancel()
        await asyncio.wait([renewing])
        await admin("POST", "/leases/L/close")


async def _records(admin: Admin, count: int) -> list[RequestRecord]:
    found: list[RequestRecord] = []
    after = 0
    async with asyncio.timeout(60):
        while len(found) < count:
            page = Page.from_json(await admin("GET", f"/journal?after={after}&limit=5000"))
            assert not page.gap
            found += page.records
            after = page.next
    return found
