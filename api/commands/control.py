"""`stop`, `release`, `abort`, `approve`, `holds`, `settings`: a person takes the wheel.

`stop --all` acts on the gateway first, since that is where faults are: everything is withdrawn
there at once, whether or not Temporal or SQL can be reached. Then it says what else it could not
reach.
"""

import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from api.context import Context

EXIT_NOTHING_LEARNT = 3
MAX_REASON = 500
"""Longest reason that the gateway takes, in characters."""

holds_app = typer.Typer(help="Who may act on a target.", no_args_is_help=True)
settings_app = typer.Typer(help="Effective settings.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(stop)
    app.command()(release)
    app.command()(abort)
    app.command()(approve)
    app.add_typer(holds_app, name="holds")
    app.add_typer(settings_app, name="settings")


def stop(
    every: Annotated[bool, typer.Option("--all", help="Required: everything stops.")] = False,
    reason: Annotated[str, typer.Option(help="Why; kept on the trail.")] = "stopped by a person",
) -> None:
    """Withdraw every fault now and refuse new runs until `release`."""
    if not every:
        raise typer.BadParameter("say --all: every fault is withdrawn and new runs are refused")
    from api.context import load_context

    failed = asyncio.run(_stop(load_context(), reason))
    for line in failed:
        typer.echo(f"burnproof: not reached: {line}", err=True)
    if failed:
        typer.echo("burnproof: not everything is stopped: mend that and stop again", err=True)
        raise typer.Exit(EXIT_NOTHING_LEARNT)
    typer.echo("stopped: `burnproof release` allows runs again")


async def _stop(context: "Context", reason: str) -> list[str]:
    """Try each of the three places, whatever the others do; return what could not be told."""
    from temporalio.exceptions import TemporalError

    from api import client as temporal
    from api.context import login

    reason = reason.strip()[:MAX_REASON] or "stopped by a person"
    failed = []
    try:
        admin = context.admin()
        try:
            await admin.stop(reason)
        finally:
            await admin.aclose()
    except Exception as error:  # reported; the rest must still be tried, here and below
        failed.append(f"gateway: {error}")
    try:
        context.store().set_stop(reason, login(), datetime.now(UTC))
    except Exception as error:
        failed.append(f"audit store: {error}")
    try:
        client = await temporal.connect(context.temporal)
        for workflow_id in await temporal.open_experiments(client):
            try:
                await temporal.abort(client, workflow_id, login(), reason)
            except TemporalError as error:  # the next run must be told all the same
                failed.append(f"run {workflow_id}: {error}")
    except Exception as error:
        failed.append(f"Temporal: {error}")
    return failed


def release() -> None:
    """Allow runs again after `stop --all`."""
    from api.context import load_context, login

    context = load_context()
    context.trail().clear_stop(login(), datetime.now(UTC))

    async def gateway() -> None:
        admin = context.admin()
        try:
            await admin.release()
        finally:
            await admin.aclose()

    asyncio.run(gateway())
    typer.echo("released")


def abort(
    run: Annotated[str, typer.Argument(help="Run id, its beginning, or workflow id.")],
    reason: Annotated[str, typer.Option(help="Why.")] = "",
) -> None:
    """Stop one run: its fault is withdrawn, it ends INCONCLUSIVE."""
    from api import client as temporal
    from api import runs
    from api.context import load_context, login

    async def send() -> str:
        client = await temporal.connect(load_context().temporal)
        found = await runs.find_open(client, run)
        return (await temporal.abort(client, found.workflow_id, login(), reason)).message

    typer.echo(asyncio.run(send()))


def approve(
    run: Annotated[str, typer.Argument(help="Run id, its beginning, or workflow id.")],
    note: Annotated[str, typer.Option(help="Why it is fine.")] = "",
) -> None:
    """Consent to a run that waits for approval; never your own."""
    from api import client as temporal
    from api import runs
    from api.context import load_context, login

    async def send() -> tuple[bool, str]:
        client = await temporal.connect(load_context().temporal)
        found = await runs.find_open(client, run)
        answer = await temporal.approve(client, found.workflow_id, login(), note)
        return answer.accepted, answer.message

    accepted, message = asyncio.run(send())
    typer.echo(message)
    if not accepted:
        raise typer.Exit(EXIT_NOTHING_LEARNT)


@holds_app.command("list")
def list_holds() -> None:
    """List who holds what."""
    from api.context import load_context

    for hold in load_context().trail().list_holds():
        typer.echo(f"{hold.target}: {hold.state} {hold.run_id or ''} {hold.reason}".rstrip())


@holds_app.command("clear")
def clear_hold(
    target: Annotated[str, typer.Argument(help="Target, as `holds list` shows it.")],
    reason: Annotated[str, typer.Option(help="What you checked; kept on the trail.")],
) -> None:
    """Free a quarantined target after you have looked at it."""
    from api.context import load_context, login

    load_context().trail().clear_quarantine(target, login(), reason, datetime.now(UTC))
    typer.echo(f"{target}: free")


@settings_app.command("show")
def show_settings() -> None:
    """Print the effective settings; secrets are masked."""
    from sqlalchemy import make_url

    from api.context import load_context
    from audit.canonical import prepare
    from audit.redaction import MASK, is_secret

    context = load_context()
    url = make_url(context.audit.url)
    masked = url.set(
        query={key: MASK if is_secret(key) else item for key, item in url.query.items()}
    )
    shown = {
        "temporal": context.temporal.model_dump(mode="json"),
        "gateway": context.gateway.model_dump(mode="json"),
        "audit": {"url": masked.render_as_string(hide_password=True)},
        "engine": context.engine,
    }
    typer.echo(json.dumps(prepare(shown), indent=2))
