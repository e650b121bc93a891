"""`tenants`: digests for the gateway's configuration, and whether one tenant noticed another."""

import asyncio
import json
import secrets
import sys
from typing import Annotated

import typer

EXITS = {"PASS": 0, "FAIL": 1, "INCONCLUSIVE": 2}

tenants_app = typer.Typer(help="Who sends requests, kept apart.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(tenants_app, name="tenants")


@tenants_app.command("marker")
def marker() -> None:
    """Make a marker to plant in a tenant's data, and its digest for `marker_sha256`."""
    from text.markers import digest_of, marker_of

    made = marker_of(secrets.token_bytes(16))
    typer.echo(f"marker  {made}\ndigest  {digest_of(made)}")


@tenants_app.command("digest")
def digest() -> None:
    """Read an API key from standard input; print its digest for `key_sha256`."""
    from text.markers import digest_of

    is_typed = sys.stdin.isatty()
    key = typer.prompt("API key", hide_input=True) if is_typed else sys.stdin.read()
    if not key.strip():
        raise typer.BadParameter("no key came on standard input")
    typer.echo(digest_of(key.strip()))


@tenants_app.command("isolation")
def isolation(  # noqa: PLR0913 - each parameter is an option of the command
    source: Annotated[str, typer.Argument(help="Tenant whose load, fault or overrun it is.")],
    subject: Annotated[str, typer.Argument(help="Tenant that must not notice.")],
    run: Annotated[str, typer.Option(help="Records of this run; default: the gateway's.")] = "",
    minutes: Annotated[float, typer.Option(min=0.1, max=1440, help="The last minutes.")] = 30.0,
    route: Annotated[str | None, typer.Option(help="Route; default: the first.")] = None,
    during: Annotated[str, typer.Option(help="Exposed is FROM/TO, two ISO times.")] = "",
    fault: Annotated[str, typer.Option(help="Exposed is while this fault item acted.")] = "",
    overrun: Annotated[bool, typer.Option(help="Exposed is while its quota was overrun.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON.")] = False,
) -> None:
    """Say whether one tenant affected another: latency, quota, content.

    Exposed is the chaos arm of a split, unless a window is given.
    """
    from api.commands.records import resolve_run
    from api.context import load_context
    from api.isolation import exposure_of, from_gateway, from_run, lines
    from canary.isolation import IsolationConfig, judge_isolation

    if bool(during) + bool(fault) + overrun > 1:
        raise typer.BadParameter("say one of --during, --fault and --overrun")
    if source == subject:
        raise typer.BadParameter("name two tenants")
    context = load_context()
    if run:
        evidence = from_run(context, resolve_run(context.trail(), run))
    else:
        evidence = asyncio.run(from_gateway(context, route, minutes))
    exposure = exposure_of(evidence, source, during=during, fault=fault, overrun=overrun)
    config = IsolationConfig(source=source, subject=subject)
    found = judge_isolation(evidence.records, config, exposure, has_gap=evidence.has_gap)
    report = found.to_json()
    typer.echo(json.dumps(report, indent=2) if as_json else "\n".join(lines(report)))
    raise typer.Exit(EXITS[found.verdict])
