import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.outcome import OutcomeInput, PhaseSummary, RunOutcome, decide_outcome

HELD = PhaseSummary(verdict="PASS", reason="verdict", effect_state="seen", why="e-values say so")
WORSE = PhaseSummary(verdict="FAIL", reason="verdict", effect_state="seen", why="chaos is worse")
OPEN = PhaseSummary(verdict="INCONCLUSIVE", reason="limit_time", effect_state="seen", why="time")
GUARD = PhaseSummary(verdict="INCONCLUSIVE", reason="guard", effect_state="seen", why="burn 40")
SETTLED = PhaseSummary(verdict="PASS", reason="settled", why="burn 0.2")
UNSETTLED = PhaseSummary(verdict="FAIL", reason="limit_time", why="burn 3")
TRIGGERED = PhaseSummary(
    verdict="INCONCLUSIVE", reason="trigger", effect_state="seen", why="compliance 0.98"
)
LAPSED = PhaseSummary(verdict="INCONCLUSIVE", reason="lease_lost", effect_state="seen")
UNTOUCHED = HELD.model_copy(update={"effect_state": "none"})
UNMET = HELD.model_copy(update={"effect_state": "too_little"})


def run(**changes):
    """A run in which all went well, but for the changes."""
    given = {
        "hypothesis": "withstands",
        "steady": SETTLED,
        "compare": HELD,
        "recovery": SETTLED,
        **changes,
    }
    return OutcomeInput(**given)


def recovers(**changes):
    """A run that broke, was mended under the fault, and was met again."""
    given = {
        "hypothesis": "recovers",
        "remedy_under_fault": True,
        "compare": TRIGGERED,
        "remedy": WORSE,
        "met_again": SETTLED,
        **changes,
    }
    return run(**given)


TABLE = {
    "all held: pass": (run(), "PASS", 0),
    "the chaos arm is worse: fail": (run(compare=WORSE), "FAIL", 1),
    "the comparison is open: inconclusive": (run(compare=OPEN), "INCONCLUSIVE", 2),
    "no comparison was made: inconclusive": (run(compare=None), "INCONCLUSIVE", 2),
    "the guard fired: fail": (run(compare=GUARD), "FAIL", 1),
    "the guard fired though it may break: fail": (recovers(compare=GUARD), "FAIL", 1),
    "the guard fired while remedying: fail": (recovers(remedy=GUARD), "FAIL", 1),
    "the SLO broke where it must withstand: fail": (run(compare=TRIGGERED), "FAIL", 1),
    "no steady state: nothing was learnt": (
        run(steady=UNSETTLED, compare=None),
        "CONFIGURATION",
        3,
    ),
    "too little traffic before the fault: inconclusive": (
        run(steady=OPEN, compare=None, recovery=None),
        "INCONCLUSIVE",
        2,
    ),
    "the steady state was never measured: inconclusive": (run(steady=None), "INCONCLUSIVE", 2),
    "the fault touched nothing: not injected": (run(compare=UNTOUCHED), "NOT_INJECTED", 3),
    "too few met the fault: inconclusive": (run(compare=UNMET), "INCONCLUSIVE", 2),
    "nobody looked for the effect: inconclusive": (
        run(compare=HELD.model_copy(update={"effect_state": None})),
        "INCONCLUSIVE",
        2,
    ),
    "a null fault touches nothing and may pass": (
        run(expects_effect=False, compare=HELD.model_copy(update={"effect_state": "not_expected"})),
        "PASS",
        0,
    ),
    "a null fault whose arms differ: fail": (run(expects_effect=False, compare=WORSE), "FAIL", 1),
    "the lease was lost: inconclusive": (run(lease_lost=True), "INCONCLUSIVE", 2),
    "the fault expired while observing: inconclusive": (run(compare=LAPSED), "INCONCLUSIVE", 2),
    "a gap in the journal: inconclusive": (
        run(compare=HELD.model_copy(update={"reason": "gap"})),
        "INCONCLUSIVE",
        2,
    ),
    "stopped by a person: inconclusive": (run(aborted_by="kim"), "INCONCLUSIVE", 2),
    "a failure of the machinery: nothing was learnt": (run(failure="no SQL"), "CONFIGURATION", 3),
    "could not be run as written": (
        OutcomeInput(hypothesis="withstands", configuration_error="guard cannot fire"),
        "CONFIGURATION",
        3,
    ),
    "clean-up not proven": (run(cleanup_failed=("fault-1",)), "CLEANUP_FAILED", 4),
    "the SLO was not met again afterwards: fail": (run(recovery=UNSETTLED), "FAIL", 1),
    "the recovery is open: inconclusive": (run(recovery=OPEN), "INCONCLUSIVE", 2),
    "the recovery was not measured: inconclusive": (run(recovery=None), "INCONCLUSIVE", 2),
    "it may break and did not: pass": (
        recovers(compare=HELD, remedy=None, met_again=None),
        "PASS",
        0,
    ),
    "it broke and the remedy mended it: pass": (recovers(), "PASS", 0),
    "it broke by verdict and the remedy mended it: pass": (recovers(compare=WORSE), "PASS", 0),
    "it was met again, the remedy without proof: pass, without credit": (
        recovers(remedy=OPEN),
        "PASS",
        0,
    ),
    "the remedy is proven, whether met again was not watched: pass": (
        recovers(met_again=None),
        "PASS",
        0,
    ),
    "the remedy works and the SLO is still not met: fail": (
        recovers(met_again=UNSETTLED),
        "FAIL",
        1,
    ),
    "whether it was met again is open: inconclusive": (recovers(met_again=OPEN), "INCONCLUSIVE", 2),
    "the remedy did not help: fail": (recovers(remedy=HELD, met_again=None), "FAIL", 1),
    "whether the remedy helps is open: inconclusive": (
        recovers(remedy=OPEN, met_again=None),
        "INCONCLUSIVE",
        2,
    ),
    "it broke and no remedy was seen: inconclusive": (
        recovers(remedy=None, met_again=None),
        "INCONCLUSIVE",
        2,
    ),
    "the fault expired during the remedy: not credited": (
        recovers(lease_lost=True),
        "INCONCLUSIVE",
        2,
    ),
    "the fault expired in the trial: not credited": (
        recovers(remedy=LAPSED, met_again=None),
        "INCONCLUSIVE",
        2,
    ),
    "the fault expired and a useless remedy is not blamed": (
        recovers(lease_lost=True, remedy=HELD, met_again=UNSETTLED),
        "INCONCLUSIVE",
        2,
    ),
    "it broke and recovered by itself where no remedy was asked: pass": (
        recovers(remedy_under_fault=False, remedy=None, met_again=None),
        "PASS",
        0,
    ),
    "it broke and did not recover by itself: fail": (
        recovers(remedy_under_fault=False, remedy=None, met_again=None, recovery=UNSETTLED),
        "FAIL",
        1,
    ),
    "the comparison of a recovering run is open: inconclusive": (
        recovers(compare=OPEN, remedy=None, met_again=None),
        "INCONCLUSIVE",
        2,
    ),
}


