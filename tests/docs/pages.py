"""Find the commands and links in our pages.

A command is a line of a fenced `sh` block, a line after `$ ` of a `console` block, or a line of an
indented block that begins with one of our programs. Comments are cut off.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("burnproof", "make", "python", "bash", ".venv/bin/")
_FENCE = re.compile(r"^```(\w*)\s*$")
_LINK = re.compile(r"(?<!\\)!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+?)\s*$", re.MULTILINE)


def pages() -> list[Path]:
    """Return the pages whose commands are run, the README first."""
    found = [ROOT / "README.md", *sorted((ROOT / "examples").glob("*/README.md"))]
    return [*found, *sorted((ROOT / "docs").glob("*.md"))]


def linked_pages() -> list[Path]:
    """Return every page of ours whose links are checked."""
    more = [ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("*/*/README.md"))]
    return [*dict.fromkeys([*pages(), *more, *sorted((ROOT / "docs").glob("*/*.md"))])]


@dataclass(frozen=True)
class Command:
    """One command and where it stands."""

    page: str
    line: int
    words: str

    def __str__(self) -> str:
        return self.words


def commands(page: Path) -> list[Command]:
    """Return the commands of a page in order."""
    name = str(page.relative_to(ROOT))
    found, language, before = [], None, ""
    for number, line in enumerate(page.read_text("utf-8").splitlines(), start=1):
        fence = _FENCE.match(line)
        if fence:
            language = fence[1] if language is None else None
            continue
        words = _command(line, language)
        if words and not (language is None and before and not before.startswith("    ")):
            found.append(Command(name, number, words))
        before = line
    return found


def _command(line: str, language: str | None) -> str:
    """Return the command in a line, without its comment; empty if there is none."""
    if language == "sh":
        text = line
    elif language == "console":
        text = line[2:] if line.startswith("$ ") else ""
    elif language is None and line.startswith("    "):
        text = line[4:] if line[4:].startswith(PROGRAMS) else ""
    else:
        text = ""
    return shlex.join(shlex.split(text, comments=True))


def links(page: Path) -> list[str]:
    """Return the targets of a page's links that lie in this repository."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = _LINK.findall(re.sub(r"`[^`\n]*`", "", text))
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def anchors(page: Path) -> set[str]:
    """Return the anchors that a page's headings make, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(text))
    return {heading.replace(" ", "-") for heading in kept}
