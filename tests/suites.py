"""Which test suites there are, and which of them may run at the same time.

What was hard: two cores. Suites that test time-outs (`exclusive`) get wrong answers beside one that
keeps a core busy (`heavy`), so those two kinds never run at the same time, and the real engines
(`alone`) share the machine with nobody. Suites start in the order of the list.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Tool:
    """A command that counts as one test."""

    name: str
    argv: tuple[str, ...]


@dataclass(frozen=True)
class Pytest:
    """One pytest run over some folders; the results go to a junit file of its own."""

    name: str
    folders: tuple[str, ...]
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Suite:
    """Commands that share a log, a lane and a deadline (minutes, wall clock, for all of them)."""

    name: str
    commands: tuple[Tool | Pytest, ...]
    deadline_minutes: float
    heavy: bool = False
    exclusive: bool = False
    alone: bool = False
    """Nothing may run beside it: it compares latencies of engines that need both cores."""

    def may_run_beside(self, other: Suite) -> bool:
        """Say whether the two leave one another's clocks alone."""
        if self.alone or other.alone:
            return False
        return not (
            (self.exclusive and (other.heavy or other.exclusive))
            or (other.exclusive and (self.heavy or self.exclusive))
        )


_UNIT = (
    "slo canary faults remediation text topology audit api gateway simulated_engine traffic "
    "targets activities architecture contracts vllm_env"
)
SUITES: tuple[Suite, ...] = (
    Suite(
        "unit",
        (Pytest("unit", tuple(f"tests/{name}" for name in _UNIT.split()), ("-n", "2")),),
        deadline_minutes=20,
        heavy=True,
    ),
    Suite(
        "static",
        (
            Tool("ruff check", (str(BIN / "ruff"), "check", ".")),
            Tool("ruff format", (str(BIN / "ruff"), "format", "--check", ".")),
            Tool("mypy", (str(BIN / "mypy"),)),
            Tool("lint-imports", (str(BIN / "lint-imports"),)),
        ),
        deadline_minutes=8,
    ),
    Suite(
        "docs",
        (Pytest("docs", ("tests/docs",), ("--timeout=420",)),),
        deadline_minutes=25,
        heavy=True,
    ),
    Suite(
        "stack",
        (Pytest("stack", ("tests/stack",), ("--timeout=420",)),),
        deadline_minutes=20,
        heavy=True,
    ),
    Suite(
        "soak",
        (Pytest("soak", ("tests/soak",), ("--timeout=420",)),),
        deadline_minutes=15,
        heavy=True,
    ),
    Suite(
        "vllm",
        (Pytest("vllm", ("tests/e2e",), ("--timeout=1800",)),),
        deadline_minutes=35,
        alone=True,
    ),
    Suite(
        "workflows",
        (
            Pytest("workflows", ("tests/workflows",), ("--timeout=180",)),
            Pytest("replay-seed-1", ("tests/replay",), env=(("PYTHONHASHSEED", "1"),)),
            Pytest("replay-seed-2", ("tests/replay",), env=(("PYTHONHASHSEED", "2"),)),
            Pytest("golden", ("tests/golden",)),
        ),
        deadline_minutes=20,
    ),
    Suite(
        "kill",
        (Pytest("kill", ("tests/kill",), ("--timeout=300",)),),
        deadline_minutes=30,
        exclusive=True,
    ),
    Suite(
        "aa",
        (Pytest("aa", ("tests/aa",), ("--timeout=600",)),),
        deadline_minutes=20,
        exclusive=True,
    ),
)