@pytest.mark.parametrize(("given", "outcome", "code"), TABLE.values(), ids=TABLE)
def test_outcome(given, outcome, code):
    report = decide_outcome(given)
    assert (report.outcome, report.exit_code) == (outcome, code)
    assert report.reasons
    assert report.rests_on


CAUSES = {
    RunOutcome.CLEANUP_FAILED: {"cleanup_failed": ("split",)},
    RunOutcome.FAIL: {"recovery": UNSETTLED},
    RunOutcome.NOT_INJECTED: {"compare": UNTOUCHED},
    RunOutcome.CONFIGURATION: {"failure": "the audit store is gone"},
    RunOutcome.INCONCLUSIVE: {"aborted_by": "kim"},
}


@pytest.mark.parametrize(
    ("graver", "other"),
    list(itertools.combinations(RunOutcome, 2)),
    ids=lambda outcome: outcome.value,
)
def test_the_graver_of_two_outcomes_is_said_and_both_are_explained(graver, other):
    changes = {**CAUSES.get(other, {}), **CAUSES[graver]}
    report = decide_outcome(run(**changes))
    assert report.outcome is graver
    alone = decide_outcome(run(**CAUSES.get(other, {})))
    assert alone.outcome is other
    if other is not RunOutcome.PASS:
        assert set(alone.reasons) <= set(report.reasons)
        assert report.reasons.index(alone.reasons[0]) > 0


def test_a_failed_comparison_outranks_a_fault_that_touched_nothing():
    assert decide_outcome(
        run(compare=WORSE.model_copy(update={"effect_state": "none"}))
    ).outcome == ("FAIL")


def test_who_stopped_it_is_named():
    assert decide_outcome(run(aborted_by="kim")).reasons == ("Stopped by kim.",)
    assert decide_outcome(run(aborted_by="")).reasons == ("Stopped by a person.",)


