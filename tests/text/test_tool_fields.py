"""Arguments of tool calls against the schemas of their request (A14)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text.tool_fields import fields_fit
from text.tool_json import ToolArguments

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "share": {"type": "number"},
        "exact": {"type": "boolean"},
        "tags": {"type": "array"},
        "more": {"type": ["object", "null"]},
        "any": {},
    },
    "required": ["city"],
}


def tools(schema: Any = SCHEMA, name: Any = "weather") -> Any:
    return [{"type": "function", "function": {"name": name, "parameters": schema}}]


@pytest.mark.parametrize(
    ("arguments", "fits"),
    [
        ({"city": "Oslo"}, True),
        ({"city": "Oslo", "days": 3, "share": 1, "exact": False, "tags": [], "more": None}, True),
        ({"city": "Oslo", "days": 3.0, "any": [], "unknown": 1}, True),
        ({}, False),
        ({"town": "Oslo"}, False),
        ({"city": 0}, False),
        ({"city": None}, False),
        ({"city": "Oslo", "days": "3"}, False),
        ({"city": "Oslo", "days": 3.5}, False),
        ({"city": "Oslo", "days": True}, False),
        ({"city": "Oslo", "share": "1"}, False),
        ({"city": "Oslo", "exact": 0}, False),
        ({"city": "Oslo", "tags": {}}, False),
        ({"city": "Oslo", "more": []}, False),
    ],
    ids=json.dumps,
)
def test_arguments_fit_when_what_is_required_is_there_and_of_its_type(
    arguments: dict[str, Any], fits: bool
):
    assert fields_fit([("weather", json.dumps(arguments))], tools()) is fits
    both = [("weather", '{"city": "Oslo"}'), ("weather", json.dumps(arguments))]
    assert fields_fit(both, tools()) is fits


@pytest.mark.parametrize("arguments", ["", "{", "[]", "1", "null", "[" * 10_000])
def test_what_is_no_object_is_for_another_flag(arguments: str):
    assert fields_fit([("weather", arguments)], tools())


@pytest.mark.parametrize(
    "strange",
    [
        *(None, 1, "x", {}, [], [1], [{}], [{"function": 1}], tools(3), tools(SCHEMA, 3)),
        *(tools({"required": 3}), tools({"required": [3], "properties": {"city": 3}})),
        *(tools({"properties": {"city": {"type": 3}}}), tools({"properties": []})),
        *(tools({"properties": {"city": {"type": ["strange"]}}}), tools(SCHEMA, "other")),
    ],
    ids=str,
)
def test_tools_that_cannot_be_read_are_fitted_by_everything(strange: Any):
    assert fields_fit([("weather", '{"city": 0}')], strange)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["function", "name", "parameters", "required", "properties", "type", "weather", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON, st.text(max_size=9) | JSON.map(json.dumps))
def test_nothing_makes_it_raise(anything: Any, arguments: str):
    fields_fit([("weather", arguments), ("", arguments)], anything)


def test_the_name_of_a_streamed_call_is_kept_although_it_comes_once():
    joined = ToolArguments()
    for call in (
        {"index": 1, "function": {"name": "second", "arguments": "{"}},
        {"index": 0, "function": {"name": "first", "arguments": "{}"}},
        {"index": 1, "function": {"arguments": "}"}},
        {"index": 2, "function": {"arguments": "{}"}},
    ):
        joined.add([call])
    assert joined.calls() == (("first", "{}"), ("second", "{}"), ("", "{}"))
