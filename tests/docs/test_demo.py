"""`make demo` on the simulated engine, and the parts of it that a good run does not reach."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from api.stack.options import EngineKind, StackOptions
from api.stack.state import load_state
from deploy import demo as script
from tests.docs.pages import ROOT
from tests.stack.helpers import nothing_left

pytestmark = pytest.mark.timeout(600)


def test_the_demo_runs_every_example_to_pass_and_replays_equal(
    demo: subprocess.CompletedProcess[str], directory: Path
) -> None:
    assert demo.returncode == 0, demo.stdout[-4000:] + demo.stderr[-2000:]
    for name in script.EXAMPLES:
        assert f"burnproof run examples/{name}/experiment.yaml" in demo.stdout
    assert demo.stdout.count("PASS (exit 0)") == len(script.EXAMPLES)
    assert "both examples PASS, and the replay is equal" in demo.stdout
    assert re.search(r"\d+ runs, 0 differences", demo.stdout)
    assert "SIMULATED" in demo.stdout
    parts = demo.stdout[demo.stdout.index("minutes ") :]
    assert re.search(r"stall-the-chat-stream +\d+\.\d", parts)
    assert re.search(r"in all +\d+\.\d", parts)


def test_the_demo_runs_every_folder_of_examples() -> None:
    assert set(script.EXAMPLES) == {path.parent.name for path in ROOT.glob("examples/*/*.yaml")}


def test_the_demo_leaves_its_trail_and_no_process(
    demo: subprocess.CompletedProcess[str], directory: Path
) -> None:
    assert demo.returncode == 0
    address = f"sqlite:///{directory / 'audit.db'}"
    assert f"BURNPROOF_AUDIT_URL={address} burnproof history" in demo.stdout
    old = load_state(directory, running=False)
    assert old is not None
    # a later stack of these tests may already run from the same directory, under another tag
    assert old.phase == "stopped" or old.is_running()
    if not old.is_running():
        assert nothing_left(old)


class Scripted(script.Demo):
    """A demo whose commands end with the codes it is given."""

    def __init__(self, codes: dict[str, int]) -> None:
        super().__init__(
            StackOptions(directory=Path("/nowhere"), engine=EngineKind.SIMULATED),
            Console(quiet=True),
        )
        self._codes = codes

    async def _burnproof(self, *arguments: str, is_captured: bool = False) -> tuple[int, str]:
        return self._codes.get(arguments[0], 0), ""


@pytest.mark.parametrize(("code", "wrong"), [(0, 0), (1, 1), (2, 1), (3, 1), (4, 1)])
def test_any_outcome_but_pass_makes_the_demo_fail(code: int, wrong: int) -> None:
    demo = Scripted({"run": code})
    asyncio.run(demo._example("aa-null"))
    assert len(demo.tally.wrong) == wrong
    assert any("too little proof" in line for line in demo.tally.wrong) == (code == 2)
    assert demo.tally.say() == (1 if wrong else 0)


def test_a_report_is_cut_to_its_short_sections() -> None:
    report = "# head\n\n## Phases\np\n\n## Timeline\nt\n\n## Record\nr\n"
    assert script.in_short(report) == "# head\n\n## Phases\np\n\n## Record\nr"


def test_a_stopped_demo_takes_everything_down(tmp_path: Path) -> None:
    words = [sys.executable, "deploy/demo.py", "--engine", "simulated", "--state-dir"]
    process = subprocess.Popen(
        [*words, str(tmp_path / "stack")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "burnproof run" in line:
            break
    process.terminate()
    rest = process.stdout.read()
    assert process.wait(timeout=60) == 2, rest
    process.stdout.close()
    assert "stopped: no process is left" in rest
    old = load_state(tmp_path / "stack", running=False)
    assert old is not None
    assert nothing_left(old)
