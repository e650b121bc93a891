"""What this machine lacks for a local stack, and the command that mends each lack.

Looks only; installs and starts nothing that lasts. A check that needs the running stack (gateway
token) says so where none runs.
"""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
from sqlalchemy.exc import SQLAlchemyError

from api.stack.blueprint import temporal_binary
from api.stack.errors import NotInstalled, StackError
from api.stack.options import EngineKind
from api.stack.ports import Ports
from api.stack.state import load_state
from api.stack.vllm_environment import INSTALL, installed_python
from audit.errors import AuditError
from audit.store import AuditStore

_GIB = 1024**3
DISK_GIB = {EngineKind.VLLM: 5.0, EngineKind.SIMULATED: 0.5}
"""Source: measured 2026-11: vLLM's environment has 2.5 GB; pip needs as much again for a while."""

MEMORY_GIB = {EngineKind.VLLM: 6.0, EngineKind.SIMULATED: 1.5}
"""Source: measured 2026-11: two replicas of 3 GB each at most, the rest 0.6 GB."""

PORTS_NEEDED = 6
_MIN_PYTHON = (3, 11)
_RUN_SECONDS = 20.0


@dataclass(frozen=True)
class Finding:
    """What one check found."""

    name: str
    is_ok: bool
    detail: str
    mend: str = ""
    """A command for a shell; empty where all is well."""


def examine(directory: Path, engine: EngineKind) -> list[Finding]:
    """Run every check."""
    checks: list[Callable[[], Finding]] = [
        _python,
        _linux,
        _temporal,
        _ports,
        lambda: _vllm(engine),
        lambda: _disk(directory, engine),
        lambda: _memory(engine),
        lambda: _state(directory),
        lambda: _token(directory),
        lambda: _database(directory),
    ]
    return [check() for check in checks]


def _python() -> Finding:
    found = ".".join(str(part) for part in sys.version_info[:3])
    ok = sys.version_info[:2] >= _MIN_PYTHON
    return Finding("python", ok, f"{found} at {sys.executable}", "make PYTHON=python3.11 setup")


def _linux() -> Finding:
    ok = sys.platform == "linux" and hasattr(os, "pidfd_open")
    detail = f"{sys.platform}, pidfd {'there' if ok else 'missing'}"
    return Finding("kernel", ok, detail, "run it on Linux 5.3 or newer (a container is fine)")


def _temporal() -> Finding:
    mend = "make setup"
    try:
        binary = temporal_binary()
        done = subprocess.run(
            [binary, "--version"],
            capture_output=True,
            text=True,
            timeout=_RUN_SECONDS,
            check=False,
        )
    except (NotInstalled, OSError, subprocess.TimeoutExpired) as error:
        return Finding("temporal", False, str(error), mend)
    words = (done.stdout or done.stderr).strip().partition("\n")[0]
    return Finding("temporal", done.returncode == 0, words, mend)


def _ports() -> Finding:
    ports = Ports()
    try:
        taken = [ports.take() for _ in range(PORTS_NEEDED)]
    except OSError as error:
        return Finding("ports", False, str(error), "ss -ltnp  # see what listens, and end it")
    finally:
        ports.release()
    return Finding("ports", True, f"{len(taken)} free ones on 127.0.0.1")


def _vllm(engine: EngineKind) -> Finding:
    python = installed_python()
    if python is not None:
        return Finding("vllm", True, str(python))
    if engine is EngineKind.SIMULATED:
        return Finding("vllm", True, "not installed, and not needed by the SIMULATED engine")
    if not INSTALL.exists():
        return Finding("vllm", False, f"no {INSTALL}", "git clone the repository and work there")
    detail = "its environment is not installed (2.5 GB, about 5 minutes)"
    return Finding("vllm", False, detail, f"bash {_shown(INSTALL)}")


def _disk(directory: Path, engine: EngineKind) -> Finding:
    place = next(p for p in [directory, *directory.parents] if p.exists())
    free = shutil.disk_usage(place).free / _GIB
    needed = DISK_GIB[engine]
    if engine is EngineKind.VLLM and installed_python() is not None:
        needed = DISK_GIB[EngineKind.SIMULATED]
    detail = f"{free:.1f} GiB free at {place}, {needed:g} needed"
    return Finding("disk", free >= needed, detail, f"df -h {place}  # and make room")


def _memory(engine: EngineKind) -> Finding:
    free, needed = psutil.virtual_memory().available / _GIB, MEMORY_GIB[engine]
    detail = f"{free:.1f} GiB available, {needed:g} needed"
    return Finding("memory", free >= needed, detail, "burnproof up --engine simulated")


def _state(directory: Path) -> Finding:
    try:
        state = load_state(directory)
    except StackError as error:
        return Finding("stack", False, str(error), f"rm {directory / 'state.json'}")
    if state is None:
        return Finding("stack", True, f"none runs from {directory}")
    return Finding("stack", True, f"runs, engine {state.engine.loud}, gateway {state.gateway_url}")


def _token(directory: Path) -> Finding:
    try:
        state = load_state(directory)
    except StackError:
        state = None
    if state is None:
        return Finding("gateway token", True, "made by `burnproof up`")
    path = state.admin_token_file
    mend = "burnproof down && burnproof up"
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        has_text = bool(path.read_text("utf-8").strip())
    except OSError as error:
        return Finding("gateway token", False, f"{path}: {error.strerror}", mend)
    if mode & 0o077:
        return Finding(
            "gateway token", False, f"{path} is open to others: {mode:o}", f"chmod 600 {path}"
        )
    return Finding("gateway token", has_text, f"{path}, mode {mode:o}", mend)


def _database(directory: Path) -> Finding:
    """Write and read a database of our schema in the place where the real one lies."""
    mend = f"mkdir -p {directory} && chmod u+rwx {directory}"
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=directory, prefix="doctor-") as place:
            store = AuditStore(f"sqlite:///{place}/audit.db")
            try:
                store.upgrade()
                store.list_holds()
            finally:
                store.close()
    except (OSError, AuditError, SQLAlchemyError) as error:
        return Finding("database", False, f"{directory}: {error}", mend)
    return Finding("database", True, f"writable in {directory}")


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
