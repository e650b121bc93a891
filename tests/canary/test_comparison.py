"""What the judge says of whole observations: harm, passes, too little (C25, C50)."""

import random

import pytest

from canary.report import Classification, StopReason
from canary.session import observe
from slo.objective import Indicator, Objective
from slo.records import Outcome
from slo.verdict import Verdict
from tests.canary.build import START, compare, page, pages, record, traffic


def judged(records, **changes):
    return observe(compare(**changes), pages(records, 100))


def sometimes(chance, **changes):
    return lambda rng: dict(changes) if rng.random() < chance else {}


def metric(report, name):
    return next(item for item in report.judge.metrics if item.name == name)


def spread(chaos_bad, chaos, control_bad, control):
    """Return that many units of each group, the bad ones evenly among them."""
    made = []
    for arm, bad, count in (("chaos", chaos_bad, chaos), ("control", control_bad, control)):
        wrong = {round((i + 0.5) * count / bad) for i in range(bad)} if bad else set()
        made += [(index / count, arm, index in wrong) for index in range(count)]
    return [
        record(seq, arm=arm, outcome=Outcome.HTTP_ERROR if bad else Outcome.OK)
        for seq, (_, arm, bad) in enumerate(sorted(made))
    ]


def test_equal_groups_pass():
    report = judged(traffic(6000))
    assert (report.verdict, report.reason) == (Verdict.PASS, StopReason.VERDICT)
    assert {item.classification for item in report.judge.metrics} == {Classification.PASS}
    assert report.requests < 3000


@pytest.mark.parametrize("share", [0.2, 0.5])
@pytest.mark.parametrize(
    ("changes", "worse"),
    [
        ({"outcome": Outcome.TRUNCATED}, "errors"),
        ({"outcome": Outcome.STREAM_ERROR}, "errors"),
        ({"max_gap_s": 4.0}, "slo_bad"),
    ],
)
def test_four_per_cent_bad_is_harm(share, changes, worse):
    records = traffic(20_000, share, chaos=sometimes(0.04, **changes))
    report = judged(records, judge={"share": share})
    assert (report.verdict, report.reason) == (Verdict.FAIL, StopReason.VERDICT)
    assert metric(report, worse).classification is Classification.HIGH
    assert worse in report.why


def test_a_slower_group_is_harm():
    slow = traffic(6000, chaos=lambda rng: {"ttft_s": 1.6 * rng.lognormvariate(-2.1, 0.3)})
    report = judged(slow)
    assert report.verdict is Verdict.FAIL
    assert metric(report, "ttft").classification is Classification.HIGH
    assert metric(report, "ttft").driving_quantile is not None


def test_the_other_direction_is_no_harm():
    report = judged(traffic(6000, control=sometimes(0.2, outcome=Outcome.TIMEOUT)))
    assert report.verdict is Verdict.PASS


def test_a_common_incident_cancels():
    bad = sometimes(0.3, outcome=Outcome.HTTP_ERROR)
    report = judged(traffic(4000, chaos=bad, control=bad))
    assert report.verdict is not Verdict.FAIL


def test_two_of_six_against_none_of_six_prove_nothing():
    report = judged(spread(2, 6, 0, 6))
    assert report.verdict is Verdict.INCONCLUSIVE
    assert metric(report, "errors").bad_chaos == 2
    assert metric(report, "errors").bad_control == 0


def test_six_of_six_hundred_against_none_lean_to_harm_and_never_pass():
    # Each chaos label alone at most doubles the e-value, so six give less than 64: not enough for
    # alpha 0.01 in a family of three (300), enough for one metric at alpha 0.05 (20).
    report = judged(spread(6, 600, 0, 600))
    errors = metric(report, "errors")
    assert report.verdict is Verdict.INCONCLUSIVE
    assert errors.classification is Classification.UNDECIDED
    assert 20 < 10**errors.log10_e_fail_max < 64
    assert errors.log10_e_pass < 0
    lenient = judged(spread(6, 600, 0, 600), judge={"alpha": 0.05, "metrics": ("errors",)})
    assert lenient.verdict is Verdict.FAIL
    assert judged(spread(10, 1000, 0, 1000)).verdict is Verdict.FAIL


def test_clients_that_give_up_in_the_chaos_arm_are_harm():
    def give_up(rng):
        if rng.random() >= 0.6:
            return {}
        return {"outcome": Outcome.CLIENT_ABORT, "ttft_s": None, "e2e_s": 5.0, "status": 0}

    report = judged(traffic(3000, chaos=give_up))
    assert report.verdict is Verdict.FAIL
    assert report.requests <= 300
    assert report.slo[0].compliance < 0.9


