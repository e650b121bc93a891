"""Who is sampled: our share, and clients that say so up to a limit; read by the letter."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.http1.heads import read_request_head
from gateway.prefixes import BLOCK_BYTES, MAX_BLOCKS, MAX_READ_BYTES, chain, read_prompt
from gateway.sse import StreamFacts
from gateway.trace import (
    Sampler,
    Trace,
    TracedFacts,
    read_run_id,
    read_traceparent,
    set_traceparent,
)

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{SPAN}-01".encode()
NOT_SAMPLED = f"00-{TRACE}-{SPAN}-00".encode()


def sampler(ratio: float = 0.0, parents: float = 10.0) -> Sampler:
    return Sampler(ratio, parents, 100, Random(1))


HEX = st.text("0123456789abcdef", min_size=1, max_size=34)
PARTS = st.tuples(
    st.sampled_from(["00", "01", "cc", "ff", "0"]),
    st.sampled_from([TRACE, "0" * 32, TRACE.upper()]) | HEX,
    st.sampled_from([SPAN, "0" * 16]) | HEX,
    st.sampled_from(["00", "01", "03", "ff", "1"]),
)


@given(PARTS.map("-".join) | st.sampled_from([SAMPLED.decode() + "-x", f"01-{TRACE}-{SPAN}-01-x"]))
def test_a_traceparent_is_read_as_opentelemetry_reads_it(text: str):
    context = TraceContextTextMapPropagator().extract({"traceparent": text})
    theirs = get_current_span(context).get_span_context()
    ours = read_traceparent(text.encode())
    if not theirs.is_valid:
        assert ours is None
    else:
        assert ours is not None
        assert (ours.trace_id, ours.span_id) == (theirs.trace_id, theirs.span_id)
        assert ours.sampled == theirs.trace_flags.sampled


def test_the_share_of_requests_without_a_parent_is_the_configured_one():
    chosen = sampler(0.01)
    count = sum(chosen.choose(None, 0.0) is not None for _ in range(100_000))
    assert 850 < count < 1150
    assert all(sampler(0.0).choose(None, 0.0) is None for _ in range(100))
    assert all(sampler(1.0).choose(None, 0.0) is not None for _ in range(100))


def test_a_parent_that_samples_is_followed_in_its_trace_and_one_that_does_not_is_not():
    trace = sampler(0.0).choose(SAMPLED, 0.0)
    assert trace is not None
    assert f"{trace.trace_id:032x}" == TRACE
    assert trace.parent is not None
    assert f"{trace.parent.span_id:016x}" == SPAN
    assert trace.span_id != trace.parent.span_id
    assert not trace.is_chosen_here
    assert sampler(1.0).choose(NOT_SAMPLED, 0.0) is None


def test_a_traceparent_that_cannot_be_read_is_none():
    assert sampler(1.0).choose(b"nonsense", 0.0) is not None
    assert sampler(0.0).choose(b"nonsense", 0.0) is None


def test_parents_above_the_limit_are_not_sampled_and_are_counted():
    chosen = sampler(0.0, parents=5)
    now = [chosen.choose(SAMPLED, 100.0) is not None for _ in range(20)]
    assert now == [True] * 5 + [False] * 15
    assert (chosen.seen, chosen.over_limit) == (20, 15)
    later = [chosen.choose(SAMPLED, 100.4) is not None for _ in range(5)]
    assert later == [True, True, False, False, False]
    assert sampler(0.0, parents=0).choose(SAMPLED, 9.0) is None


def test_our_header_takes_the_place_of_the_clients_and_all_else_stays():
    raw = (
        b"GET / HTTP/1.1\r\nHost: h\r\nTraceParent: %b\r\ntracestate: a=b\r\nX: 1\r\n\r\n" % SAMPLED
    )
    head = read_request_head(raw)
    trace = sampler().choose(head.special[b"traceparent"], 0.0)
    assert trace is not None
    set_traceparent(head, trace)
    *others, last = head.kept
    assert others == [(b"tracestate", b"a=b"), (b"X", b"1")]
    assert last == (b"traceparent", f"00-{TRACE}-{trace.span_id:016x}-01".encode())


@pytest.mark.parametrize(
    ("given_id", "kept"),
    [
        (b"019B2F5C-7DEF-7e3a-9f1c-0123456789AB", "019b2f5c-7def-7e3a-9f1c-0123456789ab"),
        (b"019b2f5c7def7e3a9f1c0123456789ab", "019b2f5c-7def-7e3a-9f1c-0123456789ab"),
        (b"", ""),
        (b"my secret", ""),
        (b"019b2f5c7def-7e3a9f1c0123456789ab", ""),
        (b"019b2f5c-7def-7e3a-9f1c-0123456789abc", ""),
    ],
)
def test_a_run_id_is_a_uuid_or_dropped(given_id: bytes, kept: str):
    assert read_run_id(given_id) == kept


def test_traced_facts_keep_times_up_to_their_limit_and_say_which_brought_content():
    plain, traced = StreamFacts(), TracedFacts(limit=3)
    for facts in (plain, traced):
        facts.note_event(1.0)
        facts.note_token("a", 2.0)
        facts.note_token("b", 4.0)
        facts.note_token("c", 5.0)
        facts.note_end(9.0)
    assert list(traced.times) == [1.0, 2.0, 4.0]
    assert traced.has_content() == [False, True, True]
    assert traced.dropped == 1
    assert traced.max_gap_s == plain.max_gap_s == 4.0
    assert "times" not in StreamFacts.__slots__
    assert Trace(1, 2, None, 3).facts().limit == 3


KEY = b"k" * 32


def test_prompts_that_begin_the_same_share_hashes_as_far_as_they_do():
    one = chain(b"s" * 600 + b"x" * 600, "m", KEY)
    two = chain(b"s" * 600 + b"y" * 600, "m", KEY)
    assert len(one) == len(two) == 1200 // BLOCK_BYTES
    assert [a == b for a, b in zip(one, two, strict=True)] == [True, True, False, False]
    assert not set(one) & set(chain(b"s" * 1200, "other", KEY))
    assert not set(one) & set(chain(b"s" * 1200, "m", b"another key"))
    assert chain(b"s" * (BLOCK_BYTES - 1), "m", KEY) == ()
    assert len(chain(b"s" * 10**6, "m", KEY)) == MAX_BLOCKS


@pytest.mark.parametrize(
    ("body", "is_read"),
    [
        (b'{"messages": [{"role": "user", "content": "%b"}]}' % (b"a" * 300), True),
        (b'{"messages": [{"content": [{"type": "text", "text": "%b"}, 7]}]}' % (b"a" * 300), True),
        (b'{"prompt": "%b"}' % (b"a" * 300), True),
        (b'{"prompt": ["%b", "z"]}' % (b"a" * 300), True),
        (b'{"prompt": [%b1]}' % (b"17," * 150), True),
        (b'{"tools": ["%b"], "messages": []}' % (b"a" * 300), True),
        (b'{"messages": 3, "prompt": null}', False),
        (b'["messages"]', False),
        (b"not json", False),
        (b"", False),
        (b'{"prompt": "%b"}' % (b"a" * MAX_READ_BYTES), False),
    ],
)
def test_prompts_of_every_shape_are_read_and_nothing_raises(body: bytes, is_read: bool):
    prefixes, size = read_prompt(body, "m", KEY)
    assert bool(prefixes) == is_read
    assert (size >= BLOCK_BYTES) == is_read


def test_a_lone_surrogate_in_a_prompt_is_read():
    assert read_prompt(b'{"prompt": "\\ud800%b"}' % (b"a" * 300), "m\udc80", KEY)[1] > BLOCK_BYTES
