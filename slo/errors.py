"""What is wrong with a document, said so that a person can mend it.

    ValueError
    ├── SpecError     one problem: where, what, and the nearest right word
    └── SpecErrors    all the problems of one document

Lowest room of all that read documents (objectives, experiments, policies), so that siblings can
share the words. It does not read files and does not know line numbers by itself: whoever parsed
the text adds them. What was hard: a problem must fit on one line, whatever the value in it was.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

MAX_MESSAGE_CHARS = 300
"""Longest message kept, in characters. Source: ours: one wide terminal line, wrapped once."""


def one_line(text: str) -> str:
    """Return the text on one printable line, cut at `MAX_MESSAGE_CHARS`.

    A document may hold anything, and what is said of it goes to terminals, logs and JSON: line
    ends, escape sequences and lone surrogates do not pass.
    """
    words = " ".join(text.split())
    flat = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in words)
    return flat if len(flat) <= MAX_MESSAGE_CHARS else flat[: MAX_MESSAGE_CHARS - 1] + "…"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word nearest to `word`, or None if none is near."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


class SpecError(ValueError):
    """One problem of a document."""

    def __init__(
        self, path: str, message: str, suggestion: str | None = None, line: int | None = None
    ) -> None:
        """Keep the parts.

        Args:
            path: dotted, such as `fault.parameters.stal` or `slos[0].spec`; empty for the whole.
            message: what is wrong and, where it is not plain, how to mend it.
            suggestion: the nearest right key or value.
            line: line number, from 1.
        """
        super().__init__(path, message, suggestion, line)
        self.path = path
        self.message = one_line(message)
        self.suggestion = suggestion
        self.line = line

    def under(self, prefix: str) -> SpecError:
        """Return the same problem seen from the document that contains this one."""
        joined = (
            f"{prefix}.{self.path}" if self.path and self.path[0] != "[" else prefix + self.path
        )
        return SpecError(joined, self.message, self.suggestion, self.line)

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line is not None else ""
        what = f"{one_line(self.path)}: {self.message}" if self.path else self.message
        hint = f' (did you mean "{one_line(self.suggestion)}"?)' if self.suggestion else ""
        return f"{where}{what}{hint}"


class SpecErrors(ValueError):
    """All the problems of one document, at least one; `str` has one line for each."""

    def __init__(self, errors: Sequence[SpecError], lines: Sequence[str] = ()) -> None:
        """Keep the problems.

        Args:
            errors: the problems, in the order of the document.
            lines: the same problems as the user sees them, with file and line, if known.
        """
        super().__init__(tuple(errors), tuple(lines))
        self.errors = tuple(errors)
        self.lines = tuple(lines) or tuple(str(error) for error in errors)

    def __str__(self) -> str:
        return "\n".join(self.lines)
