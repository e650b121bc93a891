"""The soak's client: it draws requests, sends them on raw sockets, and says what it saw of each.

What it says comes from the bytes that it got and from nothing that the gateway told. A request is
asked within a conversation, one at a time, so that the n-th request of a conversation and tenant is
the n-th record of that unit and tenant: so the two sides are held against one another later.
"""

import asyncio
import json
import random
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tests.gateway.raw_client import Got, read_answer

MODEL = "tiny-chat"
PATIENCE_SECONDS = 60.0
"""A request that has not ended by then hangs."""

KEPT_SECONDS = 20.0
"""Idle time after which a connection is not used again."""

TENANTS = 64
LEAVES = 0.03
"""Share of requests whose client goes away."""

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["days"],
        },
    },
}


class Saw(StrEnum):
    """How a request ended for its client."""

    OK = "ok"
    REFUSED = "refused"
    """A status of 400 or more."""
    ERROR = "error in the stream"
    CUT = "cut"
    """A stream without its last words, or a plain answer that broke off."""
    LEFT = "left"
    """The client itself went away."""
    NOTHING = "nothing"
    """The connection ended without an answer."""
    HANGS = "hangs"


@dataclass(slots=True)
class Asked:
    """A request that was sent, and its end."""

    number: int
    conversation: str
    use: int
    """How often its conversation had been used before."""
    kind: str
    saw: Saw | None = None
    status: int = 0

    @property
    def tenant(self) -> str:
        return f"t{self.use % TENANTS}"


def judge(kind: str, got: Got) -> Saw:
    """Say what an answer was, by its bytes."""
    if not got.status:
        return Saw.NOTHING
    if got.status >= 400:
        return Saw.REFUSED
    if not kind.endswith("stream"):
        return Saw.OK if got.whole else Saw.CUT
    is_error = is_over = False
    for event in got.body.split(b"\n\n"):
        data = event.removeprefix(b"data: ")
        is_over |= data == b"[DONE]"
        document = _object(data)
        is_error |= bool(document.get("error"))
        for choice in document.get("choices") or ():
            is_over |= bool(choice.get("finish_reason"))
    if is_error:
        return Saw.ERROR
    return Saw.OK if is_over else Saw.CUT


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def draw(chance: random.Random) -> tuple[str, str, dict[str, Any]]:
    """Draw kind, path and body of a request."""
    kind = chance.choices(
        ["chat stream", "chat", "tool stream", "tool", "embeddings"], [60, 12, 8, 8, 12]
    )[0]
    if kind == "embeddings":
        return kind, "/v1/embeddings", {"model": MODEL, "input": ["a river", "a hill"]}
    text = f"Tell me about number {chance.randrange(1000)}, please."
    body: dict[str, Any] = {
        "model": MODEL,
        "stream": kind.endswith("stream"),
        "max_tokens": chance.randrange(6, 14),
        "messages": [{"role": "user", "content": text}],
    }
    if kind.startswith("tool"):
        choice = {"type": "function", "function": {"name": "weather"}}
        body |= {"tools": [TOOL], "tool_choice": choice}
    return kind, "/v1/chat/completions", body


@dataclass
class Connection:
    """A socket to the gateway."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    since: float = field(default_factory=time.monotonic)


class Client:
    """Asks at a steady rate, whatever becomes of the answers, up to a bound of open requests."""

    def __init__(self, port: int, rate: float, seed: int, conversations: int = 300) -> None:
        self.asked: list[Asked] = []
        """Every request that was sent, in its order."""
        self.postponed = 0
        """Ticks without a request: every conversation was busy, as on a starved machine."""
        self._port = port
        self._rate = rate
        self._chance = random.Random(seed)
        self._free = deque(f"conversation-{n}" for n in range(conversations))
        self._uses: Counter[str] = Counter()
        self._idle: list[Connection] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, over: asyncio.Event) -> None:
        """Send until told to stop, then wait for what is open."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while not over.is_set():
            due += 1 / self._rate
            if self._free:
                task = asyncio.create_task(self._ask(self._begin()))
                self._tasks.add(task)
                task.add_done_callback(self._done)
            else:
                self.postponed += 1
            due = max(due, loop.time() - 1.0)  # a stalled machine is not made to catch up
            await asyncio.sleep(max(0.0, due - loop.time()))
        while self._tasks:
            await asyncio.wait(self._tasks)
        for connection in self._idle:
            connection.writer.transport.abort()
        await asyncio.sleep(0)

    def counts(self) -> Counter[str]:
        """Return how many requests ended how."""
        return Counter("open" if each.saw is None else each.saw.value for each in self.asked)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        task.result()

    def _begin(self) -> Asked:
        conversation = self._free.popleft()
        asked = Asked(len(self.asked), conversation, self._uses[conversation], "")
        self._uses[conversation] += 1
        self.asked.append(asked)
        return asked

    async def _ask(self, asked: Asked) -> None:
        chance = self._chance
        asked.kind, path, body = draw(chance)
        leaves = chance.random() < LEAVES
        data = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: soak\r\nContent-Type: application/json\r\n"
            f"x-conversation-id: {asked.conversation}\r\nx-tenant-id: {asked.tenant}\r\n"
            f"x-extra: {asked.number}\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                connection = await self._connect()
                connection.writer.write(head.encode() + data)
                if leaves:
                    await self._leave(connection, chance.random() * 0.03)
                    asked.saw = Saw.LEFT
                else:
                    got = await read_answer(connection.reader)
                    asked.saw, asked.status = judge(asked.kind, got), got.status
                    self._keep(connection, closes=got.closes)
        except TimeoutError:
            asked.saw = Saw.HANGS
        finally:
            self._free.append(asked.conversation)

    async def _connect(self) -> Connection:
        oldest = time.monotonic() - KEPT_SECONDS
        while self._idle:
            connection = self._idle.pop()
            if connection.since > oldest and not connection.reader.at_eof():
                return connection
            connection.writer.transport.abort()
        return Connection(*await asyncio.open_connection("127.0.0.1", self._port))

    def _keep(self, connection: Connection, *, closes: bool) -> None:
        if closes:
            connection.writer.transport.abort()
        else:
            connection.since = time.monotonic()
            self._idle.append(connection)

    async def _leave(self, connection: Connection, seconds: float) -> None:
        """Go away once the request is out, before or in the middle of its answer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await connection.reader.read(1 << 16)
        connection.writer.close()
        with suppress(ConnectionError):
            await connection.writer.wait_closed()
