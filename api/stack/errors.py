"""What can go wrong with the local stack, as sentences for a person.

::

    StackError
    ├── StackBusy        another supervisor owns this state directory
    ├── ProcessFailed    a process ended, or was not ready in time, while the stack came up
    └── NotInstalled     something the stack needs is missing; the message holds the cure
"""

from pathlib import Path

TAIL_LINES = 15
"""Lines of a log shown in an error: enough for a traceback's end, short enough to read."""

_TAIL_BYTES = 16_384


class StackError(Exception):
    """The stack cannot do what was asked."""


class StackBusy(StackError):
    """Another supervisor owns this state directory."""


class NotInstalled(StackError):
    """Something the stack needs is missing."""


class ProcessFailed(StackError):
    """A process did not come up; the message ends with the last lines of its log."""

    def __init__(self, name: str, what: str, log: Path) -> None:
        """Say which process, what happened, and what it wrote last."""
        self.name = name
        self.log = log
        tail = log_tail(log)
        words = f"its log ends with:\n{_indented(tail)}\n" if tail else "it wrote nothing. "
        super().__init__(f"{name} {what}; {words}Whole log: {log}")


def log_tail(log: Path, lines: int = TAIL_LINES) -> str:
    """Return the last lines of a log, or nothing where there is none."""
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.rstrip().splitlines()[-lines:])


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
