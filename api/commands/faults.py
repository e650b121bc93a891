"""`faults`: the catalogue to read, and to try on the stack that runs."""

import asyncio
from typing import Annotated

import typer

EXIT_UNPROVEN = 1
EXIT_INCONCLUSIVE = 2
EXIT_NOTHING_LEARNT = 3

faults_app = typer.Typer(help="What can be broken, and the proof of it.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(faults_app, name="faults")


@faults_app.command("list")
def list_faults() -> None:
    """List the templates."""
    from rich.table import Table

    from api.consoles import make_console
    from faults.catalog import CATALOG

    table = Table("template", "class", "what it does", box=None)
    for info in CATALOG.values():
        table.add_row(info.id, info.blast.value, info.summary)
    make_console().print(table)


@faults_app.command("show")
def show_fault(template: Annotated[str, typer.Argument(help="Id of the template.")]) -> None:
    """Show one template: parameters with bounds, what it needs, and how it is proven."""
    from api.fault_pages import facts, rows
    from faults.catalog import template_info

    info = template_info(template)
    typer.echo(f"{info.id}: {info.summary}\n")
    for name, text in facts(info):
        typer.echo(f"{name + ':':18}{text}")
    for row in rows(info.parameters):
        limits = f", {row.bounds}" if row.bounds else ""
        kind = row.kind.replace("`", "")
        typer.echo(f"\n  {row.key}  {kind}{limits}; default {row.default.replace('`', '')}")
        typer.echo(f"      {row.meaning}")


@faults_app.command("verify")
def verify_faults(
    template: Annotated[str | None, typer.Argument(help="Id of a template.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every template.")] = False,
    route: Annotated[
        str | None, typer.Option(help="Route; default: the first that has what a fault needs.")
    ] = None,
    replica: Annotated[
        str | None,
        typer.Option(help="Replica of that route; default: the last."),
    ] = None,
) -> None:
    """Prove faults on the stack that runs: injected, seen, withdrawn, gone."""
    from rich.table import Table

    from api.consoles import make_console
    from api.context import load_context
    from api.fault_verify import Verdict, verify
    from faults.catalog import CATALOG, template_info

    if every == (template is not None):
        raise typer.BadParameter("name one template, or say --all")
    chosen = list(CATALOG) if every else [template_info(template or "").id]
    context = load_context()
    if context.is_simulated:
        typer.echo("SIMULATED: the engine behind the gateway is no model")
    found = asyncio.run(verify(context, chosen, route, replica))
    titles = ("template", "case", "route", "effect", "removal", "seconds", "seen")
    table = Table(*titles, box=None)
    for proof in found:
        cells = (proof.effect.value, proof.removal.value, f"{proof.seconds:.1f}", proof.seen)
        table.add_row(proof.template, proof.case, proof.route, *cells)
    make_console().print(table)
    verdicts = [verdict for proof in found for verdict in (proof.effect, proof.removal)]
    unproven = verdicts.count(Verdict.UNPROVEN)
    missing = sum(proof.effect is Verdict.NOT_HERE for proof in found)
    typer.echo(f"{len(found)} cases: {unproven} verdicts unproven, {missing} cases not here")
    if unproven:
        raise typer.Exit(EXIT_UNPROVEN)
    if missing:
        raise typer.Exit(EXIT_NOTHING_LEARNT if missing == len(found) else EXIT_INCONCLUSIVE)