def test_an_unproven_remedy_is_not_credited_and_a_proven_one_is():
    with_proof, without = decide_outcome(recovers()), decide_outcome(recovers(remedy=OPEN))
    assert "remedy" in with_proof.rests_on
    assert "remedy" not in without.rests_on
    assert any("not credited" in sentence for sentence in without.reasons)


PHASES = st.none() | st.builds(
    PhaseSummary,
    verdict=st.sampled_from(["PASS", "FAIL", "INCONCLUSIVE"]),
    reason=st.sampled_from(
        ["verdict", "guard", "trigger", "settled", "limit_time", "lease_lost", "gap"]
    ),
    effect_state=st.sampled_from([None, "seen", "none", "too_little", "not_expected"]),
)
INPUTS = st.builds(
    OutcomeInput,
    hypothesis=st.sampled_from(["withstands", "recovers"]),
    expects_effect=st.booleans(),
    remedy_under_fault=st.booleans(),
    steady=st.just(SETTLED) | PHASES,
    compare=st.sampled_from([HELD, TRIGGERED]) | PHASES,
    remedy=st.just(WORSE) | PHASES,
    met_again=st.just(SETTLED) | PHASES,
    recovery=st.just(SETTLED) | PHASES,
    aborted_by=st.sampled_from([None, None, "kim"]),
    failure=st.sampled_from([None, None, "gone"]),
    configuration_error=st.sampled_from([None, None, "typo"]),
    cleanup_failed=st.sampled_from([(), (), ("fault",)]),
    lease_lost=st.sampled_from([False, False, True]),
)


@given(INPUTS)
def test_a_pass_needs_every_required_phase_and_nothing_against_it(given):
    report = decide_outcome(given)
    assert report == decide_outcome(given)
    assert report.exit_code == report.outcome.exit_code
    if report.outcome is not RunOutcome.PASS:
        return
    for phase in (given.steady, given.compare, given.recovery):
        assert phase is not None
        assert phase.reason not in {"gap", "lease_lost", "guard"}
    assert given.steady.verdict == given.recovery.verdict == "PASS"
    assert given.compare.verdict == "PASS" or given.hypothesis == "recovers"
    assert given.compare.effect_state == "seen" or not given.expects_effect
    assert not given.cleanup_failed
    assert not given.lease_lost
    assert (given.aborted_by, given.failure, given.configuration_error) == (None, None, None)


@given(INPUTS)
def test_something_more_against_a_run_never_makes_it_better(given):
    order = list(RunOutcome)
    before = order.index(decide_outcome(given).outcome)
    for worse in (
        {"cleanup_failed": ("fault",)},
        {"failure": "gone"},
        {"aborted_by": "kim"},
        {"configuration_error": "typo"},
        {"recovery": None},
    ):
        if "recovery" in worse and given.recovery and given.recovery.verdict == "FAIL":
            continue
        if "recovery" in worse and given.recovery and given.recovery.reason == "guard":
            continue
        after = order.index(decide_outcome(given.model_copy(update=worse)).outcome)
        assert after <= before, worse


@given(INPUTS)
def test_the_wire_form_decides_the_same(given):
    read_back = OutcomeInput.model_validate_json(given.model_dump_json())
    assert decide_outcome(read_back) == decide_outcome(given)


def test_a_refusal_by_circumstances_is_no_mistake_and_keeps_its_exit_code() -> None:
    busy = OutcomeInput(
        hypothesis="withstands",
        configuration_error="route/chat is busy: run r holds it; follow or abort it",
        refused=True,
    )
    stopped = OutcomeInput(
        hypothesis="withstands",
        failure="a global stop is in force (drill); `burnproof release`",
        refused=True,
    )
    told = [(decide_outcome(given).reasons[0], decide_outcome(given)) for given in (busy, stopped)]
    assert [sentence for sentence, _ in told] == [
        "It was not begun: route/chat is busy: run r holds it; follow or abort it.",
        "It was not begun: a global stop is in force (drill); `burnproof release`.",
    ]
    assert [(str(r.outcome), r.exit_code) for _, r in told] == [("CONFIGURATION", 3)] * 2


def test_an_old_record_without_the_mark_of_a_refusal_keeps_its_words() -> None:
    given = OutcomeInput(hypothesis="withstands", failure="the disk is full")
    assert "refused" not in given.model_dump()
    assert decide_outcome(given).reasons[0] == "The machinery broke: the disk is full."
