"""The process ends politely: it says so, lets streams end in a bounded time, writes all down."""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.gateway.harness import (
    DONE,
    END,
    FINISH,
    ROLE,
    SSE_HEAD,
    Gate,
    Seen,
    Stub,
    chunk,
    good,
    token,
)
from tests.gateway.test_leases import Remote, start

PAUSE = 0.1
LONG = 12
"""Tokens of the slow stream: it outlives the signal by about a second."""


async def slow(seen: Seen) -> None:
    await seen.send(SSE_HEAD + chunk(ROLE))
    for n in range(LONG):
        await asyncio.sleep(PAUSE)
        await seen.send(chunk(token(f"{n} ")))
    await seen.send(chunk(FINISH) + chunk(DONE) + END)


async def endless(seen: Seen) -> None:
    await seen.send(SSE_HEAD + chunk(ROLE) + chunk(token("a")))
    await seen.gone()


@asynccontextmanager
async def gateway(
    folder: Path, url: str, drain: dict[str, float]
) -> AsyncIterator[tuple[subprocess.Popen[str], Remote]]:
    gate = Gate(folder, {"a": url})
    document = json.loads(gate.config().model_dump_json()) | {"drain": drain}
    gate.file.write_text(json.dumps(document))
    process, address = start(gate.file)
    try:
        async with aiohttp.ClientSession() as client:
            yield process, Remote(client, address)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


async def ended(process: subprocess.Popen[str]) -> str:
    out, _ = await asyncio.to_thread(process.communicate, timeout=20)
    assert process.returncode == 0, out
    return out


async def begin(remote: Remote) -> aiohttp.ClientResponse:
    response = await remote.client.post(remote.url + "/v1/x", json={"stream": True})
    await response.content.readuntil(b"\n\n")
    return response


async def get(remote: Remote, path: str) -> tuple[int, Any]:
    async with remote.client.get(remote.url + path) as response:
        return response.status, json.loads(await response.read())


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_readiness_falls_at_once_live_streams_end_whole_and_every_record_is_kept(
    tmp_path: Path,
) -> None:
    async with Stub(slow) as stub:
        drain = {"announce_seconds": 0.6, "seconds": 10}
        async with gateway(tmp_path, stub.url, drain) as (process, remote):
            assert await get(remote, "/readyz") == (200, {"status": "ready"})
            idle, idle_writer = await asyncio.open_connection("127.0.0.1", port(remote))
            lease = {"lease_id": "L", "run_id": "R", "route": "chat", "seconds": 30}
            assert (await remote.call("POST", "/leases", lease))[0] == 200
            streams = [await begin(remote) for _ in range(5)]
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(5):
                while (await get(remote, "/readyz"))[0] == 200:
                    await asyncio.sleep(0.01)
            assert await get(remote, "/readyz") == (503, {"status": "draining"})
            assert (await get(remote, "/healthz"))[0] == 200, "it lives: it need not be killed"
            other = {**lease, "lease_id": "M"}
            status, said = await remote.call("POST", "/leases", other)
            assert (status, said["error"]) == (503, "draining")
            dropped = (await remote.call("GET", "/leases/L"))[1]
            assert (dropped["state"], dropped["why"]) == ("dropped", "the gateway ends")
            late = await begin(remote)
            assert late.headers["Connection"] == "close", "an announced end still serves, politely"
            assert await asyncio.wait_for(idle.read(), 5) == b""
            idle_writer.close()
            assert not await listens(remote), "the announced time is over"
            for stream in (*streams, late):
                assert (await stream.content.read()).endswith(DONE)
            await ended(process)
    (journal,) = (tmp_path / "state/journal").glob("*.jsonl")
    records = lines(journal)
    assert [record["outcome"] for record in records] == ["ok"] * 6
    assert [record["tokens"] for record in records] == [LONG] * 6
    acts = {each["act"]: each for each in lines(tmp_path / "state/admin.jsonl")}
    assert acts["drop"]["why"] == "the gateway ends"
    assert lines(tmp_path / "state/leases.jsonl")[-1]["state"] == "dropped"


async def test_a_stream_that_does_not_end_is_cut_after_the_time_that_was_set(
    tmp_path: Path,
) -> None:
    async with Stub(endless) as stub:
        async with gateway(tmp_path, stub.url, {"seconds": 0.5}) as (process, remote):
            stream = await begin(remote)
            left = await begin(remote)
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            while await listens(remote):
                await asyncio.sleep(0.01)
            left.close()
            with pytest.raises(aiohttp.ClientPayloadError):
                await stream.content.read()
            stream.close()
            await ended(process)
            took = time.monotonic() - began
    assert 0.5 <= took < 5, took
    (journal,) = (tmp_path / "state/journal").glob("*.jsonl")
    assert sorted(record["outcome"] for record in lines(journal)) == ["client_abort", "truncated"]


async def test_traffic_needs_no_control_plane(tmp_path: Path) -> None:
    """No Temporal, no database, no worker; and what they left behind ends without them."""
    async with Stub(good()) as stub:
        async with gateway(tmp_path, stub.url, {}) as (process, remote):
            assert open_sockets(process.pid) == 1, "it listens, and talks to nobody by itself"
            assert await remote.chat() == 200
            lease = {"lease_id": "L", "run_id": "R", "route": "chat", "seconds": 0.5}
            assert (await remote.call("POST", "/leases", lease))[0] == 200
            spec = {
                "template": "gateway/error",
                "parameters": {"status": 503, "probability": 1.0},
                "replicas": ["a"],
                "max_seconds": 60,
            }
            item = {"kind": "fault", "spec": spec}
            assert (await remote.call("PUT", "/leases/L/items/F", item))[0] == 200
            assert await remote.chat() == 503
            async with asyncio.timeout(5):
                while await remote.chat() == 503:
                    await asyncio.sleep(0.05)
            assert (await remote.call("GET", "/leases/L"))[1]["state"] == "lapsed"
            (tmp_path / "state").rename(tmp_path / "lost")
            (tmp_path / "state").write_text("a disk that takes nothing more")
            assert await remote.chat() == 200
            assert (await get(remote, "/readyz"))[0] == 200
            status, _ = await remote.call("POST", "/leases", {**lease, "lease_id": "M"})
            assert status == 500, "what cannot be written down holds nothing"
            process.send_signal(signal.SIGTERM)
            await ended(process)


def open_sockets(pid: int) -> int:
    """Count the network sockets of a process."""
    mine = set()
    for handle in Path(f"/proc/{pid}/fd").iterdir():
        target = os.readlink(handle)
        if target.startswith("socket:["):
            mine.add(target[8:-1])
    tables = [Path(f"/proc/{pid}/net/{name}") for name in ("tcp", "tcp6", "udp", "udp6")]
    rows = [row.split() for table in tables for row in table.read_text().splitlines()[1:]]
    return sum(row[9] in mine for row in rows)


async def listens(remote: Remote) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port(remote))
    except ConnectionRefusedError:
        return False
    writer.close()
    return True


def port(remote: Remote) -> int:
    return int(remote.url.rpartition(":")[2])
