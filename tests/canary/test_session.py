"""When an observation ends, and what it may say then."""

import json

import pytest

from canary.config import EffectConfig, GuardConfig, ObserveConfig, SettleConfig, TriggerConfig
from canary.report import StopReason
from canary.session import Session, observe, observe_json
from slo.records import Outcome, Page
from slo.verdict import Verdict
from tests.canary.build import CHAT, START, compare, page, pages, record, traffic


def watch(**changes):
    values = {"mode": "steady", "objectives": (CHAT,), "max_seconds": 60.0}
    return ObserveConfig(**(values | changes))


def lease(state="open", **items):
    return {"id": "L", "state": state, "items": items}


def item(state="active", kind="fault", **counts):
    return {"kind": kind, "state": state, **counts}


def bad_every(count, every, **changes):
    return [
        record(seq, outcome=Outcome.TIMEOUT if seq % every == 0 else Outcome.OK, **changes)
        for seq in range(count)
    ]


CLEAN = traffic(4000)


def test_a_pass_waits_for_chaos_requests_that_were_in_flight_at_its_first_sight():
    first = page(CLEAN, in_flight={"chaos": 1}, oldest_in_flight=START + 1)
    session = Session(compare())
    assert session.feed(first) is None
    assert session.report().verdict is Verdict.INCONCLUSIVE
    still = page([], after=3999, now=first.now + 5, in_flight={"chaos": 2}, oldest_in_flight=1.0)
    assert session.feed(still) is None
    newer = page(
        [], after=3999, now=first.now + 9, in_flight={"chaos": 1}, oldest_in_flight=first.now + 1
    )
    assert session.feed(newer) is StopReason.VERDICT
    assert session.report().verdict is Verdict.PASS


def test_a_pass_does_not_wait_for_the_control_arm():
    first = page(CLEAN, in_flight={"control": 3}, oldest_in_flight=START)
    assert observe(compare(), [first]).verdict is Verdict.PASS


def test_a_pass_is_taken_back_when_what_hung_turns_out_bad():
    first = page(CLEAN, in_flight={"chaos": 90}, oldest_in_flight=START + 1)
    hung = [
        record(4000 + i, arm="chaos", accepted=START + 1 + i, outcome=Outcome.TIMEOUT, ttft_s=None)
        for i in range(90)
    ]
    report = observe(compare(), [first, page(hung, after=3999)])
    assert report.verdict is Verdict.FAIL


def test_a_pass_that_waits_for_ever_ends_inconclusive():
    wait = {"in_flight": {"chaos": 1}, "oldest_in_flight": START}
    first = page(CLEAN, **wait)
    late = page([], after=3999, now=first.now + 4000, **wait)
    report = observe(compare(), [first, late])
    assert (report.reason, report.verdict) == (StopReason.LIMIT_TIME, Verdict.INCONCLUSIVE)
    assert any("in flight" in text for text in report.judge.inconclusive_reasons)


def test_a_pass_waits_for_records_that_the_page_could_not_hold():
    assert observe(compare(), [page(CLEAN, more=True)]).reason is None


def test_after_the_end_pages_change_nothing():
    session = Session(compare())
    session.feed(page(CLEAN))
    before = session.report()
    bad = [record(4000 + i, arm="chaos", outcome=Outcome.TIMEOUT) for i in range(500)]
    assert session.feed(page(bad, after=3999)) is StopReason.VERDICT
    assert session.report() == before


@pytest.mark.parametrize(
    "second",
    [
        page(CLEAN[2000:], after=1999, gap=True),
        page(CLEAN[2000:], after=1999, epoch="e2"),
        page(CLEAN[2500:], after=2499),
    ],
    ids=["a lost record", "a new gateway process", "a page that was skipped"],
)
def test_lost_records_are_inconclusive(second):
    report = observe(compare(judge={"stop_on_pass": False}), [page(CLEAN[:2000]), second])
    assert (report.reason, report.verdict) == (StopReason.GAP, Verdict.INCONCLUSIVE)


def test_records_that_are_read_twice_count_once():
    twice = [page(CLEAN[:300]), page(CLEAN[200:600], after=199)]
    once = [page(CLEAN[:300]), page(CLEAN[300:600], after=299)]
    assert observe(compare(), twice) == observe(compare(), once)


