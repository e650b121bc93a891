"""`stop`, `release`, `abort`, `approve`, `holds`, `settings`: a person takes the wheel.

`stop --all` acts on the gateway first, since that is where faults are: everything is withdrawn
there at once, whether or not Temporal or SQL can be reached. Then it says what else it could not
reach.
"""

import asyncio
import getpass
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from api.context import Context

EXIT_NOTHING_LEARNT = 3

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
    typer.echo("stopped: `burnproof release` allows runs again")
    if failed:
        raise typer.Exit(EXIT_NOTHING_LEARNT)


async def _stop(context: "Context", reason: str) -> list[str]:
    from temporalio.exceptions import TemporalError

    from api import client as temporal
    from api.errors import NotReachable
    from targets.errors import TargetError

    failed = []
    try:
        admin = context.admin()
        try:
            await admin.stop(reason)
        finally:
            await admin.aclose()
    except (TargetError, ValueError) as error:
        failed.append(f"gateway: {error}")
    try:
        context.store().set_stop(reason, getpass.getuser(), datetime.now(UTC))
    except Exception as error:  # reported below; the rest must still be tried
        failed.append(f"audit store: {error}")
    try:
        client = await temporal.connect(context.temporal)
        for workflow_id in await temporal.open_experiments(client):
            try:
                await temporal.abort(client, workflow_id, getpass.getuser(), reason)
            except TemporalError as error:  # the next run must be told all the same
                failed.append(f"run {workflow_id}: {error}")
    except NotReachable as error:
        failed.append(f"Temporal: {error}")
    return failed


def release() -> None:
    """Allow runs again after `stop --all`."""
    from api.context import load_context

    context = load_context()
    context.store().clear_stop(getpass.getuser(), datetime.now(UTC))

    async def gateway() -> None:
        admin = context.admin()
        try:
            await admin.release()
        finally:
            await admin.aclose()

    asyncio.run(gateway())
    typer.echo("released")


def abort(
    workflow_id: Annotated[str, typer.Argument(help="Workflow id of the run.")],
    reason: Annotated[str, typer.Option(help="Why.")] = "",
) -> None:
    """Stop one run: its fault is withdrawn, it ends INCONCLUSIVE."""
    from api import client as temporal
    from api.context import load_context

    async def send() -> str:
        client = await temporal.connect(load_context().temporal)
        return (await temporal.abort(client, workflow_id, getpass.getuser(), reason)).message

    typer.echo(asyncio.run(send()))


def approve(
    workflow_id: Annotated[str, typer.Argument(help="Workflow id of the run.")],
    note: Annotated[str, typer.Option(help="Why it is fine.")] = "",
) -> None:
    """Consent to a run that waits for approval; never your own."""
    from api import client as temporal
    from api.context import load_context

    async def send() -> tuple[bool, str]:
        client = await temporal.connect(load_context().temporal)
        answer = await temporal.approve(client, workflow_id, getpass.getuser(), note)
        return answer.accepted, answer.message

    accepted, message = asyncio.run(send())
    typer.echo(message)
    if not accepted:
        raise typer.Exit(EXIT_NOTHING_LEARNT)


@holds_app.command("list")
def list_holds() -> None:
    """List who holds what."""
    from api.context import load_context

    for hold in load_context().store().list_holds():
        typer.echo(f"{hold.target}: {hold.state} {hold.run_id or ''} {hold.reason}".rstrip())


@holds_app.command("clear")
def clear_hold(
    target: Annotated[str, typer.Argument(help="Target, as `holds list` shows it.")],
    reason: Annotated[str, typer.Option(help="What you checked; kept on the trail.")],
) -> None:
    """Free a quarantined target after you have looked at it."""
    from api.context import load_context

    load_context().store().clear_quarantine(target, getpass.getuser(), reason, datetime.now(UTC))
    typer.echo(f"{target}: free")


@settings_app.command("show")
def show_settings() -> None:
    """Print the effective settings; secrets are masked."""
    from api.context import load_context

    context = load_context()
    from sqlalchemy import make_url

    shown = {
        "temporal": context.temporal.model_dump(mode="json"),
        "gateway": context.gateway.model_dump(mode="json"),
        "audit": {"url": make_url(context.audit.url).render_as_string(hide_password=True)},
        "engine": context.engine,
    }
    typer.echo(json.dumps(shown, indent=2))
