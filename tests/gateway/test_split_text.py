"""Text that is cut in bad places: half characters (C79), odd separators (C81), half calls (C21)."""

import asyncio
import gzip
import json
import time
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.encodings import decode_body, decoder_for
from gateway.events import Events, data_of
from gateway.sse import SseReader
from tests.gateway.harness import DONE, END, FINISH, SSE_HEAD, Gate, Seen, Stub, chunk, token
from text.flags import response_flags
from traffic.stream import StreamReader

CHARACTERS = ("é", "안", "🌍", "你🌍é")
"""Of two, three and four bytes, and side by side."""


def splits(data: bytes) -> Iterator[list[bytes]]:
    """Give every way to cut some bytes into pieces."""
    for bits in range(2 ** (len(data) - 1)):
        at = [0, *(n for n in range(1, len(data)) if bits >> (n - 1) & 1), len(data)]
        yield [data[start:end] for start, end in pairwise(at)]


def cut_streams(text: str) -> Iterator[tuple[bytes, list[bytes]]]:
    """Give a stream with this text, and its bytes with the text cut in every way."""
    whole = token("x") + token(text) + FINISH + DONE
    before, raw, after = whole.partition(text.encode())
    for pieces in splits(raw):
        yield whole, [before, *pieces, after]


@pytest.mark.parametrize("text", CHARACTERS)
def test_every_split_of_a_character_is_read_as_that_character_by_every_reader(text: str):
    for whole, pieces in cut_streams(text):
        ours, client, events = SseReader(), StreamReader(), Events()
        cut = []
        for piece in pieces:
            ours.feed(piece, 1.0)
            client.feed(piece, 1.0)
            cut += events.feed(piece)
        assert "".join(ours.facts.text) == client.text == "x" + text
        assert b"".join(cut) == whole
        assert [json.loads(data_of(each))["choices"][0]["delta"] for each in cut[:2]] == [
            {"content": "x"},
            {"content": text},
        ]


@pytest.mark.parametrize("text", CHARACTERS[:3])
@pytest.mark.parametrize(
    "fault",
    [
        None,
        ("gateway/latency-per-token", {"delay": 0.001}),
        ("gateway/slow-drip", {"piece_bytes": 5, "pause": 0.001}),
        ("gateway/stream-cut", {"after_tokens": 9}),
    ],
    ids=["no fault", "time of events", "pieces of bytes", "a cut that does not come"],
)
async def test_every_split_of_a_character_passes_byte_for_byte(
    tmp_path: Path, text: str, fault: tuple[str, dict[str, Any]] | None
):
    waiting = list(cut_streams(text))

    async def script(seen: Seen) -> None:
        _, pieces = waiting[int(seen.line.split("?n=")[1].split()[0])]
        await seen.send(SSE_HEAD)
        for piece in pieces:
            await seen.send(chunk(piece))
            await asyncio.sleep(0)
        await seen.send(END)

    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        if fault is not None:
            await gate.lease()
            await gate.fault(fault[0], {"probability": 1.0, **fault[1]})
        for number, (whole, _) in enumerate(waiting):
            async with gate.client.post(gate.url + f"/x?n={number}", data=b"{}") as got:
                assert await got.read() == whole
        for record in await gate.wait_records(len(waiting)):
            assert (record.outcome, record.tokens, record.flags) == ("ok", 2, ())


SEPARATORS = ("\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e")
"""What universal line splitting takes for an end of line, and the standard does not."""


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("odd", SEPARATORS, ids=ascii)
def test_no_odd_separator_ends_a_line_wherever_the_network_cuts(odd: str, end: str):
    raw = f'data: {{"choices":[{{"index":0,"delta":{{"content":"a{odd}b"}}}}]}}'
    last = 'data: {"choices":[{"index":0,"delta":{"content":"c"},"finish_reason":"stop"}]}'
    body = f"{raw}{end}{end}{last}{end}{end}data: [DONE]{end}{end}".encode()
    # a control character must not stand raw in a string of JSON, so such an event has no text
    text = ["c"] if odd < " " else [f"a{odd}b", "c"]
    for at in range(len(body) + 1):
        ours, events = SseReader(), Events()
        cut = []
        for piece in (body[:at], body[at:]):
            ours.feed(piece, 1.0)
            cut += events.feed(piece)
        assert ours.facts.text == text
        assert ours.facts.complete and not ours.facts.error
        assert b"".join([*cut, events.rest()]) == body
        data = [found for each in cut if (found := data_of(each))]
        assert data == [raw[6:].encode(), last[6:].encode(), b"[DONE]"]


