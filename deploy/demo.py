"""`make demo`: the whole job once, on the real engine, with the minutes of each part.

Brings the local stack up, runs both examples as a person would (`burnproof run`, live), and ends
with the audit trail: the list of runs, one of them in short, and every decision computed again. It
decides nothing itself: the exit code is 0 only if both examples end PASS and the replay is equal.

Each demo has a state directory of its own, which stays: the trail can be read after the stack is
gone. The hard part is Ctrl-C in the middle: the example in the foreground hears it too and
detaches, then the stack goes down, and no process is left.

    python deploy/demo.py                       real vLLM
    python deploy/demo.py --engine simulated    a quick look; every output says SIMULATED
"""

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # a script in a folder: the rooms lie one above

from rich.console import Console  # noqa: E402 - after the path is set

from api.stack.display import Display  # noqa: E402
from api.stack.errors import StackError  # noqa: E402
from api.stack.options import EngineKind, StackOptions, default_directory  # noqa: E402
from api.stack.supervisor import LocalStack  # noqa: E402
from audit.store import AuditStore  # noqa: E402

EXAMPLES = ("aa-null", "stall-the-chat-stream")
RATE = 20.0
"""Requests a second; see `docs/local-stack.md` for what two replicas on two cores keep up with."""
BURNPROOF = str(Path(sys.executable).with_name("burnproof"))
EXIT_INCONCLUSIVE = 2
SHOWN_SECTIONS = ("Phases", "Receipts", "Holds", "Record")
"""Sections of `burnproof show` that are printed; the others are longer."""
_TICK_SECONDS = 0.1
_CHILD_GRACE_SECONDS = 10.0


@dataclass
class Tally:
    """Minutes of each part, and what was not as it should be."""

    console: Console
    seconds: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def part(self, name: str) -> AsyncIterator[None]:
        """Head a part, and keep how long it took."""
        self.console.rule(f"[bold]{name}", align="left")
        since = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = time.monotonic() - since

    def say(self) -> int:
        """Print minutes and result; return the exit code."""
        self.console.rule("[bold]minutes", align="left")
        for name, seconds in self.seconds.items():
            self.console.print(f"  {name:<24} {seconds / 60:5.1f}", highlight=False)
        total = sum(self.seconds.values()) / 60
        self.console.print(f"  {'in all':<24} {total:5.1f}", highlight=False)
        for line in self.wrong:
            self.console.print(f"[bold red]wrong:[/] {line}", highlight=False)
        if not self.wrong:
            self.console.print("[green]both examples PASS, and the replay is equal")
        return 1 if self.wrong else 0


def _why(code: int) -> str:
    """Say what is probably behind an exit code, if anything is."""
    if code != EXIT_INCONCLUSIVE:
        return ""
    busy = os.getloadavg()[1] / (os.cpu_count() or 1)
    return (
        f": too little proof. This machine's cores were asked for {busy:.1f} times what they have; "
        "the examples need them alone"
    )


