import json
import math
from datetime import UTC, datetime
from enum import Enum, IntEnum, StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.canonical import MAX_DEPTH, clean, dumps, loads, parse_stamp, prepare, stamp
from audit.errors import CanonicalError

ANY_TEXT = st.text(st.characters(codec=None), max_size=20)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=20,
)


class Word(StrEnum):
    YES = "yes"


class OldWord(str, Enum):  # noqa: UP042  # the older form is what a caller may hand over
    YES = "yes"


class Number(IntEnum):
    ONE = 1


def strict(data: bytes) -> object:
    """Parse as a strict reader would: UTF-8, no NaN."""

    def refuse(name: str) -> None:
        raise AssertionError(name)

    return json.loads(data.decode("utf-8"), parse_constant=refuse)


def cleaned_or_refused(value: object) -> object:
    try:
        return clean(value)
    except CanonicalError as error:
        assert "two keys fall together" in str(error)
        return None


@given(ANY_JSON)
def test_whatever_was_cleaned_is_strict_json_and_reads_back_equal(value: object) -> None:
    cleaned = cleaned_or_refused(value)
    data = dumps(cleaned)
    assert strict(data) == cleaned == loads(data)
    assert b"\x00" not in data
    assert "\\u0000" not in data.decode("utf-8")


@given(ANY_JSON)
def test_cleaning_twice_is_cleaning_once_and_encoding_has_one_form(value: object) -> None:
    cleaned = cleaned_or_refused(value)
    assert dumps(clean(cleaned)) == dumps(cleaned)
    assert dumps(loads(dumps(cleaned))) == dumps(cleaned)


@given(st.dictionaries(st.text(max_size=5), st.integers(), max_size=6), st.randoms())
def test_the_order_of_keys_does_not_matter(value: dict, chance) -> None:
    items = list(value.items())
    chance.shuffle(items)
    assert dumps(dict(items)) == dumps(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_finite_number_reads_back_to_the_same_bits(number: float) -> None:
    back = loads(dumps(clean(number)))
    assert math.copysign(1, back) == math.copysign(1, number)
    assert back == number


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(math.nan, {"value": None, "reason": "nan"}, id="nan says so"),
        pytest.param(math.inf, {"value": None, "reason": "inf"}, id="infinity says so"),
        pytest.param(-math.inf, {"value": None, "reason": "-inf"}, id="minus infinity says so"),
        pytest.param("a\x00b", "ab", id="NUL is dropped"),
        pytest.param("a\ud83d b", "a\ufffd b", id="half a pair becomes the replacement"),
        pytest.param("a\U0001f600", "a\U0001f600", id="a whole pair stays"),
        pytest.param((1, 2), [1, 2], id="a tuple is a list"),
        pytest.param(Word.YES, "yes", id="an enumeration is its text"),
        pytest.param(OldWord.YES, "yes", id="an older enumeration is its text"),
        pytest.param(Number.ONE, 1, id="a number enumeration is its number"),
        pytest.param({"a\x00": 1}, {"a": 1}, id="keys are cleaned too"),
        pytest.param(True, True, id="true stays a truth value"),
    ],
)
def test_cleaning_makes_of_it(value: object, expected: object) -> None:
    cleaned = clean(value)
    assert cleaned == expected
    assert type(cleaned) is type(expected)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({1: "a"}, id="a key that is no text"),
        pytest.param({"a\x00": 1, "a": 2}, id="two keys that fall together"),
        pytest.param(b"bytes", id="bytes"),
        pytest.param({1, 2}, id="a set"),
        pytest.param(object(), id="any other object"),
        pytest.param(datetime(2026, 1, 1), id="a time without a zone"),  # noqa: DTZ001
    ],
)
def test_cleaning_refuses(value: object) -> None:
    with pytest.raises(CanonicalError):
        clean(value)


def test_nesting_has_a_limit_and_a_reason() -> None:
    value: object = 1
    for _ in range(MAX_DEPTH):
        value = [value]
    assert dumps(clean(value))
    with pytest.raises(CanonicalError, match="nested deeper"):
        clean([value])


@pytest.mark.parametrize("value", [math.nan, math.inf, "\ud83d", {"a": object()}])
def test_encoding_refuses_what_was_not_cleaned(value: object) -> None:
    with pytest.raises(CanonicalError):
        dumps(value)


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a":1,"a":2}', "{", "[" * 100_000])
def test_decoding_refuses(text: str) -> None:
    with pytest.raises(CanonicalError):
        loads(text)


def test_the_form_is_the_documented_one() -> None:
    value = {"b": [1, 1.5, None, True], "a": 'ü"\n', "Z": {}}
    assert dumps(value) == '{"Z":{},"a":"ü\\"\\n","b":[1,1.5,null,true]}'.encode()


@given(st.datetimes(timezones=st.just(UTC)), st.datetimes(timezones=st.just(UTC)))
def test_stamps_read_back_and_sort_as_times_do(one: datetime, two: datetime) -> None:
    assert parse_stamp(stamp(one)) == one
    assert (stamp(one) < stamp(two)) == (one < two)


@pytest.mark.parametrize(
    "key",
    [
        *("authorization", "Authorization", "token", "api_key", "apiKey", "X-Api-Key", "password"),
        *("Set-Cookie", "cookie", "admin_token", "accessToken", "client-secret", "db.password"),
        *("Proxy-Authorization", "aws_secret_access_key", "tls_private_key", "HF_TOKEN", "APIKey"),
    ],
)
def test_a_secret_is_masked_at_any_depth(key: str) -> None:
    stored = prepare({"a": [{"b": {key: "s3cr3t"}}, {key: ["s3cr3t"]}, {key: 12345}]})
    assert "s3cr3t" not in repr(stored)
    assert "12345" not in repr(stored)
    assert key in stored["a"][0]["b"]


@pytest.mark.parametrize(
    "key",
    [
        *("tokens", "prompt_tokens", "after_tokens", "max_tokens", "admin_token_file", "author"),
        *("tokenizer", "cookies_seen", "secretary", "keys", "passwordless", "authority"),
    ],
)
def test_an_ordinary_name_is_not_masked(key: str) -> None:
    assert prepare({key: 5}) == {key: 5}


def test_an_absent_secret_stays_absent() -> None:
    assert prepare({"token": None}) == {"token": None}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("401 for Bearer abcdef123456: no", "401 for Bearer [redacted]: no"),
        ("basic dXNlcjpwYXNz", "basic [redacted]"),
        ("http://ada:pw@host:1/x", "http://[redacted]@host:1/x"),
        ("http://ada:p@w:1@host:1/x", "http://[redacted]@host:1/x"),
        ("http://h/x?api_key=abc&n=1", "http://h/x?api_key=[redacted]&n=1"),
        ("http://host:1/@x", "http://host:1/@x"),
        ("the bearer of news, basic facts", "the bearer of news, basic facts"),
    ],
)
def test_a_secret_inside_a_text_is_masked(text: str, shown: str) -> None:
    assert prepare([text]) == [shown]
