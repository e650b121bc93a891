import copy
import re
from pathlib import Path

import pytest

from faults.parse import parse_yaml
from remediation.actions import INFO
from remediation.policy import RemediationPolicy, parse_policy, read_policy
from slo.errors import SpecError, SpecErrors
from tests.faults.reference import check_page

ROOT = Path(__file__).parents[2]
FILE = ROOT / "examples" / "stall-the-chat-stream" / "policies" / "chat.yaml"
POLICY = parse_yaml(FILE.read_text(encoding="utf-8"), FILE.name)[0]


def changed(path, value):
    doc = copy.deepcopy(POLICY)
    part = doc
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    return doc


def test_the_example_is_read_as_written_and_read_back_from_the_wire():
    policy = parse_policy(POLICY)
    assert policy.when.window == 60.0
    assert policy.actions[0].threshold_ratio == 0.01
    assert policy.actions[0].holdout_share == 0.2
    assert policy.actions[0].verify.within == 180.0
    assert RemediationPolicy.model_validate_json(policy.model_dump_json()) == policy


WRONG = {
    "a misspelt key": (("when", "complience_below"), 0.9, 'did you mean "compliance_below"?'),
    "a percentage": (("when", "compliance_below"), 98.5, "less than 1"),
    "a length without unit": (("when", "window"), 60, 'write "60s"'),
    "an act that does not exist": (("actions", 0, "action"), "breaker/loosen", "is not one of"),
    "an undo as an act": (("actions", 0, "action"), "breaker/restore", "is not one of"),
    "a threshold of nothing": (("actions", 0, "threshold"), 0, "greater than 0"),
    "a hold-out of nobody": (("actions", 0, "holdout"), 0, "greater than 0"),
    "a hold-out of most": (("actions", 0, "holdout"), 0.6, "less than or equal to 0.5"),
    "no acts": (("actions",), [], "at least one entry"),
    "one act twice": (("actions",), POLICY["actions"] * 2, "do the same"),
    "no trials": (("limits", "max_trials"), 0, "greater than or equal to 1"),
    "another kind": (("kind",), "Policy", "is not one of RemediationPolicy"),
}


@pytest.mark.parametrize(("path", "value", "told"), WRONG.values(), ids=WRONG)
def test_a_policy_that_is_wrong_is_refused_on_one_line(path, value, told):
    with pytest.raises(SpecErrors, match=re.escape(told)) as caught:
        read_policy(changed(path, value))
    assert len(caught.value.lines) == 1
    with pytest.raises(SpecError):
        parse_policy(changed(path, value))


@pytest.mark.parametrize("raw", [None, [], "policies/chat.yaml", 3])
def test_what_is_no_mapping_is_refused(raw):
    with pytest.raises(SpecError, match="a mapping is needed"):
        parse_policy(raw)


def test_the_page_lists_every_key_and_says_what_is_said_of_the_act():
    check_page("docs/policies.md", {"policy": RemediationPolicy})
    text = " ".join((ROOT / "docs" / "policies.md").read_text(encoding="utf-8").split())
    info = INFO["breaker/tighten"]
    assert info.effect_check in text
    assert info.undo in text
    assert f"{info.expected_seconds:g} s" in text
