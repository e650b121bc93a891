"""`run`, `follow`, `plan`, `validate`: from a file to a verdict.

The command is only a client: the run lives in Temporal, so Ctrl-C detaches, a second Ctrl-C does
the same, and killing it leaves nothing behind. The exit code is the run's own.
"""

import asyncio
import contextlib
import getpass
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.service import RPCError

from activities.admit import ParsedExperiment, parse_documents, route_facts
from api import client as temporal
from api import live
from api.context import Context, load_context
from faults.blast_radius import AdmitInput, admit
from faults.parse import Document, read_document
from faults.resolve import resolve_arms, resolve_target
from slo.errors import SpecErrors
from slo.records import Page
from workflows.endings import root_cause
from workflows.state import FaultExperimentResult

FOLLOW_SECONDS = 0.5
RATE_SECONDS = 30.0
EXIT_STOPPED = 2
EXIT_NOTHING_LEARNT = 3

File = Annotated[Path, typer.Argument(help="Experiment file (YAML).")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(run)
    app.command()(follow)
    app.command()(plan)
    app.command()(validate)


def load(file: Path) -> tuple[ParsedExperiment, Document]:
    """Read an experiment file with everything it names.

    Raises:
        SpecErrors: each problem as `file:line: path: message`.
    """
    document = read_document(str(file), lambda name: Path(name).read_text(encoding="utf-8"))
    try:
        return parse_documents(document.raw), document
    except SpecErrors as problems:
        raise document.located(problems) from None


def _load_or_exit(file: Path) -> tuple[ParsedExperiment, Document]:
    try:
        return load(file)
    except SpecErrors as problems:
        for line in problems.lines:
            typer.echo(line, err=True)
        raise typer.Exit(EXIT_NOTHING_LEARNT) from None


def validate(file: File) -> None:
    """Check an experiment file and everything it names; touches nothing."""
    parsed, _ = _load_or_exit(file)
    typer.echo(f"{file}: valid ({parsed.spec.metadata.name}, {parsed.spec.fault.template})")


def plan(file: File) -> None:
    """Show what a run would touch, how long it takes, and whether its guard can fire."""
    parsed, _ = _load_or_exit(file)
    context = load_context()
    lines, admitted = asyncio.run(_plan(parsed, context))
    for line in lines:
        typer.echo(line)
    if not admitted:
        raise typer.Exit(EXIT_NOTHING_LEARNT)


async def _plan(parsed: ParsedExperiment, context: Context) -> tuple[list[str], bool]:
    admin = context.admin()
    try:
        routes = await admin.routes()
        chosen = resolve_target(parsed.spec.target, [route_facts(route) for route in routes])
        arms = resolve_arms(parsed.spec.arms.chaos.replicas, chosen.replicas)
        raw = await admin.journal(chosen.route, tail_seconds=RATE_SECONDS)
    finally:
        await admin.aclose()
    real = [record for record in Page.from_json(raw).records if not record.probe]
    rate = len(real) / RATE_SECONDS if real else None
    bad = sum(parsed.objectives[0].is_bad(record) for record in real)
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


def run(
    file: File,
    detach: Annotated[bool, typer.Option(help="Start it and return at once.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    requested_by: Annotated[str, typer.Option(help="Who asks; default: your login.")] = "",
    trigger: Annotated[str, typer.Option(help="What starts it: cli, ci, schedule.")] = "cli",
) -> None:
    """Run an experiment, follow it live, and exit with its code."""
    _, document = _load_or_exit(file)
    raw = dict(document.raw) if isinstance(document.raw, dict) else {}
    raw["metadata"] = {
        **raw["metadata"],
        "requestedBy": requested_by or raw["metadata"].get("requestedBy") or _login(),
        "trigger": trigger,
    }
    code = asyncio.run(_start(raw, load_context(), detach=detach, as_json=json_output))
    raise typer.Exit(code)


def follow(run_or_workflow: Annotated[str, typer.Argument(help="Workflow id of a run.")]) -> None:
    """Follow a run that was started elsewhere, and exit with its code."""
    raise typer.Exit(asyncio.run(_follow_existing(run_or_workflow, load_context())))


def _login() -> str:
    with contextlib.suppress(OSError, KeyError):
        return getpass.getuser()
    return "unknown"


async def _start(raw: dict[str, Any], context: Context, *, detach: bool, as_json: bool) -> int:
    client = await temporal.connect(context.temporal)
    started = await temporal.start_experiment(client, raw)
    console = Console(stderr=as_json)
    console.print(f"run [bold]{started.run_id}[/]  workflow {started.workflow_id}")
    if context.temporal.ui_url:
        console.print(
            f"{context.temporal.ui_url}/namespaces/{context.temporal.namespace}"
            f"/workflows/{started.workflow_id.replace('/', '%2F')}"
        )
    if detach:
        return 0
    handle = client.get_workflow_handle(started.workflow_id)
    return await _watch(client, handle, console, context, as_json=as_json)


async def _follow_existing(workflow_id: str, context: Context) -> int:
    client = await temporal.connect(context.temporal)
    handle = client.get_workflow_handle(workflow_id)
    return await _watch(client, handle, Console(), context, as_json=False)


async def _watch(
    client: Client,
    handle: WorkflowHandle[Any, Any],
    console: Console,
    context: Context,
    *,
    as_json: bool,
) -> int:
    ending = asyncio.create_task(handle.result())
    try:
        await _show_until(ending, handle, console, context)
    except (asyncio.CancelledError, KeyboardInterrupt):
        ending.cancel()
        console.print(
            f"\ndetached: the run goes on. `burnproof follow {handle.id}` shows it, "
            f"`burnproof abort {handle.id}` stops it and withdraws the fault."
        )
        return EXIT_STOPPED
    result = await ended(ending)
    if as_json:
        typer.echo(json.dumps(result.model_dump(mode="json"), indent=2))
    else:
        live.print_result(console, result, context.is_simulated)
    return result.exit_code


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
            with contextlib.suppress(RPCError):
                view = await temporal.view(handle)
                figures = await temporal.heartbeat(handle)
                if screen is not None:
                    screen.update(picture.render(view, figures))
                else:
                    for line in picture.lines(view, figures):
                        console.print(line, highlight=False, soft_wrap=True)
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
