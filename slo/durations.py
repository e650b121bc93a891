"""Lengths of time in documents: "50ms", "4s", "6m", "1m30s"; seconds as a float on the wire.

A document must name the unit, since `stall: 4` could be read as 4 s or 4 ms by its author. A
payload between our own processes carries plain seconds, so that a model written by one version is
read back by another. One pydantic type does both: the strictness comes with the validation
context `DOCUMENT`. What was hard: "1M" is a month to some and a minute to others, so it is
refused with the right spelling rather than guessed.
"""

from __future__ import annotations

import re
from decimal import Decimal
from itertools import pairwise
from typing import Annotated, Any

from pydantic import BeforeValidator, FiniteFloat, ValidationInfo

DOCUMENT = {"document": True}
"""Validation context of text that a person wrote."""

_UNITS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}
_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h)")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")


def parse_duration(text: str) -> float:
    """Return the seconds that `text` names; at most nine digits before each unit.

    Raises:
        ValueError: not a duration; the message says what to write instead.
    """
    parts = _PART.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        ranks = [list(_UNITS).index(unit) for _, unit in parts]
        if all(left > right for left, right in pairwise(ranks)):
            return float(sum(Decimal(number) * _UNITS[unit] for number, unit in parts))
    raise ValueError(_explain(text))


def _explain(text: str) -> str:
    shown = text[:40]
    lowered = text.strip().lower()
    if text.startswith("-"):
        return f'"{shown}" is negative; a duration is not'
    if _NUMBER.fullmatch(lowered):
        return f'"{shown}" has no unit; write "{shown.strip()}s" for seconds'
    if text != lowered and _PART.match(lowered):
        return (
            f'"{shown}" is not a duration; write "{lowered[:40]}": units are ms, s, m (minutes), h'
        )
    return f'"{shown}" is not a duration; write it like "50ms", "4s", "6m" or "1m30s"'


def format_duration(seconds: float) -> str:
    """Return the shortest text that `parse_duration` reads back, to the microsecond.

    From a billion seconds on (32 years) three digits are enough for anybody, and are not read back.
    """
    if seconds >= 1e9:
        return f"{seconds:.3g}s"
    rest = Decimal(repr(seconds)).quantize(Decimal("0.000001"))
    if rest < 1:
        return f"{_plain(rest * 1000)}ms" if rest else "0s"
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    text = (f"{hours:.0f}h" if hours else "") + (f"{minutes:.0f}m" if minutes else "")
    return text + (f"{_plain(rest)}s" if rest else "")


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _to_seconds(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, str):
        return parse_duration(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError('a duration is written like "50ms", "4s", "6m" or "1m30s"')
    if info.context == DOCUMENT:
        raise ValueError(f'{value} has no unit; write "{value}s" for seconds')
    if value < 0:
        raise ValueError(f"{value} is negative; a duration is not")
    return value


Seconds = Annotated[FiniteFloat, BeforeValidator(_to_seconds)]
"""Seconds, at least 0. From a document: text with a unit. On the wire: a number."""
