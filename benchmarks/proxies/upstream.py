"""The bench's upstream: 17 chunks of SSE, or one JSON answer, as an engine would write them.

    python -m proxies.upstream

Prints its port. Each chunk is a write of its own, one turn of the loop after the other, so that a
proxy gets them as it would from an engine that streams tokens, only without the pauses.
"""

import asyncio
import json
from typing import cast

import uvloop

CHUNKS = 17


def _event(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    document = {
        "id": "chatcmpl-0123456789abcdef0123456789abcdef",
        "object": "chat.completion.chunk",
        "created": 1_790_000_000,
        "model": "m",
        "choices": [choice],
    }
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"


def events() -> list[bytes]:
    """Return the events of a stream: role, tokens, finish, done."""
    tokens = [_event({"content": f" token{n}"}) for n in range(CHUNKS - 3)]
    role = _event({"role": "assistant", "content": ""})
    return [role, *tokens, _event({"content": ""}, "stop"), b"data: [DONE]\n\n"]


def plain() -> bytes:
    """Return the JSON answer."""
    message = {"role": "assistant", "content": " token" * 14}
    document = {
        "id": "chatcmpl-0123456789abcdef0123456789abcdef",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 14, "total_tokens": 26},
    }
    return json.dumps(document).encode()


HEAD = (
    b"HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 12:00:00 GMT\r\nserver: bench\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
STREAM = [b"%x\r\n%b\r\n" % (len(each), each) for each in events()]
STREAM[0] = HEAD + STREAM[0]
STREAM[-1] += b"0\r\n\r\n"
PLAIN = (
    b"HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 12:00:00 GMT\r\nserver: bench\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(plain()), plain())
)


class Engine(asyncio.Protocol):
    """Answers each request; reads its head, and its body by length or by chunks."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self.transport = cast(asyncio.Transport, transport)
        self.loop = asyncio.get_running_loop()
        self.data = b""

    def data_received(self, data: bytes) -> None:
        """Answer once a request is whole."""
        self.data += data
        head, found, body = self.data.partition(b"\r\n\r\n")
        if not found:
            return
        low = head.lower()
        if b"transfer-encoding: chunked" in low:
            if not body.endswith(b"0\r\n\r\n"):
                return
        elif b"content-length:" in low:
            length = int(low.partition(b"content-length:")[2].partition(b"\r\n")[0])
            if len(body) < length:
                return
        self.data = b""
        if b'"stream":true' in body.replace(b" ", b""):
            self.write(0)
        else:
            self.transport.write(PLAIN)

    def write(self, number: int) -> None:
        """Write one chunk now and the next one in the next turn."""
        if self.transport.is_closing():
            return
        self.transport.write(STREAM[number])
        if number + 1 < len(STREAM):
            self.loop.call_soon(self.write, number + 1)


async def main() -> None:
    """Serve until killed."""
    server = await asyncio.get_running_loop().create_server(Engine, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main())
