"""One upstream behind two proxies, ours and nginx, and exchanges by chance that both must agree on.

A plan says what a client sends and what the upstream answers, to the byte and to the cut. Both
proxies carry it out; each answer is held against the plan, so that nginx confirms that the plan is
HTTP and not our idea of it. Broken answers must be broken for the client too, and what came of them
must be a beginning of what was sent.
"""

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from gateway.metrics import PREFIX
from tests.gateway.harness import TOKEN, Seen, Stub

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 10.0


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
    broken: bool = False
    client_leaves: bool = False
    cuts: list[int] = field(default_factory=list)


@dataclass
class Got:
    """An answer as a client read it."""

    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    whole: bool = False


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
        plan.broken = True
        framed = framed[: chance.randrange(len(framed))]
    plan.client_leaves = chance.random() < 0.1
    plan.writes = _cut(chance, plan.writes[0] + framed)
    plan.cuts = [len(piece) for piece in _cut(chance, sent)]
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

    def __init__(self, plans: list[Plan]) -> None:
        self._plans = plans
        self.seen: dict[int, list[Seen]] = {}

    async def __call__(self, seen: Seen) -> None:
        """Answer one request."""
        number = int(seen.line.split("?n=")[1].split()[0])
        self.seen.setdefault(number, []).append(seen)
        plan = self._plans[number]
        with suppress(ConnectionError):
            for piece in plan.writes:
                await seen.send(piece)
                await asyncio.sleep(0)
        if plan.kind == "close" or plan.broken:
            seen.writer.close()


async def exchange(port: int, number: int, plan: Plan) -> Got:
    """Carry out a plan on a connection of its own and read what comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        data = plan.sent.replace(b"NUMBER", b"%d" % number)
        with suppress(ConnectionError):
            for size in plan.cuts:
                writer.write(data[:size])
                data = data[size:]
                await asyncio.sleep(0)
            writer.write(data)
            if plan.client_leaves:
                await asyncio.sleep(0.002)
                return Got()
        return await _read(reader, plan)
    finally:
        writer.transport.abort()


async def _read(reader: asyncio.StreamReader, plan: Plan) -> Got:
    got = Got()
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *rest = head.rstrip("\r\n").split("\r\n")
        got.status = int(line.split()[1])
        got.headers = [(name, value.strip()) for name, _, value in (x.partition(":") for x in rest)]
        low = {name.lower(): value for name, value in got.headers}
        if plan.method == "HEAD" or got.status in {204, 304}:
            got.whole = True
        elif low.get("transfer-encoding") == "chunked":
            await _read_chunks(reader, got)
        elif "content-length" in low:
            await _read_length(reader, got, int(low["content-length"]))
        else:
            got.body = await reader.read()
            got.whole = True
    except (asyncio.IncompleteReadError, ConnectionError):
        got.whole = False
    return got


async def _read_length(reader: asyncio.StreamReader, got: Got, length: int) -> None:
    while len(got.body) < length and (data := await reader.read(length - len(got.body))):
        got.body += data
    got.whole = len(got.body) == length


async def _read_chunks(reader: asyncio.StreamReader, got: Got) -> None:
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        piece = b""
        while len(piece) < size and (data := await reader.read(size - len(piece))):
            piece += data
            got.body += data
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass
    got.whole = True


def check(plan: Plan, got: Got, seen: list[Seen], who: str) -> None:
    """Hold an answer, and what the upstream saw, against the plan."""
    if plan.client_leaves:
        return
    for each in seen:
        assert each.body == plan.body, who
        assert each.line.startswith(plan.method), who
        passed = [(key, value) for key, value in each.headers if key.lower() in {"x-a", "x-b"}]
        assert passed == plan.headers, who
    if plan.broken:
        told = plan.minor == 0 and plan.kind == "chunked"  # only a reset could tell this client
        assert not got.whole or got.status == 502 or told, who
        assert got.status == 502 or plan.answer.startswith(got.body), who
        return
    assert (got.status, got.whole) == (plan.status, True), who
    assert got.body == plan.answer, who
    passed = [(key, value) for key, value in got.headers if key.lower() in {"x-c", "x-d"}]
    assert passed == plan.answer_headers, who


def nginx_program() -> str:
    """Return nginx, installed from the system's packages if it is missing and we may."""
    path = os.environ.get("PATH", "") + ":/usr/sbin"
    found = shutil.which("nginx", path=path)
    if found is None and os.geteuid() == 0:
        subprocess.run(["apt-get", "update", "-qq"], check=False, capture_output=True)
        subprocess.run(
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "nginx-light"],
            check=False,
            capture_output=True,
        )
        found = shutil.which("nginx", path=path)
    assert found, "this test compares with nginx: install the package nginx-light"
    return found


