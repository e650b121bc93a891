"""What each fault does to an answer, without a socket: the steps, whatever the chunking."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from gateway.rewrites import constant_embeddings, spoil_arguments
from gateway.shaping import Close, Cut, Send, Wait, shaper_for
from gateway.stream_shapers import spoil
from tests.gateway.harness import DONE, FINISH, ROLE, event, token
from tests.gateway.shapes import (
    PLAIN,
    SSE,
    flight,
    item,
    joined_arguments,
    sent,
    shaper,
    steps,
    tool_chunk,
    waits,
)

STREAM = b"".join((ROLE, token("a"), b": ping\n\n", token("b é\u2028"), token("c"), FINISH, DONE))

IDLE = {
    "gateway/stream-stall": {"after_tokens": 99, "stall": 1.0},
    "gateway/stream-cut": {"after_tokens": 99},
    "gateway/stream-garble": {"after_tokens": 99},
    "gateway/error": {"in_stream": True, "after_tokens": 99},
    "gateway/tool-calls": {"kind": "truncated"},
}
"""Faults that this stream is too short for, or has nothing for."""

TIMING: dict[str, dict[str, Any]] = {
    "gateway/stream-stall": {"after_tokens": 2, "stall": 1.0},
    "gateway/latency-per-token": {"delay": 0.1},
    "gateway/slow-drip": {"piece_bytes": 7, "pause": 0.1},
}
"""Faults that change when bytes come, and no byte."""


def cuts(data: bytes) -> st.SearchStrategy[list[bytes]]:
    places = st.lists(st.integers(0, len(data)), max_size=12).map(sorted)
    return places.map(
        lambda at: [data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)]
    )


BODIES = st.one_of(
    st.just(STREAM),
    st.just(STREAM.replace(b"\n", b"\r\n")),
    st.just(STREAM.replace(b"\n", b"\r")),
    st.binary(max_size=60),
    st.lists(st.sampled_from([b"\r", b"\n", b"data: {}", b"data:", b": x"])).map(b"".join),
).flatmap(cuts)


@given(chunks=BODIES, template=st.sampled_from(sorted(IDLE)))
def test_what_cannot_act_changes_no_byte_of_any_chunking_and_is_not_counted(
    chunks: list[bytes], template: str
) -> None:
    it = flight(item(template, **IDLE[template]))
    found = steps(shaper(it), *chunks)
    assert all(isinstance(step, Send) for step in found)
    assert sent(found) == b"".join(chunks)
    assert it.touched == []


@given(chunks=BODIES, template=st.sampled_from(sorted(TIMING)))
def test_what_changes_time_changes_no_byte(chunks: list[bytes], template: str) -> None:
    found = steps(shaper(flight(item(template, **TIMING[template]))), *chunks)
    assert all(isinstance(step, Send | Wait) for step in found)
    assert sent(found) == b"".join(chunks)


ACTING: dict[str, dict[str, Any]] = {
    **TIMING,
    "gateway/stream-cut": {"after_tokens": 9},
    "gateway/stream-garble": {"after_tokens": 9},
    "gateway/tool-calls": {"kind": "truncated"},
}


@given(chunks=BODIES, template=st.sampled_from(sorted(ACTING)), at=st.integers(0, 12))
def test_an_item_that_ends_in_the_middle_lets_everything_through_from_then_on(
    chunks: list[bytes], template: str, at: int
) -> None:
    fault = item(template, **ACTING[template])
    made = shaper(flight(fault))
    early = [step for chunk in chunks[:at] for step in made.feed(chunk)]
    fault.end()
    late = steps(made, *chunks[at:])
    assert all(isinstance(step, Send) for step in late)
    assert sent(early) + sent(late) == b"".join(chunks)


def test_an_item_that_ends_during_its_wait_does_not_wait_again() -> None:
    fault = item("gateway/slow-drip", piece_bytes=1, pause=9.0)
    found = []
    for step in shaper(flight(fault)).feed(STREAM):
        found.append(step)
        if isinstance(step, Wait):
            fault.end()
    assert len(waits(found)) == 1
    assert sent(found) == STREAM


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_stall_comes_once_before_the_event_after_its_tokens(size: int) -> None:
    it = flight(item("gateway/stream-stall", after_tokens=2, stall=1.5))
    chunks = [STREAM[i : i + size] for i in range(0, len(STREAM), size)]
    found = steps(shaper(it), *chunks)
    assert waits(found) == [1.5]
    at = next(i for i, step in enumerate(found) if isinstance(step, Wait))
    assert sent(found[:at]) == STREAM[: STREAM.index(token("c"))]
    assert it.touched == list(it.armed)


def test_a_delay_per_token_comes_before_each_token_and_nothing_else() -> None:
    found = steps(shaper(flight(item("gateway/latency-per-token", delay=0.25))), STREAM)
    assert waits(found) == [0.25] * 3
    befores = [found[i + 1] for i, step in enumerate(found) if isinstance(step, Wait)]
    assert befores == [Send(token("a")), Send(token("b é\u2028")), Send(token("c"))]


@pytest.mark.parametrize(
    ("options", "tail", "last"),
    [
        ({"ending": "abrupt"}, b"", Cut),
        ({"ending": "clean"}, b"", Close),
        ({"ending": "clean", "done": True}, DONE, Send),
        ({"ending": "clean", "final_chunk": True}, FINISH, Send),
        ({"ending": "clean", "final_chunk": True, "done": True}, FINISH + DONE, Send),
        ({"ending": "abrupt", "final_chunk": True, "done": True}, FINISH + DONE, Cut),
    ],
    ids=str,
)
@pytest.mark.parametrize("size", [1, 10_000])
def test_a_cut_loses_what_follows_its_token_but_what_may_pass(
    options: dict[str, Any], tail: bytes, last: type, size: int
) -> None:
    it = flight(item("gateway/stream-cut", after_tokens=1, **options))
    found = steps(shaper(it), *(STREAM[i : i + size] for i in range(0, len(STREAM), size)))
    assert sent(found) == ROLE + token("a") + tail
    assert isinstance(found[-1], last)
    assert it.touched == list(it.armed)


def test_an_error_in_the_middle_comes_after_its_tokens_and_ends_the_stream_as_engines_do() -> None:
    fault = item("gateway/error", status=500, in_stream=True, after_tokens=2)
    found = steps(shaper(flight(fault)), STREAM)
    assert found[-1] == Close(fault)
    head = STREAM[: STREAM.index(token("c"))]
    assert sent(found).startswith(head)
    error, done, rest = sent(found)[len(head) :].partition(b"\n\ndata: [DONE]\n\n")
    assert json.loads(error.removeprefix(b"data: "))["error"]["code"] == 500
    assert done and not rest


@pytest.mark.parametrize("kind", ["flip-byte", "half-event", "invalid-utf8"])
@given(u=st.floats(0, 1, exclude_max=True), text=st.text(max_size=20))
def test_a_spoilt_event_is_one_event_and_no_json(kind: str, u: float, text: str) -> None:
    raw = token(text)
    spoilt = spoil(raw, kind, u)
    assert spoilt.startswith(b"data: ") or kind == "flip-byte"
    assert spoilt.endswith(b"\n\n") and spoilt.count(b"\n\n") == 1
    with pytest.raises(ValueError):  # UnicodeDecodeError is one
        json.loads(spoilt.removeprefix(b"data: "))
    if kind == "flip-byte":
        assert len(spoilt) == len(raw)
        assert sum(a != b for a, b in zip(spoilt, raw, strict=True)) == 1


def test_one_event_is_garbled_and_the_others_are_as_they_were() -> None:
    found = steps(shaper(flight(item("gateway/stream-garble", after_tokens=1))), STREAM)
    before, after = sent(found).split(b"\n\n"), STREAM.split(b"\n\n")
    assert [a == b for a, b in zip(before, after, strict=True)].count(False) == 1
    assert before[3] != after[3]  # the comment is no JSON


def test_a_drip_cuts_every_body_in_pieces_with_pauses_between() -> None:
    made = shaper(flight(item("gateway/slow-drip", piece_bytes=4, pause=0.5)), {}, 500)
    found = steps(made, b"0123456789", b"ab")
    assert [step.data for step in found if isinstance(step, Send)] == [
        b"0123",
        b"4567",
        b"89",
        b"ab",
    ]
    assert waits(found) == [0.5] * 3


ARGUMENTS = '{"days": 3, "city": "Oslo"}'


@pytest.mark.parametrize("pieces", [1, 2, 7])
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("truncated", '{"days": 3, "'),
        ("missing-required", '{"days": 3}'),
        ("wrong-type", '{"days": 3, "city": 0}'),
    ],
)
def test_streamed_tool_calls_are_spoilt_the_same_however_they_were_cut(
    pieces: int, kind: str, expected: str
) -> None:
    size = -(-len(ARGUMENTS) // pieces)
    parts = [ARGUMENTS[i : i + size] for i in range(0, len(ARGUMENTS), size)]
    chunks = [tool_chunk("", "weather"), *map(tool_chunk, parts)]
    events = [ROLE, *map(event, chunks), event(tool_chunk(None, finish="tool_calls")), DONE]
    it = flight(item("gateway/tool-calls", kind=kind), required_fields={"weather": ("city",)})
    found = steps(shaper(it), *events)
    body = sent(found)
    assert joined_arguments(body) == expected
    assert body.startswith(ROLE) and body.endswith(events[-2] + DONE)
    assert body.count(b"\n\n") == len(events)
    assert it.touched == list(it.armed)


def test_a_longer_spoilt_text_loses_nothing() -> None:
    events = [event(tool_chunk('{"n"')), event(tool_chunk(":1}")), FINISH]
    it = flight(item("gateway/tool-calls", kind="wrong-type"))
    assert joined_arguments(sent(steps(shaper(it), *events))) == '{"n": "1"}'


@pytest.mark.parametrize("kind", ["truncated", "missing-required", "wrong-type"])
def test_tool_calls_of_a_plain_answer_are_spoilt_and_others_left(kind: str) -> None:
    call = {"function": {"name": "weather", "arguments": ARGUMENTS}}
    body = json.dumps({"choices": [{"message": {"tool_calls": [call]}}]}).encode()
    it = flight(item("gateway/tool-calls", kind=kind))
    document = json.loads(sent(steps(shaper(it, PLAIN), body[:20], body[20:])))
    new = document["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
    assert new == spoil_arguments(ARGUMENTS, kind, ())
    assert it.touched == list(it.armed)
    plain = b'{ "choices": [ {"message": {"content": "x"}} ] }'
    it = flight(item("gateway/tool-calls", kind=kind))
    assert sent(steps(shaper(it, PLAIN), plain)) == plain
    assert it.touched == []


def test_a_plain_answer_that_is_held_back_is_let_go_when_the_item_ends() -> None:
    fault = item("gateway/tool-calls", kind="truncated")
    made = shaper(flight(fault), PLAIN)
    assert list(made.feed(b'{"choices":')) == []
    fault.end()
    assert steps(made, b" []}") == [Send(b'{"choices": []}')]


@pytest.mark.parametrize("arguments", ["", "[]", "{}", "no json", '{"a": '])
def test_arguments_that_cannot_lose_a_field_are_left(arguments: str) -> None:
    assert spoil_arguments(arguments, "missing-required", ()) is None
    assert spoil_arguments(arguments, "wrong-type", ()) is None


def test_embeddings_become_one_vector_of_their_dimension_in_both_forms() -> None:
    import base64
    import struct

    packed = base64.b64encode(struct.pack("<4f", 1, 2, 3, 4)).decode()
    document: dict[str, Any] = {"data": [{"embedding": [1.0, 2.0]}, {"embedding": packed}]}
    assert constant_embeddings(document, "unit")
    assert document["data"][0]["embedding"] == pytest.approx([0.5**0.5] * 2)
    raw = base64.b64decode(document["data"][1]["embedding"])
    assert struct.unpack("<4f", raw) == (0.5, 0.5, 0.5, 0.5)
    assert constant_embeddings(document, "zeros")
    assert document["data"][0]["embedding"] == [0.0, 0.0]
    for other in ({}, {"data": [{"embedding": "no base64!"}]}, {"data": 3}):
        assert not constant_embeddings(other, "unit")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({**SSE, "Content-Encoding": "gzip"}, 200),
        (SSE, 500),
        (SSE, 204),
        ({"Content-Type": "text/plain"}, 200),
        (PLAIN, 200),
    ],
    ids=str,
)
def test_an_answer_that_a_fault_cannot_change_is_shaped_by_nobody(
    headers: dict[str, str], status: int
) -> None:
    it = flight(item("gateway/stream-cut", after_tokens=1))
    assert shaper_for(it, status, CIMultiDict(headers)) is None


def test_the_length_is_taken_away_only_where_bytes_may_change() -> None:
    for template, given_, kept in (
        ("gateway/slow-drip", {}, True),
        ("gateway/stream-stall", {"after_tokens": 1, "stall": 1.0}, True),
        ("gateway/stream-cut", {"after_tokens": 1}, False),
    ):
        headers = CIMultiDict({**SSE, "Content-Length": "9"})
        assert shaper_for(flight(item(template, **given_)), 200, headers)
        assert ("Content-Length" in headers) is kept


@pytest.mark.parametrize("reverse", [False, True])
def test_faults_on_one_answer_act_in_one_order_whichever_came_first(reverse: bool) -> None:
    items = [
        item("gateway/slow-drip", piece_bytes=10_000, pause=0.5),
        item("gateway/stream-cut", after_tokens=1, ending="clean", final_chunk=True),
        item("gateway/stream-stall", after_tokens=1, stall=2.0),
    ]
    it = flight(*(reversed(items) if reverse else items))
    found = steps(shaper(it), STREAM)
    assert sent(found) == ROLE + token("a") + FINISH
    assert 2.0 in waits(found)
    assert set(it.touched) == set(items)
