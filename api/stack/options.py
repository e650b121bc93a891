"""What a local stack is asked to be: which engine, how many replicas, how much traffic, where.

Plain frozen values with their checks; nothing is started or looked up here but the default state
directory, which comes from the environment since every command has to find the same stack.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from api.stack.errors import StackError

STATE_VARIABLE = "BURNPROOF_STACK_DIR"
AUDIT_FILE = "audit.db"
"""Name of the audit database in the state directory; it stays when the stack goes."""
ROUTE = "chat"
MODEL = "tiny-chat"
LABELS = {"tier": "chat"}
EMBEDDINGS_ROUTE = "embeddings"
EMBEDDINGS_MODEL = "tiny-embed"
EMBEDDINGS_PROCESS = "engine-embeddings"
MAX_GATEWAYS = 4
"""Enough to see what several do; each is a process on this one machine."""

MAX_REPLICAS = 26
"""Replicas are named by one letter."""


class EngineKind(StrEnum):
    """What answers the requests."""

    VLLM = "vllm"
    SIMULATED = "simulated"

    @property
    def loud(self) -> str:
        """Return the name for people: nobody shall take a simulation for the real engine."""
        return "SIMULATED" if self is EngineKind.SIMULATED else self.value


class TrafficKind(StrEnum):
    """What the traffic driver sends."""

    SINGLE = "single"
    """Each request stands alone."""
    CONVERSATIONS = "conversations"
    """Conversations of a geometric number of requests."""
    NONE = "none"
    """No driver at all."""


def default_directory() -> Path:
    """Return where the state lies: BURNPROOF_STACK_DIR, else below the user's state folder."""
    given = os.environ.get(STATE_VARIABLE)
    if given:
        return Path(given).expanduser().absolute()
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser().absolute() / "burnproof" / "stack"


@dataclass(frozen=True)
class StackOptions:
    """Everything a stack is started with."""

    directory: Path = field(default_factory=default_directory)
    """State directory: state file, logs, databases, token. One stack for each."""
    engine: EngineKind = EngineKind.VLLM
    replicas: int = 2
    """Engine processes: a is the control arm, the others may be the chaos arm. vLLM: 2 at most."""
    engine_args: tuple[str, ...] = ()
    """More options for every engine process."""
    replica_args: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """More options for one replica, by its letter."""
    gateways: int = 1
    """Gateways before the same engines; the traffic is shared between them."""
    embeddings: bool = False
    """One more engine that answers embeddings, on a route of its own that carries no traffic."""
    traffic: TrafficKind = TrafficKind.SINGLE
    rate: float = 20.0
    """Requests a second. Default 20: two real replicas on two cores keep up with it."""
    max_tokens: int = 4
    """Tokens a request asks for. Default 4: the A/A example's bound."""
    seed: int = 1
    client_records: bool = False
    """Keep the driver's own records (about 1 GB a day at 20 requests a second)."""
    ui: bool = True
    """Temporal's Web UI."""
    restart: bool = True
    """Start again what crashes. Off: a killed process stays down until `start`."""
    env: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """More environment by process name; "*" goes to all of them."""

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            StackError: with the sentence to show.
        """
        object.__setattr__(self, "directory", self.directory.expanduser().absolute())
        if not 1 <= self.replicas <= MAX_REPLICAS:
            raise StackError(f"replicas must lie in [1, {MAX_REPLICAS}], not {self.replicas}")
        if not 1 <= self.gateways <= MAX_GATEWAYS:
            raise StackError(f"gateways must lie in [1, {MAX_GATEWAYS}], not {self.gateways}")
        if self.engine is EngineKind.VLLM and self.replicas > 2:
            raise StackError(
                f"{self.replicas} replicas of vLLM do not fit on one machine: use at most 2, "
                "or --engine simulated"
            )
        if not self.rate > 0 or self.rate == float("inf"):
            raise StackError(
                f"the rate must be a number of requests a second above 0, not {self.rate:g}"
            )
        if self.max_tokens < 1:
            raise StackError(f"a request must ask for 1 token at least, not {self.max_tokens}")
        unknown = (set(self.env) - {"*"}) - set(self.processes())
        if unknown:
            raise StackError(f"no process is called {sorted(unknown)[0]!r}")
        strangers = set(self.replica_args) - set(self.letters())
        if strangers:
            raise StackError(f"no replica is called {sorted(strangers)[0]!r}")

    def letters(self) -> list[str]:
        """Return the replicas' names: a, b, ..."""
        return [chr(ord("a") + index) for index in range(self.replicas)]

    def gateway_names(self) -> list[str]:
        """Return the gateways' names: gateway, gateway-2, ..."""
        return numbered("gateway", self.gateways)

    def processes(self) -> list[str]:
        """Return the names of all processes, in the order in which they are shown."""
        engines = [f"engine-{letter}" for letter in self.letters()]
        if self.embeddings:
            engines.append(EMBEDDINGS_PROCESS)
        drivers = [] if self.traffic is TrafficKind.NONE else numbered("traffic", self.gateways)
        return ["temporal", *engines, *self.gateway_names(), "worker", *drivers]


def numbered(kind: str, count: int) -> list[str]:
    """Return names of processes of one kind: kind, kind-2, ..."""
    return [kind, *(f"{kind}-{number}" for number in range(2, count + 1))]


def kind_of(name: str) -> str:
    """Return the kind of a process: its name without a number or a letter."""
    return name.partition("-")[0]