@pytest.mark.parametrize(
    "view",
    [
        None,
        lease("lapsed"),
        lease("closed"),
        {"id": "other", "state": "open", "items": {}},
        lease(f=item("expired")),
        lease(s=item(kind="split"), f=item("removed")),
    ],
)
def test_a_lost_lease_or_fault_is_inconclusive(view):
    report = observe(compare(lease_id="L"), [page(CLEAN, lease=view)])
    assert (report.reason, report.verdict) == (StopReason.LEASE_LOST, Verdict.INCONCLUSIVE)
    assert report.counted == 0


def test_an_open_lease_with_its_fault_is_counted():
    report = observe(compare(lease_id="L"), [page(CLEAN, lease=lease(f=item()))])
    assert report.verdict is Verdict.PASS


def test_the_guard_breaks_only_on_proof():
    guard = GuardConfig(abort_burn_rate=5, budget_share=0.9, window_seconds=30, min_requests=100)
    report = observe(watch(guard=guard), pages(bad_every(600, 5), 50))
    assert (report.reason, report.verdict) == (StopReason.GUARD, Verdict.FAIL)
    assert report.guard.kind == "burn_rate"
    assert report.guard.value_low > 5
    lucky = observe(watch(guard=guard), pages(bad_every(600, 12), 50))
    assert lucky.slo[0].burn > 5
    assert lucky.reason is None
    few = observe(watch(guard=guard), pages(bad_every(99, 1), 50))
    assert few.reason is None


def test_the_guard_adds_up_the_budget():
    guard = GuardConfig(abort_burn_rate=60, budget_share=0.0005, window_seconds=5)
    report = observe(watch(guard=guard), pages(bad_every(6000, 2), 100))
    assert (report.reason, report.guard.kind) == (StopReason.GUARD, "budget_share")


def test_the_guard_counts_what_the_comparison_does_not():
    guard = GuardConfig(abort_burn_rate=5, budget_share=0.9)
    report = observe(watch(guard=guard, accepted_after=START + 1e6), pages(bad_every(600, 5), 50))
    assert report.reason is StopReason.GUARD
    assert report.counted == 0


def test_the_trigger_fires_by_its_point_estimate_and_not_at_the_edge():
    trigger = TriggerConfig(compliance_below=0.98, window_seconds=60, min_requests=1000)
    edge = [record(i, outcome=Outcome.TIMEOUT if i % 50 == 49 else Outcome.OK) for i in range(1000)]
    assert observe(watch(trigger=trigger), [page(edge)]).reason is None
    over = [*edge, record(1000, outcome=Outcome.TIMEOUT)]
    report = observe(watch(trigger=trigger), [page(over)])
    assert (report.reason, report.verdict) == (StopReason.TRIGGER, Verdict.INCONCLUSIVE)
    assert (report.trigger.bad, report.trigger.total, report.trigger.seq) == (21, 1001, 1000)
    assert observe(watch(trigger=trigger), [page(bad_every(999, 2))]).reason is None


def test_a_trigger_is_noticed_in_whatever_page_it_was_in():
    records = bad_every(1200, 20) + [record(seq) for seq in range(1200, 4000)]
    trigger = TriggerConfig(compliance_below=0.98, window_seconds=60, min_requests=1000)
    small = observe(watch(trigger=trigger), pages(records, 10))
    large = observe(watch(trigger=trigger), [page(records)])
    assert small.trigger == large.trigger


def test_a_trigger_goes_on_past_a_proven_harm_when_told_to():
    records = traffic(4000, chaos=lambda rng: {"outcome": Outcome.TIMEOUT})
    trigger = TriggerConfig(compliance_below=0.98)
    config = compare(trigger=trigger, judge={"stop_on_fail": False})
    report = observe(config, pages(records, 20))
    assert (report.reason, report.verdict) == (StopReason.TRIGGER, Verdict.FAIL)


SETTLE = SettleConfig(min_requests=200, window_seconds=20)


def test_recovery_is_settled_by_proof_and_not_by_little_traffic():
    config = watch(mode="recovery", settle=SETTLE)
    good = observe(config, pages([record(seq) for seq in range(500)], 40))
    assert (good.reason, good.verdict) == (StopReason.SETTLED, Verdict.PASS)
    assert good.requests >= 245
    few = observe(
        config, [page([record(seq) for seq in range(150)]), page([], 149, now=START + 99)]
    )
    assert (few.reason, few.verdict) == (StopReason.LIMIT_TIME, Verdict.INCONCLUSIVE)
    assert few.settle.state == "too_little"
    silent = observe(config, [page([]), page([], now=START + 99)])
    assert silent.verdict is Verdict.INCONCLUSIVE