@pytest.mark.parametrize("odd", SEPARATORS, ids=ascii)
def test_our_own_client_does_not_cut_there_either(odd: str):
    raw = f'data: {{"choices":[{{"index":0,"delta":{{"content":"a{odd}b"}}}}]}}\n\n'
    reader = StreamReader()
    for byte in raw.encode() + FINISH + DONE:
        reader.feed(bytes([byte]), 1.0)
    assert reader.complete
    assert reader.text == ("" if odd < " " else f"a{odd}b")


CALLS = st.lists(
    st.tuples(
        st.dictionaries(st.text(max_size=4), st.text(max_size=4) | st.integers(), max_size=3),
        st.booleans(),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=50)
@given(CALLS, st.integers(1, 7), st.integers(1, 80), st.randoms(use_true_random=False))
def test_tool_calls_are_judged_by_their_sum_however_they_were_cut(
    calls: list[tuple[dict[str, Any], bool]], tokens: int, network: int, chance: Any
):
    """C21: each piece may be well-formed while the sum lacks its last brace; calls interleave."""
    waiting, valid = [], True
    for index, (fields, lost) in enumerate(calls):
        arguments = json.dumps(fields, ensure_ascii=False)
        arguments = arguments[:-1] if lost else arguments
        valid &= not lost
        pieces = [arguments[n : n + tokens] for n in range(0, len(arguments), tokens)]
        waiting.append([(index, piece) for piece in pieces])
    sent = b""
    while any(waiting):
        index, piece = chance.choice([each for each in waiting if each]).pop(0)
        call = {"index": index, "function": {"arguments": piece}}
        delta = {"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}
        sent += b"data: " + json.dumps(delta).encode() + b"\n\n"
    sent += FINISH + DONE
    reader = SseReader()
    for start in range(0, len(sent), network):
        reader.feed(sent[start : start + network], 1.0)
    flags = response_flags("", reader.facts.tools.joined())
    assert flags == (() if valid else ("bad_tool_json",))
    assert reader.facts.complete


@pytest.mark.parametrize("kind", ["gzip", "deflate", "raw"])
@given(st.lists(st.integers(1, 9), max_size=60))
@example([1])
@example([1] * 400)
def test_an_encoded_stream_is_read_wherever_it_is_cut(kind: str, sizes: list[int]):
    """Also a gzip body of several members, which some servers send, one a flush."""
    text = token("안") + token("🌍") + FINISH + DONE
    if kind == "gzip":
        packed = b"".join(gzip.compress(text[n : n + 50], mtime=0) for n in range(0, len(text), 50))
    else:
        packer = zlib.compressobj(wbits=-15 if kind == "raw" else 15)
        packed = packer.compress(text) + packer.flush()
    decoder = decoder_for("gzip" if kind == "gzip" else "deflate")
    assert decoder is not None
    out = b""
    for size in [*sizes, len(packed)]:
        out += decoder.decode(packed[:size])
        packed = packed[size:]
    assert out == text


EMPTY_MEMBER = gzip.compress(b"", mtime=0)
"""Its name in the list of tests must not depend on the time."""


@pytest.mark.parametrize("after", [b"", b"\x00" * 9, b"garbage", EMPTY_MEMBER[:-3]], ids=repr)
def test_what_follows_the_last_member_spoils_nothing_that_came_before(after: bytes):
    for size in (1, 7, 10_000):
        decoder = decoder_for("gzip")
        assert decoder is not None
        packed = gzip.compress(b"first ") + gzip.compress(b"second") + after
        pieces = [packed[n : n + size] for n in range(0, len(packed), size)]
        assert b"".join(decoder.decode(piece) for piece in pieces) == b"first second"


def test_a_request_of_a_million_empty_members_costs_no_second():
    body = gzip.compress(b"") * 1_000_000
    began = time.monotonic()
    assert decode_body(body, "gzip") == b""
    assert time.monotonic() - began < 1
