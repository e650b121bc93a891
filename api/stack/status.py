"""What a running stack looks like from outside: processes, runs, leases, holds, the stop switch.

Each part is asked by itself and with a limit, since one that is broken is when people look; what
does not answer says so in its place.
"""

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Group
from rich.table import Table
from rich.text import Text
from sqlalchemy.exc import SQLAlchemyError

from api.stack.display import title
from api.stack.options import EngineKind
from api.stack.state import StackState
from audit.errors import AuditError
from audit.records import HoldState
from audit.store import AuditStore
from settings import TemporalSettings
from targets.errors import TargetError
from targets.gateway_fleet import connect

LIMIT_SECONDS = 5.0

T = TypeVar("T")


@dataclass(frozen=True)
class Picture:
    """What was found; `problems` says what did not answer."""

    runs: list[str] = field(default_factory=list)
    leases: list[dict[str, Any]] = field(default_factory=list)
    gateway_stopped: bool = False
    holds: list[str] = field(default_factory=list)
    stop: str = ""
    """Why starts are refused; empty when they are not."""
    problems: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "runs": self.runs,
            "leases": self.leases,
            "gateway_stopped": self.gateway_stopped,
            "holds": self.holds,
            "stop": self.stop,
            "problems": self.problems,
        }


async def look(state: StackState) -> Picture:
    """Ask every part of the stack at once."""
    problems: dict[str, str] = {}
    runs, gateway, audit = await asyncio.gather(
        _ask("Temporal", _runs(state), problems),
        _ask("gateway", _gateway(state), problems),
        _ask("audit store", asyncio.to_thread(_audit, state), problems),
    )
    leases, stopped = gateway or ([], False)
    holds, stop = audit or ([], "")
    return Picture(runs or [], leases, stopped, holds, stop, problems)


async def _ask(name: str, question: Awaitable[T], problems: dict[str, str]) -> T | None:
    from api.errors import NotReachable

    try:
        return await asyncio.wait_for(question, LIMIT_SECONDS)
    except TimeoutError:
        problems[name] = f"no answer within {LIMIT_SECONDS:g} s"
    except (NotReachable, TargetError, AuditError, SQLAlchemyError, OSError) as error:
        problems[name] = str(error)
    return None


async def _runs(state: StackState) -> list[str]:
    from api.client import connect, open_experiments

    client = await connect(TemporalSettings(address=state.temporal_address, namespace="default"))
    return await open_experiments(client)


async def _gateway(state: StackState) -> tuple[list[dict[str, Any]], bool]:
    token = state.admin_token_file.read_text("utf-8").strip()
    admin = connect(state.gateways or (state.gateway_url,), token)
    try:
        return await admin.open_leases(), bool((await admin.state()).get("stopped"))
    finally:
        await admin.aclose()


def _audit(state: StackState) -> tuple[list[str], str]:
    """Read holds and the stop switch; a database that is not there yet holds nothing."""
    if not Path(state.audit_url.removeprefix("sqlite:///")).exists():
        return [], ""
    store = AuditStore(state.audit_url)
    try:
        holds = [
            " ".join(filter(None, [hold.target, hold.state.value, hold.run_id, hold.reason]))
            for hold in store.list_holds()
            if hold.state is not HoldState.FREE
        ]
        stop = store.stop_state()
    finally:
        store.close()
    return holds, f"{stop.reason} (by {stop.by})" if stop.stopped else ""


def render(state: StackState, picture: Picture) -> Group:
    """Return all of it for a terminal."""
    age = time.time() - state.started_at
    loud = "bold red" if state.engine is EngineKind.SIMULATED else "bold"
    head = Text(f"{title(state)}\n{state.phase}, up for {age:.0f} s, {state.directory}", style=loud)
    return Group(head, _processes(state), _facts(state, picture))


def _processes(state: StackState) -> Table:
    table = Table(box=None, header_style="bold")
    for column in ("process", "state", "pid", "port", "restarts", "ready after"):
        table.add_column(column, overflow="fold")
    for process in state.processes:
        colour = "green" if process.state == "ready" else "red"
        after = process.ready_after_seconds
        table.add_row(
            process.name,
            Text(process.state, style=colour),
            str(process.pid or "-"),
            str(process.port or "-"),
            str(process.restarts),
            "-" if after is None else f"{after:.1f} s",
        )
    return table


def _facts(state: StackState, picture: Picture) -> Table:
    table = Table(box=None, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    addresses = "  ".join(state.gateways or (state.gateway_url,))
    table.add_row("gateway", addresses + (" STOPPED" if picture.gateway_stopped else ""))
    table.add_row("logs", str(state.events_log.parent))
    table.add_row("Web UI", state.temporal_ui_url or "off")
    unknown = picture.problems
    leases = [f"{lease.get('id')} {lease.get('state')}" for lease in picture.leases]
    _add(table, "open runs", picture.runs, unknown.get("Temporal"))
    _add(table, "leases", leases, unknown.get("gateway"))
    _add(table, "holds", picture.holds, unknown.get("audit store"))
    _add(table, "stop", [picture.stop] if picture.stop else [], unknown.get("audit store"))
    return table


def _add(table: Table, name: str, lines: list[str], problem: str | None) -> None:
    if problem is not None:
        table.add_row(name, Text(f"unknown: {problem}", style="red"))
    else:
        table.add_row(name, "\n".join(lines) or "none")
