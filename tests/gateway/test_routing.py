"""Choices: balanced, sticky, independent of one another, and never without a target."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, chisquare

from gateway.config import ReplicaConfig, RouteConfig
from gateway.routing import (
    Health,
    Split,
    arm_of,
    match_route,
    pick_free,
    pick_in_arm,
    settle,
    treatment_of,
    unit_hash,
)

UNITS = [unit_hash(f"conversation-{n}") for n in range(20_000)]


def split(share: float = 0.2, salt: str = "s") -> Split:
    control = ("c1", "c2", "c3", "c4")
    return Split("S", "e", salt, share, control, ("x1",), by_conversation=True)


@pytest.mark.parametrize("share", [0.01, 0.05, 0.2, 0.5])
def test_the_chaos_arm_gets_its_share_of_units(share: float):
    chaos = sum(arm_of(split(share), unit) == "chaos" for unit in UNITS)
    assert binomtest(chaos, len(UNITS), share).pvalue > 1e-4


def test_five_replicas_at_share_a_fifth_carry_equal_load():
    plan = split(0.2)
    load = Counter(pick_in_arm(plan, arm_of(plan, unit), unit) for unit in UNITS)
    assert set(load) == {"c1", "c2", "c3", "c4", "x1"}
    assert chisquare(list(load.values())).pvalue > 1e-4


def test_a_unit_keeps_arm_and_replica_while_the_salt_lives():
    plan = split()
    for unit in UNITS[:500]:
        picks = {(arm_of(plan, unit), pick_in_arm(plan, arm_of(plan, unit), unit)) for _ in "123"}
        assert len(picks) == 1


def test_growing_the_share_moves_units_into_the_chaos_arm_and_none_out():
    small, large = split(0.05), split(0.5)
    for unit in UNITS[:5_000]:
        if arm_of(small, unit) == "chaos":
            assert arm_of(large, unit) == "chaos"


def test_another_salt_draws_other_arms():
    one, two = split(0.5, "s1"), split(0.5, "s2")
    same = sum(arm_of(one, unit) == arm_of(two, unit) for unit in UNITS)
    assert binomtest(same, len(UNITS), 0.5).pvalue > 1e-4


def test_the_hold_out_lies_in_both_arms_even_under_one_salt():
    plan = split(0.5)
    chaos = [unit for unit in UNITS if arm_of(plan, unit) == "chaos"]
    held = sum(treatment_of("s", 0.2, unit) == "holdout" for unit in chaos)
    assert binomtest(held, len(chaos), 0.2).pvalue > 1e-4


def test_a_lone_request_goes_where_the_fewest_are_outstanding():
    assert pick_free(("a", "b"), {"a": 3, "b": 1}, "u", sticky=False) == "b"
    even = Counter(pick_free(("a", "b"), {}, unit, sticky=False) for unit in UNITS)
    assert binomtest(even["a"], len(UNITS), 0.5).pvalue > 1e-4


def test_losing_a_replica_moves_only_its_own_conversations():
    before = {unit: pick_free(("a", "b", "c"), {}, unit, sticky=True) for unit in UNITS[:2_000]}
    after = {unit: pick_free(("a", "b"), {"a": 9}, unit, sticky=True) for unit in UNITS[:2_000]}
    assert all(after[unit] == name for unit, name in before.items() if name != "c")


NAMES = ("a", "b", "c")


@given(
    st.sampled_from(NAMES),
    st.frozensets(st.sampled_from(NAMES)),
    st.dictionaries(st.sampled_from(NAMES), st.floats(0, 1)),
)
def test_there_is_always_a_target_and_the_assigned_one_if_it_is_allowed(assigned, allowed, badness):
    choice = settle("chaos", assigned, NAMES, Health(allowed, badness, {}))
    assert choice.replica in (allowed or NAMES)
    assert choice.all_open == (not allowed)
    assert choice.assigned == assigned and choice.arm == "chaos"
    assert choice.fallback == (choice.replica != assigned)
    if assigned in allowed:
        assert not choice.fallback
    if not allowed:
        assert badness.get(choice.replica, 0) == min(badness.get(name, 0) for name in NAMES)


def route(name: str, *models: str) -> RouteConfig:
    replica = ReplicaConfig(name="a", url="http://h:1")
    return RouteConfig(name=name, models=models, replicas=(replica,))


def test_a_model_finds_its_route_then_the_any_model_route_then_none():
    one, rest = route("one", "m1", "m2"), route("rest", "*")
    assert match_route([rest, one], "m2") is one
    assert match_route([one, rest], "m3") is rest
    assert match_route([one], "m3") is None
    assert match_route([one], None) is one
    assert match_route([one, rest], None) is rest


def test_a_unit_does_not_show_its_key_and_takes_any_text():
    assert "customer" not in unit_hash("customer-42")
    assert len(unit_hash("\udcff")) == 16