@asynccontextmanager
async def nginx(folder: Path, port: int, upstream: int) -> AsyncIterator[psutil.Process]:
    """Run nginx before an upstream."""
    program = await asyncio.to_thread(nginx_program)
    temporary = "".join(
        f"{name}_temp_path {folder}/{name};" for name in ("proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;"
        f"events {{}} http {{ access_log off; client_body_temp_path {folder}/body; {temporary}"
        f"server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{upstream};"
        "proxy_http_version 1.1; proxy_buffering off; proxy_next_upstream off;"
        "client_max_body_size 32m; } } }"
    )
    config = ["-p", str(folder), "-c", str(folder / "nginx.conf")]
    process = await asyncio.create_subprocess_exec(program, *config, stderr=subprocess.DEVNULL)
    try:
        await _listens(port)
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def gateway(folder: Path, port: int, upstream: int) -> AsyncIterator[psutil.Process]:
    """Run our own gateway, as a process, before the same upstream."""
    (folder / "token").write_text(TOKEN)
    replicas = [{"name": "a", "url": f"http://127.0.0.1:{upstream}"}]
    document = {
        "port": port,
        "admin_token_file": str(folder / "token"),
        "journal_dir": str(folder / "state"),
        "routes": [{"name": "chat", "replicas": replicas}],
    }
    (folder / "gateway.json").write_text(json.dumps(document))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", "--config", str(folder / "gateway.json")),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    try:
        await _listens(port)
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        assert await process.wait() == 0


async def _listens(port: int) -> None:
    async with asyncio.timeout(30):
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.05)


async def compare(folder: Path, ports: tuple[int, int], count: int, seed: int) -> None:
    """Carry out so many exchanges by chance through both, some at a time."""
    chance = random.Random(seed)
    plans = [make_plan(chance) for _ in range(count)]
    ours, theirs = Upstream(plans), Upstream(plans)
    async with Stub(ours) as one, Stub(theirs) as two:
        async with (
            gateway(folder, ports[0], one.port) as process,
            nginx(folder, ports[1], two.port),
        ):
            files = process.num_fds()

            async def both(number: int) -> None:
                plan = plans[number]
                async with asyncio.timeout(PATIENCE_SECONDS):
                    mine = await exchange(ports[0], number, plan)
                    other = await exchange(ports[1], number, plan)
                check(plan, other, theirs.seen.get(number, []), f"nginx, exchange {number}: {plan}")
                check(plan, mine, ours.seen.get(number, []), f"gateway, exchange {number}: {plan}")

            for start in range(0, count, 8):
                await asyncio.gather(*(both(n) for n in range(start, min(count, start + 8))))
            leavers = sum(plan.client_leaves for plan in plans)
            await _is_at_rest(ports[0], process, files, range(count - leavers, count + 1))


async def _is_at_rest(port: int, process: psutil.Process, files: int, records: range) -> None:
    """Nothing hangs, nothing leaks, and each exchange left one record.

    A client that left may have taken its request along before we read it.
    """
    url = f"http://127.0.0.1:{port}"
    last = ""
    for _ in range(100):
        async with httpx.AsyncClient() as client:
            metrics = (await client.get(f"{url}/metrics")).text
        last = next(x for x in metrics.splitlines() if x.startswith(f"{PREFIX}journal_sequence"))
        idle = 'burnproof_gateway_in_flight{route="chat",arm=""} 0' in metrics
        if idle and int(last.split()[1]) in records and process.num_fds() <= files + 16:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"not at rest: {last}, {process.num_fds()} files, {files} at first")
