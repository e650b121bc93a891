"""Start a run, follow it, and turn however it ends into a result; plan one without starting it.

A client and nothing more: the run lives in Temporal. Whatever happens to this process (Ctrl-C, a
second one, SIGTERM, kill -9) the run goes on to its own end, and the fault has its lease.
"""

import asyncio
import contextlib
import json
import signal
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.live import Live
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError, CancelledError, TemporalError

from activities.admit import ParsedExperiment, parse_documents, route_facts
from api import client as temporal
from api import live, naming
from api.context import Context, login
from api.plain import plain
from audit.redaction import secret_paths
from faults.blast_radius import AdmitInput, admit
from faults.parse import Document, read_document
from faults.resolve import resolve_arms, resolve_target
from faults.yaml_text import MAX_BYTES
from slo.errors import SpecError, SpecErrors
from slo.records import Page
from workflows.endings import root_cause
from workflows.state import FaultExperimentResult

FOLLOW_SECONDS = 0.5
RATE_SECONDS = 30.0
EXIT_STOPPED = 2
EXIT_NOTHING_LEARNT = 3


def load(file: Path) -> tuple[ParsedExperiment, Document]:
    """Read an experiment file with everything it names.

    Raises:
        SpecErrors: each problem as `file:line: path: message`.
    """
    document = read_document(str(file), _read)
    try:
        _refuse_secrets(document.raw)
        return parse_documents(document.raw), document
    except SpecErrors as problems:
        raise document.located(problems) from None


def _refuse_secrets(raw: object) -> None:
    """Refuse what would be masked on the trail but stay readable in Temporal's history.

    Raises:
        SpecErrors: each secret by its path, never by its value.
    """
    message = "looks like a secret, and a run's input stays in Temporal's history: take it out"
    found = [SpecError(path, message) for path in secret_paths(raw)]
    if found:
        raise SpecErrors(found)


def _read(name: str) -> str:
    """Read no more of a file than tells that it is too large: a device may have no end."""
    with Path(name).open(encoding="utf-8") as stream:
        return stream.read(MAX_BYTES + 1)


def load_or_exit(file: Path) -> tuple[ParsedExperiment, Document]:
    """Do the same for a command: each problem is a line, and the exit code is 3."""
    try:
        return load(file)
    except SpecErrors as problems:
        for line in problems.lines:
            typer.echo(line, err=True)
        raise typer.Exit(EXIT_NOTHING_LEARNT) from None


async def plan(parsed: ParsedExperiment, context: Context) -> tuple[list[str], bool]:
    """Return what a run would do, as lines, and whether it would be admitted."""
    admin = context.admin()
    try:
        routes = await admin.routes()
        chosen = resolve_target(parsed.spec.target, [route_facts(route) for route in routes])
        arms = resolve_arms(parsed.spec.arms.chaos.replicas, chosen.replicas)
        raw = await admin.journal(chosen.route, tail_seconds=RATE_SECONDS)
    finally:
        await admin.aclose()
    real = [record for record in Page.from_json(raw).records if not record.probe]
    rate = len(real) / RATE_SECONDS
    first = parsed.objectives[0]
    bad = sum(first.is_valid(record) and first.is_bad(record) for record in real)
    report = admit(
        AdmitInput(
            spec=parsed.spec,
            control=arms.control,
            chaos=arms.chaos,
            rate=rate,
            bad_ratio=bad / len(real) if real else 0.0,
        )
    )
    return live.plan_lines(parsed, chosen, arms, report, rate, context.engine), report.admitted


def with_origin(raw: object, requested_by: str, trigger: str) -> dict[str, Any]:
    """Return the document with who asked, and by which door."""
    document: dict[str, Any] = dict(raw) if isinstance(raw, dict) else {}
    metadata = document["metadata"]
    who = requested_by or metadata.get("requestedBy") or login()
    return {**document, "metadata": {**metadata, "requestedBy": who, "trigger": trigger}}


async def start(raw: dict[str, Any], context: Context, *, detach: bool, as_json: bool) -> int:
    """Start a run and follow it; return its exit code."""
    client = await temporal.connect(context.temporal)
    started = await temporal.start_experiment(client, raw)
    console = Console(stderr=as_json)
    _say(console, f"run {started.run_id}  workflow {started.workflow_id}")
    if context.temporal.ui_url:
        _say(
            console,
            f"{context.temporal.ui_url}/namespaces/{context.temporal.namespace}"
            f"/workflows/{started.workflow_id.replace('/', '%2F')}",
        )
    if detach:
        if context.is_simulated:
            console.print(live.SIMULATED, markup=False)
        return 0
    handle = client.get_workflow_handle(started.workflow_id)
    return await _watch(client, handle, console, context, as_json=as_json)


