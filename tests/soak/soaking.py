"""One soak: a gateway process before two simulated engines, a client, faults in turn, a watcher.

Everything is measured from outside the gateway: its memory and files by the kernel's figures, its
records by the journal page, its requests by the client that sent them. Nothing here judges speed,
so that a busy machine may make it slow and not wrong.
"""

import asyncio
import json
import time
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from gateway.metrics import (
    CLIENTS,
    IDLE_REPLICAS,
    IN_FLIGHT,
    JOURNAL_SEQ,
    TASKS,
    WRITE_ERRORS,
)
from slo.records import Page, RequestRecord
from tests.gateway.processes import Admin, GatewayProcess, gateway_process, started
from tests.soak.traffic import Asked, Client
from tests.soak.turns import Turned, turn_faults

REST_SECONDS = 30.0
"""Time to come to rest. An idle replica connection is let go after 4 s."""


@dataclass(frozen=True)
class Options:
    """How long, how hard, how small."""

    seconds: float
    rate: float = 50.0
    """Requests a second."""
    turn_seconds: float = 15.0
    sample_seconds: float = 1.0
    journal_bytes: int = 16 * 1024 * 1024
    memory_records: int = 10_000
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Sample:
    """The gateway process at one moment."""

    at: float
    """Seconds since the start."""
    rss_bytes: int
    files: int
    journal_bytes: int


@dataclass
class Rest:
    """The gateway after the last request."""

    files_before: int
    """Open files before the first request."""
    files: int = 0
    clients: int = -1
    idle_replicas: int = -1
    tasks_before: int = 0
    tasks: int = 0
    in_flight: int = -1
    last_seq: int = -1

    def is_reached(self) -> bool:
        """Whether it is as before the first request."""
        return (
            self.in_flight == 0
            and self.clients == 0
            and self.idle_replicas == 0
            and self.files <= self.files_before
            and self.tasks <= self.tasks_before
        )


@dataclass
class Soaked:
    """What was measured."""

    options: Options
    asked: list[Asked]
    postponed: int
    records: list[RequestRecord]
    gaps: int
    """Pages that said that records were lost."""
    turned: Turned
    samples: list[Sample]
    rest: Rest
    write_errors: int
    seconds: float
    journal_written: int
    """Bytes of all records."""


@dataclass
class Reader:
    """Follows the journal by cursor, as an observer does."""

    admin: Admin
    records: list[RequestRecord] = field(default_factory=list)
    gaps: int = 0
    written: int = 0
    _next: int = 0

    async def read(self) -> None:
        """Read what is new."""
        while True:
            raw = await self.admin("GET", f"/journal?after={self._next}&limit=5000")
            page = Page.from_json(raw)
            self.gaps += page.gap
            self.records += page.records
            self.written += sum(len(json.dumps(each)) for each in raw["records"])
            self._next = page.next
            if not page.more:
                return

    async def follow(self, over: asyncio.Event) -> None:
        """Read every second until told to stop."""
        while not over.is_set():
            await self.read()
            await asyncio.sleep(1.0)


async def soak(folder: Path, options: Options) -> Soaked:
    """Run one soak and return what was measured. The gateway must end with 0."""
    async with AsyncExitStack() as stack:
        replicas = {}
        for number, name in enumerate("ab"):
            _, ready = await stack.enter_async_context(_engine(number))
            replicas[name] = f"http://{ready['host']}:{ready['port']}"
        limits = {
            "journal_max_bytes": options.journal_bytes,
            "journal_memory_records": options.memory_records,
        }
        gateway = await stack.enter_async_context(gateway_process(folder, replicas, **limits))
        admin = Admin(gateway.url)
        stack.push_async_callback(admin.close)
        return await _measure(gateway, admin, folder, options)


async def _measure(gateway: GatewayProcess, admin: Admin, folder: Path, options: Options) -> Soaked:
    process = gateway.process
    before = await gateway.metrics()
    rest = Rest(files_before=process.num_fds(), tasks_before=int(before[TASKS]))
    client = Client(gateway.port, options.rate, options.seed)
    reader, turned, samples = Reader(admin), Turned(), list[Sample]()
    stop, begun = asyncio.Event(), time.monotonic()
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(client.run(stop))
        group.create_task(turn_faults(admin, stop, options.turn_seconds, turned))
        group.create_task(reader.follow(stop))
        while (at := time.monotonic() - begun) < options.seconds and not sending.done():
            samples.append(_sample(process, folder, at))
            await asyncio.sleep(options.sample_seconds)
        stop.set()
    for _ in range(int(REST_SECONDS / 0.25)):
        await _look(gateway, rest)
        if rest.is_reached():
            break
        await asyncio.sleep(0.25)
    await reader.read()
    after = await gateway.metrics()
    return Soaked(
        options=options,
        asked=client.asked,
        postponed=client.postponed,
        records=reader.records,
        gaps=reader.gaps,
        turned=turned,
        samples=samples,
        rest=rest,
        write_errors=int(after[WRITE_ERRORS]),
        seconds=time.monotonic() - begun,
        journal_written=reader.written,
    )


def _sample(process: psutil.Process, folder: Path, at: float) -> Sample:
    return Sample(at, process.memory_info().rss, process.num_fds(), _journal_bytes(folder))


def _journal_bytes(folder: Path) -> int:
    found = 0
    for path in (folder / "state" / "journal").glob("*.jsonl"):
        try:
            found += path.stat().st_size
        except FileNotFoundError:  # rotated away meanwhile
            continue
    return found


async def _look(gateway: GatewayProcess, rest: Rest) -> None:
    figures = await gateway.metrics()
    rest.files = gateway.process.num_fds()
    rest.clients, rest.idle_replicas = int(figures[CLIENTS]), int(figures[IDLE_REPLICAS])
    rest.tasks = int(figures[TASKS])
    rest.in_flight = int(figures[IN_FLIGHT])
    rest.last_seq = int(figures[JOURNAL_SEQ])


def _engine(number: int) -> AbstractAsyncContextManager[tuple[object, Any]]:
    words = ("--name", f"engine-{number}", "--seed", str(number), "--die-with-parent")
    pace = ("--ttft-ms", "5", "--itl-ms", "2", "--jitter", "0.3")
    return started("simulated_engine", *words, *pace)