def test_aborts_that_no_bound_can_judge_block_a_pass():
    free = Objective(name="x", objective_ratio=0.9, indicator=Indicator(max_gap_seconds=None))
    leave = sometimes(0.6, outcome=Outcome.CLIENT_ABORT)
    report = judged(traffic(6000, chaos=leave), objectives=(free,))
    assert report.verdict is Verdict.INCONCLUSIVE
    assert report.judge.coverage < 0.8
    assert any("could be judged" in item for item in report.judge.inconclusive_reasons)


@pytest.mark.parametrize("arm", ["control", "chaos", ""])
def test_one_group_alone_proves_nothing(arm):
    report = judged([record(seq, arm=arm) for seq in range(3000)])
    assert report.verdict is Verdict.INCONCLUSIVE
    assert {item.classification for item in report.judge.metrics} == {Classification.NODATA}


def test_a_split_that_lies_voids_a_harm():
    records = traffic(8000, 0.5, chaos=sometimes(0.05, outcome=Outcome.TIMEOUT))
    report = judged(records, judge={"share": 0.2, "metrics": ("errors",)}, accepted_after=START - 9)
    assert report.verdict is Verdict.INCONCLUSIVE
    assert report.judge.srm_alarm


def test_ten_failures_of_one_conversation_are_one_event():
    records = []
    rng = random.Random(4)
    for unit in range(300):
        arm = "chaos" if rng.random() < 0.5 else "control"
        outcome = Outcome.HTTP_ERROR if arm == "chaos" and unit % 100 == 0 else Outcome.OK
        for turn in range(10):
            seq = len(records)
            records.append(
                record(seq, unit=f"c{unit}", first_of_unit=turn == 0, arm=arm, outcome=outcome)
            )
    sticky = judged(records, judge={"unit": "conversation", "stop_on_pass": False})
    single = judged(records, judge={"unit": "request", "stop_on_pass": False})
    assert metric(sticky, "errors").bad_chaos == 3
    assert metric(sticky, "ttft").n_chaos == sticky.judge.units_chaos
    assert sticky.judge.units_chaos + sticky.judge.units_control == 300
    assert sticky.verdict is Verdict.INCONCLUSIVE
    assert single.verdict is Verdict.FAIL


def test_a_unit_turns_bad_at_its_first_bad_request_and_is_exposed_once():
    records = [
        record(0, unit="a", arm="chaos"),
        record(1, unit="a", arm="chaos", outcome=Outcome.CLIENT_ABORT, e2e_s=0.1),
        record(2, unit="a", arm="chaos", outcome=Outcome.TIMEOUT),
        record(3, unit="a", arm="chaos", max_gap_s=9.0),
        record(4, unit="a", arm="chaos", max_gap_s=9.0, outcome=Outcome.TIMEOUT),
    ]
    report = judged(records, judge={"unit": "conversation"})
    for name in ("errors", "slo_bad"):
        assert (metric(report, name).n_chaos, metric(report, name).bad_chaos) == (1, 1)


def test_in_a_remedy_the_hold_out_stands_for_chaos():
    records = [
        record(
            seq,
            arm="chaos",
            treatment="holdout" if seq % 5 == 0 else "treated",
            max_gap_s=9.0 if seq % 5 == 0 and seq % 25 == 0 else 0.0,
        )
        for seq in range(4000)
    ]
    report = observe(
        compare(mode="remedy", judge={"groups": "treatment", "share": 0.2}), pages(records, 50)
    )
    assert report.verdict is Verdict.FAIL
    assert "the remedy helps" in report.why


def test_probes_and_earlier_requests_do_not_count():
    records = [
        record(seq, arm="chaos", outcome=Outcome.TIMEOUT, probe=seq % 2 == 0) for seq in range(100)
    ]
    report = judged(records, accepted_after=records[49].accepted)
    assert (report.requests, report.counted) == (100, 25)
    assert report.slo[0].total == 25
    assert metric(report, "errors").bad_chaos == 25


def test_an_empty_page_is_no_data_and_no_pass():
    report = observe(compare(), [page([])])
    assert report.verdict is Verdict.INCONCLUSIVE
    assert report.slo[0].state == "no_traffic"
    assert report.slo[0].compliance is None
    assert report.judge.coverage is None
