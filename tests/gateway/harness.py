"""A gateway in the test's own loop, before stubs that send exactly the bytes they are told."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

from gateway.app import GatewayServer
from gateway.config import GatewayConfig
from slo.records import Page, RequestRecord

TOKEN = "a-test-token-of-some-length"


@dataclass
class Seen:
    """A request as the stub got it."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes
    writer: asyncio.StreamWriter
    reader: asyncio.StreamReader

    def header(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def gone(self) -> None:
        """Wait until the other side has closed."""
        with suppress(ConnectionError):
            while await self.reader.read(65536):
                pass


Script = Callable[[Seen], Awaitable[None]]


class Stub:
    """A raw HTTP/1.1 server. The script answers; a connection goes on until it closes it."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.seen: list[Seen] = []
        self.connections = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while not writer.is_closing():
                seen = await read_request(reader, writer)
                self.seen.append(seen)
                await self.script(seen)
        writer.close()


async def read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *rest = head.rstrip("\r\n").split("\r\n")
    headers = [(key, value.strip()) for key, _, value in (each.partition(":") for each in rest)]
    low = {key.lower(): value for key, value in headers}
    body = b""
    if "content-length" in low:
        body = await reader.readexactly(int(low["content-length"]))
    return Seen(line, headers, body, writer, reader)


SSE_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(document: Any) -> bytes:
    return b"data: " + json.dumps(document, ensure_ascii=False).encode() + b"\n\n"


def token(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return event({"id": "x", "object": "chat.completion.chunk", "choices": [choice]})


ROLE = event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
FINISH = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
DONE = b"data: [DONE]\n\n"


def answer(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def streams(*events: bytes, pause: float = 0.0) -> Script:
    """Make a script that streams these events, one chunk each, with a pause before each."""

    async def script(seen: Seen) -> None:
        await seen.send(SSE_HEAD)
        for each in events:
            if pause:
                await asyncio.sleep(pause)
            await seen.send(chunk(each))
        await seen.send(END)

    return script


GOOD = (ROLE, token("a"), token("b"), token("c"), FINISH, DONE)
CHAT = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}


def good() -> Script:
    return streams(*GOOD)


def completes() -> Script:
    """Make a script that answers with one whole completion."""

    async def script(seen: Seen) -> None:
        choice = {"index": 0, "message": {"role": "assistant", "content": "a"}}
        body = json.dumps({"choices": [{**choice, "finish_reason": "stop"}]}).encode()
        await seen.send(answer(body, "Content-Type: application/json"))

    return script


@dataclass
class Gate:
    """A running gateway over stubs, with a client."""

    folder: Path
    replicas: dict[str, str]
    options: dict[str, Any] = field(default_factory=dict)
    tenants: dict[str, Any] | None = None
    tracing: dict[str, Any] = field(default_factory=dict)
    server: GatewayServer = field(init=False)
    client: aiohttp.ClientSession = field(init=False)

    def config(self) -> GatewayConfig:
        route = {
            "name": "chat",
            "replicas": [{"name": name, "url": url} for name, url in self.replicas.items()],
            **self.options,
        }
        token_file = self.folder / "token"
        token_file.write_text(TOKEN)
        document = {
            "admin_token_file": str(token_file),
            "journal_dir": str(self.folder / "state"),
            "routes": [route],
            "tenants": self.tenants,
            "tracing": self.tracing,
        }
        return GatewayConfig.model_validate_json(json.dumps(document))

    @property
    def file(self) -> Path:
        """The configuration file: what a reload reads."""
        return self.folder / "gateway.json"

    async def __aenter__(self) -> Self:
        config = self.config()
        self.file.write_text(config.model_dump_json())
        self.server = GatewayServer(config, TOKEN, self.file)
        await self.server.start()
        self.client = aiohttp.ClientSession(auto_decompress=False)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.client.close()
        await self.server.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    async def chat(self, conversation: str = "", **headers: str) -> tuple[int, bytes]:
        """Send one streamed chat request; return status and body."""
        if conversation:
            headers["x-conversation-id"] = conversation
        path = self.url + "/v1/chat/completions"
        async with self.client.post(path, json=CHAT, headers=headers) as response:
            return response.status, await response.read()

    async def admin(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        data = None if body is None else json.dumps(body).encode()
        url = f"{self.url}/_burnproof{path}"
        async with self.client.request(method, url, data=data, headers=headers) as response:
            return response.status, json.loads(await response.read())

    async def ok(self, method: str, path: str, body: Any = None) -> Any:
        status, document = await self.admin(method, path, body)
        assert status == 200, document
        return document

    async def lease(self, lease_id: str = "L", seconds: float = 20.0) -> Any:
        body = {"lease_id": lease_id, "run_id": "R", "route": "chat", "seconds": seconds}
        return await self.ok("POST", "/leases", body)

    async def put(self, item: str, kind: str, spec: dict[str, Any], lease: str = "L") -> Any:
        return await self.ok("PUT", f"/leases/{lease}/items/{item}", {"kind": kind, "spec": spec})

    async def fault(self, template: str, parameters: dict[str, Any], **more: Any) -> Any:
        """Put a fault `F` on every replica."""
        spec = {
            "template": template,
            "parameters": parameters,
            "replicas": list(self.replicas),
            "max_seconds": 60.0,
            "seed": 1,
            **more,
        }
        return await self.put("F", "fault", spec)

    async def page(self, query: str = "after=-1") -> Page:
        return Page.from_json(await self.ok("GET", f"/journal?{query}"))

    async def records(self) -> list[RequestRecord]:
        return (await self.page("after=-1&limit=10000")).records

    async def record(self) -> RequestRecord:
        """Return the only record, waiting for it: a client may be done before its record is."""
        return (await self.wait_records(1))[0]

    async def wait_records(self, count: int) -> list[RequestRecord]:
        async with asyncio.timeout(5):
            while True:
                found = await self.records()
                if len(found) >= count:
                    assert len(found) == count, found
                    return found
                await asyncio.sleep(0.005)


SPLIT = {
    "experiment": "e",
    "salt": "pepper",
    "share": 0.5,
    "control": ["a"],
    "chaos": ["b"],
    "unit": "conversation",
}
STALL = {"after_tokens": 2, "stall": 30.0, "probability": 1.0}
