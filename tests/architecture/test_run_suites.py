"""The runner of suites itself: what it counts, what it refuses, what it kills."""

import os
import time
from pathlib import Path

import pytest

from tests.run_suites import Result, Runner, report
from tests.suites import SUITES, Pytest, Suite, Tool

PASSES = "def test_a(): pass\ndef test_b(): pass\n"


def _run(root: Path, *suites: Suite, strict: bool = True) -> list[Result]:
    output = root / "out"
    output.mkdir(exist_ok=True)
    return Runner(root, output, strict=strict, grace_seconds=0.3).run(suites)


def _suite(root: Path, name: str, code: str) -> Suite:
    folder = root / name
    folder.mkdir()
    (folder / f"test_{name}.py").write_text(code)
    (root / "pytest.ini").write_text("[pytest]\n")
    return Suite(name, (Pytest(name, (name,)),), deadline_minutes=1)


def _shell(name: str, script: str, minutes: float = 1.0) -> Suite:
    return Suite(name, (Tool(name, ("bash", "-c", script)),), deadline_minutes=minutes)


def test_two_suites_that_pass_are_counted_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = _run(tmp_path, _suite(tmp_path, "one", PASSES), _shell("tool", "exit 0"))
    assert report(results, tmp_path / "out") == 0
    assert capsys.readouterr().out.endswith("\n3 passed, 0 failed\n")


@pytest.mark.parametrize(
    ("code", "passed", "failed", "reason"),
    [
        pytest.param(PASSES + "def test_c(): assert 0", 2, 1, "1 failed", id="a failing test"),
        pytest.param(
            PASSES + "import pytest\ndef test_c(): pytest.skip('x')",
            2,
            1,
            "1 skipped, which is not allowed",
            id="a skipped test",
        ),
        pytest.param("", 0, 1, "no test was run", id="no test at all"),
        pytest.param("import nothing_like_it", 0, 1, "1 failed", id="a file that cannot be read"),
        pytest.param(
            "import os\ndef test_a(): os._exit(0)", 0, 1, "without a report", id="a quiet exit"
        ),
    ],
)
def test_a_suite_fails_for(
    tmp_path: Path, code: str, passed: int, failed: int, reason: str
) -> None:
    (result,) = _run(tmp_path, _suite(tmp_path, "one", code))
    assert (result.passed, result.failed) == (passed, failed)
    assert reason in " ".join(result.reasons)
    assert report([result], tmp_path / "out") == 1


FLAKY = """
from pathlib import Path
SEEN = Path(__file__).with_name("seen")
def test_c():
    first = not SEEN.exists()
    SEEN.touch()
    assert not first
"""


def test_a_failure_that_passes_alone_is_counted_and_called_flaky(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (result,) = _run(tmp_path, _suite(tmp_path, "one", PASSES + FLAKY))
    assert (result.passed, result.failed) == (3, 0)
    assert report([result], tmp_path / "out") == 0
    assert "FLAKY" in capsys.readouterr().out


def test_many_failures_get_no_second_chance(tmp_path: Path) -> None:
    code = "\n".join(
        f"from pathlib import Path\ndef test_c{i}():\n"
        f"    seen = Path(__file__).with_name('s{i}')\n"
        f"    first = not seen.exists()\n    seen.touch()\n    assert not first"
        for i in range(4)
    )
    (result,) = _run(tmp_path, _suite(tmp_path, "one", code))
    assert (result.passed, result.failed) == (0, 4)


def test_a_missing_folder_is_said_aloud_and_fails_when_strict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = Suite("gone", (Pytest("gone", ("gone",)),), deadline_minutes=1)
    (strict,) = _run(tmp_path, suite, strict=True)
    (lenient,) = _run(tmp_path, suite, strict=False)
    assert (strict.failed, lenient.failed) == (1, 0)
    assert capsys.readouterr().out.count("gone DOES NOT EXIST") == 2
    assert report([lenient], tmp_path / "out") == 1  # nothing was run, and that is no success


def test_a_suite_past_its_deadline_is_killed_with_its_children(tmp_path: Path) -> None:
    script = "sleep 300 & echo $! > child; wait"
    (result,) = _run(tmp_path, _shell("slow", script, minutes=0.02))
    assert "not done within" in " ".join(result.reasons)
    child = int((tmp_path / "child").read_text())
    assert not _is_running(child)


@pytest.mark.parametrize("how", ["", "setsid "], ids=["in its group", "in a session of its own"])
def test_a_process_that_outlives_its_suite_is_a_failure_and_is_killed(
    tmp_path: Path, how: str
) -> None:
    (result,) = _run(tmp_path, _shell("untidy", f"{how}sleep 300 & echo $! > child"))
    assert "left processes behind: sleep 300" in " ".join(result.reasons)
    assert not _is_running(int((tmp_path / "child").read_text()))


def test_a_suite_that_is_exclusive_never_runs_beside_a_heavy_one(tmp_path: Path) -> None:
    busy = "ls lock 2>/dev/null && exit 1; touch lock; sleep 0.5; rm lock"
    heavy = Suite("heavy", (Tool("h", ("bash", "-c", busy)),), 1, heavy=True)
    exclusive = Suite("exclusive", (Tool("e", ("bash", "-c", busy)),), 1, exclusive=True)
    light = _shell("light", "sleep 0.3")
    results = _run(tmp_path, heavy, exclusive, light)
    assert [(r.passed, r.failed) for r in results] == [(1, 0)] * 3


def test_each_suite_has_a_name_and_a_deadline_of_its_own() -> None:
    assert len({suite.name for suite in SUITES}) == len(SUITES)
    assert all(0 < suite.deadline_minutes <= 35 for suite in SUITES)


def test_every_folder_of_tests_belongs_to_a_suite() -> None:
    tests = Path(__file__).parents[1]
    folders = {f"tests/{f.name}" for f in tests.iterdir() if any(f.rglob("test_*.py"))}
    run = {f for s in SUITES for c in s.commands if isinstance(c, Pytest) for f in c.folders}
    assert folders <= run


def _is_running(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return False
        if state == "Z":
            return False
        time.sleep(0.05)
    return True
