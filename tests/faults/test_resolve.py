"""C58: a selector that picks nothing, or not what was meant, never breaks anything."""

import pytest

from faults.experiment import Target
from faults.resolve import RouteFacts, resolve_arms, resolve_target
from slo.errors import SpecError

ROUTES = [
    RouteFacts(name="chat", labels={"tier": "chat", "team": "a"}, replicas=("a", "b"), risk=0.4),
    RouteFacts(name="chat-eu", labels={"tier": "chat"}, replicas=("c", "d"), risk=1.9),
    RouteFacts(name="chat-new", labels={"tier": "chat"}, replicas=("e", "f")),
    RouteFacts(name="code", labels={"tier": "code"}, replicas=("g",)),
]


def select(**labels):
    return Target.model_validate({"select": "highest-risk", "from": {"labels": labels}})


def test_a_route_is_found_by_its_name():
    assert resolve_target(Target(route="code"), ROUTES).replicas == ("g",)


def test_the_riskiest_route_that_matches_is_chosen_and_said_why():
    found = resolve_target(select(tier="chat"), ROUTES)
    assert found.route == "chat-eu"
    assert "highest risk of 3" in found.why
    assert resolve_target(select(tier="chat"), ROUTES[::-1]) == found


def test_all_labels_must_match():
    assert resolve_target(select(tier="chat", team="a"), ROUTES).route == "chat"


@pytest.mark.parametrize(
    ("target", "told", "guess"),
    [
        (Target(route="chatt"), "there are chat, chat-eu", "chat"),
        (select(tier="caht"), "no route has tier=caht; labels there are", "tier=chat"),
        (select(tier="chat", team="b"), "no route has team=b, tier=chat", "team=a"),
    ],
)
def test_a_target_that_matches_nothing_is_an_error_that_lists_what_there_is(target, told, guess):
    with pytest.raises(SpecError) as caught:
        resolve_target(target, ROUTES)
    assert told in caught.value.message
    assert caught.value.suggestion == guess


def test_nothing_to_choose_from_is_an_error():
    with pytest.raises(SpecError, match="there are none"):
        resolve_target(Target(route="chat"), [])
    with pytest.raises(SpecError, match="no route has labels"):
        resolve_target(select(tier="chat"), [])


def test_replicas_are_split_without_overlap_and_in_one_order():
    assert resolve_arms([], ["b", "a", "c"]).chaos == ("c",)
    arms = resolve_arms(["a"], ["c", "b", "a"])
    assert (arms.control, arms.chaos) == (("b", "c"), ("a",))


@pytest.mark.parametrize(
    ("wanted", "there", "told"),
    [
        (["x"], ["a", "b"], 'no replica "x"'),
        ([], ["a"], "one replica for each arm"),
        ([], [], "there are none"),
        (["a", "b"], ["a", "b"], "none is left for control"),
    ],
)
def test_arms_that_cannot_be_filled_are_an_error(wanted, there, told):
    with pytest.raises(SpecError, match=told):
        resolve_arms(wanted, there)
