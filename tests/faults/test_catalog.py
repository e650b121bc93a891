import json

import pytest
from pydantic import BaseModel

from faults.catalog import CATALOG, BlastClass, Fault, parse_parameters, template_info
from slo.errors import SpecError, SpecErrors

GOOD = {
    "gateway/latency-pareto": {"probability": 0.02},
    "gateway/error": {"probability": 0.1, "status": 429, "retry_after": 2.0},
    "gateway/stream-stall": {"after_tokens": 2, "stall": 4.0, "probability": 0.04},
    "gateway/latency-fixed": {"delay": 1.0, "probability": 0.5},
    "gateway/latency-per-token": {"delay": 0.01, "probability": 0.5},
    "gateway/dependency-latency": {"upstream": "b*", "delay": 1.0, "probability": 0.5},
    "gateway/rate-limit": {"probability": 0.5, "retry_after": 60.0, "form": "http-date"},
    "gateway/quota-overrun": {"probability": 0.5, "limit": 1000},
    "gateway/stream-cut": {"after_tokens": 0, "probability": 0.5, "ending": "clean", "done": True},
    "gateway/stream-garble": {"kind": "half-event", "probability": 0.5},
    "gateway/slow-drip": {"piece_bytes": 1, "pause": 0.5, "probability": 0.5},
    "gateway/headers": {
        "side": "answer",
        "action": "set",
        "name": "X-A",
        "value": "b c",
        "probability": 0.5,
    },
    "gateway/tenant-confusion": {"kind": "claim", "tenant": "other", "probability": 0.5},
    "gateway/constant-embeddings": {"vector": "zeros", "probability": 0.5},
    "gateway/tool-calls": {"kind": "wrong-type", "probability": 0.5},
    "null": {},
}

BAD = {
    "no request is touched": ("gateway/error", {"probability": 0.0}),
    "a probability above one": ("gateway/error", {"probability": 1.01}),
    "a probability that is yes": ("gateway/error", {"probability": True}),
    "a probability that is text": ("gateway/error", {"probability": "0.1"}),
    "a probability that is no number": ("gateway/error", {"probability": float("nan")}),
    "a status that is no error": ("gateway/error", {"probability": 0.1, "status": 200}),
    "a header inside a stream": (
        "gateway/error",
        {"probability": 0.1, "in_stream": True, "retry_after": 1.0},
    ),
    "a stall before any token": (
        "gateway/stream-stall",
        {"after_tokens": 0, "stall": 4.0, "probability": 0.1},
    ),
    "a fraction of a token": (
        "gateway/stream-stall",
        {"after_tokens": 2.5, "stall": 4.0, "probability": 0.1},
    ),
    "a stall of no length": (
        "gateway/stream-stall",
        {"after_tokens": 2, "stall": 0.0, "probability": 0.1},
    ),
    "a stall longer than any client waits": (
        "gateway/stream-stall",
        {"after_tokens": 2, "stall": 301.0, "probability": 0.1},
    ),
    "no tail index": ("gateway/latency-pareto", {"alpha": 0.0, "probability": 0.1}),
    "a cap below the base": (
        "gateway/latency-pareto",
        {"base": 1.0, "cap": 0.5, "probability": 0.1},
    ),
    "a parameter of another template": ("null", {"probability": 0.1}),
    "an error after tokens outside a stream": (
        "gateway/error",
        {"probability": 0.1, "after_tokens": 3},
    ),
    "a date without a time": ("gateway/rate-limit", {"probability": 0.1, "form": "http-date"}),
    "a length of the body": (
        "gateway/headers",
        {
            "side": "answer",
            "action": "remove",
            "name": "content-LENGTH",
            "probability": 0.1,
        },
    ),
    "two headers in one": (
        "gateway/headers",
        {
            "side": "answer",
            "action": "set",
            "name": "x-a",
            "value": "b\r\nx-c: d",
            "probability": 0.1,
        },
    ),
    "set to nothing": (
        "gateway/headers",
        {"side": "request", "action": "set", "name": "x-a", "probability": 0.1},
    ),
    "removed to a value": (
        "gateway/headers",
        {"side": "request", "action": "remove", "name": "x-a", "value": "b", "probability": 0.1},
    ),
    "a tenant in the host": (
        "gateway/tenant-confusion",
        {"kind": "header", "tenant": "o", "header": "Host", "probability": 0.1},
    ),
    "pieces of no byte": ("gateway/slow-drip", {"piece_bytes": 0, "probability": 0.1}),
    "nothing said about the share": ("gateway/latency-pareto", {}),
}


@pytest.mark.parametrize("template", CATALOG)
def test_every_template_is_read_back_from_its_wire_form(template):
    parameters = parse_parameters(template, GOOD[template])
    wire = json.loads(parameters.model_dump_json())
    assert parse_parameters(template, wire) == parameters


@pytest.mark.parametrize(("template", "parameters"), BAD.values(), ids=BAD)
def test_a_parameter_out_of_bounds_is_refused(template, parameters):
    with pytest.raises(SpecErrors):
        parse_parameters(template, parameters)


@pytest.mark.parametrize("template", CATALOG)
def test_everything_is_said_about_every_template(template):
    info = template_info(template)
    assert info.id == template
    assert info.spec_ids and info.effect_check and info.undo and info.preconditions
    assert info.expects_effect == bool(info.expected_signals) == (template != "null")
    assert (info.blast is BlastClass.NONE) == (template == "null")
    assert not info.may_kill_engine


def test_the_union_and_the_catalogue_name_the_same_templates():
    class Holder(BaseModel):
        fault: Fault

    mapping = Holder.model_json_schema()["properties"]["fault"]["discriminator"]["mapping"]
    assert set(mapping) == set(CATALOG)


def test_a_misspelt_template_is_answered_with_the_nearest():
    with pytest.raises(SpecError) as caught:
        template_info("gateway/stream_stall")
    assert caught.value.suggestion == "gateway/stream-stall"
