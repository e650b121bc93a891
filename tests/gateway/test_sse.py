"""The event reader: right lines, right tokens, and never an exception."""

import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import sse
from gateway.sse import SseReader

TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}'
LAST = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'


def read(*chunks: bytes) -> SseReader:
    reader = SseReader()
    for number, each in enumerate(chunks):
        reader.feed(each, float(number))
    return reader


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"], ids=["lf", "cr", "crlf"])
def test_every_line_end_of_the_standard_ends_an_event(end: bytes):
    body = TOKEN + end + end + LAST + end + end + b"data: [DONE]" + end + end
    for size in (1, 2, 3, len(body)):
        reader = read(*(body[i : i + size] for i in range(0, len(body), size)))
        facts = reader.facts
        assert (facts.content_chunks, facts.finished, facts.done) == (1, True, True)


def test_a_cr_and_an_lf_in_two_reads_are_one_line_end():
    facts = read(TOKEN + b"\r", b"\n\r", b"\n").facts
    assert facts.content_chunks == 1
    split = b'data: {"choices":[{"index":0,\r', b'\ndata: "delta":{"content":"x"}}]}\r', b"\n\r\n"
    assert read(*split).facts.content_chunks == 1


def test_a_data_field_over_several_lines_is_one_event():
    pieces = b'data: {"choices":[{"index":0,\ndata:"delta":{"content":"x"}}]}\n\n'
    assert read(pieces).facts.content_chunks == 1


def test_an_event_without_its_blank_line_is_not_yet_an_event():
    assert read(TOKEN + b"\n").facts.content_chunks == 0
    assert read(TOKEN + b"\n", b"\n").facts.content_chunks == 1


def test_gaps_are_measured_between_events_after_the_first_token_only():
    reader = SseReader()
    reader.feed(b": ping\n\n", 0.0)
    reader.feed(TOKEN + b"\n\n", 10.0)
    reader.feed(b": ping\n\n", 11.0)
    reader.feed(TOKEN + b"\n\n", 13.0)
    reader.feed(LAST + b"\n\n", 14.0)
    assert reader.facts.first_token_at == 10.0
    assert reader.facts.max_gap_s == 3.0
    reader.facts.note_end(99.0)
    assert reader.facts.max_gap_s == 3.0  # it had ended: the rest is not its silence


def test_the_silence_before_an_early_end_counts():
    reader = read(TOKEN + b"\n\n")
    reader.facts.note_end(7.0)
    assert reader.facts.max_gap_s == 7.0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"code": 500}, 500),
        ({"code": "503"}, 503),
        ({"code": "x"}, 0),
        ("text", 0),
        ({"code": None}, 0),
    ],
)
def test_the_code_of_an_error_object_is_read(error, code: int):
    facts = read(b"data: " + json.dumps({"error": error}).encode() + b"\n\n").facts
    assert facts.error and facts.error_code == code
    assert facts.content_chunks == 0


def test_an_error_that_is_null_is_no_error():
    document = {"error": None, "choices": [{"delta": {"content": "x"}}]}
    facts = read(b"data: " + json.dumps(document).encode() + b"\n\n").facts
    assert not facts.error and facts.content_chunks == 1


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_no_bytes_make_the_reader_raise(chunks: list[bytes]):
    read(*chunks)


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "delta", "content", "usage", "error", "tool_calls", "function", "index"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(ODD)
def test_no_document_makes_the_reader_raise(document):
    read(b"data: " + json.dumps(document).encode() + b"\n\n")


@given(st.integers(0, 2**32), st.integers(1, 9))
def test_the_facts_do_not_depend_on_where_the_network_cuts(seed: int, size: int):
    text = "안녕🌍\u2028"[seed % 5 :] or "x"
    event = json.dumps({"choices": [{"delta": {"content": text}}]}, ensure_ascii=False)
    body = b"data: " + event.encode() + b"\r\n\r\n" + LAST + b"\n\n" + b"data: [DONE]\n\n"
    pieces = [body[i : i + size] for i in range(0, len(body), size)]
    facts = read(*pieces).facts
    assert ("".join(facts.text), facts.content_chunks, facts.complete) == (text, 1, True)


PLAIN = json.dumps({"id": "c", "choices": [{"index": 0, "delta": {"content": "TEXT"}}]})
ODD_CHUNKS = (
    PLAIN.replace("0", "1"),
    PLAIN.replace('"id"', '"content"'),
    PLAIN.replace("}}]}", ',"reasoning":"r"}}]}'),
    PLAIN.replace("}}]}", ',"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}}]}'),
    PLAIN.replace("}}]}", '},"finish_reason":"stop"}]}'),
    PLAIN.replace("}}]}", '}}],"usage":{"completion_tokens":7,"prompt_tokens":2}}'),
    PLAIN.replace("}}]}", '}}],"error":{"code":500}}'),
    PLAIN.replace("}}]}", '}}],"type":"message_stop"}'),
    PLAIN.replace("}}]}", '}},{"index":1,"delta":{"content":"TEXT"}}]}'),
    PLAIN.replace("}}]}", '}}],"choices":[]}'),
    PLAIN + " x",
    '{"choices":[{"index":0,"text":"TEXT"}]}',
    '{"choices":[{"index":0,"delta":{"content":null},"text":"TEXT"}]}',
    '{"choices":[{"delta":{},"message":{"content":"m"},"text":"TEXT"}]}',
    "[DONE]",
    "",
)
TEXTS = st.one_of(
    st.text(max_size=4),
    st.sampled_from(["a", "\\n", "\\", '"', '"}', "\\u0041", "\\ud83d", "\x01", "\u2028", ""]),
)


@given(
    st.lists(st.tuples(st.one_of(st.just(PLAIN), st.sampled_from(ODD_CHUNKS)), TEXTS), max_size=12),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.lists(st.integers(1, 120), max_size=20),
    st.booleans(),
)
def test_a_recognised_chunk_leaves_the_same_facts_as_a_parsed_one(
    chunks: list[tuple[str, str]], end: str, cuts: list[int], whole: bool
):
    events = [
        f"data: {shape.replace('TEXT', text)}{end}{end}".encode("utf-8", "surrogatepass")
        for shape, text in chunks
    ]
    pieces = events if whole else _cut(b"".join(events), cuts)
    learning, parsing = SseReader(), SseReader()
    parsing._lessons = 0
    for number, piece in enumerate(pieces):
        for reader in (learning, parsing):
            reader.feed(piece, float(number))
    seen, expected = asdict(learning.facts), asdict(parsing.facts)
    assert seen.pop("tools").joined() == expected.pop("tools").joined()
    assert seen == expected


def _cut(body: bytes, cuts: list[int]) -> list[bytes]:
    pieces = []
    for size in cuts:
        pieces.append(body[:size])
        body = body[size:]
    return [*pieces, body]


def test_a_stream_is_parsed_for_its_first_token_only(monkeypatch):
    parsed = []
    decode = sse._decode
    monkeypatch.setattr(sse, "_decode", lambda text: parsed.append(text) or decode(text))
    text = [f"token {n} 안녕" for n in range(50)]
    facts = read(*(b"data: " + PLAIN.replace("TEXT", each).encode() + b"\n\n" for each in text))
    assert facts.facts.text == text
    assert len(parsed) == 1
