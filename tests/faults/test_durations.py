import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from faults.durations import DOCUMENT, Seconds, format_duration, parse_duration


class Holder(BaseModel):
    value: Seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("50ms", 0.05),
        ("4s", 4.0),
        ("6m", 360.0),
        ("1h", 3600.0),
        ("1m30s", 90.0),
        ("1h1m1s1ms", 3661.001),
        ("0s", 0.0),
        ("1.5s", 1.5),
    ],
)
def test_a_duration_with_unit_is_read(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("1M", 'write "1m"'),
        ("4S", 'write "4s"'),
        ("4", 'write "4s"'),
        ("-4s", "negative"),
        ("1s1m", "not a duration"),
        ("1m1m", "not a duration"),
        ("", "not a duration"),
        ("4 s", "not a duration"),
        ("nan", "not a duration"),
        ("inf", "not a duration"),
        ("1e3s", "not a duration"),
        ("4days", "not a duration"),
        ("٤s", "not a duration"),
        ("9" * 400 + "s", "not a duration"),
    ],
)
def test_anything_else_is_refused_with_what_to_write(text, told):
    with pytest.raises(ValueError, match=told):
        parse_duration(text)


@pytest.mark.parametrize("value", [True, -1, float("nan"), float("inf"), None, [4], 10**400])
def test_no_model_takes_a_value_that_is_no_length_of_time(value):
    for context in (None, DOCUMENT):
        with pytest.raises(ValidationError):
            Holder.model_validate({"value": value}, context=context)


def test_a_number_needs_its_unit_in_a_document_and_not_on_the_wire():
    assert Holder.model_validate({"value": 4}).value == 4.0
    with pytest.raises(ValidationError, match="4s"):
        Holder.model_validate({"value": 4}, context=DOCUMENT)


@given(st.integers(0, 86_400_000))
def test_what_is_written_is_read_back(milliseconds):
    assert parse_duration(format_duration(milliseconds / 1000)) == milliseconds / 1000
