"""Where a body ends, for any cut of the network, and what is no body at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http1.framing import END_OF_CHUNKS, BadFraming, Chunked, Framing, Length, chunk

CUTS = st.lists(st.integers(1, 40), max_size=40)
TRAILERS = st.sampled_from([b"", b"x-one: 1\r\n", b"x-one: 1\r\nX-Two:\r\n"])
EXTENSIONS = st.sampled_from([b"", b";a", b";a=b", b' ; a="b c"'])


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [piece for piece in [*pieces, data] if piece]


def follow(framing: Framing, pieces: list[bytes]) -> tuple[bytes, bytes]:
    """Return the body, and all that came after its end."""
    body = after = b""
    for piece in pieces:
        if framing.done:
            after += piece
            continue
        body += b"".join(framing.feed(piece))
        after += framing.surplus
    return body, after


@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=50), EXTENSIONS), max_size=8),
    TRAILERS,
    st.binary(max_size=30),
    CUTS,
)
def test_a_chunked_body_ends_at_its_very_end_wherever_the_network_cuts(
    chunks: list[tuple[bytes, bytes]], trailers: bytes, after: bytes, sizes: list[int]
):
    sent = b"".join(b"%X%b\r\n%b\r\n" % (len(data), more, data) for data, more in chunks)
    framing = Chunked()
    pieces = cut(sent + b"0\r\n" + trailers + b"\r\n" + after, sizes)
    assert follow(framing, pieces) == (b"".join(data for data, _ in chunks), after)
    assert framing.done


@given(st.binary(max_size=60), st.binary(max_size=30), CUTS)
def test_a_body_of_a_length_ends_at_its_length(body: bytes, after: bytes, sizes: list[int]):
    framing = Length(len(body))
    assert follow(framing, cut(body + after, sizes)) == (body, after)
    assert framing.done


@given(st.lists(st.binary(max_size=40), max_size=10), CUTS)
def test_what_is_put_into_chunks_comes_out_of_them(bodies: list[bytes], sizes: list[int]):
    framing = Chunked()
    sent = b"".join(chunk(body) for body in bodies) + END_OF_CHUNKS
    assert follow(framing, cut(sent, sizes)) == (b"".join(bodies), b"")
    assert framing.done


@pytest.mark.parametrize(
    "bad",
    [
        *(b"+5\r\nhello\r\n", b"0x5\r\nhello\r\n", b"5_0\r\n", b" 5\r\nhello\r\n", b"-1\r\n"),
        *(b"5\nhello\r\n", b"5\r\nhello\n", b"5\r\nhelloX\r\n", b"5\r\nhello0\r\n\r\n", b"\r\n"),
        *(b"5;a\x00\r\nhello\r\n", b"5;a\rb\r\nhello\r\n", b"f" * 16 + b"\r\n", b"g\r\n"),
        *(b"0\r\nno colon\r\n\r\n", b"0\r\n x: folded\r\n\r\n", b"0\r\nx : 1\r\n\r\n", b"0\r\n\n"),
        *(b"0\r\nx: 1\n\r\n", b"1" + b" " * 9000, b"0\r\n" + b"x: 1\r\n" * 20_000),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1_000_000])
def test_a_chunked_body_that_could_be_read_in_two_ways_is_refused(bad: bytes, size: int):
    framing = Chunked()
    with pytest.raises(BadFraming):
        for start in range(0, len(bad), size):
            framing.feed(bad[start : start + size])


@given(st.lists(st.binary(max_size=30), max_size=20))
def test_no_bytes_make_a_chunked_body_raise_anything_else(pieces: list[bytes]):
    framing = Chunked()
    try:
        for piece in pieces:
            if not framing.done:
                framing.feed(piece)
    except BadFraming:
        return
