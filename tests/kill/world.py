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
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from activities.preflight import RATE_WINDOW_SECONDS
from api import client as facade
from api.stack import reaper
from api.stack.options import EngineKind, StackOptions, TrafficKind
from api.stack.supervisor import LocalStack
from audit.store import AuditStore
from settings import TemporalSettings
from targets.gateway_admin import GatewayAdmin
from tests.kill.workers import ROOT, Json, Nursery, Point, Worker, until
from workflows import ids

CASE_SECONDS = 170.0
"""Longest case, on a busy machine; most need 10 to 30 s."""
RATE = 12.0
"""Requests a second on each lane."""


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
        asked = 0.0

        async def ran() -> bool:
            nonlocal asked
            info = (await handle.describe()).info
            if info.num_actions > before:
                return not info.running_actions
            if time.monotonic() - asked > 5.0:  # one that meets another sweep is skipped
                asked = time.monotonic()
                await handle.trigger()
            return False

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
            await asyncio.sleep(RATE_WINDOW_SECONDS)  # or the next case is told of too little


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
        self._taking = asyncio.Lock()
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

    @asynccontextmanager
    async def instead_of(self, lanes: int) -> AsyncIterator[None]:
        """Take some lanes out of use, so that a stack of its own may run in their place."""
        async with self._taking:  # one after another: two that each got half would wait for ever
            taken = [await self._free.get() for _ in range(lanes)]
        for lane in taken:
            lane.quiet()
        try:
            yield
        finally:
            for lane in taken:
                await lane.clear()
                self._free.put_nowait(lane)

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
