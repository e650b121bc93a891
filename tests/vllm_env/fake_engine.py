"""A stand-in for an engine that leaves orphans: it starts children that try to get away.

Usage: ``fake_engine.py DIRECTORY [exit|hang|deaf]``. Each process writes a file named after its
pid into DIRECTORY, so that a test knows all that must die. The children are: a plain one, one in
its own session, one orphaned by a double fork in its own session, and one with an empty environment
(no tag).
"""

import os
import signal
import sys
import time
from pathlib import Path

CHILDREN = ("plain", "session", "orphan", "untagged")


def announce(directory: Path, name: str) -> None:
    """Write ``PID`` with the role as content, atomically."""
    partial = directory / f".{os.getpid()}"
    partial.write_text(name)
    partial.rename(directory / str(os.getpid()))


def go_deaf() -> None:
    """Ignore polite signals, as a stuck worker does."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def stay() -> None:
    """Never end by itself."""
    while True:
        time.sleep(60)


def start(directory: Path, name: str) -> None:
    """Start one child of the kind `name`; returns in the caller only."""
    if os.fork() != 0:
        return
    if name in ("session", "orphan"):
        os.setsid()
    if name == "orphan" and os.fork() != 0:
        os._exit(0)
    if name == "untagged":
        os.setsid()
        own = [sys.executable, __file__, str(directory), "untagged"]
        os.execve(own[0], own, {})
    go_deaf()
    announce(directory, name)
    stay()


def main() -> None:
    """Start the children, then behave as asked."""
    directory, behaviour = Path(sys.argv[1]), sys.argv[2]
    if behaviour == "untagged":
        go_deaf()
        announce(directory, behaviour)
        stay()
    if behaviour == "deaf":
        go_deaf()
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
    for name in CHILDREN:
        start(directory, name)
    announce(directory, "engine")
    while len([p for p in directory.iterdir() if p.name.isdigit()]) < len(CHILDREN) + 1:
        time.sleep(0.01)
    if behaviour == "exit":
        sys.exit(7)
    stay()


if __name__ == "__main__":
    main()
