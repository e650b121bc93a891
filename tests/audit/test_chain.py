import hashlib
import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from audit.canonical import digest, dumps, prepare
from audit.events import GENESIS, Event, check_chain, envelope, link

TEXT = st.text("abü\U0001f600", max_size=4)
PAYLOADS = st.lists(
    st.dictionaries(TEXT, st.integers() | TEXT, max_size=3),
    min_size=2,
    max_size=8,
)


def chain(payloads: list[dict]) -> list[Event]:
    events: list[Event] = []
    for number, payload in enumerate(payloads, start=1):
        text = dumps(prepare(payload)).decode()
        event = Event(
            run_id="r",
            seq=number,
            key=f"k{number}",
            kind="note",
            at="2026-12-01T12:00:00.000000Z",
            payload_text=text,
            payload_sha256=digest(text.encode()),
            prev_hash=events[-1].hash if events else GENESIS,
            hash="",
        )
        events.append(replace(event, hash=link(event.prev_hash, envelope(event))))
    return events


@settings(max_examples=40)
@given(PAYLOADS)
def test_a_chain_as_written_has_no_problem(payloads: list[dict]) -> None:
    assert check_chain("r", chain(payloads)) == []


@settings(max_examples=40)
@given(PAYLOADS, st.data())
def test_any_change_of_any_field_of_any_event_is_named(payloads: list[dict], data) -> None:
    events = chain(payloads)
    at = data.draw(st.integers(0, len(events) - 1))
    changes = {
        "run_id": "other",
        "seq": 99,
        "key": "other",
        "kind": "other",
        "at": "2026-12-01T12:00:00.000001Z",
        "payload_text": '{"other":1}',
        "payload_sha256": "1" * 64,
        "prev_hash": "1" * 64,
        "hash": "1" * 64,
    }
    field = data.draw(st.sampled_from(sorted(changes)))
    events[at] = replace(events[at], **{field: changes[field]})
    problems = check_chain("r", events)
    assert problems
    assert f"events[{events[at].seq}]" in problems[0].field


@settings(max_examples=40)
@given(PAYLOADS, st.data())
def test_an_event_that_was_dropped_is_noticed(payloads: list[dict], data) -> None:
    events = chain(payloads)
    at = data.draw(st.integers(0, len(events) - 2))  # the tail is the run's row to guard
    del events[at]
    assert check_chain("r", events)


@settings(max_examples=40)
@given(PAYLOADS, st.data())
def test_events_that_were_swapped_are_noticed(payloads: list[dict], data) -> None:
    events = chain(payloads)
    at = data.draw(st.integers(0, len(events) - 2))
    one, two = events[at], events[at + 1]
    events[at : at + 2] = [replace(two, seq=one.seq), replace(one, seq=two.seq)]
    assert check_chain("r", events)


@settings(max_examples=40)
@given(PAYLOADS, st.data())
def test_an_event_that_was_put_in_is_noticed(payloads: list[dict], data) -> None:
    events = chain(payloads)
    at = data.draw(st.integers(0, len(events) - 1))
    prev = events[at]
    forged = replace(prev, seq=prev.seq + 1, key="forged", prev_hash=prev.hash)
    forged = replace(forged, hash=link(prev.hash, envelope(forged)))
    later = [replace(event, seq=event.seq + 1) for event in events[at + 1 :]]
    problems = check_chain("r", [*events[: at + 1], forged, *later])
    assert bool(problems) == bool(later)


def test_one_changed_event_is_one_problem() -> None:
    events = chain([{"n": n} for n in range(50)])
    events[20] = replace(events[20], payload_text='{"n":21}')
    assert [problem.field for problem in check_chain("r", events)] == ["events[21].payload"]


def test_a_stranger_recomputes_the_chain_with_a_few_lines() -> None:
    before = "0" * 64
    for event in chain([{"n": n, "text": "ü"} for n in range(5)]):
        fields = {
            "at": event.at,
            "key": event.key,
            "kind": event.kind,
            "payload_sha256": hashlib.sha256(event.payload_text.encode()).hexdigest(),
            "run_id": event.run_id,
            "seq": event.seq,
        }
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        before = hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()
        assert before == event.hash
