"""The local stack: every process of Burnproof, started in order, kept alive, ended together.

    async with LocalStack(StackOptions(directory=d, engine=EngineKind.SIMULATED)) as stack:
        stack.state.gateway_url

Order: Temporal, the engines and the gateway start at once, since each needs nobody; the worker when
Temporal listens (most of its start is loading code, and Temporal's set-up fits into that); traffic
when everything else is ready. Down goes traffic and the worker first, so that a running experiment
is handed over before its gateway goes.

It does not judge what it runs, and it holds nothing that a crash of its own could lose: the guards
(`api.stack.reaper`) end every process when this one dies, and a lapsed lease ends every fault. The
hard part is ending in the middle of starting, with every task and process collected.
"""

import asyncio
import hashlib
import os
import signal
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from api.stack import readiness, reaper
from api.stack.blueprint import Blueprint, claim_ports
from api.stack.errors import StackError
from api.stack.events import EventKind, EventLog, Listener
from api.stack.guarded import Guarded
from api.stack.member import Member
from api.stack.options import (
    EMBEDDINGS_PROCESS,
    MODEL,
    ROUTE,
    EngineKind,
    StackOptions,
    kind_of,
)
from api.stack.ports import Ports
from api.stack.state import (
    DirectoryLock,
    Phase,
    StackState,
    load_state,
    save_state,
    started_ticks,
    write_token,
)
from api.stack.vllm_environment import install_vllm

STACK = "stack"
"""Name under which the stack itself stands in events.log."""


