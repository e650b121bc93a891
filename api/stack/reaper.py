"""Run one command so that nothing it started can outlive us, however we die.

What this does. ``python -m api.stack.reaper --tag ID -- argv...`` (or by path) runs ``argv`` below
two small guards::

    supervisor --> outer guard --> inner guard --> argv --> whatever argv starts
                   (our pid)       (own session)

Both guards are *child subreapers*: a descendant that is orphaned, or that hides behind ``setsid``
or a double fork, is handed by the kernel to the nearest living guard above it, so it can still be
found by walking down from that guard. Each guard watches the processes above it through pidfds, and
the one below it through ``SIGCHLD``:

* the supervisor dies (``kill -9``, closed terminal): both guards see it and kill everything;
* the outer guard dies: the inner one sees it and kills everything;
* the inner guard dies: its orphans are handed to the outer one, which kills them;
* ``argv`` ends by itself: what it left behind is killed, and its exit code is passed up;
* SIGTERM, SIGINT or SIGHUP: passed down to ``argv``; what is there after ``grace_s`` is killed.

The command carries ``BURNPROOF_STACK_ID=ID/SERIAL`` in its environment, which is a second way to
find its descendants, and the only one once both guards were killed in the same instant: `sweep`
kills by it. The serial is new for each guard, so a restarted command and the guard of its
predecessor, still at work, do not meet. A tag ``a/b`` counts as part of the tag ``a``: one sweep of
``a`` ends a whole stack.

What this does not do. It does not restart anything, and it does not protect against a descendant
that drops the tag *and* outlives both guards.

What was hard. ``PR_SET_PDEATHSIG`` alone reaches only the direct child, is cleared by the next
fork, and fires when the *thread* that forked ends, not the process; a pidfd has none of these
faults. Only the command itself has it, as a last net. Programs that set their process title may
overwrite the very memory that ``/proc/PID/environ`` shows, so ``SPT_NOENV`` asks the usual library
not to.

Linux 5.3 or newer; standard library only, since it runs under any Python at hand.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import select
import signal
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

TAG_VARIABLE = "BURNPROOF_STACK_ID"
"""Environment variable that marks every process started below a guard."""

DEFAULT_GRACE_S = 10.0
"""Seconds between a forwarded SIGTERM and SIGKILL. vLLM needs about 4 on two busy cores."""

SWEEP_LIMIT_S = 3.0
"""Seconds after which a sweep gives up on processes that keep appearing."""

_SWEEP_PAUSE_S = 0.02
_OUTER_EXTRA_GRACE_S = 2.0
_PR_SET_PDEATHSIG = 1  # Source: linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36  # Source: linux/prctl.h
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_EXIT_NOT_FOUND = 127
_EXIT_PARENT_GONE = 3
_EXIT_SIGNAL_BASE = 128


def guarded_argv(argv: Sequence[str], tag: str, *, grace_s: float = DEFAULT_GRACE_S) -> list[str]:
    """Return the command line that runs `argv` under guards whose parent is this process.

    Start it with ``start_new_session=True`` when a Ctrl-C must reach only the caller.
    """
    guard = [sys.executable, str(Path(__file__).resolve()), "--tag", tag, "--grace", str(grace_s)]
    return [*guard, "--parent", str(os.getpid()), "--", *argv]


def tagged_pids(tag: str) -> set[int]:
    """Return the living processes whose environment carries `tag` or a tag below it."""
    exact = f"{TAG_VARIABLE}={tag}".encode()
    below = exact + b"/"
    found = set()
    for pid in _all_pids():
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue  # gone, or another user's
        if any(item == exact or item.startswith(below) for item in variables):
            found.add(pid)
    return found


def descendant_pids(root: int) -> set[int]:
    """Return the living processes below `root` in the process tree; zombies do not count."""
    children: dict[int, list[int]] = {}
    zombies = set()
    for pid in _all_pids():
        try:
            # The name may hold spaces and brackets, so fields count from the last bracket.
            state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        children.setdefault(int(parent), []).append(pid)
        if state in "ZX":
            zombies.add(pid)
    found: set[int] = set()
    todo = [root]
    while todo:
        for pid in children.get(todo.pop(), ()):
            if pid not in found:
                found.add(pid)
                todo.append(pid)
    return found - zombies


def sweep(tag: str, *, root: int | None = None, keep: frozenset[int] = frozenset()) -> int:
    """Kill every process of `tag`, and every one below `root`; return how many were killed.

    Guards carry no tag: they end by themselves once what they guard has ended. Scans again until
    two scans in a row find nothing, since a process may fork while we look. The caller and `keep`
    are spared.
    """
    spared = keep | {os.getpid()}
    killed: set[int] = set()
    deadline = time.monotonic() + SWEEP_LIMIT_S
    quiet_scans = 0
    while quiet_scans < 2 and time.monotonic() < deadline:
        victims = tagged_pids(tag) - spared
        if root is not None:
            victims |= descendant_pids(root) - spared
        for pid in victims:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= victims
        quiet_scans = 0 if victims else quiet_scans + 1
        time.sleep(_SWEEP_PAUSE_S)
    return len(killed)


def run(
    argv: Sequence[str], tag: str, *, parent: int | None = None, grace_s: float = DEFAULT_GRACE_S
) -> int:
    """Become the outer guard of `argv`, and return its exit code (128 + signal when it was killed).

    `parent` is the process whose death ends everything: by default whoever started us. Naming it
    closes the gap in which it dies before we look.
    """
    above = _open_parent(parent)
    if above is None:
        return _EXIT_PARENT_GONE
    tag = f"{tag}/{uuid.uuid4().hex}"
    # Opened before the fork, so that the inner guard cannot miss our death.
    own = os.pidfd_open(os.getpid())
    _become_subreaper()
    outer = _Guard(tag, [above], grace_s + _OUTER_EXTRA_GRACE_S)
    outer_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        _become_subreaper()
        inner = _Guard(tag, [above, own], grace_s, keep=frozenset({outer_pid}))
        os._exit(inner.watch(_start_command(argv, tag)))
    return outer.watch(pid)


class _Guard:
    """Watch the processes above and the one below; kill all that is below when either ends."""

    def __init__(
        self,
        tag: str,
        above: Sequence[int],
        grace_s: float,
        *,
        keep: frozenset[int] = frozenset(),
    ) -> None:
        self._tag = tag
        self._above = list(above)
        self._grace_s = grace_s
        self._keep = keep
        self._exit_codes: dict[int, int] = {}
        self._woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        for number in (*_FORWARDED, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)  # the wakeup pipe carries the number

    def watch(self, child: int) -> int:
        """Block until `child` or a process above us ends; leave nothing alive below us."""
        poller = select.poll()
        for descriptor in (*self._above, self._woken):
            poller.register(descriptor, select.POLLIN)
        kill_at: float | None = None
        while child not in self._exit_codes:
            wait_s = None if kill_at is None else max(0.0, kill_at - time.monotonic())
            ready = {fd for fd, _ in poller.poll(None if wait_s is None else wait_s * 1000 + 1)}
            if ready & set(self._above) or (kill_at is not None and time.monotonic() >= kill_at):
                break
            for number in self._signals():
                if number in _FORWARDED:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child, number)
                    kill_at = kill_at or time.monotonic() + self._grace_s
            self._reap()
        sweep(self._tag, root=os.getpid(), keep=self._keep)
        self._reap()
        return self._exit_codes.get(child, _EXIT_SIGNAL_BASE + signal.SIGKILL)

    def _signals(self) -> bytes:
        try:
            return os.read(self._woken, 4096)
        except BlockingIOError:
            return b""

    def _reap(self) -> None:
        """Collect every child that ended, adopted ones too, so that no zombie piles up."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                code = os.waitstatus_to_exitcode(status)
                self._exit_codes[pid] = code if code >= 0 else _EXIT_SIGNAL_BASE - code


