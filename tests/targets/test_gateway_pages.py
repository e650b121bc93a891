"""Pages of several gateways become one order of records, whatever was read when (pure)."""

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canary.config import JudgeConfig, ObserveConfig
from canary.report import StopReason
from canary.session import observe
from slo.records import Page, RequestRecord
from targets.gateway_pages import (
    CLOCKS_APART_SECONDS,
    Answer,
    clocks_apart,
    closed_state,
    merge_leases,
    merge_pages,
    merge_routes,
)
from tests.canary.build import CHAT, START, page, record

Json = dict[str, Any]


class Journal:
    """One gateway's records, of which some have ended at a moment."""

    def __init__(self, epoch: str, ends: list[tuple[float, float]]) -> None:
        """Take (end, length) of each request, in seconds after START."""
        self.epoch = epoch
        self.records = [
            record(
                seq,
                at=START + end,
                accepted=START + end - length,
                unit=f"{epoch}{seq}",
                arm="chaos" if seq % 2 else "control",
            )
            for seq, (end, length) in enumerate(sorted(ends), start=1)
        ]

    def read(self, now: float, after: int, limit: int) -> Json:
        ended = [each for each in self.records if each.at <= START + now and each.seq > after]
        running = [r for r in self.records if r.accepted <= START + now < r.at]
        found = ended[:limit]
        counts: dict[str, int] = {}
        for each in running:
            counts[each.arm] = counts.get(each.arm, 0) + 1
        return page(
            found,
            after,
            now=START + now,
            next=found[-1].seq if found else after,
            epoch=self.epoch,
            more=len(ended) > limit,
            in_flight=counts,
            oldest_in_flight=min((each.accepted for each in running), default=None),
        ).to_json()


def answer(body: Json | None, sent: float = 0.0, received: float = 0.0) -> Answer:
    return Answer(body, sent, received, "" if body else "refused")


def read_all(
    journals: dict[str, Journal], moments: list[dict[str, float]], limit: int
) -> list[Page]:
    """Read at these moments of each gateway, and go on until nothing more is ready."""
    pages: list[Page] = []
    cursors = dict.fromkeys(journals, 0)
    for at in moments:
        while True:
            answers = {
                name: answer(each.read(at[name], cursors[name], limit), at[name], at[name])
                for name, each in journals.items()
            }
            merged = Page.from_json(merge_pages(answers, pages[-1].next if pages else 0))
            assert merged.cursors is not None
            cursors = merged.cursors
            pages.append(merged)
            if not (merged.more and merged.records):
                break
    return pages


ENDS = st.lists(
    st.tuples(st.integers(0, 200).map(lambda n: n / 10), st.floats(0.0, 5.0)), max_size=25
)


@settings(max_examples=80, deadline=None)
@given(
    st.dictionaries(st.sampled_from("abc"), ENDS, min_size=1, max_size=3),
    st.lists(st.floats(0.0, 20.0), max_size=6),
    st.lists(st.floats(0.0, 0.9), min_size=3, max_size=3),
    st.integers(2, 6),
)
def test_any_reading_gives_each_record_once_in_one_order(
    ends: dict[str, list[tuple[float, float]]],
    times: list[float],
    late: list[float],
    limit: int,
) -> None:
    journals = {name: Journal(f"e{name}", found) for name, found in ends.items()}
    lag = dict(zip("abc", late, strict=True))
    moments = [{name: at + lag[name] for name in journals} for at in sorted(times)]
    moments.append(dict.fromkeys(journals, 30.0))
    pages = read_all(journals, moments, max(limit, 2 + _most_at_once(journals)))
    got = [each for one in pages for each in one.records]
    every = [(each.at, name, each.seq) for name, one in journals.items() for each in one.records]
    assert [(r.at, r.gateway, r.gateway_seq) for r in got] == sorted(every)
    assert [r.seq for r in got] == list(range(1, len(got) + 1))
    assert not any(one.gap for one in pages)
    for before, after in itertools.pairwise(pages):
        assert (after.after, after.epoch) == (before.next, before.epoch)
        assert after.now >= before.now
        assert all(before.now <= r.at for r in after.records if not before.more)


