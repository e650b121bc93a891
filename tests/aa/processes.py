"""Real processes for the A/A: five equal engines and one gateway with a few routes over them."""

import asyncio
import contextlib
import json
import secrets
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil

ROOT = Path(__file__).resolve().parents[2]
ROUTES = ("aa-0", "aa-1", "aa-2", "aa-3")
REPLICAS = ("r0", "r1", "r2", "r3", "r4")

ENGINE = (
    *("--ttft-ms", "2", "--prefill-us", "400", "--itl-ms", "0", "--jitter", "0.1"),
    *("--slots", "64", "--error-rate", "0.002", "--die-with-parent"),
)
"""The same for all five: 400 us a prompt token make the median conversation wait 22 ms."""


@dataclass(frozen=True)
class Stack:
    """The gateway, and who may be asked what all of it cost."""

    url: str
    token: str
    gateway: psutil.Process
    engines: tuple[psutil.Process, ...]

    def processor_seconds(self) -> dict[str, float]:
        """Return the processor time used so far, by kind of process."""
        return {
            "gateway": _seconds(self.gateway),
            "engines": sum(_seconds(engine) for engine in self.engines),
            "clients and judge": _seconds(psutil.Process()),
        }


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextlib.asynccontextmanager
async def stack(folder: Path) -> AsyncIterator[Stack]:
    """Start the engines and the gateway; all are gone at the end."""
    async with contextlib.AsyncExitStack() as ends:
        ready, engines = [], []
        for number, name in enumerate(REPLICAS):
            arguments = ("--name", name, "--seed", str(number), *ENGINE)
            process, line = await ends.enter_async_context(_running("simulated_engine", *arguments))
            ready.append((name, f"http://127.0.0.1:{line['port']}"))
            engines.append(psutil.Process(process.pid))
        await _serve_the_models(folder, [url for _, url in ready])
        token = secrets.token_hex(16)
        config = _write_config(folder, ready, token)
        process, line = await ends.enter_async_context(_running("gateway", "--config", str(config)))
        yield Stack(line["listening"], token, psutil.Process(process.pid), tuple(engines))


@contextlib.asynccontextmanager
async def _running(
    module: str, *arguments: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, dict[str, Any]]]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments), stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            line = await process.stdout.readline()
        yield process, json.loads(line)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def _serve_the_models(folder: Path, urls: list[str]) -> None:
    """Let every engine answer to each route's model: as adapters that change nothing."""
    (folder / "adapter_config.json").write_text("{}")
    async with aiohttp.ClientSession() as session:
        for url in urls:
            for model in ROUTES:
                body = {"lora_name": model, "lora_path": str(folder)}
                async with session.post(f"{url}/v1/load_lora_adapter", json=body) as response:
                    assert response.status == 200, await response.text()


def _write_config(folder: Path, replicas: list[tuple[str, str]], token: str) -> Path:
    token_file, config = folder / "token", folder / "gateway.json"
    token_file.write_text(token)
    routes = [
        {
            "name": route,
            "models": [route],
            "replicas": [{"name": name, "url": url} for name, url in replicas],
            "timeout_seconds": 60,
        }
        for route in ROUTES
    ]
    document = {
        "admin_token_file": str(token_file),
        "journal_dir": str(folder / "journal"),
        "routes": routes,
    }
    config.write_text(json.dumps(document))
    return config
