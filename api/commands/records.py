"""`history`, `show`, `replay`: read the audit trail, and compute every decision again."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from audit.store import AuditStore

EXIT_TAMPERED = 1
EXIT_NOTHING_LEARNT = 3


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(history)
    app.command()(show)
    app.command()(replay)


def history(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Runs to list.")] = 20,
) -> None:
    """List runs, newest first."""
    from rich.console import Console
    from rich.table import Table

    from api.context import load_context
    from api.plain import plain

    context = load_context()
    rows = context.trail().history(limit)
    if not rows:
        typer.echo(f"no runs yet in {context.trail_name()}", err=True)
        return
    table = Table("run", "kind", "outcome", "exit", "opened", "by", "trigger", box=None)
    for row in rows:
        table.add_row(
            row.run_id,
            row.kind,
            row.outcome or "open",
            "" if row.exit_code is None else str(row.exit_code),
            row.opened_at[:19],
            plain(row.requested_by),
            plain(row.trigger),
        )
    Console(markup=False).print(table)


def resolve_run(store: "AuditStore", run: str) -> str:
    """Return the one run id that `run` names, or is the beginning of.

    Raises:
        ValueError: none or several match.
    """
    if store.run(run) is not None:
        return run
    matching = [row.run_id for row in store.history(10_000) if row.run_id.startswith(run)]
    if len(matching) != 1:
        found = "no run" if not matching else f"{len(matching)} runs"
        raise ValueError(f"{found} named {run!r}: `burnproof history` lists them")
    return matching[0]


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
