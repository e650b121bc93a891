"""Import contracts: kept by our tree, and each one broken by a planted violation.

The planted trees are skeletons: every room with an empty module, plus the modules that contracts
name, so that a contract which names a module that is gone fails here too.
"""

import configparser
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture import rules

ROOT = Path(__file__).parents[2]
CONTRACTS = ROOT / ".importlinter"

PLANTED = [
    ("layers", "slo/a.py", "import faults"),
    ("layers", "canary/a.py", "import faults"),
    ("layers", "slo/a.py", "import text"),
    ("layers", "activities/a.py", "import workflows"),
    ("layers", "workflows/a.py", "import api"),
    ("layers", "targets/refs.py", "import slo"),
    ("no-io", "workflows/a.py", "import httpx"),
    ("no-io", "activities/a.py", "import audit.store"),
    ("no-io", "activities/a.py", "import settings"),
    ("no-io", "canary/a.py", "import sqlalchemy"),
    ("pure", "faults/a.py", "import temporalio.workflow"),
    ("pure", "text/a.py", "import audit"),
    ("no-clock", "slo/a.py", "import time"),
    ("no-clock", "remediation/a.py", "from random import Random"),
    ("adapters", "audit/a.py", "import activities"),
    ("adapters", "targets/a.py", "import temporalio"),
    ("gateway-process", "gateway/a.py", "import audit.store"),
    ("gateway-process", "gateway/a.py", "import canary"),
    ("load-processes", "traffic/a.py", "import slo"),
    ("load-processes", "simulated_engine/a.py", "import gateway"),
    ("processes-are-reached-over-http", "api/a.py", "import gateway"),
    ("processes-are-reached-over-http", "audit/a.py", "import worker"),
]


def _lint(tree: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "lint-imports"), str(CONTRACTS), "--no-cache"]
    return subprocess.run(command, cwd=tree, check=False, capture_output=True, text=True)


def _contracts() -> dict[str, dict[str, str]]:
    parsed = configparser.ConfigParser()
    parsed.read(CONTRACTS)
    prefix = "importlinter:contract:"
    return {s.removeprefix(prefix): dict(parsed[s]) for s in parsed.sections() if prefix in s}


def _skeleton(root: Path) -> Path:
    named = {m for c in _contracts().values() for m in c.get("forbidden_modules", "").split()}
    named = {m for m in named if m.split(".")[0] in rules.ROOMS and "." in m}
    for module in sorted({*rules.ROOMS, *named, "targets.refs"}):
        path = root.joinpath(*module.split("."))
        if "." not in module:
            path.mkdir(parents=True)
            (path / "__init__.py").write_text("")
            (path / "a.py").write_text("")
        elif not path.with_suffix(".py").exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_suffix(".py").write_text("")
    return root


def test_our_tree_keeps_every_contract() -> None:
    done = _lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_empty_tree_keeps_every_contract(tmp_path: Path) -> None:
    done = _lint(_skeleton(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Contracts: {len(_contracts())} kept, 0 broken." in done.stdout


@pytest.mark.parametrize(("contract", "path", "line"), PLANTED)
def test_a_planted_import_breaks_its_contract(
    tmp_path: Path, contract: str, path: str, line: str
) -> None:
    _skeleton(tmp_path)
    (tmp_path / path).write_text(f"{line}\n")
    done = _lint(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{_contracts()[contract]['name']} BROKEN" in " ".join(done.stdout.split())


def test_every_contract_has_a_planted_violation() -> None:
    assert {contract for contract, _, _ in PLANTED} == set(_contracts())


def test_the_gateway_contract_names_every_adapter_of_targets() -> None:
    adapters = {
        f"targets.{path.stem}"
        for path in (ROOT / "targets").glob("*.py")
        if path.stem not in {"__init__", "refs", "errors"}
    }
    assert adapters <= set(_contracts()["gateway-process"]["forbidden_modules"].split())
