"""The bench's load generator: so many connections, each sends the next request after its answer.

    python -m proxies.load --port 8000 --connections 16 --seconds 3 --kind sse

Prints one JSON line. An answer counts only if it is whole and is the upstream's, byte for byte
once its framing is off; anything else ends the run with an error.
"""

import argparse
import asyncio
import json
import time
from typing import Any, cast

import uvloop
from proxies.upstream import events, plain

WARM_SECONDS = 0.5
"""Time before the measurement in which answers are not counted."""

SAMPLES_CHECKED = 50
"""One answer of so many is taken apart and compared; all are checked for status and end."""


def request(kind: str, number: int, model: str, key: str) -> bytes:
    """Return a request as an OpenAI client writes it."""
    message = {"role": "user", "content": "Say something about the weather in Oslo, please. " * 3}
    document = {"model": model, "stream": kind == "sse", "messages": [message], "max_tokens": 16}
    body = json.dumps(document).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n"
        f"Accept-Encoding: identity\r\nAuthorization: Bearer {key}\r\n"
        "Content-Type: application/json\r\nUser-Agent: bench/1\r\n"
        f"x-conversation-id: c{number}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def unframed(answer: bytes) -> bytes:
    """Return the body of a whole answer without its framing."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in head.lower():
        return body
    found = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        found, body = found + body[:length], body[length + 2 :]
    return found


class Client(asyncio.Protocol):
    """One connection in a closed loop."""

    def __init__(self, load: "Load", number: int) -> None:
        self.load = load
        self.request = load.request(number)
        self.answer: list[bytes] = []
        self.left: int | None = None
        self.begun = False
        self.tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self.transport = cast(asyncio.Transport, transport)
        self.send()

    def send(self) -> None:
        """Send the next request."""
        self.answer, self.left, self.begun, self.tail = [], None, False, b""
        self.at = time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        """Take bytes of the answer; at its end count it and send again."""
        self.answer.append(data)
        if not self.begun:
            whole = b"".join(self.answer)
            head, found, body = whole.partition(b"\r\n\r\n")
            if not found:
                return
            self.begun = True
            if not head.startswith(b"HTTP/1.1 200"):
                self.load.fail(whole[:300])
                return
            low = head.lower()
            if b"content-length:" in low:
                length = low.partition(b"content-length:")[2].partition(b"\r\n")[0]
                self.left = int(length)
            data = body
        if self.left is not None:
            self.left -= len(data)
            is_whole = self.left == 0
        else:
            self.tail = (self.tail + data)[-7:]
            is_whole = self.tail == b"\r\n0\r\n\r\n"
        if is_whole:
            self.load.count(time.perf_counter() - self.at, self.answer)
            self.send()

    def connection_lost(self, error: Exception | None) -> None:
        """A lost connection is a failed run."""
        if not self.load.over:
            self.load.fail(f"connection lost: {error}".encode())


class Load:
    """All connections of a run."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.seconds: list[float] = []
        self.counted = 0
        self.counts = False
        self.over = False
        self.done = asyncio.Event()
        self.error = b""
        self.expected = b"".join(events()) if options.kind == "sse" else plain()

    def request(self, number: int) -> bytes:
        """Return the request of a connection."""
        return request(self.options.kind, number, self.options.model, self.options.key)

    def count(self, seconds: float, answer: list[bytes]) -> None:
        """Count an answer; compare some with what the upstream sent."""
        if self.counts:
            self.seconds.append(seconds)
        self.counted += 1
        if self.options.exact and self.counted % SAMPLES_CHECKED == 1:
            got = unframed(b"".join(answer))
            if got != self.expected:
                self.fail(b"another body than the upstream's: " + got[:200])

    def fail(self, error: bytes) -> None:
        """End the run."""
        self.error = self.error or error
        self.done.set()

    async def run(self) -> dict[str, Any]:
        """Run and return the figures."""
        loop = asyncio.get_running_loop()
        clients = []
        for number in range(self.options.connections):
            client = Client(self, number)
            clients.append(client)
            await loop.create_connection(
                lambda client=client: client, "127.0.0.1", self.options.port
            )
        await self._sleep(WARM_SECONDS)
        self.counts = True
        print("counting", flush=True)
        began = time.perf_counter()
        await self._sleep(self.options.seconds)
        wall = time.perf_counter() - began
        self.counts, self.over = False, True
        if self.error:
            return {"error": self.error.decode("utf-8", "replace")}
        found = sorted(self.seconds)
        if not found:
            return {"error": "no answer in time"}
        return {
            "requests": len(found),
            "requests_per_second": len(found) / wall,
            "p50_ms": found[len(found) // 2] * 1e3,
            "p99_ms": found[min(len(found) - 1, int(len(found) * 0.99))] * 1e3,
        }

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.done.wait()
        except TimeoutError:
            return


def main() -> None:
    """Run as asked and print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--kind", choices=["sse", "json"], default="sse")
    parser.add_argument("--model", default="m")
    parser.add_argument("--key", default="sk-bench")
    parser.add_argument("--exact", action="store_true", help="bodies must be the upstream's")
    options = parser.parse_args()

    async def run() -> dict[str, Any]:
        return await Load(options).run()

    print(json.dumps(uvloop.run(run())), flush=True)


if __name__ == "__main__":
    main()
