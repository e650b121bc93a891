import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text.flags import response_flags
from text.tool_json import ToolArguments, check_arguments


def deltas(pieces, index=0):
    first = {"index": index, "id": "call-1", "type": "function", "function": {"name": "weather"}}
    return [[first]] + [[{"index": index, "function": {"arguments": piece}}] for piece in pieces]


def cut(text, sizes):
    pieces, at = [], 0
    for size in sizes:
        pieces.append(text[at : at + size])
        at += size
    return [*pieces, text[at:]]


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("arguments", ['{"city": "Oslo"}', '{"city": "Oslo"'])
def test_the_size_of_the_pieces_does_not_change_the_finding(arguments, size):
    joiner = ToolArguments()
    pieces = [arguments[i : i + size] for i in range(0, len(arguments), size)]
    for calls in deltas(pieces):
        assert joiner.add(calls)
    assert joiner.joined() == (arguments,)
    expected = () if arguments.endswith("}") else ("bad_tool_json",)
    assert response_flags("", joiner.joined()) == expected


@given(
    st.dictionaries(st.text(max_size=5), st.text(max_size=8) | st.integers(), max_size=4),
    st.lists(st.integers(min_value=0, max_value=9), max_size=12),
    st.integers(min_value=0, max_value=3),
)
def test_any_cut_of_any_object_joins_to_the_same_and_is_valid(value, sizes, lost):
    arguments = json.dumps(value)
    whole, cut_up = ToolArguments(), ToolArguments()
    damaged = arguments[: len(arguments) - lost] if lost else arguments
    for calls in deltas([damaged]):
        whole.add(calls)
    for calls in deltas(cut(damaged, sizes)):
        cut_up.add(calls)
    assert cut_up.joined() == whole.joined() == (damaged,)
    assert check_arguments(damaged).valid is (lost == 0)


def test_pieces_of_two_calls_do_not_mix():
    joiner = ToolArguments()
    for index, piece in [(1, '{"b"'), (0, '{"a"'), (1, ": 2}"), (0, ": 1}")]:
        joiner.add([{"index": index, "function": {"arguments": piece}}])
    assert joiner.joined() == ('{"a": 1}', '{"b": 2}')


def test_calls_of_a_whole_message_are_told_apart_by_position():
    joiner = ToolArguments()
    joiner.add([{"function": {"arguments": "{}"}}, {"function": {"arguments": "{"}}])
    assert joiner.joined() == ("{}", "{")


@pytest.mark.parametrize("strange", [None, "text", {"index": 0}, [], [3], 7])
def test_what_is_no_list_of_calls_is_ignored(strange):
    joiner = ToolArguments()
    assert joiner.add(strange) is False
    assert joiner.joined() == ()


@pytest.mark.parametrize(
    ("arguments", "valid", "non_finite"),
    [
        pytest.param("{}", True, False, id="an empty object is valid"),
        pytest.param("", False, False, id="nothing at all is not"),
        pytest.param("[1]", False, False, id="a list is not an object"),
        pytest.param('{"a": NaN}', False, True, id="NaN is neither JSON nor finite"),
        pytest.param('{"a": -Infinity}', False, True, id="minus infinity likewise"),
        pytest.param(
            '{"a": 1e999}', True, True, id="a number beyond a double is JSON, yet infinite"
        ),
        pytest.param('{"a": "NaN"}', True, False, id="the word NaN in a string is only a word"),
        pytest.param('{"a": ' + "9" * 5000 + "}", True, False, id="a very long integer is valid"),
        pytest.param("[" * 200_000, False, False, id="nesting without end is invalid, no crash"),
        pytest.param(
            '{"a": "\\ud83d"}', True, False, id="half a surrogate pair is valid JSON text"
        ),
    ],
)
def test_arguments_are_judged_by_the_letter_of_json(arguments, valid, non_finite):
    check = check_arguments(arguments)
    assert (check.valid, check.non_finite) == (valid, non_finite)
