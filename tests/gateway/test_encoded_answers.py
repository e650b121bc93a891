"""C83: an encoded answer leaves as it came, headers and length with it, whatever fault drew it."""

import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.harness import DONE, END, FINISH, Gate, Seen, Stub, answer, chunk, token

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda data: b"\x8b" + data[::-1],
    "zstd": lambda data: b"\x28\xb5\x2f\xfd" + data[::-1],
    "gzip, br": lambda data: b"\x8b" + gzip.compress(data)[::-1],
}
"""No library for the last three: what matters is that nobody here can read them either."""

VECTORS = {"data": [{"index": 0, "embedding": [0.1, 0.2]}]}
CALL = {"index": 0, "function": {"name": "f", "arguments": '{"a": 1}'}}
MESSAGE = {"choices": [{"index": 0, "message": {"tool_calls": [CALL]}, "finish_reason": "stop"}]}
STREAM = token("a") + token("b") + FINISH + DONE
PLAIN, SSE = "application/json", "text/event-stream"

FAULTS: dict[str, tuple[str, str, bytes, dict[str, Any]]] = {
    "gateway/constant-embeddings": (PLAIN, "/v1/embeddings", json.dumps(VECTORS).encode(), {}),
    "gateway/tool-calls": (PLAIN, "/v1/x", json.dumps(MESSAGE).encode(), {"kind": "truncated"}),
    "gateway/stream-cut": (SSE, "/v1/x", STREAM, {"after_tokens": 1}),
    "gateway/stream-garble": (SSE, "/v1/x", STREAM, {"after_tokens": 0}),
    "gateway/stream-stall": (SSE, "/v1/x", STREAM, {"after_tokens": 1, "stall": 60.0}),
    "gateway/latency-per-token": (SSE, "/v1/x", STREAM, {"delay": 30.0}),
    "gateway/error": (SSE, "/v1/x", STREAM, {"in_stream": True, "after_tokens": 1}),
    "gateway/slow-drip": (SSE, "/v1/x", STREAM, {"piece_bytes": 90, "pause": 0.001}),
}


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("encoding", PACKERS)
@pytest.mark.parametrize("template", FAULTS)
async def test_an_encoded_answer_is_passed_on_whole_by_every_fault_that_edits_bodies(
    tmp_path: Path, template: str, encoding: str, framing: str
):
    kind, path, body, given = FAULTS[template]
    packed = PACKERS[encoding](body)
    headers = (f"Content-Type: {kind}", f"Content-Encoding: {encoding}")

    async def script(seen: Seen) -> None:
        if framing == "length":
            await seen.send(answer(packed, *headers))
            return
        lines = ["HTTP/1.1 200 OK", *headers, "Transfer-Encoding: chunked"]
        half = len(packed) // 2
        framed = chunk(packed[:half]) + chunk(packed[half:]) + END
        await seen.send("\r\n".join(lines).encode() + b"\r\n\r\n" + framed)

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await gate.lease()
        await gate.fault(template, {"probability": 1.0, **given})
        sent = b'{"model":"m","stream":true}'
        async with gate.client.post(gate.url + path, data=sent) as got:
            assert await got.read() == packed
            assert (got.headers["Content-Encoding"], got.status) == (encoding, 200)
            length = str(len(packed)) if framing == "length" else None
            assert got.headers.get("Content-Length") == length
        record = await gate.record()
        acts = template == "gateway/slow-drip"  # pieces of bytes need no reading
        assert record.touched == (("F",) if acts else ())


@pytest.mark.parametrize("encoding", PACKERS)
async def test_an_encoded_request_body_reaches_the_replica_as_it_was_sent(
    tmp_path: Path, encoding: str
):
    packed = PACKERS[encoding](b'{"model":"m","stream":true}')

    async def script(seen: Seen) -> None:
        await seen.send(answer(b"{}"))

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        headers = {"Content-Encoding": encoding, "Content-Type": PLAIN}
        async with gate.client.post(gate.url + "/v1/x", data=packed, headers=headers) as got:
            assert got.status == 200
        assert stub.seen[0].body == packed
        assert stub.seen[0].header("content-encoding") == [encoding]
        assert stub.seen[0].header("content-length") == [str(len(packed))]
