import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediation.actions import Act, ReplicaFacts, fingerprint, why_it_cannot_help
from remediation.diagnosis import Pattern, diagnose
from remediation.plan import Plan, PlanInput, plan
from remediation.policy import RemediationPolicy


def policy(*thresholds, **limits):
    return RemediationPolicy.model_validate(
        {
            "apiVersion": "burnproof/v1",
            "kind": "RemediationPolicy",
            "metadata": {"name": "chat"},
            "when": {"compliance_below": 0.985},
            "actions": [
                {"action": "breaker/tighten", "threshold": t} for t in thresholds or (0.01,)
            ],
            "limits": limits,
        }
    )


def asked(**changes):
    return PlanInput(**{"policy": policy(), "compliance": 0.98, "requests": 1440, **changes})


def replicas(bad_a, bad_b, threshold=0.05, total=720):
    return (
        ReplicaFacts(name="a", total=total, bad=bad_a, threshold_ratio=threshold),
        ReplicaFacts(name="b", total=total, bad=bad_b, threshold_ratio=threshold),
    )


def prints(*thresholds):
    return tuple(fingerprint(action) for action in policy(*thresholds).actions)


def test_a_missed_objective_is_answered_with_the_act_of_the_policy():
    made = plan(asked(replicas=replicas(0, 29)))
    assert [action.threshold_ratio for action in made.actions] == [0.01]
    assert made.diagnosis.pattern is Pattern.ONE_REPLICA_BAD
    assert made.diagnosis.replica == "b"
    assert made.expected_seconds > 0
    assert not made.escalate


DIAGNOSES = {
    "no data": (None, 0, (), Pattern.TOO_LITTLE_TRAFFIC),
    "too few requests, all bad": (0.0, 999, (), Pattern.TOO_LITTLE_TRAFFIC),
    "enough requests, met": (0.985, 1000, (), Pattern.OBJECTIVE_MET),
    "missed, replicas unknown": (0.984, 1000, (), Pattern.OBJECTIVE_MISSED),
    "missed by one replica": (0.98, 1440, replicas(1, 28), Pattern.ONE_REPLICA_BAD),
    "missed by both alike": (0.98, 1440, replicas(14, 15), Pattern.OBJECTIVE_MISSED),
    "missed, a difference by chance": (0.98, 1440, replicas(11, 18), Pattern.OBJECTIVE_MISSED),
    "missed, one replica without traffic": (
        0.98,
        1440,
        (ReplicaFacts(name="a", total=0, bad=0), *replicas(0, 29)[1:]),
        Pattern.OBJECTIVE_MISSED,
    ),
}


@pytest.mark.parametrize(
    ("compliance", "requests", "facts", "pattern"), DIAGNOSES.values(), ids=DIAGNOSES
)
def test_diagnosis(compliance, requests, facts, pattern):
    assert diagnose(policy().when, compliance, requests, facts).pattern is pattern


@pytest.mark.parametrize(("compliance", "requests"), [(None, 0), (0.5, 999), (0.99, 5000)])
def test_where_nothing_is_proven_wrong_nothing_is_done_and_nobody_is_woken(compliance, requests):
    made = plan(asked(compliance=compliance, requests=requests))
    assert made.actions == ()
    assert not made.escalate


def test_acts_are_tried_in_the_order_of_the_policy_and_then_a_person_is_asked():
    three = policy(0.03, 0.02, 0.01, max_trials=2)
    assert [a.threshold_ratio for a in plan(asked(policy=three)).actions] == [0.03, 0.02]
    second = plan(asked(policy=three, tried=prints(0.03)))
    assert [a.threshold_ratio for a in second.actions] == [0.02]
    assert "no trial is left" in second.refused[0].why
    third = plan(asked(policy=three, tried=prints(0.03, 0.02)))
    assert third.actions == ()
    assert third.escalate
    assert plan(asked(tried=prints(0.01))).escalate


