"""Two gateways of one route, as processes or in the test's own loop, and a way to cut one off."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp

from targets.gateway_admin import GatewayAdmin
from targets.gateway_fleet import GatewayFleet
from tests.gateway.harness import TOKEN, Gate, Stub, completes
from tests.gateway.test_leases import start

ROUND = 0.5


class Wire:
    """A way to a port that can be cut: the other side lives on, and nobody reaches it here."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._tasks: set[asyncio.Task[None]] = set()

    async def up(self) -> str:
        self._server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def cut(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            await asyncio.gather(pump(reader, back), pump(there, writer))
        finally:
            writer.close()
            back.close()


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    sink.close()


class Pair:
    """Two gateway processes before the same replicas."""

    def __init__(self, folder: Path, replicas: dict[str, str]) -> None:
        self.folder = folder
        self.replicas = replicas
        self.urls: dict[str, str] = {}
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.http = aiohttp.ClientSession()

    def start(self, name: str) -> str:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        gate = Gate(folder, self.replicas)
        document = json.loads(gate.config().model_dump_json())
        if name in self.urls:
            document["port"] = port_of(self.urls[name])
        gate.file.write_text(json.dumps(document))
        self.processes[name], self.urls[name] = start(gate.file)
        return self.urls[name]

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()

    async def ask(self, name: str) -> int:
        url = self.urls[name] + "/v1/x"
        async with self.http.post(url, json={"stream": True}) as response:
            await response.read()
            return response.status

    async def state_of(self, name: str, lease: str = "r.lease") -> str:
        admin = GatewayAdmin(self.urls[name], TOKEN)
        try:
            return str((await admin.lease(lease))["state"])
        finally:
            await admin.aclose()


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


@asynccontextmanager
async def pair(folder: Path) -> AsyncIterator[Pair]:
    async with Stub(completes()) as a, Stub(completes()) as b:
        made = Pair(folder, {"a": a.url, "b": b.url})
        try:
            starts = (asyncio.to_thread(made.start, name) for name in ("one", "two"))
            await asyncio.gather(*starts)
            yield made
        finally:
            await made.http.close()
            for process in made.processes.values():
                process.kill()
                process.communicate()


@asynccontextmanager
async def fleet(urls: dict[str, str]) -> AsyncIterator[GatewayFleet]:
    members = {name: GatewayAdmin(url, TOKEN) for name, url in urls.items()}
    made = GatewayFleet(members, renewal_round_seconds=ROUND)
    try:
        yield made
    finally:
        await made.aclose()


@asynccontextmanager
async def two_gates(folder: Path) -> AsyncIterator[tuple[dict[str, Gate], GatewayFleet]]:
    """Two gateways in this process: cheaper than processes, where nobody is killed."""
    for name in ("one", "two"):
        (folder / name).mkdir()
    async with Stub(completes()) as a, Stub(completes()) as b:
        urls = {"a": a.url, "b": b.url}
        async with Gate(folder / "one", urls) as one, Gate(folder / "two", urls) as two:
            async with fleet({"one": one.url, "two": two.url}) as admin:
                yield {"one": one, "two": two}, admin
