"""`up`, `down`, `status`, `doctor`: the local stack from a terminal.

Exit codes: 0 it worked, or was ended by Ctrl-C; 3 it did not, with one message that says why.
"""

import asyncio
import json
import os
import shlex
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from api.consoles import make_console
from api.stack import reaper
from api.stack.display import Display, title
from api.stack.errors import StackError
from api.stack.options import (
    STATE_VARIABLE,
    EngineKind,
    StackOptions,
    TrafficKind,
    default_directory,
)
from api.stack.ports import all_free
from api.stack.state import StackState, load_state, started_ticks

if TYPE_CHECKING:  # other commands must not wait for what only `up` needs
    from api.stack.supervisor import LocalStack

EXIT_NOTHING_LEARNT = 3
DOWN_SECONDS = 30.0
"""How long `down` waits for a polite end. Source: ours: the longest grace, 12 s, and more."""

_KILL_SECONDS = 5.0
_TICK_SECONDS = 0.1

Directory = Annotated[
    Path | None,
    typer.Option("--state-dir", help="State directory (default: BURNPROOF_STACK_DIR, or yours)."),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(up)
    app.command()(down)
    app.command()(status)
    app.command()(doctor)


def up(  # noqa: PLR0913 - each parameter is an option of the command
    engine: Annotated[
        EngineKind, typer.Option(help="vllm, or simulated for tests and small laptops.")
    ] = EngineKind.VLLM,
    replicas: Annotated[int, typer.Option(help="Engine processes (vLLM: at most 2).")] = 2,
    engine_arg: Annotated[
        list[str] | None, typer.Option(help="Option for each engine process; repeatable.")
    ] = None,
    gateways: Annotated[int, typer.Option(help="Gateways before the engines.")] = 1,
    embeddings: Annotated[
        bool, typer.Option("--embeddings", help="One more engine: embeddings, on a route beside.")
    ] = False,
    traffic: Annotated[TrafficKind, typer.Option(help="What is sent.")] = TrafficKind.SINGLE,
    rate: Annotated[float, typer.Option(help="Requests a second.")] = 20.0,
    max_tokens: Annotated[int, typer.Option(help="Tokens a request asks for.")] = 4,
    seed: Annotated[int, typer.Option(help="Seed of the traffic.")] = 1,
    ui: Annotated[bool, typer.Option(help="Temporal's Web UI.")] = True,
    state_dir: Directory = None,
) -> None:
    """Start the local stack and keep it up; Ctrl-C stops all of it."""
    try:
        options = StackOptions(
            directory=state_dir or default_directory(),
            engine=engine,
            replicas=replicas,
            engine_args=tuple(engine_arg or ()),
            gateways=gateways,
            embeddings=embeddings,
            traffic=traffic,
            rate=rate,
            max_tokens=max_tokens,
            seed=seed,
            ui=ui,
        )
    except StackError as error:
        _fail(error)
    code = asyncio.run(_up(options))
    if code:
        raise typer.Exit(code)


async def _up(options: StackOptions) -> int:
    """Run the stack until a signal; return the exit code."""
    from api.stack.supervisor import LocalStack

    display = Display(Console(), options)
    stack = LocalStack(options, display.on_event)
    stop = asyncio.Event()
    _on_signals(stop, stack)
    started = asyncio.create_task(stack.up())
    stopping = asyncio.create_task(stop.wait())
    try:
        while not (started.done() or stopping.done()):
            display.tick()
            await asyncio.wait(
                {started, stopping},
                timeout=_TICK_SECONDS,
                return_when=asyncio.FIRST_COMPLETED,
            )
        if not stopping.done():
            await started
            display.started(stack.state)
            display.say(f"Ctrl-C stops all of it. In another terminal: {follow_up(options)}")
            await stopping
        return 0
    except StackError as error:
        display.end_bars()
        _print_error(error)
        return EXIT_NOTHING_LEARNT
    except OSError as error:
        if stop.is_set():
            return 0  # the terminal is gone, and nothing can be said
        display.end_bars()
        _print_error(StackError(f"{error}; events: {stack.events_log}"))
        return EXIT_NOTHING_LEARNT
    finally:
        await _end(stack, started, stopping, display)


def follow_up(options: StackOptions) -> str:
    """Return the command for another terminal, which must find the same state directory."""
    command = "burnproof run FILE"
    if options.directory == default_directory():
        return command
    return f"{STATE_VARIABLE}={shlex.quote(str(options.directory))} {command}"


async def _end(
    stack: "LocalStack",
    started: asyncio.Task[None],
    stopping: asyncio.Task[bool],
    display: Display,
) -> None:
    """Take everything down, whatever the terminal does."""
    started.cancel()
    stopping.cancel()
    await asyncio.gather(started, stopping, return_exceptions=True)
    if not stack.is_owner:
        return
    with suppress(OSError):
        display.say("stopping")
    await stack.down()
    with suppress(OSError):
        display.say("stopped: no process is left")


def _on_signals(stop: asyncio.Event, stack: "LocalStack") -> None:
    """Stop on the first signal, and kill on the second."""

    def on_signal() -> None:
        if stop.is_set():
            stack.hurry()
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal)