def _start_command(argv: Sequence[str], tag: str) -> int:
    """Fork and exec `argv` as leader of its own process group, which dies with this process."""
    guard = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(_EXIT_PARENT_GONE)
        signal.set_wakeup_fd(-1)
        for number in (*_FORWARDED, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        _exec(argv, {**os.environ, TAG_VARIABLE: tag, "SPT_NOENV": "1"})
    return pid


def _exec(argv: Sequence[str], environment: dict[str, str]) -> NoReturn:
    try:
        os.execvpe(argv[0], list(argv), environment)
    except OSError as error:
        sys.stderr.write(f"reaper: cannot run {argv[0]}: {error.strerror}\n")
        sys.stderr.flush()
    os._exit(_EXIT_NOT_FOUND)


def _open_parent(expected: int | None) -> int | None:
    """Return a pidfd of our parent, or None when it is not, or no longer, the expected one."""
    parent = os.getppid()
    if expected is not None and parent != expected:
        return None
    try:
        descriptor = os.pidfd_open(parent)
    except ProcessLookupError:
        return None
    return descriptor if os.getppid() == parent else None


def _become_subreaper() -> None:
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    """Call prctl(2), which Python has no door to.

    Raises:
        OSError: the kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run the guard; ``--sweep TAG`` only kills what carries the tag."""
    parser = argparse.ArgumentParser(
        prog="reaper", description="Run a command; leave nothing behind."
    )
    parser.add_argument("--tag", help="name of this command")
    parser.add_argument("--parent", type=int, help="pid whose death ends everything")
    parser.add_argument(
        "--grace", type=float, default=DEFAULT_GRACE_S, help="seconds after SIGTERM"
    )
    parser.add_argument("--sweep", metavar="TAG", help="kill all that carries TAG, then exit")
    parser.add_argument("argv", nargs="*", help="the command, after --")
    options = parser.parse_args(arguments)
    if options.sweep:
        sys.stdout.write(f"killed {sweep(options.sweep)}\n")
        return 0
    if not options.tag or not options.argv:
        parser.error("need --tag ID and, after --, a command")
    return run(options.argv, options.tag, parent=options.parent, grace_s=options.grace)


if __name__ == "__main__":
    sys.exit(main())
