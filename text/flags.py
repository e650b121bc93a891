"""Flags of one response: the few facts about a text that may leave the gateway.

The judge never sees what a model wrote, only these words. A flag says that something was seen;
whether it is bad is for an SLO to say. The hard part is to keep a flag rare on healthy text,
since both arms carry it and noise costs power: each rule here is silent on short or ordinary
answers.

A text of white space only is *not* "empty": a small healthy model does answer with line breaks,
while a model with a flipped weight bit answers with no character at all.
"""

from collections.abc import Sequence

from text.repetition import repetition_ratio, words
from text.tool_json import check_arguments

EMPTY = "empty"
REPETITIVE = "rep4"
NON_FINITE = "non_finite"
BAD_TOOL_JSON = "bad_tool_json"
BAD_TOOL_FIELDS = "bad_tool_fields"

FLAGS: tuple[str, ...] = (EMPTY, REPETITIVE, NON_FINITE, BAD_TOOL_JSON, BAD_TOOL_FIELDS)
"""Every flag, in the order in which `response_flags` gives them."""

REP4_LIMIT_RATIO = 0.2
"""Share of repeated 4-grams above which a text counts as looping.

Source: ours, 2026-11: healthy texts stay below 0.005 and half-looping ones are near 0.45."""

REP4_MIN_TOKENS = 20
"""Tokens below which repetition is not judged.

Source: ours, 2026-11: a short list or refrain repeats lawfully."""

_NON_FINITE_WORDS = frozenset({"nan", "inf", "infinity"})


def response_flags(
    text: str, tool_arguments: Sequence[str], *, tool_fields_fit: bool = True
) -> tuple[str, ...]:
    """Return the flags of one finished response, in a fixed order.

    Args:
        text: The whole content, all deltas joined.
        tool_arguments: The arguments of each tool call, joined (`ToolArguments.joined`).
        tool_fields_fit: Whether those that can be read fit their schemas (`tool_fields`).
    """
    checks = [check_arguments(arguments) for arguments in tool_arguments]
    tokens = words(text)
    flags = []
    if not text and not tool_arguments:
        flags.append(EMPTY)
    if _loops(tokens):
        flags.append(REPETITIVE)
    if _is_mostly_non_finite(text, tokens) or any(check.non_finite for check in checks):
        flags.append(NON_FINITE)
    if any(not check.valid for check in checks):
        flags.append(BAD_TOOL_JSON)
    if not tool_fields_fit:
        flags.append(BAD_TOOL_FIELDS)
    return tuple(flags)


def _loops(tokens: Sequence[str]) -> bool:
    if len(tokens) < REP4_MIN_TOKENS:
        return False
    ratio = repetition_ratio(tokens, 4)
    return ratio is not None and ratio > REP4_LIMIT_RATIO


def _is_mostly_non_finite(text: str, tokens: Sequence[str]) -> bool:
    """Say whether at least half of the words are NaN or infinity: a broken number, not prose."""
    low = text.lower()
    if "nan" not in low and "inf" not in low:
        return False  # no word of it can be one: told in a hundredth of the time
    hits = sum(token.strip("+-.,;:()[]{}\"'`").lower() in _NON_FINITE_WORDS for token in tokens)
    return hits > 0 and 2 * hits >= len(tokens)
