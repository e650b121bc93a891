"""Import contracts: kept by our tree, and each one broken by a planted violation.

The planted trees are skeletons: every room with an empty module, plus the modules that contracts
name, so that a contract which names a module that is gone fails here too.
"""

import configparser
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture import rules

ROOT = Path(__file__).parents[2]
CONTRACTS = ROOT / ".importlinter"

PLANTED = [
    ("layers", "slo", "import faults"),
    ("layers", "canary", "import faults"),
    ("layers", "slo", "import text"),
    ("layers", "activities", "import workflows"),
    ("layers", "workflows", "import api"),
    ("layers", "targets/refs.py", "import slo"),
    ("no-io", "workflows", "import httpx"),
    ("no-io", "activities", "import audit.store"),
    ("no-io", "activities", "import settings"),
    ("no-io", "canary", "import sqlalchemy"),
    ("pure", "faults", "import temporalio.workflow"),
    ("pure", "text", "import audit"),
    ("layers", "canary", "import topology"),
    ("no-io", "topology", "import httpx"),
    ("pure", "topology", "import gateway"),
    ("no-clock", "topology", "import time"),
    ("no-clock", "slo", "import time"),
    ("no-clock", "remediation", "from random import Random"),
    ("adapters", "audit", "import activities"),
    ("adapters", "targets", "import temporalio"),
    ("gateway-process", "gateway", "import audit.store"),
    ("gateway-process", "gateway", "import canary"),
    ("gateway-process", "gateway", "import topology"),
    ("load-processes", "traffic", "import slo"),
    ("load-processes", "simulated_engine", "import gateway"),
    ("processes-are-reached-over-http", "api", "import gateway"),
    ("processes-are-reached-over-http", "audit", "import worker"),
]


def _lint(tree: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "lint-imports"), str(CONTRACTS), "--no-cache"]
    wide = {**os.environ, "COLUMNS": "200"}  # a name that is cut into lines could not be found
    return subprocess.run(command, cwd=tree, check=False, capture_output=True, text=True, env=wide)


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


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Plant every violation in one tree; return what is said of each broken contract."""
    root = _skeleton(tmp_path_factory.mktemp("planted"))
    for number, (_, room, line) in enumerate(PLANTED):
        path = root / room
        (path if path.suffix else path / f"planted_{number}.py").write_text(f"{line}\n")
    done = _lint(root)
    assert done.returncode == 1, done.stdout + done.stderr
    details = done.stdout.partition("Broken contracts")[2]
    names = {contract["name"]: key for key, contract in _contracts().items()}
    parts = re.split(rf"^({'|'.join(map(re.escape, names))})$", details, flags=re.MULTILINE)
    return {names[name]: text for name, text in zip(parts[1::2], parts[2::2], strict=True)}


@pytest.mark.parametrize(("number", "planted"), list(enumerate(PLANTED)), ids=str)
def test_a_planted_import_breaks_its_contract(
    broken: dict[str, str], number: int, planted: tuple[str, str, str]
) -> None:
    contract, room, line = planted
    importer = room.removesuffix(".py").replace("/", ".")
    importer = importer if "." in importer else f"{importer}.planted_{number}"
    imported = line.split()[1]
    imported = imported.split(".")[0] if imported.startswith("temporalio") else imported
    assert re.search(rf"{re.escape(importer)} -> {re.escape(imported)}\b", broken[contract])


def test_every_contract_has_a_planted_violation() -> None:
    assert {contract for contract, _, _ in PLANTED} == set(_contracts())


def test_the_gateway_contract_names_every_adapter_of_targets() -> None:
    adapters = {
        f"targets.{path.stem}"
        for path in (ROOT / "targets").glob("*.py")
        if path.stem not in {"__init__", "refs", "errors"}
    }
    assert adapters <= set(_contracts()["gateway-process"]["forbidden_modules"].split())
