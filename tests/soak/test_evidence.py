"""The soak's own judgement: it must find a lost record, another end, and a leak."""

import random
from dataclasses import replace

import pytest

from gateway.routing import unit_hash
from slo.records import Outcome, RequestRecord
from tests.soak.evidence import compare, outlived, slope
from tests.soak.traffic import Asked, Got, Saw, judge

MEGABYTE = 1e6
USES = {1: 0, 2: 1, 3: 0, 4: 9}
"""Number of a record → use of its conversation."""


def record(seq: int, conversation: str, outcome: Outcome = Outcome.OK) -> RequestRecord:
    raw = {
        "seq": seq,
        "at": seq + 1.0,
        "accepted": float(seq),
        "route": "chat",
        "unit": unit_hash(conversation),
        "first_of_unit": True,
        "arm": "",
        "treatment": "",
        "replica": "a",
        "assigned": "a",
        "fallback": False,
        "exposed": [],
        "touched": [],
        "tenant": f"t{USES[seq]}",
        "probe": False,
        "outcome": outcome,
        "status": 200,
        "ttft_s": 0.1,
        "max_gap_s": 0.0,
        "e2e_s": 1.0,
        "tokens": 1,
        "prompt_tokens": 1,
        "flags": [],
    }
    return RequestRecord.from_json(raw)


def asked(number: int, conversation: str, saw: Saw = Saw.OK) -> Asked:
    return Asked(number, conversation, USES[number + 1], "chat", saw, 200)


TWO = [asked(0, "x"), asked(1, "x"), asked(2, "y")]
THREE = [record(1, "x"), record(2, "x"), record(3, "y")]


def test_requests_and_records_that_agree_are_paired() -> None:
    found = compare(TWO, THREE)
    assert (found.lost, found.extra, found.disagreements) == (0, 0, [])
    assert found.pairs == {("ok", "ok"): 3}


def test_a_lost_record_is_found() -> None:
    assert compare(TWO, THREE[:2]).lost == 1
    assert compare(TWO, [THREE[0], THREE[2]]).lost == 1


def test_a_record_of_another_tenant_is_a_lost_one_and_an_extra_one() -> None:
    found = compare(TWO, [THREE[0], replace(THREE[1], tenant="t9"), THREE[2]])
    assert (found.lost, found.extra) == (1, 1)


def test_a_record_without_a_request_is_found() -> None:
    assert compare(TWO, [*THREE, record(4, "x")]).extra == 1
    assert compare(TWO, [*THREE, record(4, "z")]).extra == 1


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(record(2, "x", Outcome.TRUNCATED), id="another outcome"),
        pytest.param(replace(THREE[1], status=201), id="another status"),
    ],
)
def test_a_record_that_says_something_else_than_the_client_saw_is_found(
    wrong: RequestRecord,
) -> None:
    (line,) = compare(TWO, [THREE[0], wrong, THREE[2]]).disagreements
    assert line.startswith("request 1 ")


def test_a_client_that_saw_nothing_agrees_with_no_record() -> None:
    assert len(compare([asked(0, "x", Saw.NOTHING)], THREE[:1]).disagreements) == 1
    assert len(compare([asked(0, "x", Saw.HANGS)], THREE[:1]).disagreements) == 1


def test_a_request_that_meets_a_fault_after_its_end_is_found() -> None:
    met = [replace(THREE[0], exposed=("F",)), replace(THREE[2], exposed=("F",))]
    assert outlived(met, {"F": 2.0}) == ["record 3 met F after its end"]


@pytest.mark.parametrize(
    ("kind", "status", "whole", "body", "saw"),
    [
        ("chat", 200, True, b"{}", Saw.OK),
        ("chat", 200, False, b"{", Saw.CUT),
        ("chat", 0, False, b"", Saw.NOTHING),
        ("chat stream", 503, True, b"", Saw.REFUSED),
        ("chat stream", 200, True, b"data: {}\n\ndata: [DONE]\n\n", Saw.OK),
        ("chat stream", 200, False, b'data: {"choices":[{"finish_reason":"stop"}]}\n\n', Saw.OK),
        ("chat stream", 200, True, b"data: {}\n\n", Saw.CUT),
        ("chat stream", 200, True, b'data: {"error":{}}\n\n' * 2, Saw.CUT),
        ("chat stream", 200, True, b'data: {"error":{"code":500}}\n\ndata: [DONE]\n\n', Saw.ERROR),
    ],
)
def test_the_client_judges_an_answer_by_its_bytes(
    kind: str, status: int, whole: bool, body: bytes, saw: Saw
) -> None:
    assert judge(kind, Got(status, [], body, whole)) is saw


def series(rise: float, step: float = 0.0) -> tuple[list[float], list[float]]:
    """Memory of an hour, a sample each second: pages come and go, maybe one step in the middle."""
    chance = random.Random(1)
    times = [float(second) for second in range(3600)]
    values = [
        60 * MEGABYTE + rise * at + step * (at > 1800) + chance.choice([0, 0, 0, 0.3]) * MEGABYTE
        for at in times
    ]
    return times, values


def test_memory_that_comes_and_goes_is_flat() -> None:
    found = slope(*series(0.0))
    assert found.low <= 0 <= found.high < 100


def test_a_small_step_is_not_a_leak_of_the_same_size() -> None:
    assert slope(*series(0.0, step=0.5 * MEGABYTE)).value < 0.5 * MEGABYTE / 3600 * 1.6


def test_a_leak_of_one_small_object_a_request_is_found() -> None:
    found = slope(*series(50 * 200.0))
    assert found.low > 50 * 150
    assert found.high > 50 * 64


def test_too_few_samples_are_no_statistic() -> None:
    with pytest.raises(ValueError, match="29 samples"):
        slope(list(range(29)), [1.0] * 29)
