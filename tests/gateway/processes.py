"""The gateway and its engines as processes of their own, and a client of its admin API."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from tests.gateway.raw_client import read_metrics

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "a-test-token-of-some-length"
START_SECONDS = 60.0


class LeaseEnded(Exception):
    """The lease had ended before the call came, as happens on a machine that stood still."""


@dataclass
class GatewayProcess:
    """A gateway that runs."""

    process: psutil.Process
    url: str
    epoch: str

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    async def metrics(self) -> dict[str, float]:
        """Return the sum of each metric over its labels."""
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{self.url}/metrics") as answer:
                return read_metrics(await answer.text())


@asynccontextmanager
async def started(
    module: str, *words: str, cwd: Path = ROOT
) -> AsyncIterator[tuple[asyncio.subprocess.Process, Any]]:
    """Run a program of ours; give it with its first line, which is JSON. It must end with 0."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *words), cwd=cwd, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            line = await process.stdout.readline()
        yield process, json.loads(line)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@asynccontextmanager
async def gateway_process(
    folder: Path, replicas: Mapping[str, str], **options: Any
) -> AsyncIterator[GatewayProcess]:
    """Run a gateway with one route before replicas (name → address); it must end with 0."""
    (folder / "token").write_text(TOKEN)
    named = [{"name": name, "url": url} for name, url in replicas.items()]
    document = {
        "admin_token_file": str(folder / "token"),
        "journal_dir": str(folder / "state"),
        "routes": [{"name": "chat", "replicas": named}],
        **options,
    }
    (folder / "gateway.json").write_text(json.dumps(document))
    async with started("gateway", "--config", str(folder / "gateway.json")) as (process, ready):
        yield GatewayProcess(psutil.Process(process.pid), ready["listening"], ready["epoch"])
    assert process.returncode == 0


class Admin:
    """The admin API, for one session."""

    def __init__(self, url: str) -> None:
        self._base = f"{url}/_burnproof"
        self._headers = {"Authorization": f"Bearer {TOKEN}"}
        self._session = aiohttp.ClientSession()

    async def close(self) -> None:
        await self._session.close()

    async def __call__(self, method: str, path: str, body: Any = None) -> Any:
        """Call, and return the document of a 200."""
        async with self._session.request(
            method, self._base + path, json=body, headers=self._headers
        ) as answer:
            document = await answer.json()
            if answer.status == 409 and document["error"] == "lease_closed":
                raise LeaseEnded(path)
            assert answer.status == 200, (method, path, document)
            return document
