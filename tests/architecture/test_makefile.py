"""The Makefile and .ci/run: documented, and naming only what exists."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = re.findall(r"^([a-z][a-z0-9-]*):", MAKEFILE, flags=re.MULTILINE)


def test_make_help_has_one_line_for_each_target() -> None:
    done = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    plain = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    listed = [line.split()[0] for line in plain.splitlines()]
    assert listed == TARGETS
    assert all(len(line) <= 120 for line in plain.splitlines())


def test_every_target_is_phony() -> None:
    phony = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)", MAKEFILE, flags=re.MULTILINE)
    assert phony
    assert set(phony[1].replace("\\\n", " ").split()) == set(TARGETS)


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"(?:deploy|tests|benchmarks|\.ci)/[\w./]+", MAKEFILE)))
)
def test_the_makefile_names_only_what_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_ci_runs_the_test_command_and_nothing_that_hides_a_failure() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert "set -euo pipefail" in script
    assert script.rstrip().endswith("\nmake test")
    assert "|| true" not in script
    subprocess.run(["bash", "-n", ".ci/run"], cwd=ROOT, check=True)
