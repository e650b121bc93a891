"""The state file: how every other command finds the running stack, and how we know it runs.

Written whole and atomically at each change, by the supervisor only. The supervisor is known by its
pid *and* the time at which the kernel started it, since a pid is used again. A lock on a file
beside it, which the kernel frees with its owner, keeps a second supervisor out; the state file of
one that was killed stays behind and is not believed.
"""

import fcntl
import os
import secrets
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ValidationError

from api.stack.errors import StackBusy, StackError
from api.stack.options import EngineKind, default_directory

STATE_FILE = "state.json"
_LOCK_FILE = "lock"
_TOKEN_FILE = "gateway-token"
_TOKEN_BYTES = 32

Phase = Literal["starting", "ready", "stopping", "stopped"]


class ProcessState(BaseModel, frozen=True):
    """One process as it was at the last change."""

    name: str
    state: Literal["waiting", "starting", "ready", "down", "failed", "stopped"]
    pid: int | None = None
    """The process itself; None while it is down."""
    guard_pid: int | None = None
    restarts: int = 0
    port: int | None = None
    ready_after_seconds: float | None = None
    log: Path


class StackState(BaseModel, frozen=True):
    """What a stack says of itself."""

    version: Literal[1] = 1
    directory: Path
    tag: str
    """Every process of the stack carries it; see `api.stack.reaper`."""
    supervisor_pid: int
    supervisor_started: int
    """When the kernel started the supervisor, in clock ticks since boot."""
    started_at: float
    """Unix seconds."""
    phase: Phase
    engine: EngineKind
    temporal_address: str
    temporal_ui_url: str
    """Empty without a Web UI."""
    gateway_url: str
    gateways: tuple[str, ...] = ()
    """Addresses of all gateways where there are several; `gateway_url` is the first."""
    admin_token_file: Path
    audit_url: str
    route: str
    model: str
    replicas: dict[str, str]
    """Engine addresses by replica name."""
    embeddings_url: str = ""
    """The engine that answers embeddings; empty without one."""
    ports: dict[str, int]
    processes: tuple[ProcessState, ...]
    events_log: Path

    def environment(self) -> dict[str, str]:
        """Return the settings with which any command or worker reaches this stack."""
        return {
            "BURNPROOF_TEMPORAL_ADDRESS": self.temporal_address,
            "BURNPROOF_TEMPORAL_NAMESPACE": "default",
            "BURNPROOF_TEMPORAL_UI_URL": self.temporal_ui_url,
            "BURNPROOF_GATEWAY_URL": ",".join(self.gateways or (self.gateway_url,)),
            "BURNPROOF_GATEWAY_ADMIN_TOKEN_FILE": str(self.admin_token_file),
            "BURNPROOF_AUDIT_URL": self.audit_url,
            "BURNPROOF_WORKER_ENGINE": self.engine.value,
        }

    def process(self, name: str) -> ProcessState:
        """Return one process.

        Raises:
            KeyError: there is none of that name.
        """
        for found in self.processes:
            if found.name == name:
                return found
        raise KeyError(name)

    def is_running(self) -> bool:
        """Tell whether the supervisor that wrote this still lives, and has not taken it down."""
        if self.phase == "stopped":
            return False
        return started_ticks(self.supervisor_pid) == self.supervisor_started


def load_state(directory: Path | None = None, *, running: bool = True) -> StackState | None:
    """Return the stack of a state directory; None where none runs.

    Args:
        directory: the default one if None.
        running: False also returns what a stopped or killed stack left written, for its databases.

    Raises:
        StackError: the file cannot be read or is no state file.
    """
    path = (directory or default_directory()) / STATE_FILE
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StackError(f"cannot read {path}: {error.strerror}") from error
    try:
        state = StackState.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise StackError(
            f"{path} is no state file of this version ({place or 'document'}: {first['msg']}): "
            "remove it, and start again with `burnproof up`"
        ) from error
    return state if state.is_running() or not running else None


def save_state(state: StackState) -> None:
    """Write the file, whole or not at all."""
    path = state.directory / STATE_FILE
    partial = path.with_suffix(f".{os.getpid()}.part")
    partial.write_text(state.model_dump_json(indent=2) + "\n", "utf-8")
    partial.replace(path)


def started_ticks(pid: int) -> int | None:
    """Return when the kernel started a process, clock ticks since boot; None if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name may hold spaces and brackets, so fields count from the last bracket.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])  # Source: proc(5), field 22


class DirectoryLock:
    """The right to run a stack from one state directory; freed when its owner dies."""

    def __init__(self, directory: Path) -> None:
        """Take it.

        Raises:
            StackBusy: another supervisor has it; the message says which.
            StackError: the directory cannot be made or written.
        """
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._descriptor = os.open(
                directory / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise StackError(f"cannot use {directory}: {error.strerror}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise StackBusy(_who_has(directory)) from None

    def release(self) -> None:
        """Let the next one in."""
        os.close(self._descriptor)


def _who_has(directory: Path) -> str:
    try:
        state = load_state(directory)
    except StackError:
        state = None
    if state is None:
        return f"a stack is just starting or stopping in {directory}: try again in a moment"
    return (
        f"a stack already runs from {directory} (supervisor pid {state.supervisor_pid}, engine "
        f"{state.engine.loud}, gateway {state.gateway_url}): look with `burnproof status`, end it "
        "with `burnproof down`, or give another --state-dir"
    )


def write_token(directory: Path) -> Path:
    """Make a fresh admin token that only this user can read, and return its file."""
    path = directory / _TOKEN_FILE
    partial = directory / f"{_TOKEN_FILE}.part"
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(_TOKEN_BYTES) + "\n")
    partial.replace(path)
    return path
