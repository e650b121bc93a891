"""One stack for many cases at once: a lane is a route, a Temporal namespace, an audit database and
traffic of its own, over the same Temporal server, gateway and SIMULATED engines.

A case gets a free lane and may do what it likes to the workers there; it must not touch what the
lanes share. Cases that kill the server or the gateway have a stack to themselves. The processes of
a world carry its tag, so that one sweep ends them all, whatever a failed case left.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from api import client as facade
from api.stack import reaper
from api.stack.options import EngineKind, StackOptions, TrafficKind
from api.stack.supervisor import LocalStack
from audit.store import AuditStore
from settings import TemporalSettings
from targets.gateway_admin import GatewayAdmin
from tests.kill.nursery import REACHED
from workflows import ids

ROOT = Path(__file__).resolve().parents[2]
CASE_SECONDS = 170.0
"""Longest case, on a busy machine; most need 10 to 30 s."""
RATE = 12.0
"""Requests a second on each lane."""

Json = dict[str, Any]


async def until(
    condition: Callable[[], bool | Awaitable[bool]], what: str, seconds: float = 60.0
) -> float:
    """Poll until it holds; return the seconds it took, or fail."""
    begin = time.monotonic()
    while True:
        held = condition()
        if not isinstance(held, bool):
            held = await held
        if held:
            return time.monotonic() - begin
        assert time.monotonic() - begin < seconds, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(0.05)


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


@dataclass(frozen=True)
class Point:
    """A place in a run: just before or just after the work of an activity."""

    activity: str
    when: str
    stream: str = ""

    def __str__(self) -> str:
        return f"{self.when} {self.activity} {self.stream}".strip().replace(" ", "-")


class Nursery:
    """Starts real workers by forking one process that has imported everything."""

    def __init__(self, directory: Path, tag: str) -> None:
        self._directory = directory
        self._count = 0
        with (directory / "nursery.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.kill.nursery"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, reaper.TAG_VARIABLE: tag, "OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,
            )
        self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode().strip()
        assert line, (self._directory / "nursery.log").read_text()
        return line

    def fork(self, env: Json, point: Point | None, bad: bool) -> "Worker":
        """Start a worker; does not wait until it is ready."""
        self._count += 1
        log = self._directory / f"worker-{self._count}.log"
        gate = None
        if point is not None:
            gate = {"activity": point.activity, "when": point.when, "stream": point.stream}
        order = {"log": str(log), "env": env, "gate": gate, "bad": bad}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        return Worker(int(self._read()), log)

    def close(self) -> None:
        """End it and its children."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class Worker:
    """One worker process."""

    def __init__(self, pid: int, log: Path) -> None:
        self.pid = pid
        self.log = log

    def says(self, words: str) -> bool:
        """Tell whether it has written these words."""
        written = self.log.read_text() if self.log.exists() else ""
        assert words in written or is_alive(self.pid), f"worker died: {written[-3000:]}"
        return words in written

    async def ready(self) -> None:
        """Wait until it works."""
        await until(lambda: self.says("worker ready"), "worker ready")

    async def reached(self) -> None:
        """Wait until its gate is reached."""
        await until(lambda: self.says(REACHED), "the gate", 90)

    def release(self) -> None:
        """Let the gated activity go on."""
        Path(f"{self.log}.release").touch()

    async def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal; wait for its end."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
        await until(lambda: not is_alive(self.pid), f"end of worker {self.pid}", 30)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal and go on."""
        os.kill(self.pid, number)


@dataclass
class Lane:
    """One route and everything that belongs to it alone."""

    name: str
    env: Json
    client: Client
    store: AuditStore
    admin: GatewayAdmin
    admin_log: Path
    nursery: Nursery
    tag: str
    directory: Path
    workers: list[Worker] = field(default_factory=list)
    commands: "list[subprocess.Popen[bytes]]" = field(default_factory=list)
    traffic: "subprocess.Popen[bytes] | None" = None

    @property
    def hold(self) -> str:
        """Key of the route's hold."""
        return f"route/{self.name}"

    def worker(self, point: Point | None = None, *, bad: bool = False) -> Worker:
        """Start a worker, with a gate if asked."""
        self.workers.append(self.nursery.fork(self.env, point, bad))
        return self.workers[-1]

    def drive(self, rate: float = RATE) -> None:
        """Start the traffic of the lane."""
        argv = [sys.executable, "-m", "traffic", "--url", self.env["BURNPROOF_GATEWAY_URL"]]
        argv += ["--model", self.name, "--rate", f"{rate:g}", "--max-tokens", "4", "--single"]
        argv += ["--duration", "7200", "--die-with-parent"]
        with (self.directory / f"traffic-{self.name}.log").open("ab") as log:
            self.traffic = subprocess.Popen(
                argv,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, reaper.TAG_VARIABLE: self.tag},
                start_new_session=True,
            )

    def quiet(self) -> None:
        """End the traffic of the lane."""
        if self.traffic is not None:
            self.traffic.kill()
            self.traffic.wait()
            self.traffic = None

    def acts(self, run_id: str) -> list[Json]:
        """Return what the gateway has written about a run, in order."""
        found: list[Json] = []
        if not self.admin_log.exists():
            return found
        for line in self.admin_log.read_text().splitlines():
            with contextlib.suppress(ValueError):  # the last line may be half written
                entry = json.loads(line)
                if run_id in {entry.get("run_id"), str(entry.get("lease_id"))[: len(run_id)]}:
                    found.append(entry)
        return found

    async def sweep(self) -> None:
        """Run the scheduled sweep now, and wait until it has run."""
        handle = self.client.get_schedule_handle(ids.SWEEP_SCHEDULE)
        before = (await handle.describe()).info.num_actions
        await handle.trigger()

        async def ran() -> bool:
            info = (await handle.describe()).info
            return info.num_actions > before and not info.running_actions

        await until(ran, "the sweep", 60)

    async def clear(self) -> None:
        """Put the lane back, whatever the last case left."""
        for workflow_id in await facade.open_experiments(self.client):
            with contextlib.suppress(RPCError):
                await self.client.get_workflow_handle(workflow_id).terminate()
        for one in self.workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)
        self.workers.clear()
        for command in self.commands:
            command.kill()
            command.wait()
        self.commands.clear()
        for lease in await self.admin.open_leases():
            if lease["route"] == self.name:
                await self.admin.close_lease(lease["lease_id"])
        if self.traffic is None:
            self.drive()


