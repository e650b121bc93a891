"""`history`, `show`, `replay`: read the audit trail, and compute every decision again."""

import json
import shutil
import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from audit.records import RunRecord
    from audit.store import AuditStore

EXIT_TAMPERED = 1
EXIT_NOTHING_LEARNT = 3
MOST_CANDIDATES = 10
"""Runs that are listed when a name may mean several. Source: ours: half a screen."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(history)
    app.command()(show)
    app.command()(replay)


def history(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Runs to list.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """List runs, newest first."""
    from api import columns
    from api.context import load_context
    from api.plain import plain
    from audit.report import SIMULATED_ENGINE

    context = load_context()
    trail = context.trail()
    rows = trail.history(limit)
    engines = trail.engines([row.run_id for row in rows])
    if not rows:
        typer.echo(f"no runs yet in {context.trail_name()}", err=True)
    if as_json:
        told = [{**_as_json(row), "engine": engines.get(row.run_id)} for row in rows]
        typer.echo(json.dumps(told, indent=2))
        return
    table = [("run", "outcome", "opened (UTC)", "exit", "by", "trigger")] if rows else []
    table += [
        (
            row.run_id,
            (row.outcome or "open")
            + (" (SIMULATED)" if engines.get(row.run_id) == SIMULATED_ENGINE else ""),
            _minute(row.opened_at),
            "" if row.exit_code is None else str(row.exit_code),
            plain(row.requested_by),
            plain(row.trigger),
        )
        for row in rows
    ]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in columns.lines(table, kept=2, width=width):
        typer.echo(line)


def _as_json(row: "RunRecord") -> dict[str, object]:
    """Return a run for machines; the document it was started with is in `show --json`."""
    names = ("run_id", "workflow_id", "name", "kind", "outcome", "exit_code", "opened_at")
    more = ("finished_at", "requested_by", "trigger", "parent_run_id", "head_hash")
    return {name: getattr(row, name) for name in (*names, *more)}


def _minute(stamp: str) -> str:
    return stamp[:16].replace("T", " ")


def resolve_run(store: "AuditStore", run: str) -> str:
    """Return the one run id that `run` names, or is the beginning of.

    Raises:
        ValueError: none or several match.
    """
    if store.run(run) is not None:
        return run
    matching = [row for row in store.history(10_000) if row.run_id.startswith(run)]
    if not matching:
        raise ValueError(f"no run named {run!r}: `burnproof history` lists them")
    if len(matching) > 1:
        listed = [
            f"\n  {row.run_id}  {_minute(row.opened_at)}  {row.outcome or 'open'}"
            for row in matching[:MOST_CANDIDATES]
        ]
        left = len(matching) - len(listed)
        more = f"\n  and {left} older: `burnproof history` lists them" if left else ""
        raise ValueError(f"{len(matching)} runs named {run!r}, say which:{''.join(listed)}{more}")
    return matching[0].run_id


def show(
    run: Annotated[str, typer.Argument(help="Run id, or its beginning.")],
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON.")] = False,
) -> None:
    """Show one run: outcome, what it rests on, receipts, evidence."""
    from api.context import load_context
    from audit.markdown import render
    from audit.report import assemble

    store = load_context().trail()
    report = assemble(store, resolve_run(store, run))
    typer.echo(json.dumps(report, indent=2, default=repr) if as_json else render(report))


def replay(
    run: Annotated[str | None, typer.Argument(help="Run id, or its beginning.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every run on the trail.")] = False,
) -> None:
    """Compute every decision again from the stored evidence, and compare bit for bit."""
    from api.context import load_context
    from audit.replay import replay as replay_run

    store = load_context().trail()
    if every == (run is not None):
        raise typer.BadParameter("name one run, or say --all")
    names = (
        [row.run_id for row in store.history(1_000_000)]
        if every
        else [resolve_run(store, run or "")]
    )
    if not names:
        typer.echo("nothing to replay: the trail has no runs", err=True)
        raise typer.Exit(EXIT_NOTHING_LEARNT)
    mismatches = 0
    for name in names:
        found = replay_run(store, name)
        mismatches += len(found)
        typer.echo(f"{name}: {'equal' if not found else 'DIFFERENT'}")
        for item in found:
            typer.echo(
                f"  {item.run} {item.field}: stored {item.stored!r}, "
                f"recomputed {item.recomputed!r}",
                err=True,
            )
    typer.echo(f"{len(names)} runs, {mismatches} differences")
    if mismatches:
        raise typer.Exit(EXIT_TAMPERED)
