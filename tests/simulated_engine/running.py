"""Starts engines for tests: within the test's loop, or as a process."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
from aiohttp import web

from simulated_engine.options import EngineOptions
from simulated_engine.server import Engine

ROOT = Path(__file__).resolve().parents[2]

FAST = EngineOptions(ttft_seconds=0.002, itl_seconds=0.0)


@contextlib.asynccontextmanager
async def serving(
    options: EngineOptions = FAST, *, cancelling: bool = True
) -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    """Serve one engine on a free port; yields its address and a session."""
    runner = web.AppRunner(
        Engine(options).app(),
        access_log=None,
        handler_cancellation=cancelling,
        shutdown_timeout=0.1,
    )
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            yield url, session
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def engine_process(*arguments: str) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """Run one engine as a process; yields its address once it listens."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "simulated_engine", "--port", "0", *arguments),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    try:
        assert process.stdout is not None
        ready = json.loads(await process.stdout.readline())
        yield f"http://127.0.0.1:{ready['port']}", process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


def chat(text: str = "hello", **fields) -> dict:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 4} | fields


async def metric(session: aiohttp.ClientSession, url: str, name: str) -> float:
    """Return the sum of all samples whose line starts with `name`."""
    async with session.get(f"{url}/metrics") as response:
        lines = (await response.text()).splitlines()
    values = [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name)]
    assert values, f"no sample of {name}"
    return sum(values)
