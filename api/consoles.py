"""The console of a command that prints tables."""

import sys

from rich.console import Console

NO_LIMIT = 10_000
"""Cells. Source: ours: wider than any line, so that nothing in it is wrapped or cut."""


def make_console() -> Console:
    """Return a console as wide as the terminal; in a pipe no line is ever wrapped or cut."""
    width = None if sys.stdout.isatty() else NO_LIMIT
    return Console(width=width, markup=False, highlight=False)
