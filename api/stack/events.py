"""What happens in a stack, as one stream of lines: to events.log, and to whoever listens.

One line an event, so that `tail -f` is a monitor. A listener that fails (a terminal that was
closed) must never stop the supervisor from ending its processes: it is dropped.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path


class EventKind(StrEnum):
    """What happened."""

    STARTING = "starting"
    READY = "ready"
    EXITED = "exited"
    RESTARTING = "restarting"
    GAVE_UP = "gave up"
    STOPPED = "stopped"
    NOTE = "note"


@dataclass(frozen=True)
class Event:
    """One thing that happened to one process, or to the stack."""

    process: str
    kind: EventKind
    text: str
    at: float = field(default_factory=time.time)
    """Unix seconds."""

    def line(self) -> str:
        """Return it as a line of events.log."""
        stamp = datetime.fromtimestamp(self.at, UTC).isoformat(timespec="milliseconds")
        return f"{stamp} {self.process} {self.kind}: {self.text}"


Listener = Callable[[Event], None]


class EventLog:
    """Writes events to their file and passes them on."""

    def __init__(self, path: Path, listener: Listener | None) -> None:
        self._path = path
        self._listener = listener

    def say(self, process: str, kind: EventKind, text: str) -> None:
        """Record one event."""
        event = Event(process, kind, text)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(event.line() + "\n")
        if self._listener is not None:
            try:
                self._listener(event)
            except OSError:
                self._listener = None
