"""One stack on real vLLM for the whole suite: its start costs a minute or two of imports."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from api.stack import reaper
from api.stack.state import StackState, load_state
from audit.store import AuditStore
from deploy.demo import RATE
from tests.stack.helpers import wait_for

ROOT = Path(__file__).resolve().parents[2]
BURNPROOF = str(Path(sys.executable).with_name("burnproof"))
UP_SECONDS = 600.0
"""A minute and a half on a quiet machine; the suites beside it may keep both cores busy."""
GONE_SECONDS = 20.0


@dataclass
class RealStack:
    """A running `burnproof up`, and the commands that a person would give."""

    directory: Path
    process: "subprocess.Popen[bytes]"
    codes: dict[str, int] = field(default_factory=dict)
    """Exit code of each example that was run."""
    verified: str = ""
    """What `faults verify --all` printed, once it was run."""

    @property
    def state(self) -> StackState:
        found = load_state(self.directory)
        assert found is not None, self.output()
        return found

    @property
    def store(self) -> AuditStore:
        return AuditStore(self.state.audit_url)

    def output(self) -> str:
        return (self.directory / "up.out").read_text("utf-8")[-4000:]

    def burnproof(self, *words: str, seconds: float = 120.0) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BURNPROOF, *words],
            cwd=ROOT,
            env={**os.environ, "BURNPROOF_STACK_DIR": str(self.directory), "COLUMNS": "200"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def run_of(self, name: str) -> str:
        """Return the id of the newest run of an example."""
        runs = self.store.history(100)  # newest first
        return next(row.run_id for row in runs if row.run_id.startswith(f"{name}-"))


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealStack]:
    directory = tmp_path_factory.mktemp("e2e") / "stack"
    directory.mkdir()
    with (directory / "up.out").open("wb") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "api.stack",
                "up",
                "--rate",
                f"{RATE:g}",
                "--no-ui",
                "--embeddings",
            ],
            cwd=ROOT,
            env={**os.environ, "BURNPROOF_STACK_DIR": str(directory)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    stack = RealStack(directory, process)

    def is_ready() -> bool:
        assert process.poll() is None, stack.output()
        found = load_state(directory)
        return found is not None and found.phase == "ready"

    try:
        wait_for(is_ready, UP_SECONDS, "real vLLM ready")
        yield stack
    finally:
        process.kill()
        process.wait()
        old = load_state(directory, running=False)
        if old is not None:
            wait_for(lambda: not reaper.tagged_pids(old.tag), GONE_SECONDS, "clean-up")