def down(state_dir: Directory = None) -> None:
    """Stop the local stack and check that nothing of it is left."""
    directory = state_dir or default_directory()
    try:
        state = load_state(directory, running=False)
    except StackError as error:
        _fail(error)
    if state is None or not (state.is_running() or reaper.tagged_pids(state.tag)):
        typer.echo(f"no stack runs from {directory}")
        return
    if not _ended(state, signal.SIGTERM, DOWN_SECONDS):
        typer.echo(f"the supervisor did not end within {DOWN_SECONDS:g} s: killing it")
        _ended(state, signal.SIGKILL, _KILL_SECONDS)
    killed = reaper.sweep(state.tag)
    left = reaper.tagged_pids(state.tag)
    if left or not all_free(state.ports.values()):
        _fail(StackError(f"still there: processes {sorted(left)}, ports {state.ports}"))
    extra = f"; {killed} left-over processes were killed" if killed else ""
    typer.echo(f"down ({title(state)}): no process is left, ports are free{extra}")


def _ended(state: StackState, number: signal.Signals, limit: float) -> bool:
    """Send the signal to the supervisor and wait for its end; tell whether it ended."""
    deadline = time.monotonic() + limit
    with suppress(ProcessLookupError):
        if state.is_running():
            os.kill(state.supervisor_pid, number)
    while started_ticks(state.supervisor_pid) == state.supervisor_started:
        if time.monotonic() > deadline:
            return False
        time.sleep(_TICK_SECONDS)
    return True


def status(
    state_dir: Directory = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Show the local stack: processes, open runs, leases, holds, stop switch."""
    from api.stack.status import look, render

    directory = state_dir or default_directory()
    try:
        state = load_state(directory)
    except StackError as error:
        _fail(error)
    if state is None:
        _fail(StackError(f"no stack runs from {directory}: start one with `burnproof up`"))
    picture = asyncio.run(look(state))
    if as_json:
        both = {"stack": state.model_dump(mode="json"), "now": picture.to_json()}
        typer.echo(json.dumps(both, indent=2))
    else:
        make_console().print(render(state, picture))


def doctor(
    engine: Annotated[
        EngineKind, typer.Option(help="The engine you want to use.")
    ] = EngineKind.VLLM,
    state_dir: Directory = None,
) -> None:
    """Say what this machine lacks, and the command that mends it."""
    from api.stack.doctor import examine

    findings = examine(state_dir or default_directory(), engine)
    console = Console()
    console.print(f"doctor, engine {engine.loud}", highlight=False)
    for finding in findings:
        word = Text("ok      ", "green") if finding.is_ok else Text("missing ", "bold red")
        line = word.append(f" {finding.name:<14} {finding.detail}", style="default")
        console.print(line, soft_wrap=True, highlight=False)
        if not finding.is_ok:
            console.print(f"{'':<24}mend: {finding.mend}", soft_wrap=True, highlight=False)
    if not all(finding.is_ok for finding in findings):
        raise typer.Exit(EXIT_NOTHING_LEARNT)


def _fail(error: StackError) -> NoReturn:
    _print_error(error)
    raise typer.Exit(EXIT_NOTHING_LEARNT)


def _print_error(error: StackError) -> None:
    with suppress(OSError):
        sys.stderr.write(f"burnproof: {error}\n")
        sys.stderr.flush()
