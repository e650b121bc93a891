"""`burnproof`: the one command. It only wires; each theme of commands is a file in `api/commands/`.

Exit codes: 0 pass · 1 SLO, comparison or guard · 2 inconclusive, or stopped by a person · 3
configuration, usage or infrastructure: nothing learnt · 4 clean-up not proven. Usage errors are
remapped to 3, since the library's own 2 means something else here, and no traceback reaches a user.
"""

import os
import sys
from contextlib import suppress
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer

from api.commands import control, experiment, faults, records, stack, tenants, topology

EXIT_NOTHING_LEARNT = 3
EXIT_STOPPED = 2

app = typer.Typer(
    name="burnproof",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"burnproof {version('burnproof')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Break an LLM service on purpose, judge it against its SLOs, mend it, and prove it."""


for theme in (stack, experiment, records, control, faults, tenants, topology):
    theme.register(app)


def is_expected(problem: Exception) -> bool:
    """Tell whether a problem is the user's to mend, so that one line says it."""
    from sqlalchemy.exc import SQLAlchemyError
    from temporalio.exceptions import TemporalError

    from api.errors import NoStack, NoTrail, NotReachable
    from api.stack.errors import StackError
    from audit.errors import AuditError
    from slo.errors import SpecErrors
    from targets.errors import TargetError

    ours = (
        StackError,
        NotReachable,
        NoStack,
        NoTrail,
        SpecErrors,
        AuditError,
        TargetError,
        TemporalError,
    )
    return isinstance(problem, (*ours, SQLAlchemyError, ValueError, OSError))


def main() -> NoReturn:
    """Run a command and exit with the documented code.

    At once, without taking the interpreter down first: the library's runtime waits there for a
    call to the server that nobody wants any more, which was seen to hang a command after Ctrl-C.
    """
    code = run(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the terminal may be gone
            stream.flush()
    os._exit(code)


def run(arguments: list[str]) -> int:
    """Run a command; return its exit code."""
    try:
        returned = typer.main.get_command(app).main(
            args=arguments, prog_name="burnproof", standalone_mode=False
        )
    except typer.Abort:
        return EXIT_STOPPED
    except typer.TyperException as usage:
        said = usage.format_message()
        if said:  # empty where the help was shown instead
            typer.echo(f"burnproof: {said}", err=True)
        return EXIT_NOTHING_LEARNT
    except KeyboardInterrupt:
        return EXIT_STOPPED
    except Exception as problem:
        what = str(problem) if is_expected(problem) else f"this is a bug of ours: {problem!r}"
        typer.echo(f"burnproof: {what}", err=True)
        return EXIT_NOTHING_LEARNT
    return returned if isinstance(returned, int) else 0
