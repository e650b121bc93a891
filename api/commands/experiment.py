"""`run`, `follow`, `plan`, `validate`: from a file to a verdict.

The command is only a client: the run lives in Temporal, so Ctrl-C detaches, a second Ctrl-C does
the same, and killing it leaves nothing behind. The exit code is the run's own.
"""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

EXIT_NOTHING_LEARNT = 3

File = Annotated[Path, typer.Argument(help="Experiment file (YAML).")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(run)
    app.command()(follow)
    app.command()(plan)
    app.command()(validate)


def validate(file: File) -> None:
    """Check an experiment file and everything it names; touches nothing."""
    from api import runs
    from faults.blast_radius import static_problems
    from slo.errors import SpecError

    parsed, document = runs.load_or_exit(file)
    problems = [
        document.line(SpecError(item.path, item.message)) for item in static_problems(parsed.spec)
    ]
    for line in problems:
        typer.echo(line, err=True)
    if problems:
        raise typer.Exit(EXIT_NOTHING_LEARNT)
    typer.echo(f"{file}: valid ({parsed.spec.metadata.name}, {parsed.spec.fault.template})")


def plan(file: File) -> None:
    """Show what a run would touch, how long it takes, and whether its guard can fire."""
    from api import runs
    from api.context import load_context

    parsed, _ = runs.load_or_exit(file)
    lines, admitted = asyncio.run(runs.plan(parsed, load_context()))
    for line in lines:
        typer.echo(line)
    if not admitted:
        raise typer.Exit(EXIT_NOTHING_LEARNT)


def run(
    file: File,
    detach: Annotated[bool, typer.Option(help="Start it and return at once.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    requested_by: Annotated[str, typer.Option(help="Who asks; default: your login.")] = "",
    trigger: Annotated[str, typer.Option(help="What starts it: cli, ci, schedule.")] = "cli",
) -> None:
    """Run an experiment, follow it live, and exit with its code."""
    from api import runs
    from api.context import load_context

    _, document = runs.load_or_exit(file)
    raw = runs.with_origin(document.raw, requested_by, trigger)
    code = asyncio.run(runs.start(raw, load_context(), detach=detach, as_json=json_output))
    raise typer.Exit(code)


def follow(
    run: Annotated[str, typer.Argument(help="Run id, its beginning, or workflow id.")],
) -> None:
    """Follow a run that was started elsewhere, and exit with its code."""
    from api import runs
    from api.context import load_context

    raise typer.Exit(asyncio.run(runs.follow(run, load_context())))
