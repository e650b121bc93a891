"""One demo and one stack for all pages: the demo runs both examples, the stack reads its trail."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.stack.helpers import Up

RATE = "40"
BIN = Path(sys.executable).parent
DEMO_SECONDS = 560.0
"""Four minutes on a quiet machine."""


def run(
    words: list[str] | str, directory: Path, seconds: float = 120.0
) -> subprocess.CompletedProcess[str]:
    """Run a command as a reader would, with our programs on the path; do not look at its code."""
    return subprocess.run(
        words,
        shell=isinstance(words, str),
        cwd=ROOT,
        env={
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "BURNPROOF_STACK_DIR": str(directory),
            "COLUMNS": "160",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """State directory that demo and stack share, one after the other."""
    return tmp_path_factory.mktemp("docs") / "stack"


@pytest.fixture(scope="session")
def demo(directory: Path) -> subprocess.CompletedProcess[str]:
    """`make demo` on the simulated engine: both examples, the trail, the replay."""
    words = [sys.executable, "deploy/demo.py", "--engine", "simulated", "--rate", RATE]
    return run([*words, "--state-dir", str(directory)], directory, DEMO_SECONDS)


@pytest.fixture(scope="session")
def stack(demo: subprocess.CompletedProcess[str], directory: Path) -> Iterator[Path]:
    """A stack on the trail that the demo left; gives its state directory."""
    up = Up(directory, ("--rate", RATE, "--no-ui"))
    up.start()
    try:
        up.wait_ready()
        yield directory
    finally:
        run(["burnproof", "down"], directory)
        up.clean()
