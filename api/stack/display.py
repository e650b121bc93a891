"""What `burnproof up` shows: a bar for each process that starts, then one line for what happens.

On a terminal the bars move by elapsed time against the usual time, and never reach the end before
the process is ready. Elsewhere each event is one plain line. The terminal may vanish at any moment;
then nothing more is shown, and nothing else changes.
"""

import time
from contextlib import suppress

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn

from api.stack.events import Event, EventKind
from api.stack.options import (
    EMBEDDINGS_MODEL,
    EMBEDDINGS_ROUTE,
    EngineKind,
    StackOptions,
    kind_of,
)
from api.stack.state import StackState

USUAL_SECONDS = {"temporal": 2.0, "gateway": 2.0, "worker": 4.0, "traffic": 2.0}
"""Usual time to be ready. Source: ours, 2026-12, two cores, everything starting at once."""

_USUAL_ENGINE = {EngineKind.VLLM: 100.0, EngineKind.SIMULATED: 2.0}
_ALMOST = 0.95
_WORTH_A_LINE = {EventKind.EXITED, EventKind.RESTARTING, EventKind.GAVE_UP, EventKind.READY}


class Display:
    """Shows events until it is closed; made for one `up`."""

    def __init__(self, console: Console, options: StackOptions) -> None:
        self._console = console
        self._options = options
        self._bars: dict[str, TaskID] = {}
        self._since: dict[str, float] = {}
        self._starting = True
        self._progress = self._make_progress() if console.is_terminal else None

    def on_event(self, event: Event) -> None:
        """Show one event."""
        if self._starting and self._progress is not None:
            self._draw(event)
        elif self._starting or _is_worth_a_line(event):
            self._print(_plain(event))

    def tick(self) -> None:
        """Move the bars by the time that has passed."""
        if self._progress is None or not self._starting:
            return
        for name, bar in self._bars.items():
            if name in self._since:
                ratio = (time.monotonic() - self._since[name]) / self._usual(name)
                self._progress.update(bar, completed=min(ratio, _ALMOST))

    def started(self, state: StackState) -> None:
        """Take the bars away and show where everything is."""
        self.end_bars()
        for line in addresses(state):
            self._print(line)

    def say(self, text: str) -> None:
        """Print a line of our own."""
        self.end_bars()
        self._print(text)

    def end_bars(self) -> None:
        """Stop drawing."""
        self._starting = False
        if self._progress is not None:
            with suppress(OSError):
                self._progress.stop()
            self._progress = None

    def _make_progress(self) -> Progress:
        progress = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description:<12}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[words]}"),
            console=self._console,
        )
        for name in self._options.processes():
            self._bars[name] = progress.add_task(name, total=1.0, words="waits")
        progress.start()
        return progress

    def _draw(self, event: Event) -> None:
        if self._progress is None:
            return
        bar = self._bars.get(event.process)
        if bar is None:
            self._progress.console.print(f"[dim]{event.process}: {event.text}", highlight=False)
        elif event.kind is EventKind.STARTING:
            self._since[event.process] = time.monotonic()
            usual = f"starts (usually {self._usual(event.process):.0f} s)"
            self._progress.update(bar, words=usual)
        elif event.kind is EventKind.READY:
            seconds = time.monotonic() - self._since.pop(event.process)
            self._progress.update(bar, completed=1.0, words=f"ready after {seconds:.1f} s")
        else:
            self._progress.update(bar, words=f"{event.kind}: {event.text}")

    def _usual(self, name: str) -> float:
        return USUAL_SECONDS.get(kind_of(name)) or _USUAL_ENGINE[self._options.engine]

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def addresses(state: StackState) -> list[str]:
    """Return the lines that say where everything is."""
    gateways = "  ".join(state.gateways or (state.gateway_url,))
    embeddings = state.embeddings_url
    if embeddings:
        embeddings += f"  (route {EMBEDDINGS_ROUTE}, model {EMBEDDINGS_MODEL})"
    rows = {
        "gateway": f"{gateways}  (route {state.route}, model {state.model})",
        "replicas": "  ".join(f"{name} {url}" for name, url in state.replicas.items()),
        **({"embedding": embeddings} if embeddings else {}),
        "Temporal": state.temporal_address,
        "Web UI": state.temporal_ui_url or "off",
        "audit": state.audit_url,
        "logs": str(state.events_log.parent),
    }
    return [title(state), *(f"  {name:<9} {value}" for name, value in rows.items())]


def title(state: StackState) -> str:
    """Say which engine answers, loudly where it is none."""
    if state.engine is EngineKind.SIMULATED:
        return "local stack, engine SIMULATED: no model answers, figures say nothing of a real one"
    return f"local stack, engine {state.engine.value}"


def _is_worth_a_line(event: Event) -> bool:
    """Tell whether people want to see it while the stack is up."""
    of_gateway = event.kind is EventKind.NOTE and kind_of(event.process) == "gateway"
    return event.kind in _WORTH_A_LINE or of_gateway


def _plain(event: Event) -> str:
    return f"{event.process}: {event.kind} {event.text}".replace(": note ", ": ")
