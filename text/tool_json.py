"""Arguments of tool calls: joined from deltas, then parsed once.

An engine streams the arguments of a tool call in pieces, and each piece may be well-formed text
while the sum lacks its last brace. So nothing is judged piece by piece: pieces are joined by the
call's index, and only the sum is parsed. The result therefore does not depend on where the engine
cut.

Python's parser is laxer than JSON (it reads NaN and Infinity) and stricter (it refuses integers
of more than 4,300 digits, and deep nesting runs out of stack). The hooks below close the first
two gaps; what is nested too deep to parse counts as invalid.
"""

import json
from dataclasses import dataclass
from math import isfinite


@dataclass(frozen=True, slots=True)
class ArgumentsCheck:
    """What one complete string of arguments turned out to be."""

    valid: bool
    """The string is one JSON object, by the letter of RFC 8259."""
    non_finite: bool
    """It holds NaN, Infinity, or a number too large for a double."""


class ToolArguments:
    """Joins the argument pieces of one response, by tool index."""

    def __init__(self) -> None:
        self._pieces: dict[int, list[str]] = {}
        self._names: dict[int, str] = {}

    def add(self, tool_calls: object) -> bool:
        """Take the `tool_calls` value of one delta or message; say whether it held any call.

        What does not have the expected shape is ignored: a stream is someone else's text.
        """
        if not isinstance(tool_calls, list):
            return False
        held = False
        for position, call in enumerate(tool_calls):
            if not isinstance(call, dict):
                continue
            held = True
            # A whole message (not a delta) carries no index: there the position is the index.
            index = call.get("index", position)
            index = index if isinstance(index, int) else position
            pieces = self._pieces.setdefault(index, [])
            function = call.get("function")
            if not isinstance(function, dict):
                continue
            name, piece = function.get("name"), function.get("arguments")
            if isinstance(name, str) and name:
                self._names.setdefault(index, name)
            if isinstance(piece, str):
                pieces.append(piece)
        return held

    def joined(self) -> tuple[str, ...]:
        """Return the arguments of each call, whole, in the order of their index."""
        return tuple("".join(self._pieces[index]) for index in sorted(self._pieces))

    def calls(self) -> tuple[tuple[str, str], ...]:
        """Return name (empty if it never came) and whole arguments of each call."""
        names = [self._names.get(index, "") for index in sorted(self._pieces)]
        return tuple(zip(names, self.joined(), strict=True))


def check_arguments(arguments: str) -> ArgumentsCheck:
    """Parse one complete string of arguments and say what it is."""
    seen_non_finite = False
    seen_constant = False

    def constant(_: str) -> None:
        nonlocal seen_non_finite, seen_constant
        seen_non_finite = seen_constant = True

    def number(literal: str) -> float:
        nonlocal seen_non_finite
        value = float(literal)
        seen_non_finite = seen_non_finite or not isfinite(value)
        return value

    try:
        parsed = json.loads(arguments, parse_constant=constant, parse_float=number, parse_int=str)
    except (ValueError, RecursionError):
        return ArgumentsCheck(valid=False, non_finite=seen_non_finite)
    return ArgumentsCheck(
        valid=isinstance(parsed, dict) and not seen_constant, non_finite=seen_non_finite
    )
