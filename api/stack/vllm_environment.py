"""Where the real engine's own environment is, and how it gets there.

`deploy/vllm/install.sh` owns the recipe and names its folder by a digest of itself; running it
costs nothing when the environment is there. To *look* without installing (`burnproof doctor`), the
digest is computed here in the same way; a test holds the two together.
"""

import asyncio
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from api.stack import reaper
from api.stack.blueprint import ROOT
from api.stack.errors import NotInstalled, log_tail
from api.stack.events import EventKind, EventLog

INSTALL = ROOT / "deploy" / "vllm" / "install.sh"
HOME_VARIABLE = "BURNPROOF_VLLM_HOME"
NAME = "vllm-install"
_GRACE_SECONDS = 3.0


def installed_python() -> Path | None:
    """Return the Python of vLLM's environment, or None where it is not (wholly) installed."""
    digest = recipe_digest()
    if digest is None:
        return None
    home = vllm_home(digest)
    python = home / "venv" / "bin" / "python"
    try:
        stamp = (home / "installed").read_text("utf-8").strip()
    except OSError:
        return None
    return python if stamp == digest and os.access(python, os.X_OK) else None


def vllm_home(digest: str) -> Path:
    """Return the folder of the environment made by the recipe with this digest."""
    given = os.environ.get(HOME_VARIABLE)
    if given:
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "burnproof" / f"vllm-{digest}"


def recipe_digest() -> str | None:
    """Return the digest of install.sh, its requirements and Python's version, as it computes it."""
    python = shutil.which(os.environ.get("PYTHON") or "python3")
    if python is None or not INSTALL.exists():
        return None
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
    requirements = (INSTALL.parent / "requirements.txt").read_bytes()
    content = INSTALL.read_bytes() + requirements + done.stdout.strip().encode() + b"\n"
    return hashlib.sha256(content).hexdigest()[:12]


async def install_vllm(log_dir: Path, tag: str, events: EventLog) -> Path:
    """Install vLLM unless it is there, showing each line of progress; return its Python.

    Raises:
        NotInstalled: it could not be; the message ends with what install.sh said.
    """
    if not INSTALL.exists():
        raise NotInstalled(
            f"the real engine needs {INSTALL}, which is not part of this installation: "
            "work from a checkout, or use --engine simulated"
        )
    log = log_dir / f"{NAME}.log"
    guard = reaper.guarded_argv(["bash", str(INSTALL)], f"{tag}/{NAME}", grace_s=_GRACE_SECONDS)
    process = await asyncio.create_subprocess_exec(
        *guard,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        last = await _follow(process, log, events)
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    if code != 0:
        raise NotInstalled(f"vLLM could not be installed:\n{log_tail(log)}\nWhole log: {log}")
    return Path(last)


async def _follow(process: asyncio.subprocess.Process, log: Path, events: EventLog) -> str:
    """Copy progress to the log and the events; return the last line of its output."""
    if process.stdout is None or process.stderr is None:
        raise NotInstalled("install.sh has no output")  # pipes were asked for above
    output = asyncio.create_task(process.stdout.read())
    try:
        with log.open("wb") as file:
            async for line in process.stderr:
                file.write(line)
                file.flush()
                text = line.decode("utf-8", "replace").rstrip()
                events.say(NAME, EventKind.NOTE, text)
        return (await output).decode().strip().rpartition("\n")[2]
    finally:
        output.cancel()