class Demo:
    """One demo: its stack, its children, its tally."""

    def __init__(self, options: StackOptions, console: Console) -> None:
        """Start nothing yet."""
        self._options = options
        self._console = console
        self._environment = {**os.environ, "BURNPROOF_STACK_DIR": str(options.directory)}
        self.tally = Tally(console)

    async def run(self) -> int:
        """Do it all; return the exit code."""
        self._say_if_busy()
        display = Display(self._console, self._options)
        stack = LocalStack(self._options, display.on_event)
        try:
            async with self.tally.part("the stack comes up"):
                await _up(stack, display)
            for name in EXAMPLES:
                async with self.tally.part(name):
                    await self._example(name)
            async with self.tally.part("audit trail and replay"):
                await self._trail(stack)
        finally:
            display.end_bars()
            if stack.is_owner:
                async with self.tally.part("the stack goes down"):
                    await stack.down()
        self._console.print(
            f"The trail stays in {self._options.directory}. To read it again:\n"
            f"  BURNPROOF_AUDIT_URL={stack.state.audit_url} burnproof history",
            highlight=False,
            soft_wrap=True,
        )
        return self.tally.say()

    def _say_if_busy(self) -> None:
        """Warn of other work: two real replicas that must share too little are not alike."""
        load, cores = os.getloadavg()[0], os.cpu_count() or 1
        if load > cores:
            self._console.print(
                f"[yellow]this machine is busy with other work (load {load:.1f} on {cores} cores): "
                "latencies will say more about that than about the engines",
                highlight=False,
                soft_wrap=True,
            )

    async def _example(self, name: str) -> None:
        path = f"examples/{name}/experiment.yaml"
        code, _ = await self._burnproof("run", path)
        if code != 0:
            self.tally.wrong.append(f"{name} ended with exit code {code}, not PASS{_why(code)}")

    async def _trail(self, stack: LocalStack) -> None:
        """List the runs, show the last one in short, compute every decision again."""
        await self._burnproof("history")
        store = AuditStore(stack.state.audit_url)
        last = next((r.run_id for r in store.history(100) if r.run_id.startswith("stall")), None)
        if last is None:
            self.tally.wrong.append("the trail has no run of the stall")
        else:
            _, text = await self._burnproof("show", last, is_captured=True)
            self._console.print(in_short(text), markup=False, highlight=False, soft_wrap=True)
        code, _ = await self._burnproof("replay", "--all")
        if code != 0:
            self.tally.wrong.append(f"replay --all ended with exit code {code}: not equal")

    async def _burnproof(self, *arguments: str, is_captured: bool = False) -> tuple[int, str]:
        """Run a command as a person would; return its exit code, and its output if captured."""
        self._console.print(f"[bold]$ burnproof {' '.join(arguments)}", highlight=False)
        child = await asyncio.create_subprocess_exec(
            BURNPROOF,
            *arguments,
            cwd=ROOT,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE if is_captured else None,
        )
        try:
            output, _ = await child.communicate()
        except asyncio.CancelledError:
            await _end(child)
            raise
        return child.returncode or 0, (output or b"").decode()


async def _up(stack: LocalStack, display: Display) -> None:
    """Bring the stack up with its bars moving."""
    starting = asyncio.create_task(stack.up())
    try:
        while not starting.done():
            display.tick()
            await asyncio.wait([starting], timeout=_TICK_SECONDS)
        await starting
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
    display.started(stack.state)


async def _end(child: asyncio.subprocess.Process) -> None:
    """End a child that may have ended by itself."""
    with suppress(ProcessLookupError):
        child.terminate()
    try:
        await asyncio.wait_for(child.wait(), _CHILD_GRACE_SECONDS)
    except TimeoutError:
        child.kill()
        await child.wait()


def in_short(report: str) -> str:
    """Return the head and the short sections of a report in Markdown."""
    head, *sections = report.split("\n## ")
    kept = [s for s in sections if s.split("\n", 1)[0].strip() in SHOWN_SECTIONS]
    return "\n## ".join([head, *kept]).rstrip()


def _options(arguments: Sequence[str]) -> StackOptions:
    parser = argparse.ArgumentParser(prog="demo", description="The whole job once.")
    engines = [kind.value for kind in EngineKind]
    parser.add_argument("--engine", choices=engines, default=EngineKind.VLLM.value)
    parser.add_argument("--rate", type=float, default=RATE, help="requests a second")
    parser.add_argument("--state-dir", type=Path, help="default: a new one below your state folder")
    given = parser.parse_args(arguments)
    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    return StackOptions(
        directory=given.state_dir or default_directory().parent / "demo" / stamp,
        engine=EngineKind(given.engine),
        rate=given.rate,
    )


async def _main(options: StackOptions, console: Console) -> int:
    """Run the demo; a signal cancels it, which takes everything down."""
    task = asyncio.create_task(Demo(options, console).run())
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def on_signal() -> None:
        for number in signals:  # a second one must not cut the going down short
            loop.add_signal_handler(number, lambda: None)
        task.cancel()

    for number in signals:
        loop.add_signal_handler(number, on_signal)
    try:
        return await task
    except asyncio.CancelledError:
        console.print("stopped: no process is left")
        return 2


def main() -> int:
    """Run it; return 0, 1 (something was not as it should be), 2 (stopped) or 3 (no stack)."""
    try:
        return asyncio.run(_main(_options(sys.argv[1:]), Console()))
    except StackError as problem:
        sys.stderr.write(f"demo: {problem}\n")
        return 3


if __name__ == "__main__":
    sys.exit(main())