def _most_at_once(journals: dict[str, Journal]) -> int:
    """The largest number of records of one gateway that ended at one moment."""
    times = [[each.at for each in one.records] for one in journals.values()]
    return max((found.count(at) for found in times for at in found), default=0)


@settings(max_examples=50, deadline=None)
@given(ENDS, ENDS, st.floats(0.0, 20.0), st.floats(0.0, 0.9))
def test_what_was_accepted_before_the_page_and_is_not_on_it_is_in_flight(
    one: list[tuple[float, float]], other: list[tuple[float, float]], now: float, lag: float
) -> None:
    journals = {"a": Journal("ea", one), "b": Journal("eb", other)}
    (merged,) = read_all(journals, [{"a": now, "b": now + lag}], 1000)
    missing = [
        each.accepted
        for journal in journals.values()
        for each in journal.records
        if each.accepted < merged.now <= each.at
    ]
    assert sum(merged.in_flight.values()) >= len(missing)
    if missing:
        assert merged.oldest_in_flight is not None
        assert merged.oldest_in_flight <= min(missing)


def two(**changes: Json) -> dict[str, Answer]:
    bodies: dict[str, Json] = {
        name: page([], 0, epoch=f"e{name}", next=0).to_json() for name in ("a", "b")
    }
    return {name: answer(body | changes.get(name, {})) for name, body in bodies.items()}


def compare(pages: list[Page], **more: Any) -> Any:
    judge = JudgeConfig(share=0.5, metrics=("errors",))
    values = {"mode": "compare", "objectives": (CHAT,), "judge": judge, "max_seconds": 60.0}
    return observe(ObserveConfig(**(values | more)), pages)


def test_a_gateway_that_cannot_be_read_is_a_gap_and_is_named() -> None:
    first = Page.from_json(merge_pages(two(), 0))
    second = Page.from_json(merge_pages({**two(), "b": answer(None)}, 0))
    assert not first.gap
    assert second.gap
    report = compare([first, second])
    assert report.reason is StopReason.GAP
    assert report.mixed == ("Gateway b does not answer.",)
    assert "Gateway b does not answer." in report.why


def test_a_gateway_that_came_back_is_a_gap_and_is_named() -> None:
    pages = [Page.from_json(merge_pages(each, 0)) for each in (two(), two(b={"epoch": "new"}))]
    report = compare(pages)
    assert report.reason is StopReason.GAP
    assert report.mixed == ("Gateway b is not the process that it was.",)


def test_lost_records_of_one_gateway_are_a_gap_of_all() -> None:
    merged = Page.from_json(merge_pages(two(b={"gap": True}), 0))
    assert merged.gap
    assert merged.mixed() == ("Gateway b lost records.",)


def view(state: str, item: str | None = "active", **counts: int) -> Json:
    items = {} if item is None else {"F": {"kind": "fault", "state": item, **counts}}
    return {"id": "L", "lease_id": "L", "state": state, "items": items}


@pytest.mark.parametrize(
    ("one", "other", "state", "item"),
    [
        (view("open"), view("open"), "open", "active"),
        (view("open"), view("lapsed"), "lapsed", "active"),
        (view("dropped"), view("open"), "dropped", "active"),
        (view("open"), None, "unknown", "active"),
        (view("open"), view("open", None), "open", "missing"),
        (view("open"), view("open", "expired"), "open", "expired"),
    ],
)
def test_a_fault_holds_only_where_it_holds_everywhere(
    one: Json, other: Json | None, state: str, item: str
) -> None:
    merged = merge_leases({"a": one, "b": other})
    assert merged is not None
    assert (merged["state"], merged["items"]["F"]["state"]) == (state, item)
    answers = two(a={"lease": one}, b={"lease": other})
    report = compare([Page.from_json(merge_pages(answers, 0))], lease_id="L")
    whole = (state, item) == ("open", "active")
    assert (report.reason is StopReason.LEASE_LOST) is not whole
    if other is None:
        assert report.mixed == ("At gateway b the lease is unknown.",)


