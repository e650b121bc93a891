import pytest
from hypothesis import given
from hypothesis import strategies as st

from traffic.stream import StreamReader

ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
WORD = b'data: {"choices":[{"index":0,"delta":{"content":"w"},"finish_reason":null}]}\n\n'
TOOL = b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0}]}}]}\n\n'
LAST = b'data: {"choices":[{"index":0,"delta":{"content":"w"},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"completion_tokens":9}}\n\n'
ERROR = b'data: {"error":{"message":"boom","code":500}}\n\n'
DONE = b"data: [DONE]\n\n"
NOISE = b": ping\n\ndata:\n\n" + b'data: {"choices":[],"cost":"0","id":""}\n\n'


def read(*pieces):
    reader = StreamReader()
    for second, piece in enumerate(pieces):
        reader.feed(piece, float(second))
    reader.close(float(len(pieces)))
    return reader


def test_a_whole_stream_is_complete_and_its_tokens_are_the_engines_count():
    reader = read(ROLE, WORD, LAST, USAGE, DONE)
    assert reader.complete
    assert reader.error is None
    assert (reader.first_token, reader.max_gap, reader.tokens) == (1.0, 1.0, 9)


def test_without_usage_the_text_chunks_are_counted():
    assert read(ROLE, WORD, LAST, DONE).tokens == 2


def test_keepalives_role_and_usage_chunks_are_no_first_token():
    assert read(NOISE, ROLE, NOISE, USAGE, WORD).first_token == 4.0
    assert read(NOISE, ROLE, NOISE, USAGE).first_token is None


def test_a_tool_delta_is_a_first_token():
    assert read(ROLE, TOOL).first_token == 1.0


def test_an_error_object_in_the_stream_is_an_error_whatever_follows():
    reader = read(ROLE, ERROR, DONE)
    assert "boom" in reader.error
    assert reader.first_token is None
    assert not reader.complete


@pytest.mark.parametrize("end", [(), (LAST,), (DONE,)])
def test_a_stream_without_both_ends_is_not_complete(end):
    assert not read(ROLE, WORD, *end).complete


def test_silence_before_a_broken_end_counts_as_a_gap():
    reader = StreamReader()
    reader.feed(WORD, 1.0)
    reader.close(31.0)
    assert reader.max_gap == 30.0


def test_waiting_for_the_close_after_a_complete_answer_is_no_gap():
    reader = StreamReader()
    reader.feed(WORD + LAST + DONE, 1.0)
    reader.close(31.0)
    assert reader.max_gap == 0.0


def test_a_data_line_that_is_no_json_is_an_error():
    assert read(ROLE, b"data: {oops\n\n").error == "a data line is not JSON"


def test_carriage_returns_do_no_harm():
    reader = StreamReader()
    reader.feed((ROLE + WORD + LAST + DONE).replace(b"\n", b"\r\n"), 0.0)
    assert reader.complete
    assert reader.text == "ww"


@given(st.lists(st.integers(1, 40), max_size=40))
def test_where_the_bytes_are_cut_does_not_matter(sizes):
    stream = NOISE + ROLE + WORD + NOISE + TOOL + LAST + USAGE + DONE
    reader = StreamReader()
    at = 0
    for size in sizes:
        reader.feed(stream[at : at + size], 0.0)
        at += size
    reader.feed(stream[at:], 0.0)
    assert (reader.complete, reader.tokens, reader.text) == (True, 9, "ww")


@given(st.binary(max_size=200))
def test_no_bytes_make_it_raise(data):
    reader = StreamReader()
    reader.feed(b"data: " + data + b"\n", 0.0)
    reader.feed(b'data: {"choices":[' + data + b"]}\n", 0.0)
    reader.close(1.0)
    assert not reader.complete