def test_an_act_is_not_tried_twice_because_one_before_it_was_refused():
    two = policy(0.9, 0.01, max_trials=2)
    facts = replicas(0, 29)
    first = plan(asked(policy=two, replicas=facts))
    assert [a.threshold_ratio for a in first.actions] == [0.01]
    second = plan(asked(policy=two, replicas=facts, tried=prints(0.01)))
    assert second.actions == ()
    assert second.escalate


def test_an_act_of_an_earlier_run_waits_for_its_cooldown():
    (print_,) = prints(0.01)
    waiting = plan(asked(seconds_since={print_: 599.0}))
    assert waiting.actions == ()
    assert waiting.escalate
    assert "tried it 599 s ago, and the cooldown is 600 s" in waiting.why
    assert plan(asked(seconds_since={print_: 600.0})).actions
    assert plan(asked(seconds_since={print_: 0.0}, policy=policy(cooldown="0s"))).actions


def test_another_act_need_not_wait_for_that_cooldown():
    (print_,) = prints(0.03)
    made = plan(asked(policy=policy(0.03, 0.01), seconds_since={print_: 1.0}))
    assert [a.threshold_ratio for a in made.actions] == [0.01]
    assert [refusal.fingerprint for refusal in made.refused] == [print_]


CANNOT = {
    "it is not tighter than what is in force": (replicas(0, 29, threshold=0.01), "not below"),
    "no replica is that bad": (replicas(0, 0), "would stay closed"),
    "every replica is worse": (replicas(60, 70), "none for the traffic to go to"),
}


@pytest.mark.parametrize(("facts", "why"), CANNOT.values(), ids=CANNOT)
def test_an_act_that_cannot_help_is_not_tried(facts, why):
    assert why in why_it_cannot_help(policy().actions[0], facts)
    assert plan(asked(replicas=facts)).actions == ()


def test_an_act_is_known_by_what_it_does_not_by_how_it_is_verified():
    one = policy().actions[0]
    assert fingerprint(one) == fingerprint(one.model_copy(update={"holdout_share": 0.1}))
    assert fingerprint(one) != fingerprint(policy(0.02).actions[0])


def test_an_act_and_its_undo_are_read_back_from_the_wire():
    for act in (
        Act(act=policy().actions[0]),
        Act.model_validate({"act": {"action": "breaker/restore"}}),
    ):
        assert Act.model_validate_json(act.model_dump_json()) == act


@given(
    thresholds=st.lists(
        st.sampled_from([0.01, 0.02, 0.03, 0.04]), min_size=1, max_size=4, unique=True
    ),
    max_trials=st.integers(1, 5),
    tried=st.lists(st.sampled_from([0.01, 0.02, 0.03]), max_size=3, unique=True),
    compliance=st.none() | st.floats(0, 1),
    requests=st.integers(0, 3000),
    facts=st.just(()) | st.builds(replicas, st.integers(0, 720), st.integers(0, 720)),
    since=st.dictionaries(st.sampled_from([0.01, 0.02, 0.03]), st.floats(0, 1200)),
)
def test_a_plan_keeps_within_its_guardrails(
    thresholds, max_trials, tried, compliance, requests, facts, since
):
    given = PlanInput(
        policy=policy(*thresholds, max_trials=max_trials),
        compliance=compliance,
        requests=requests,
        tried=prints(*tried) if tried else (),
        seconds_since={prints(threshold)[0]: seconds for threshold, seconds in since.items()},
        replicas=facts,
    )
    made = plan(given)
    assert made == plan(PlanInput.model_validate_json(given.model_dump_json()))
    assert Plan.model_validate_json(made.model_dump_json()) == made
    assert len(made.actions) <= max(0, max_trials - len(tried))
    acts = {action.threshold_ratio for action in made.actions}
    assert not acts & {*tried, *(threshold for threshold in since if since[threshold] < 600)}
    if made.actions:
        assert requests >= 1000
        assert compliance < 0.985
        assert not made.escalate