def test_counts_of_one_item_are_added_up() -> None:
    views = {"a": view("open", exposed=5, touched=2), "b": view("open", exposed=7, touched=1)}
    merged = merge_leases(views)
    assert merged is not None
    assert {k: merged["items"]["F"][k] for k in ("exposed", "touched", "still_touching")} == {
        "exposed": 12,
        "touched": 3,
        "still_touching": 0,
    }


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["closed", "closed"], "closed"),
        (["closed", "open"], "open"),
        (["closed", "lapsed"], "lapsed"),
        (["dropped", "closed"], "dropped"),
        (["open", "lapsed"], "open"),
    ],
)
def test_a_close_is_open_while_it_is_open_anywhere(states: list[str], expected: str) -> None:
    assert closed_state(states) == expected


@pytest.mark.parametrize(
    ("answers", "apart"),
    [
        ([(100.0, 0.0, 0.1), (100.2, 0.0, 0.1)], 0.1),
        ([(100.0, 0.0, 0.1), (105.0, 0.0, 0.1)], 4.9),
        ([(100.0, 0.0, 0.1), (105.0, 0.0, 6.0)], 0.0),
        ([(100.0, 0.0, 0.1)], 0.0),
    ],
)
def test_clocks_differ_only_where_no_slow_answer_explains_it(
    answers: list[tuple[float, float, float]], apart: float
) -> None:
    made = {str(n): Answer({"now": now}, s, r) for n, (now, s, r) in enumerate(answers)}
    assert clocks_apart(made) == pytest.approx(apart)


def test_clocks_that_differ_make_a_gap() -> None:
    merged = Page.from_json(merge_pages(two(b={"now": START + 2 * CLOCKS_APART_SECONDS}), 0))
    assert merged.gap
    assert len(merged.mixed()) == 2


def test_evidence_of_one_gateway_is_written_as_it_always_was() -> None:
    one = page([record(0)])
    assert "gateways" not in one.to_json()
    assert set(record(0).to_json()) == {
        *RequestRecord.__dataclass_fields__,
    } - {"gateway", "gateway_seq", "tenancy", "client_run_id"}
    merged = merge_pages({"a": answer(one.to_json() | {"now": START + 9})}, 0)
    assert Page.from_json(merged).to_json() == merged


def route(**changes: Any) -> Json:
    base = {
        "name": "chat",
        "models": ["m"],
        "labels": {},
        "replicas": [{"name": "a", "url": "http://a", "breaker": {"state": "open"}}],
        "breaker": {"threshold_ratio": 0.05, "base_threshold_ratio": 0.05},
        "recent": {"total": 10, "bad": 1},
        "leases": ["L"],
    }
    return base | changes


def test_routes_that_are_alike_are_one_with_the_traffic_of_both() -> None:
    views = {"a": [route()], "b": [route(recent={"total": 5, "bad": 2}, leases=[])]}
    (merged,), differ = merge_routes(views)
    assert differ == ""
    assert (merged["recent"], merged["leases"]) == ({"total": 15, "bad": 3}, ["L"])


@pytest.mark.parametrize(
    "other",
    [
        [],
        [route(name="talk")],
        [route(models=["n"])],
        [route(replicas=[{"name": "a", "url": "http://elsewhere"}])],
        [route(breaker={"base_threshold_ratio": 0.1})],
    ],
)
def test_routes_that_differ_are_refused_with_the_names_of_gateways_and_route(
    other: list[Json],
) -> None:
    routes, differ = merge_routes({"a": [route()], "b": other})
    assert routes == []
    assert "gateways a and b" in differ
    assert "route chat" in differ
