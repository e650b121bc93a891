"""Run the test suites side by side on two cores, and end with one line: N passed, N failed.

A suite is a list of commands that run one after another: pytest on some folders, or a tool that
counts as one test. It fails on a failing test, a skipped test, a folder in which nothing was
collected, a deadline, and a process that it leaves behind. Nothing is hidden: each suite writes
.suites/NAME.log, the end of the log of a failed one is printed, and a test that passes only at its
second run is called FLAKY in the closing table.

    python -m tests.run_suites               all of them
    python -m tests.run_suites unit kill     these two
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

from tests.suites import SUITES, Pytest, Suite, Tool

STRICT = True
"""Whether a suite or a folder that does not exist is a failure."""

ROOT = Path(__file__).resolve().parents[1]
LANES = 3
"""Two keep the cores busy; a suite of the third kind mostly waits (`docs` follows a demo)."""
SECOND_CHANCES = 3
"""Most failed tests of one command that are run once more, alone: see CONTRIBUTING.md."""
TAIL_LINES = 80
EXIT_GRACE_SECONDS = 5.0
TAG = "SUITE_RUN_TAG"


@dataclass
class Result:
    """What a suite came to: counts of tests, minutes, and a reason for each kind of failure."""

    name: str
    passed: int = 0
    failed: int = 0
    minutes: float = 0.0
    reasons: list[str] = field(default_factory=list)
    broken: bool = False
    """Whether something failed that is no test: a second chance would prove nothing."""

    def fail(self, reason: str, count: int = 1, *, is_test: bool = False) -> None:
        """Count a failure, with the reason."""
        self.failed += count
        self.reasons.append(reason)
        self.broken |= not is_test


class Runner:
    """Runs suites in lanes; owns their processes and kills what outlives its suite."""

    def __init__(
        self,
        root: Path,
        output: Path,
        *,
        strict: bool = STRICT,
        grace_seconds: float = EXIT_GRACE_SECONDS,
    ) -> None:
        self._root = root
        self._output = output
        self._strict = strict
        self._grace_seconds = grace_seconds
        self._run_id = uuid.uuid4().hex[:12]
        self._groups: set[int] = set()
        self._stopping = threading.Event()

    def run(self, suites: Sequence[Suite]) -> list[Result]:
        """Run every suite; return the results in the order of the list."""
        waiting, running = list(suites), dict[str, tuple[Suite, threading.Thread]]()
        results = {suite.name: Result(suite.name) for suite in suites}
        while waiting or running:
            for name in [n for n, (_, thread) in running.items() if not thread.is_alive()]:
                del running[name]
            while len(running) < LANES and not self._stopping.is_set():
                beside = [suite for suite, _ in running.values()]
                ready = [s for s in waiting if all(s.may_run_beside(o) for o in beside)]
                if not ready:
                    break
                suite = ready[0]
                waiting.remove(suite)
                thread = threading.Thread(target=self._run_suite, args=(suite, results[suite.name]))
                thread.start()
                running[suite.name] = (suite, thread)
            if self._stopping.is_set():
                waiting.clear()
            time.sleep(0.1)
        return [results[suite.name] for suite in suites]

    def stop(self) -> None:
        """End every suite that runs; the run then counts as failed."""
        self._stopping.set()
        for group in list(self._groups):
            _kill_group(group)

    def _run_suite(self, suite: Suite, result: Result) -> None:
        started = time.monotonic()
        print(f"[{suite.name}] started", flush=True)
        with (self._output / f"{suite.name}.log").open("wb") as log:
            for command in suite.commands:
                if self._stopping.is_set():
                    result.fail("stopped before it ended")
                    break
                left = suite.deadline_minutes * 60 - (time.monotonic() - started)
                if not self._run_command(suite, command, log.fileno(), left, result):
                    break
        result.minutes = (time.monotonic() - started) / 60
        state = "FAILED" if result.failed else "passed"
        print(f"[{suite.name}] {state} after {result.minutes:.1f} minutes", flush=True)

    def _run_command(
        self, suite: Suite, command: Tool | Pytest, log: int, seconds: float, result: Result
    ) -> bool:
        """Run one command of a suite; return whether the suite may go on."""
        began, before = time.monotonic(), result.failed
        may_go_on = self._run_once(suite, command, log, seconds, result)
        failed = result.failed - before
        if not isinstance(command, Pytest) or not may_go_on or self._stopping.is_set():
            return may_go_on
        if suite.exclusive or result.broken or not 0 < failed <= SECOND_CHANCES:
            return True  # a race or a false alarm that an exclusive suite found is found
        again, left = Result(suite.name), seconds - (time.monotonic() - began)
        repeat = replace(command, name=f"{command.name}-again", args=(*command.args, "--lf"))
        self._run_once(suite, repeat, log, left, again)
        if not again.failed and again.passed == failed:
            result.failed = before
            result.passed += failed
            result.reasons[-1] = f"{command.name}: FLAKY, {failed} failed once and passed alone"
        return True

    def _run_once(
        self, suite: Suite, command: Tool | Pytest, log: int, seconds: float, result: Result
    ) -> bool:
        junit = self._output / f"{suite.name}.{command.name.replace(' ', '-')}.xml"
        argv = self._argv(command, junit, result)
        if argv is None:
            return True
        env = {**os.environ, TAG: f"{self._run_id}-{suite.name}"}
        if isinstance(command, Pytest):
            env.update(command.env)
        os.write(log, f"$ {' '.join(argv)}\n".encode())
        process = subprocess.Popen(
            argv,
            cwd=self._root,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._groups.add(process.pid)
        try:
            code = process.wait(timeout=max(seconds, 0.1))
        except subprocess.TimeoutExpired:
            result.fail(f"{command.name}: not done within {suite.deadline_minutes:g} minutes")
            _kill_group(process.pid)
            process.wait()
            return False
        finally:
            leftovers = _end_leftovers(f"{self._run_id}-{suite.name}", self._grace_seconds)
            if leftovers:
                result.fail(f"{command.name}: left processes behind: {', '.join(leftovers)}")
            _kill_group(process.pid)
            self._groups.discard(process.pid)
        if isinstance(command, Pytest):
            _count(junit, command.name, code, result)
        elif code == 0:
            result.passed += 1
        else:
            result.fail(f"{command.name}: exit {code}")
        return True

    def _argv(self, command: Tool | Pytest, junit: Path, result: Result) -> list[str] | None:
        if isinstance(command, Tool):
            return list(command.argv)
        missing = [f for f in command.folders if not (self._root / f).is_dir()]
        for folder in missing:
            print(f"!!! {command.name}: {folder} DOES NOT EXIST, nothing of it is run", flush=True)
            if self._strict:
                result.fail(f"{command.name}: {folder} does not exist")
        folders = [f for f in command.folders if f not in missing]
        if not folders:
            return None
        cache = f"cache_dir={self._output / 'cache' / command.name.removesuffix('-again')}"
        return [
            *(sys.executable, "-m", "pytest", "-q", "-o", cache, f"--junitxml={junit}"),
            *command.args,
            *folders,
        ]


def _count(junit: Path, name: str, code: int, result: Result) -> None:
    """Add the counts of a junit file; whatever is neither passed nor failed is a failure."""
    try:
        suites = list(ET.parse(junit).getroot().iter("testsuite"))
    except (OSError, ET.ParseError):
        result.fail(f"{name}: exit {code} without a report")
        return
    totals = {
        key: sum(int(s.get(key, "0")) for s in suites)
        for key in ("tests", "failures", "errors", "skipped")
    }
    bad = totals["failures"] + totals["errors"]
    result.passed += max(0, totals["tests"] - bad - totals["skipped"])
    if bad:
        result.fail(f"{name}: {bad} failed", bad, is_test=True)
    if totals["skipped"]:
        result.fail(f"{name}: {totals['skipped']} skipped, which is not allowed", totals["skipped"])
    if totals["tests"] == 0:
        result.fail(f"{name}: no test was run")
    elif code != 0 and not bad:
        result.fail(f"{name}: exit {code}")


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _end_leftovers(tag: str, grace_seconds: float) -> list[str]:
    """Kill what still carries the tag of an ended suite after the grace; return what it was."""
    time.sleep(0.1)  # a process in the middle of exec shows no environment: look a moment later
    deadline = time.monotonic() + grace_seconds
    while (found := _tagged(tag)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return list(found.values())


def _tagged(tag: str) -> dict[int, str]:
    wanted, found = f"{TAG}={tag}".encode(), {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                found[int(entry.name)] = " ".join(words)[:120].strip()
    return found


def report(results: Sequence[Result], output: Path) -> int:
    """Print logs of failed suites, the minutes of each, and the closing line; return the code."""
    for result in (r for r in results if r.failed):
        log = output / f"{result.name}.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        print(f"\n----- {result.name}: end of {log} -----", *lines[-TAIL_LINES:], sep="\n")
    print(f"\n{'suite':<12}{'minutes':>8}{'passed':>8}{'failed':>8}")
    for result in results:
        print(f"{result.name:<12}{result.minutes:>8.1f}{result.passed:>8}{result.failed:>8}")
        for reason in result.reasons:
            print(f"    {reason}")
    passed, failed = sum(r.passed for r in results), sum(r.failed for r in results)
    if passed + failed == 0:
        print("no test was run")
    print(f"\n{passed} passed, {failed} failed", flush=True)
    return 0 if passed and not failed else 1


def main(names: Sequence[str]) -> int:
    """Run the named suites, or all of them."""
    known = {suite.name: suite for suite in SUITES}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no such suite: {', '.join(unknown)}; there are: {', '.join(known)}")
        return 2
    chosen = [suite for suite in SUITES if not names or suite.name in names]
    output = ROOT / ".suites"
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    runner = Runner(ROOT, output)

    def stop(_signal: int, _frame: FrameType | None) -> None:
        runner.stop()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    started = time.monotonic()
    code = report(runner.run(chosen), output)
    print(f"{(time.monotonic() - started) / 60:.1f} minutes in all", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