Case = Callable[[Lane], Awaitable[None]]


class World:
    """A stack with lanes."""

    def __init__(self, directory: Path, lanes: int) -> None:
        self.directory = directory
        self.tag = f"burnproof-kill-{uuid.uuid4().hex[:8]}"
        self._names = [f"lane-{index + 1}" for index in range(lanes)]
        self.stack = LocalStack(
            StackOptions(
                directory=directory / "stack",
                engine=EngineKind.SIMULATED,
                engine_args=("--max-loras", "20", "--ttft-ms", "5", "--itl-ms", "1"),
                traffic=TrafficKind.NONE,
                ui=False,
                restart=False,
            )
        )
        self.lanes: list[Lane] = []
        self.figures: dict[str, list[float]] = {}
        self._free: asyncio.Queue[Lane] = asyncio.Queue()
        self._hung: subprocess.Popen[bytes] | None = None
        self.hung_url = ""

    async def __aenter__(self) -> "World":
        try:
            await self._up()
        except BaseException:
            await self._down()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._down()
        for name, seconds in sorted(self.figures.items()):
            shown = ", ".join(f"{value:.1f}" for value in sorted(seconds))
            sys.stderr.write(f"measured: {name}: {shown} s\n")

    async def _up(self) -> None:
        nursery = asyncio.create_task(asyncio.to_thread(Nursery, self.directory, self.tag))
        await self.stack.up()
        await self.stack.stop("worker")
        self._start_hung_engine()
        await self._add_routes()
        self.nursery = await nursery
        self.lanes = list(await asyncio.gather(*(self._lane(name) for name in self._names)))
        for lane in self.lanes:
            lane.drive()
            self._free.put_nowait(lane)

    def _start_hung_engine(self) -> None:
        """Start an engine that says it is healthy and never completes anything."""
        argv = [sys.executable, "-m", "simulated_engine", "--port", "0", "--name", "sim-hung"]
        self._hung = subprocess.Popen(
            [*argv, "--hang-completions", "--die-with-parent", "--model", "hung"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, reaper.TAG_VARIABLE: self.tag},
            start_new_session=True,
        )
        assert self._hung.stdout is not None
        port = json.loads(self._hung.stdout.readline())["port"]
        self.hung_url = f"http://127.0.0.1:{port}"

    async def _add_routes(self) -> None:
        """Give each lane a route to the same two engines: a model of its own is an adapter."""
        adapter = self.directory / "adapter"
        adapter.mkdir()
        (adapter / "adapter_config.json").write_text("{}")
        state = self.stack.state
        async with httpx.AsyncClient(trust_env=False, timeout=20) as http:
            for url in state.replicas.values():
                for name in (*self._names, "hung"):
                    body = {"lora_name": name, "lora_path": str(adapter)}
                    answer = await http.post(f"{url}/v1/load_lora_adapter", json=body)
                    answer.raise_for_status()
        path = state.directory / "gateway.json"
        config = json.loads(path.read_text())
        replicas = config["routes"][0]["replicas"]
        # The breaker stays out of the way until a remedy tightens it.
        breaker = {"threshold_ratio": 0.9, "window": 60, "min": 20}
        config["routes"] += [
            {"name": name, "models": [name], "replicas": replicas, "breaker": breaker}
            for name in self._names
        ]
        hung = [replicas[0], {"name": "b", "url": self.hung_url}]
        config["routes"].append({"name": "hung", "models": ["hung"], "replicas": hung})
        path.write_text(json.dumps(config))
        await self.stack.restart("gateway")

    async def _lane(self, name: str) -> Lane:
        state = self.stack.state
        store = AuditStore(f"sqlite:///{self.directory / name}.db")
        await asyncio.to_thread(store.upgrade)
        client = await open_namespace(state.temporal_address, name)
        env = {
            **state.environment(),
            "BURNPROOF_TEMPORAL_NAMESPACE": name,
            "BURNPROOF_AUDIT_URL": f"sqlite:///{self.directory / name}.db",
            "BURNPROOF_WORKER_POLL_SECONDS": "0.4",
            "BURNPROOF_STACK_DIR": str(self.directory / "no-stack-here"),
        }
        return Lane(
            name=name,
            env=env,
            client=client,
            store=store,
            admin=GatewayAdmin(state.gateway_url, state.admin_token_file.read_text().strip()),
            admin_log=state.directory / "journal" / "admin.jsonl",
            nursery=self.nursery,
            tag=self.tag,
            directory=self.directory,
        )

    async def _down(self) -> None:
        for lane in self.lanes:
            lane.quiet()
            await lane.admin.aclose()
            lane.store.close()
        if hasattr(self, "nursery"):
            self.nursery.close()
        if self._hung is not None:
            self._hung.kill()
            self._hung.wait()
            assert self._hung.stdout is not None
            self._hung.stdout.close()
        await asyncio.to_thread(reaper.sweep, self.tag)
        await self.stack.down()

    def measured(self, name: str, seconds: float) -> None:
        """Keep a measured time for the table that is printed at the end."""
        self.figures.setdefault(name, []).append(seconds)

    async def each(self, cases: Mapping[str, Case]) -> None:
        """Run cases side by side, each on a lane of its own; report all that fail."""
        failed: dict[str, str] = {}

        async def run(name: str, case: Case) -> None:
            lane = await self._free.get()
            begin = time.monotonic()
            try:
                async with asyncio.timeout(CASE_SECONDS):
                    await case(lane)
            except Exception:
                failed[name] = f"on {lane.name}: {traceback.format_exc(limit=-4)}"
                sys.stderr.write(f"{name} {failed[name]}\n")
            took = time.monotonic() - begin
            sys.stderr.write(f"  {took:5.1f} s  {name}{'  FAILED' if name in failed else ''}\n")
            try:
                await lane.clear()
            except Exception:  # the case's own failure says more than that of the clean-up
                failed.setdefault(name, f"not cleared: {traceback.format_exc(limit=-4)}")
            self._free.put_nowait(lane)

        await asyncio.gather(*(run(name, case) for name, case in cases.items()))
        text = "\n".join(f"--- {name}\n{why}" for name, why in failed.items())
        assert not failed, f"{len(failed)} of {len(cases)} cases failed:\n{text}"


async def open_namespace(address: str, name: str) -> Client:
    """Register a Temporal namespace with everything our workflows need, and connect to it."""
    client = await facade.connect(TemporalSettings(address=address, namespace="default"))
    day = Duration(seconds=86_400)
    with contextlib.suppress(RPCError):
        await client.workflow_service.register_namespace(
            RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=day)
        )
    client = await facade.connect(TemporalSettings(address=address, namespace=name))

    async def usable() -> bool:
        try:
            await facade.ensure_search_attributes(client)
            await facade.ensure_sweep(client)
            await facade.open_experiments(client)
        except RPCError:  # the server's caches learn of a new namespace within seconds
            return False
        return True

    await until(usable, f"namespace {name}", 60)
    return client