def test_recovery_that_keeps_burning_fails_at_its_limit():
    report = observe(watch(mode="recovery", settle=SETTLE), pages(bad_every(2000, 10), 100))
    assert (report.reason, report.verdict) == (StopReason.LIMIT_TIME, Verdict.FAIL)
    assert report.settle.state == "unsettled"


def test_recovery_waits_for_requests_in_flight_and_counts_only_later_ones():
    records = bad_every(400, 2) + [record(seq) for seq in range(400, 800)]
    after = records[400].accepted - 0.001
    config = watch(mode="recovery", settle=SETTLE, accepted_after=after)
    waits = [page(records, in_flight={"": 1}, oldest_in_flight=after + 1)]
    assert observe(config, waits).settle.state == "waiting"
    report = observe(config, [*waits, page([], 799, now=waits[0].now + 1)])
    assert report.verdict is Verdict.PASS
    assert report.slo[0].bad == 0


def test_without_a_judge_the_objectives_decide_at_the_limit():
    def at_limit(records):
        last = records[-1].seq if records else -1
        return observe(watch(), [page(records), page([], last, now=START + 9999)])

    assert at_limit([record(seq) for seq in range(300)]).verdict is Verdict.PASS
    assert at_limit(bad_every(300, 4)).verdict is Verdict.FAIL
    assert at_limit([record(seq) for seq in range(30)]).verdict is Verdict.INCONCLUSIVE
    assert at_limit([]).verdict is Verdict.INCONCLUSIVE


def test_the_limit_on_units_ends_a_comparison_undecided():
    records = traffic(
        4000, chaos=lambda rng: {"outcome": Outcome.TIMEOUT} if rng.random() < 0.012 else {}
    )
    report = observe(compare(judge={"max_requests": 300, "alpha": 0.001}), pages(records, 50))
    assert (report.reason, report.verdict) == (StopReason.LIMIT_REQUESTS, Verdict.INCONCLUSIVE)


@pytest.mark.parametrize(
    ("probability", "exposed", "touched", "expects", "state"),
    [
        (0.04, 400, 12, True, "seen"),
        (0.04, 400, 0, True, "none"),
        (0.04, 100, 0, True, "too_little"),
        (1.0, 1, 0, True, "none"),
        (1.0, 0, 0, True, "too_little"),
        (1.0, 400, 0, False, "not_expected"),
    ],
)
def test_the_effect_is_seen_or_its_absence_proven(probability, exposed, touched, expects, state):
    effect = EffectConfig(item_id="f", expects_effect=expects, probability=probability)
    records = [
        record(
            seq, exposed=("f",) if seq < exposed else (), touched=("f",) if seq < touched else ()
        )
        for seq in range(500)
    ]
    report = observe(watch(effect=effect), [page(records)])
    assert report.effect.state == state
    assert (report.effect.exposed, report.effect.touched) == (exposed, touched)


def test_an_effect_still_in_flight_is_known_from_the_lease():
    effect = EffectConfig(item_id="f", expects_effect=True, probability=1.0)
    view = lease(f=item(exposed=3, touched=3))
    assert observe(watch(effect=effect), [page([], lease=view)]).effect.state == "seen"


def test_live_is_small_and_strict_json():
    session = Session(compare(settle=SETTLE))
    for part in [page([]), page(CLEAN[:500])]:
        session.feed(part)
        text = json.dumps(session.live(), allow_nan=False)
        assert len(text) < 1000
    assert session.live()["units"]["control"] > 0


def test_stored_pages_give_back_the_same_bytes():
    config = compare(guard=GuardConfig(abort_burn_rate=20, budget_share=0.05))
    made = pages(traffic(3000, chaos=lambda r: {"ttft_s": r.lognormvariate(-1.9, 0.4)}), 37)
    stored = json.loads(json.dumps([item.to_json() for item in made], allow_nan=False))
    report = observe(config, made)
    again = observe_json(json.loads(config.model_dump_json()), stored)
    assert json.dumps(again, sort_keys=True, allow_nan=False) == json.dumps(
        report.model_dump(mode="json"), sort_keys=True, allow_nan=False
    )
    assert observe(config, [Page.from_json(item) for item in stored]) == report