class LocalStack:
    """A stack and its supervisor; also the handle with which tests break it."""

    def __init__(self, options: StackOptions, listener: Listener | None = None) -> None:
        self.options = options
        self._listener = listener
        self._ports = Ports()
        self._lock: DirectoryLock | None = None
        self._blueprint: Blueprint | None = None
        self._members: dict[str, Member] = {}
        self._phase: Phase = "starting"
        self._started_at = time.time()
        folder = hashlib.sha256(str(options.directory).encode()).hexdigest()[:8]
        self.tag = f"burnproof-{folder}-{uuid.uuid4().hex[:8]}"
        self.events_log = options.directory / "logs" / "events.log"
        self._events = EventLog(self.events_log, listener)

    async def __aenter__(self) -> Self:
        """Bring it up; see `up`."""
        try:
            await self.up()
        except BaseException:
            await self.down()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End it."""
        await self.down()

    @property
    def state(self) -> StackState:
        """What the state file says now.

        Raises:
            StackError: the stack was not brought up.
        """
        plan = self._blueprint
        if plan is None:
            raise StackError("the stack is not up")
        return StackState(
            directory=plan.directory,
            tag=self.tag,
            supervisor_pid=os.getpid(),
            supervisor_started=started_ticks(os.getpid()) or 0,
            started_at=self._started_at,
            phase=self._phase,
            engine=self.options.engine,
            temporal_address=plan.temporal_address,
            temporal_ui_url=plan.temporal_ui_url,
            gateway_url=plan.gateway_url,
            gateways=tuple(plan.gateway_urls.values()) if self.options.gateways > 1 else (),
            admin_token_file=plan.token_file,
            audit_url=plan.audit_url,
            route=ROUTE,
            model=MODEL,
            replicas=plan.replicas(),
            embeddings_url=plan.embeddings_url(),
            ports=plan.ports,
            processes=tuple(member.snapshot() for member in self._members.values()),
            events_log=self.events_log,
        )

    @property
    def is_owner(self) -> bool:
        """Tell whether this stack has its state directory, and so anything to take down."""
        return self._lock is not None

    async def up(self) -> None:
        """Start everything and wait until a token came through the gateway.

        On an error call `down`; `async with` does.

        Raises:
            StackBusy: another supervisor runs from this directory.
            ProcessFailed: a process did not come up; the message ends with its log.
            StackError: something is missing.
        """
        self._lock = DirectoryLock(self.options.directory)
        before = await asyncio.to_thread(self._clear_remains)
        python = None
        if self.options.engine is EngineKind.VLLM:
            python = await install_vllm(self.events_log.parent, self.tag, self._events)
        self._prepare(before, python)
        await self._start_in_order()
        await self._through_the_gateway()
        self._phase = "ready"
        self._save()
        self._note(f"ready after {time.time() - self._started_at:.1f} s")

    async def down(self) -> None:
        """End every process, and prove it; safe at any time, and more than once.

        Raises:
            StackError: a process of the stack outlived even a kill.
        """
        if self._lock is None:
            return
        self._phase = "stopping"
        first = [m for n, m in self._members.items() if kind_of(n) in {"traffic", "worker"}]
        rest = [m for m in self._members.values() if m not in first]
        await asyncio.gather(*(member.stop() for member in first))
        await asyncio.gather(*(member.stop() for member in rest))
        await asyncio.to_thread(reaper.sweep, self.tag)
        left = reaper.tagged_pids(self.tag)
        self._phase = "stopped"
        self._save()
        self._note("down" if not left else f"left behind: {sorted(left)}")
        self._ports.release()
        self._lock.release()
        self._lock = None
        if left:
            raise StackError(f"processes {sorted(left)} of the stack do not die")

    def hurry(self) -> None:
        """Kill everything now; `down` then has nothing left to wait for."""
        reaper.sweep(self.tag)

    async def kill(
        self, names: str | Sequence[str], number: signal.Signals = signal.SIGKILL
    ) -> None:
        """Send a signal to processes, as a crash would: past their guards, all at once.

        SIGKILL waits until they are gone. With restarts on, they then come back by themselves.
        """
        wanted = [names] if isinstance(names, str) else list(names)
        await asyncio.gather(*(self._member(name).kill(number) for name in wanted))

    async def start(self, name: str) -> None:
        """Start a process that is down, and wait until it is ready.

        Raises:
            ProcessFailed: it did not come up.
        """
        await self._member(name).start()

    async def stop(self, name: str) -> None:
        """End one process politely and keep it down."""
        await self._member(name).stop()

    async def restart(self, name: str) -> None:
        """End one process politely, start it again and wait until it is ready.

        Raises:
            ProcessFailed: it did not come up.
        """
        await self.stop(name)
        await self.start(name)

    async def wait_ready(self, name: str) -> None:
        """Wait until a process, or its successor after a crash, is ready.

        Raises:
            ProcessFailed: it is down and will not come back.
        """
        await self._member(name).wait_ready()

    def _member(self, name: str) -> Member:
        try:
            return self._members[name]
        except KeyError:
            raise StackError(f"no process is called {name!r}: {sorted(self._members)}") from None

    def _clear_remains(self) -> dict[str, int]:
        """Kill what a killed supervisor may have left; return the ports it used."""
        self.events_log.parent.mkdir(parents=True, exist_ok=True)
        with suppress(StackError):
            old = load_state(self.options.directory, running=False)
            if old is not None:
                reaper.sweep(old.tag)
                return old.ports
        return {}

    def _prepare(self, before: dict[str, int], python: Path | None) -> None:
        """Claim ports, write token and configuration, and make the members."""
        options = self.options
        try:
            ports = claim_ports(self._ports, options, before)
            token_file = write_token(options.directory)
            self._blueprint = Blueprint(options, ports, token_file, python)
            self._blueprint.write_gateway_configs()
            specs = self._blueprint.processes()
            for spec in specs.values():
                if spec.log.exists():
                    spec.log.replace(spec.log.with_suffix(".log.1"))
        except OSError as error:
            raise StackError(f"cannot prepare {options.directory}: {error}") from error
        for name, spec in specs.items():
            check = self._check_of(name)
            member = Member(spec, self.tag, check, self._events, self._save)
            member.restart_on_exit = options.restart
            self._members[name] = member
        self._note(f"engine {options.engine.loud}, state in {options.directory}")
        self._save()

    def _check_of(self, name: str) -> readiness.Check:
        plan = self._plan()

        async def check(process: Guarded) -> None:
            if name == "temporal":
                await readiness.temporal_ready(plan.temporal_address)
            elif name in plan.gateway_urls:
                await readiness.answers_get(plan.gateway_urls[name], "/readyz")
                if self._members[name].has_been_ready:
                    await self._say_dropped(name)
            elif name == "worker":
                await readiness.says(process, "worker ready")
            elif kind_of(name) == "traffic":
                await readiness.says(process, '"driving"')
            elif name == EMBEDDINGS_PROCESS:
                await readiness.answers_a_vector(plan.embeddings_url())
            else:
                await readiness.answers_a_token(plan.replicas()[name.removeprefix("engine-")])

        return check

    async def _start_in_order(self) -> None:
        """Start each process once those it needs are ready; the first failure wins."""
        started: dict[str, asyncio.Task[None]] = {}

        async def begin(name: str) -> None:
            if name == "worker":
                await readiness.port_opens(self._plan().ports["temporal"])
            if kind_of(name) == "traffic":
                for other, task in started.items():
                    if kind_of(other) != "traffic":
                        await asyncio.shield(task)
            await self._members[name].start()

        for name in self._members:
            started[name] = asyncio.create_task(begin(name), name=f"start {name}")
        try:
            await asyncio.gather(*started.values())
        finally:
            for task in started.values():
                task.cancel()
            await asyncio.gather(*started.values(), return_exceptions=True)

    async def _through_the_gateway(self) -> None:
        """Ask for one token through the gateway, labelled so that it counts nowhere."""
        plan = self._plan()
        token = plan.token_file.read_text("utf-8").strip()
        probe = {"x-burnproof-probe": token}
        limit = 60.0
        try:
            async with asyncio.timeout(limit):
                for url in plan.gateway_urls.values():
                    await readiness.answers_a_token(url, probe)
        except TimeoutError:
            raise StackError(
                f"no token came through the gateway within {limit:g} s: see {plan.log_dir}"
            ) from None

    async def _say_dropped(self, name: str) -> None:
        """Write down which leases a gateway that came back has dropped."""
        plan = self._plan()
        admin = await asyncio.to_thread(_admin, plan.gateway_urls[name], plan.token_file)
        try:
            dropped = (await admin.state()).get("dropped_at_start", [])
        finally:
            await admin.aclose()
        text = f"it came back without any fault; leases dropped: {dropped or 'none were open'}"
        self._events.say(name, EventKind.NOTE, text)

    def _plan(self) -> Blueprint:
        if self._blueprint is None:
            raise StackError("the stack is not up")
        return self._blueprint

    def _note(self, text: str) -> None:
        self._events.say(STACK, EventKind.NOTE, text)

    def _save(self) -> None:
        if self._blueprint is not None:
            save_state(self.state)


def _admin(url: str, token_file: Path) -> Any:
    """Make the admin client; imported late, since only a restart needs it."""
    from targets.gateway_admin import GatewayAdmin

    return GatewayAdmin(url, token_file.read_text("utf-8").strip())
