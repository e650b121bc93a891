"""The page of known failures names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "known-failures.md"


def named() -> list[tuple[str, str]]:
    return re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE.read_text(encoding="utf-8"))


def missing(pairs: list[tuple[str, str]]) -> list[str]:
    return [
        f"{file}::{name}"
        for file, name in pairs
        if not (ROOT / file).exists()
        or not re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE)
    ]


def test_every_test_that_the_page_names_exists() -> None:
    assert missing(named()) == []


def test_every_row_names_a_test() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")][2:]
    assert len(rows) >= 28
    assert [row for row in rows if "`tests/" not in row] == []


def test_a_test_that_is_gone_is_found() -> None:
    gone = [("tests/architecture/test_known_failures.py", "test_that_never_was")]
    assert missing(gone) == ["tests/architecture/test_known_failures.py::test_that_never_was"]
