import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faults.blast_radius import AdmitInput, AdmitReport, Limits, admit
from faults.catalog import BlastClass
from faults.feasibility import expected_plan, units_to_pass
from tests.faults.documents import slo, spec


def asked(changes=None, **given):
    return AdmitInput(
        spec=spec(**(changes or {})), **{"control": ("a",), "chaos": ("b",), "rate": 24.0, **given}
    )


def codes(given):
    report = admit(given)
    assert report.admitted == (not report.problems) == (not report.refusals)
    return {item.code for item in report.problems}, {item.code for item in report.warnings}


def test_a_sound_experiment_is_admitted_without_a_word():
    assert codes(asked()) == (set(), set())


REFUSED = {
    "more than the share allowed": (asked({"arms__chaos__share": 0.6}), "share"),
    "no replica for the chaos arm": (asked(chaos=()), "arms"),
    "no replica for the control arm": (asked(control=()), "arms"),
    "one replica in both arms": (asked(control=("a", "b")), "arms"),
    "more than half of the replicas": (asked(chaos=("b", "c")), "replicas"),
    "a fault that is too short": (asked({"fault__duration": "9s"}), "duration"),
    "a fault that is too long": (asked({"fault__duration": "61m"}), "duration"),
    "a lease that one lost renewal ends": (asked({"lease": {"seconds": 5.9}}), "lease"),
    "a rule that never meets the fault's replicas": (
        asked({"fault__match": {"arm": "contr*"}}),
        "match",
    ),
    "a class of fault that is not allowed": (
        asked(limits=Limits(blast=BlastClass.NONE)),
        "blast",
    ),
    "a guard above all requests": (asked({"guard": {"abort_burn_rate": 67}}), "guard_cannot_fire"),
    "a guard at all requests": (
        asked({"guard": {"abort_burn_rate": 100}, "slos": [slo(0.99)]}),
        "guard_cannot_fire",
    ),
    "a guard that its few requests can never prove": (
        asked({"guard": {"abort_burn_rate": 20, "min_requests": 2, "window": "1s"}}, rate=2.0),
        "guard_cannot_fire",
    ),
    "fewer units than any pass takes": (asked({"judge": {"max_requests": 500}}), "too_few_units"),
}


@pytest.mark.parametrize(("given", "code"), REFUSED.values(), ids=REFUSED)
def test_an_experiment_that_must_not_run_is_refused(given, code):
    problems, _ = codes(given)
    assert code in problems


def test_rules_that_can_match_are_admitted():
    assert codes(asked({"fault__match": {"arm": "cha*", "tenant": "acme"}})) == (set(), set())


def test_a_guard_that_cannot_fire_is_told_with_the_figure_and_the_largest_rate():
    (line,) = admit(asked({"guard": {"abort_burn_rate": 67}})).refusals
    assert "67 × (1 − 0.985) = 1.005" in line
    assert "below 66.67" in line


# C48: a threshold copied from the wrong ratio makes a gate that hardly anything fails.
LENIENT = slo(0.05)

WARNED = {
    "an objective that most bad requests still meet": (
        asked({"slos": [LENIENT], "guard": {"abort_burn_rate": 1}}),
        "lenient_objective",
    ),
    "no traffic at all": (asked(rate=0.0), "no_traffic"),
    "next to no traffic": (asked(rate=1e-9), "no_traffic"),
    "too little traffic for a verdict": (asked(rate=3.0), "too_little_traffic"),
    "a guard that will not have its requests": (asked(rate=3.0), "guard_blind"),
    "a window too short to prove recovery": (asked(rate=10.0), "recovery_window"),
    "a guard that needs the harm to spread": (
        asked({"arms__chaos__share": 0.2}),
        "guard_needs_spread",
    ),
    "unequal load on the replicas": (asked({"arms__chaos__share": 0.2}), "unequal_load"),
    "a stall that no SLO sees": (asked({"fault__parameters__stall": "1s"}), "unseen_fault"),
    "a remedy that never comes": (
        asked({"remediation": {"policy": {}, "under_fault": True}}),
        "remedy_unused",
    ),
}


@pytest.mark.parametrize(("given", "code"), WARNED.values(), ids=WARNED)
def test_what_is_good_to_know_is_a_warning(given, code):
    problems, warnings = codes(given)
    assert not problems
    assert code in warnings


def test_traffic_that_was_not_measured_yet_is_not_called_missing():
    assert codes(asked(rate=None)) == (set(), set())


def test_the_plan_says_how_long_a_pass_takes_at_this_traffic():
    plan = expected_plan(spec(), rate=24.0)
    assert plan.chaos_units == 709
    assert plan.seconds == pytest.approx(1418 / 24)
    assert plan.enough
    assert expected_plan(spec(), rate=None).enough is None
    assert expected_plan(spec(), rate=24.0, requests_per_unit=4.0).seconds == plan.seconds * 4


# Medians simulated for the project, 400 runs each, alpha 1 %, margin 1 percentage point.
@pytest.mark.parametrize(("share", "median"), [(0.5, 709), (0.2, 710), (0.05, 710)])
def test_the_exact_count_agrees_with_simulation(share, median):
    assert units_to_pass(0.01, 0.01, share) * share == pytest.approx(median, abs=1)


@given(st.floats(0.02, 0.9), st.floats(0.001, 0.1), st.floats(0.005, 0.1))
def test_a_stricter_question_takes_more_units(share, alpha, margin):
    units = units_to_pass(alpha, margin, share)
    assert units_to_pass(alpha / 2, margin, share) >= units
    assert units_to_pass(alpha, margin / 2, share) >= units


@given(st.floats(0, 0.05), st.floats(0.1, 1000))
def test_more_bad_requests_never_make_a_pass_quicker(bad_ratio, rate):
    clean = expected_plan(spec(), rate)
    assert expected_plan(spec(), rate, bad_ratio).seconds >= clean.seconds
    assert clean.seconds_p90 >= clean.seconds


@settings(max_examples=40)
@given(
    st.floats(0.01, 0.99),
    st.integers(1, 100),
    st.one_of(st.none(), st.floats(0, 1000)),
    st.integers(0, 4),
    st.integers(0, 4),
)
def test_whatever_is_admitted_keeps_within_the_limits(share, burn, rate, controls, chaoses):
    report = admit(
        asked(
            {"arms__chaos__share": share, "guard": {"abort_burn_rate": burn}},
            control=tuple(f"a{i}" for i in range(controls)),
            chaos=tuple(f"b{i}" for i in range(chaoses)),
            rate=rate,
        )
    )
    assert AdmitReport.model_validate_json(report.model_dump_json()) == report
    if report.admitted:
        assert share <= 0.5
        assert 1 <= chaoses <= controls
        assert burn * 0.015 < 1