async def follow(given: str, context: Context) -> int:
    """Follow a run that was started elsewhere; return its exit code, also if it has ended."""
    client = await temporal.connect(context.temporal)
    run = await naming.find(client, given)
    if run.closed_at is not None:
        typer.echo(f"{run.run_id}: {await how_it_ended(client, run)}")
    handle = client.get_workflow_handle(run.workflow_id)
    return await _watch(client, handle, Console(), context, as_json=False)


async def find_open(client: Client, given: str) -> naming.Listed:
    """Return the open run that is meant.

    Raises:
        ValueError: none, several, or it has ended; then the message says how and when.
    """
    run = await naming.find(client, given)
    if run.closed_at is not None:
        raise ValueError(f"{run.run_id}: {await how_it_ended(client, run)}")
    return run


async def how_it_ended(client: Client, run: naming.Listed) -> str:
    """Say with what outcome a run ended, and when."""
    handle = client.get_workflow_handle(run.workflow_id, run_id=run.temporal_run_id)
    result = await ended(asyncio.ensure_future(handle.result()))
    return f"it ended {result.outcome} at {run.closed_at:%Y-%m-%d %H:%M:%S} UTC"


async def _watch(
    client: Client,
    handle: WorkflowHandle[Any, Any],
    console: Console,
    context: Context,
    *,
    as_json: bool,
) -> int:
    leave = asyncio.Event()
    # Not the default handler: a second Ctrl-C must not interrupt the words that the first one asked
    # for.
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, leave.set)
    ending = asyncio.create_task(handle.result())
    showing = asyncio.create_task(_show_until(ending, handle, console, context))
    leaving = asyncio.create_task(leave.wait())
    await asyncio.wait({showing, leaving}, return_when=asyncio.FIRST_COMPLETED)
    leaving.cancel()
    if not showing.done():
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # we leave already
        for task in (ending, showing):
            task.cancel()
        _say(
            console,
            f"\ndetached: the run goes on. `burnproof follow {handle.id}` shows it, "
            f"`burnproof abort {handle.id}` stops it and withdraws the fault.",
        )
        return EXIT_STOPPED
    await showing
    result = await ended(ending)
    if as_json:
        typer.echo(json.dumps(result.model_dump(mode="json"), indent=2))
    else:
        live.print_result(console, result, context.is_simulated)
    return result.exit_code


def _say(console: Console, text: str) -> None:
    """Print a line as it is: what a person copies from it is never broken in two."""
    console.print(text, highlight=False, soft_wrap=True, markup=False)


async def _show_until(
    ending: "asyncio.Task[Any]",
    handle: WorkflowHandle[Any, Any],
    console: Console,
    context: Context,
) -> None:
    picture = live.Picture(context.is_simulated)
    screen = Live(console=console, refresh_per_second=4) if console.is_terminal else None
    with screen or contextlib.nullcontext():
        while not ending.done():
            with contextlib.suppress(TemporalError):
                view = await temporal.view(handle)
                figures = await temporal.heartbeat(handle)
                if screen is not None:
                    screen.update(picture.render(view, figures))
                else:
                    for line in picture.lines(view, figures):
                        _say(console, plain(line))
            await asyncio.wait([ending], timeout=FOLLOW_SECONDS)


async def ended(ending: "asyncio.Task[Any]") -> FaultExperimentResult:
    """Turn any end of a run into a result with an exit code; no data is never a pass."""
    try:
        return FaultExperimentResult.model_validate(await ending)
    except WorkflowFailureError as failed:
        return _failed(failed)


def _failed(failed: WorkflowFailureError) -> FaultExperimentResult:
    cause = root_cause(failed.cause)
    if isinstance(cause, ApplicationError):
        if cause.details:
            with contextlib.suppress(ValueError):
                return FaultExperimentResult.model_validate(cause.details[0])
        undo = cause.type == "UndoFailed"
        return FaultExperimentResult(
            run_id="",
            outcome="CLEANUP_FAILED" if undo else "CONFIGURATION",
            exit_code=4 if undo else EXIT_NOTHING_LEARNT,
            reasons=(cause.message,),
        )
    why = "cancelled" if isinstance(cause, CancelledError) else f"ended from outside: {cause}"
    return FaultExperimentResult(
        run_id="", outcome="INCONCLUSIVE", exit_code=EXIT_STOPPED, reasons=(why,)
    )
