"""OpenSLO: one narrow form is read, everything else is refused with path and hint (C49)."""

import copy

import pytest

from slo.errors import SpecError, SpecErrors
from slo.openslo import parse_openslo, read_openslo


def document():
    bounds = {"gapOver": "1500ms", "ttftOver": "4s", "e2eOver": "1m", "flags": ["empty"]}
    bad = {"metricSource": {"type": "burnproof-gateway", "spec": bounds}}
    return {
        "apiVersion": "openslo/v1",
        "kind": "SLO",
        "metadata": {"name": "chat", "displayName": "Chat", "labels": {"team": ["a"]}},
        "spec": {
            "description": "Chat answers",
            "service": "chat",
            "indicator": {"metadata": {"name": "good"}, "spec": {"ratioMetric": {"bad": bad}}},
            "timeWindow": [{"duration": "4w", "isRolling": True}],
            "budgetingMethod": "Occurrences",
            "objectives": [{"displayName": "Good", "target": 0.985}],
        },
    }


def changed(path, value):
    doc = copy.deepcopy(document())
    *parents, last = path
    here = doc
    for step in parents:
        here = here[step]
    if value is KeyError:
        del here[last]
    else:
        here[last] = value
    return doc


SPEC = ("spec",)
RATIO = ("spec", "indicator", "spec", "ratioMetric")
SOURCE = (*RATIO, "bad", "metricSource")


def test_the_document_becomes_an_objective():
    objective = parse_openslo(document())
    assert (objective.name, objective.objective_ratio, objective.window_days) == ("chat", 0.985, 28)
    indicator = objective.indicator
    assert indicator.max_gap_seconds == 1.5
    assert indicator.max_ttft_seconds == 4
    assert indicator.max_e2e_seconds == 60
    assert indicator.bad_flags == ("empty",)


@pytest.mark.parametrize("event", ["request", "interruption", "hidden-error"])
def test_the_kind_of_bad_event_is_named_in_the_document(event):
    indicator = parse_openslo(changed((*SOURCE, "spec"), {"event": event})).indicator
    assert (indicator.event, indicator.max_gap_seconds) == (event, 2.0)


def test_without_bounds_a_silence_of_two_seconds_is_bad():
    indicator = parse_openslo(changed((*SOURCE, "spec"), KeyError)).indicator
    assert indicator.max_gap_seconds == 2.0
    assert indicator.max_ttft_seconds is None


@pytest.mark.parametrize(
    ("path", "value", "where", "hint"),
    [
        ((*SOURCE, "spec"), {"gapOvr": "2s"}, "spec.gapOvr", "gapOver"),
        ((*SOURCE, "spec", "gapOver"), "0s", "gapOver", None),
        ((*SOURCE, "spec", "gapOver"), 2, "gapOver", None),
        ((*SOURCE, "spec", "flags"), ["emty"], "flags[0]", "empty"),
        ((*SOURCE, "spec", "event"), "interruption", "metricSource.spec", None),
        ((*SOURCE, "spec"), {"event": "interuption"}, "spec.event", "interruption"),
        ((*SOURCE, "type"), "Datadog", "metricSource.type", None),
        ((*SOURCE, "type"), "burnproof-gatway", "metricSource.type", "burnproof-gateway"),
        ((*RATIO, "good"), {}, "ratioMetric.good", None),
        ((*RATIO, "counter"), False, "counter", None),
        (("spec", "indicator", "spec", "thresholdMetric"), {}, "thresholdMetric", "ratioMetric"),
        ((*SPEC, "indicatorRef"), "x", "spec.indicatorRef", "indicator"),
        ((*SPEC, "alertPolicies"), [], "spec.alertPolicies", None),
        ((*SPEC, "budgetingMethod"), "Timeslices", "budgetingMethod", None),
        ((*SPEC, "budgetingMethod"), "Occurences", "budgetingMethod", "Occurrences"),
        ((*SPEC, "timeWindow", 0, "isRolling"), False, "isRolling", None),
        ((*SPEC, "timeWindow", 0, "duration"), "1M", "duration", None),
        ((*SPEC, "timeWindow"), [], "timeWindow", None),
        ((*SPEC, "objectives"), [], "objectives", None),
        ((*SPEC, "objectives"), [{"target": 0.9}, {"target": 0.99}], "objectives", None),
        ((*SPEC, "objectives", 0), {"targt": 0.9}, "targt", "target"),
        ((*SPEC, "objectives", 0, "target"), 98.5, "target", None),
        ((*SPEC, "objectives", 0, "target"), float("nan"), "target", None),
        ((*SPEC, "objectives", 0, "timeSliceTarget"), 0.9, "timeSliceTarget", None),
        (("kind",), "Service", "kind", None),
        (("apiVersion",), "openslo/v2", "apiVersion", "openslo/v1"),
        (("metadata", "name"), KeyError, "metadata.name", None),
    ],
)
def test_what_cannot_be_evaluated_is_refused_where_it_stands(path, value, where, hint):
    with pytest.raises(SpecError) as caught:
        parse_openslo(changed(path, value))
    assert where in caught.value.path
    assert caught.value.suggestion == hint
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("raw", [None, [], "text", 3])
def test_what_is_no_mapping_is_refused(raw):
    with pytest.raises(SpecError):
        parse_openslo(raw)


def test_every_problem_is_told_at_once():
    doc = changed((*SPEC, "budgetingMethod"), "Timeslices")
    doc["kind"] = "Servce"
    with pytest.raises(SpecErrors) as caught:
        read_openslo(doc)
    assert {error.path for error in caught.value.errors} == {"kind", "spec.budgetingMethod"}
