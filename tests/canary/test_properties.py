"""What holds for every stream of records, found by search."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from canary.config import GuardConfig, SettleConfig, TriggerConfig
from canary.session import Session, observe
from slo.records import Outcome, Page
from slo.verdict import Verdict
from tests.canary.build import START, compare, page, pages, record

MIRROR = {"control": "chaos", "chaos": "control", "": ""}


@st.composite
def streams(draw, least=0, most=150):
    """Draw records in order: sticky units, every outcome, latencies with ties and gaps."""
    count = draw(st.integers(least, most))
    rng = draw(st.randoms(use_true_random=False))
    badness = {"control": rng.random() * 0.3, "chaos": rng.random() * 0.6, "": 0.5}
    units = max(1, count // rng.randint(1, 4))
    arms = {f"u{n}": rng.choice(["control", "chaos", "chaos", "control", ""]) for n in range(units)}
    made = []
    for seq in range(count):
        unit = f"u{rng.randrange(units)}"
        bad = rng.random() < badness[arms[unit]]
        made.append(
            record(
                seq,
                unit=unit,
                arm=arms[unit],
                first_of_unit=seq % 2 == 0,
                probe=rng.random() < 0.05,
                outcome=rng.choice(list(Outcome)) if bad else Outcome.OK,
                ttft_s=None if rng.random() < 0.05 else rng.choice([0.1, 0.2, rng.random()]),
                max_gap_s=rng.choice([0.0, 0.1, 3.0]) if bad else 0.0,
            )
        )
    return made


CONFIG = compare(
    judge={"unit": "conversation", "metrics": ("errors", "slo_bad", "ttft", "e2e")},
    guard=GuardConfig(abort_burn_rate=30, budget_share=0.05),
    trigger=TriggerConfig(compliance_below=0.2, min_requests=50),
    settle=SettleConfig(min_requests=200, window_seconds=5),
)
ENDLESS = compare(judge={"unit": "conversation", "stop_on_pass": False, "stop_on_fail": False})


@given(streams(), st.integers(1, 60))
@settings(max_examples=25, deadline=None)
def test_a_fold_is_a_function_and_its_report_is_strict_json(records, size):
    cut = pages(records, size)
    first, second = observe(CONFIG, cut), observe(CONFIG, cut)
    assert first.model_dump_json() == second.model_dump_json()
    stored = json.loads(json.dumps([item.to_json() for item in cut], allow_nan=False))
    again = observe(CONFIG, [Page.from_json(item) for item in stored])
    assert again.model_dump_json() == first.model_dump_json()
    json.dumps(first.model_dump(mode="json"), allow_nan=False)


@given(streams(), st.integers(1, 60), st.integers(1, 60))
@settings(max_examples=25, deadline=None)
def test_another_cut_changes_when_it_stops_and_not_what_was_counted(records, one, other):
    reports = []
    for size in (one, other):
        session = Session(ENDLESS)
        for part in pages(records, size):
            session.feed(part)
        reports.append(session.report())
    left, right = reports
    for name in ("metrics", "fail_seq", "units_control", "units_chaos", "coverage", "anytime_p"):
        assert getattr(left.judge, name) == getattr(right.judge, name)
    assert left.slo == right.slo
    assert (left.requests, left.counted) == (right.requests, right.counted)


@given(streams(most=60), st.integers(1, 60))
@settings(max_examples=25, deadline=None)
def test_little_traffic_is_never_a_pass(records, size):
    assert observe(CONFIG, pages(records, size)).verdict is not Verdict.PASS


@given(st.integers(0, 30), st.floats(0, 9000))
def test_silence_is_never_a_pass(count, step):
    empty = [page([], now=START + index * step) for index in range(count)]
    assert observe(CONFIG, empty).verdict is Verdict.INCONCLUSIVE


@given(streams(least=50), st.integers(5, 60))
@settings(max_examples=25, deadline=None)
def test_harm_in_one_direction_is_no_harm_in_the_other(records, size):
    """At equal shares the mirror image of a proven harm is never a proven harm too."""
    mirrored = [
        record(
            **{name: getattr(item, name) for name in item.__slots__ if name != "arm"},
            arm=MIRROR[item.arm],
        )
        for item in records
    ]
    config = compare(judge={"unit": "conversation", "metrics": ("errors",), "stop_on_pass": False})
    left = observe(config, pages(records, size))
    right = observe(config, pages(mirrored, size))
    if left.verdict is Verdict.FAIL:
        assert right.judge.log10_e_total < left.judge.log10_e_total_max
    assert left.judge.units_chaos <= len(records)
    errors, mirror = left.judge.metrics[0], right.judge.metrics[0]
    if left.requests == right.requests:
        assert (errors.bad_chaos, errors.bad_control) == (mirror.bad_control, mirror.bad_chaos)
        assert min(errors.log10_e_fail, mirror.log10_e_fail) <= 0.0


@given(streams(least=100), st.data())
@settings(max_examples=25, deadline=None)
def test_one_more_bad_chaos_request_never_lowers_the_proof_of_harm(records, data):
    good = [
        item.seq
        for item in records
        if item.arm == "chaos" and item.outcome is Outcome.OK and not item.probe
    ]
    if not good:
        return
    worse = data.draw(st.sampled_from(good))
    changed = [
        record(
            **{name: getattr(item, name) for name in item.__slots__ if name != "outcome"},
            outcome=Outcome.TIMEOUT if item.seq == worse else item.outcome,
        )
        for item in records
    ]
    before, after = (
        observe(ENDLESS, pages(some, 50)).judge.metrics[0] for some in (records, changed)
    )
    assert after.log10_e_fail >= before.log10_e_fail
    assert after.log10_e_pass <= before.log10_e_pass
