"""The reaper leaves nothing behind: shown with real processes that try hard to get away."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from api.stack import reaper

pytestmark = pytest.mark.kill

HERE = Path(__file__).resolve().parent
REAPER = HERE.parents[1] / "api" / "stack" / "reaper.py"
FAKE = HERE / "fake_engine.py"
PROCESSES = 5
KILL_LIMIT_S = 3.0

SUPERVISOR = """
import signal, subprocess, sys
from pathlib import Path
child = subprocess.Popen(sys.argv[2:], start_new_session=True)
Path(sys.argv[1]).write_text(f"{child.pid}\\n")
child.wait()
signal.pause()  # a supervisor does not end because a child of it did
"""


def wait_for(condition: Callable[[], bool], limit_s: float = 8.0) -> float:
    """Wait until `condition` holds; return the seconds it took, or fail."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > limit_s:
            pytest.fail(f"not true within {limit_s} s")
        time.sleep(0.01)
    return time.monotonic() - start


def alive(pid: int) -> bool:
    """Tell whether `pid` still runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@dataclass
class Stack:
    """One supervisor with one reaper below it, and the fake engine below that."""

    directory: Path
    tag: str
    supervisor: subprocess.Popen[bytes] | None = None
    outer: int = 0
    extra: list[int] = field(default_factory=list)

    def start(self, behaviour: str, *, grace_s: float = 5.0) -> None:
        """Start everything and wait until the engine and its children have announced themselves."""
        guard = [sys.executable, str(REAPER), "--tag", self.tag, "--grace", str(grace_s), "--"]
        engine = [sys.executable, str(FAKE), str(self.directory), behaviour]
        note = self.directory / "guard"
        self.supervisor = subprocess.Popen(
            [sys.executable, "-c", SUPERVISOR, str(note), *guard, *engine]
        )
        wait_for(lambda: len(self.pids()) == PROCESSES)
        wait_for(lambda: note.exists() and note.read_text().endswith("\n"))
        self.outer = int(note.read_text())

    def pids(self) -> dict[int, str]:
        """Return every process that announced itself, with its role."""
        return {int(p.name): p.read_text() for p in self.directory.iterdir() if p.name.isdigit()}

    def pid_of(self, role: str) -> int:
        """Return the process with `role`."""
        return next(pid for pid, name in self.pids().items() if name == role)

    def inner(self) -> int:
        """Return the inner guard: the parent of the engine."""
        stat = Path(f"/proc/{self.pid_of('engine')}/stat").read_text()
        return int(stat.rpartition(")")[2].split()[1])

    def all_gone(self) -> bool:
        """Tell whether the guard and everything below it are dead."""
        return not any(alive(pid) for pid in (*self.pids(), self.outer, *self.extra))


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """Give a stack that is not started yet; kill whatever a failed test left."""
    made = Stack(tmp_path, f"test-{uuid.uuid4().hex}")
    yield made
    if made.supervisor is not None:
        made.supervisor.kill()
        made.supervisor.wait()
    for pid in (*made.pids(), made.outer, *made.extra):
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


def test_all_children_really_start_and_really_ignore_polite_signals(stack: Stack) -> None:
    stack.start("hang")
    assert set(stack.pids().values()) == {"engine", "plain", "session", "orphan", "untagged"}
    for pid, role in stack.pids().items():
        if role != "engine":
            os.kill(pid, signal.SIGTERM)
    time.sleep(0.2)
    assert all(alive(pid) for pid in stack.pids())


@pytest.mark.parametrize("victims", [["supervisor"], ["outer"], ["inner"], ["supervisor", "outer"]])
def test_killing_any_process_above_the_engine_leaves_nothing(
    stack: Stack, victims: list[str]
) -> None:
    stack.start("hang")
    assert stack.supervisor is not None
    inner = stack.inner()
    stack.extra.append(inner)
    by_name = {"supervisor": stack.supervisor.pid, "outer": stack.outer, "inner": inner}
    for name in victims:
        os.kill(by_name[name], signal.SIGKILL)
    assert wait_for(stack.all_gone) < KILL_LIMIT_S


def test_the_exit_code_of_the_engine_is_passed_up_and_its_orphans_are_killed(
    stack: Stack, tmp_path: Path
) -> None:
    argv = [sys.executable, str(FAKE), str(tmp_path), "exit"]
    guard = reaper.guarded_argv(argv, stack.tag)
    assert subprocess.run(guard, timeout=10, check=False).returncode == 7
    assert len(stack.pids()) == PROCESSES
    assert not any(alive(pid) for pid in stack.pids())


def test_killing_only_the_engine_leaves_nothing_and_says_137(stack: Stack, tmp_path: Path) -> None:
    argv = [sys.executable, str(FAKE), str(tmp_path), "hang"]
    guard = subprocess.Popen(reaper.guarded_argv(argv, stack.tag), start_new_session=True)
    stack.outer = guard.pid
    wait_for(lambda: len(stack.pids()) == PROCESSES)
    os.kill(stack.pid_of("engine"), signal.SIGKILL)
    assert guard.wait(KILL_LIMIT_S) == 137
    assert not any(alive(pid) for pid in stack.pids())


@pytest.mark.parametrize(("behaviour", "code"), [("hang", 5), ("deaf", 137)])
def test_sigterm_is_forwarded_and_a_deaf_engine_is_killed_after_the_grace(
    stack: Stack, tmp_path: Path, behaviour: str, code: int
) -> None:
    argv = [sys.executable, str(FAKE), str(tmp_path), behaviour]
    guard = subprocess.Popen(
        reaper.guarded_argv(argv, stack.tag, grace_s=0.5), start_new_session=True
    )
    stack.outer = guard.pid
    wait_for(lambda: len(stack.pids()) == PROCESSES)
    guard.terminate()
    assert guard.wait(KILL_LIMIT_S) == code
    assert not any(alive(pid) for pid in stack.pids())


def test_a_sweep_by_tag_finds_what_outlived_both_guards(stack: Stack) -> None:
    stack.start("hang")
    tagged = {pid for pid, role in stack.pids().items() if role != "untagged"}
    assert reaper.tagged_pids(stack.tag) == tagged
    for pid in (stack.outer, stack.inner()):
        os.kill(pid, signal.SIGSTOP)
    for pid in (stack.inner(), stack.outer):
        os.kill(pid, signal.SIGKILL)
    assert reaper.sweep(stack.tag) >= 3  # the engine itself has died with its guard
    assert wait_for(lambda: not any(alive(pid) for pid in tagged)) < KILL_LIMIT_S


def test_a_sweep_takes_nested_tags_but_not_tags_that_only_begin_alike() -> None:
    tag = f"test-{uuid.uuid4().hex}"
    started = {
        suffix: subprocess.Popen(
            ["sleep", "60"], env={**os.environ, reaper.TAG_VARIABLE: tag + suffix}
        )
        for suffix in ("", "/replica", "x")
    }
    try:
        wait_for(lambda: len(reaper.tagged_pids(tag)) == 2)
        reaper.sweep(tag)
        assert started[""].wait(2) == started["/replica"].wait(2) == -signal.SIGKILL
        assert started["x"].poll() is None
    finally:
        for process in started.values():
            process.kill()
            process.wait()


@pytest.mark.parametrize("suffixes", ["ab", "aa"])
def test_two_guards_do_not_touch_each_other_even_under_one_tag(stack: Stack, suffixes: str) -> None:
    guards = [
        subprocess.Popen(
            reaper.guarded_argv(["sleep", "60"], f"{stack.tag}/{name}"), start_new_session=True
        )
        for name in suffixes
    ]
    try:
        wait_for(lambda: len(reaper.tagged_pids(stack.tag)) == 2)
        guards[0].kill()
        guards[0].wait()
        wait_for(lambda: len(reaper.tagged_pids(stack.tag)) == 1)
        with pytest.raises(subprocess.TimeoutExpired):
            guards[1].wait(0.3)
        assert len(reaper.tagged_pids(stack.tag)) == 1
    finally:
        for guard in guards:
            guard.terminate()
            guard.wait(KILL_LIMIT_S)


def test_a_guard_whose_parent_is_already_gone_starts_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "started"
    guard = [sys.executable, str(REAPER), "--tag", "t", "--parent", "1", "--", "touch", str(marker)]
    assert subprocess.run(guard, timeout=5, check=False).returncode == 3
    assert not marker.exists()


def test_a_command_that_does_not_exist_says_127() -> None:
    guard = [sys.executable, str(REAPER), "--tag", uuid.uuid4().hex, "--", "no-such-command"]
    done = subprocess.run(guard, timeout=5, check=False, capture_output=True, text=True)
    assert done.returncode == 127
    assert "no-such-command" in done.stderr


ORPHAN_MAKER = """
import os, time
from pathlib import Path
for _ in range(20):
    if os.fork() == 0:  # this one leaves an orphan that ends at once
        if os.fork() == 0:
            os._exit(0)
        os._exit(0)
    os.wait()
guard = os.getppid()
children = Path(f"/proc/{guard}/task/{guard}/children")
deadline = time.monotonic() + 5
while len(children.read_text().split()) > 1 and time.monotonic() < deadline:
    time.sleep(0.01)
print(children.read_text())
"""


def test_the_guard_collects_orphans_that_ended_so_that_no_zombie_piles_up() -> None:
    argv = [sys.executable, "-c", ORPHAN_MAKER]
    guard = reaper.guarded_argv(argv, f"test-{uuid.uuid4().hex}")
    done = subprocess.run(guard, timeout=10, check=True, capture_output=True, text=True)
    assert len(done.stdout.split()) == 1  # the command itself
