"""From the text a person wrote to an `ExperimentSpec`, or to one line for each problem.

Two doors. `parse_experiment` takes a raw document that is already complete, as it arrives inside
a run from the command line, the API or the Temporal UI: a worker reads no files of a client.
`load_experiment` takes a file name and a reader, and puts the files that the experiment names
inside it first. Remediation policies are only carried here; `remediation.policy` reads them.
What was hard: a problem inside an inlined file must be told with *that* file's name and line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, NamedTuple

from faults.experiment import ExperimentSpec
from faults.yaml_text import Locate, parse_yaml
from slo.documents import validate_document
from slo.errors import SpecError, SpecErrors
from slo.objective import Objective
from slo.openslo import read_openslo

Read = Callable[[str], str]
"""Reads a text file by name; raises OSError or UnicodeDecodeError."""


class _Source(NamedTuple):
    prefix: str
    filename: str
    locate: Locate


@dataclass(frozen=True)
class Document:
    """A complete raw document, and where each part of it came from."""

    raw: object
    sources: tuple[_Source, ...] = field(repr=False)

    def line(self, error: SpecError) -> str:
        """Return the problem as the user sees it: `file:line: path: message`."""
        for source in reversed(self.sources):  # inlined files come after the file that names them
            inside = _inside(error.path, source.prefix)
            if inside is not None:
                number = error.line if error.line is not None else source.locate(inside)
                plain = SpecError(error.path, error.message, error.suggestion)
                return f"{source.filename}:{number or 1}: {plain}"
        return str(error)

    def located(self, errors: SpecErrors, prefix: str = "") -> SpecErrors:
        """Return the problems with file and line; `prefix` is where the part lies that has them."""
        placed = [error.under(prefix) if prefix else error for error in errors.errors]
        return SpecErrors(placed, [self.line(error) for error in placed])


def _inside(path: str, prefix: str) -> str | None:
    if not prefix:
        return path
    rest = path.removeprefix(prefix)
    return rest.lstrip(".") if path.startswith(prefix) and rest[:1] in {"", ".", "["} else None


def parse_experiment(raw: object) -> ExperimentSpec:
    """Return the experiment of a complete raw document.

    Raises:
        SpecErrors: every problem, its SLOs included; paths are those of the document.
    """
    named = list(_file_names(raw))
    if named:
        why = "is a file name, and no file can be read here: put the document itself in its place"
        raise SpecErrors([SpecError(path, f'"{name}" {why}') for path, name in named])
    spec = validate_document(ExperimentSpec, raw)
    objectives(spec)
    return spec


def objectives(spec: ExperimentSpec) -> tuple[Objective, ...]:
    """Return what the experiment is judged against; never empty.

    Raises:
        SpecErrors: an SLO cannot be evaluated, or two have one name.
    """
    found: list[Objective] = []
    problems: list[SpecError] = []
    for index, document in enumerate(spec.slos):
        try:
            objective = read_openslo(document)
        except SpecErrors as errors:
            problems += [error.under(f"slos[{index}]") for error in errors.errors]
            continue
        if any(objective.name == other.name for other in found):
            twice = f'"{objective.name}" is there twice; reports could not tell them apart'
            problems.append(SpecError(f"slos[{index}].metadata.name", twice))
        found.append(objective)
    if problems:
        raise SpecErrors(problems)
    return tuple(found)


def read_document(filename: str, read: Read) -> Document:
    """Return the complete raw document of a file, the files that it names put inside.

    Raises:
        SpecErrors: a file is missing or is not YAML; each problem with file and line.
    """
    try:
        text = _read(filename, read)
    except SpecError as error:
        raise SpecErrors([error]) from None
    raw, locate = parse_yaml(text, filename)
    outer = Document(raw, (_Source("", filename, locate),))
    try:
        inlined, sources = inline_files(raw, str(PurePath(filename).parent), read)
    except SpecErrors as errors:
        # What is wrong inside a named file has its line already; a missing file lies at its path.
        lines = [
            outer.line(error) if error.path else line
            for error, line in zip(errors.errors, errors.lines, strict=True)
        ]
        raise SpecErrors(errors.errors, lines) from None
    return Document(inlined, (*outer.sources, *sources))


def load_experiment(filename: str, read: Read) -> tuple[ExperimentSpec, Document]:
    """Return the experiment of a file, and the raw document to start it with.

    Raises:
        SpecErrors: every problem as `file:line: path: message`.
    """
    document = read_document(filename, read)
    try:
        return parse_experiment(document.raw), document
    except SpecErrors as errors:
        raise document.located(errors) from None


def inline_files(doc: object, base_dir: str, read: Read) -> tuple[object, tuple[_Source, ...]]:
    """Return the document with each named file replaced by what it holds, and their sources.

    Args:
        doc: the raw document; it is not changed.
        base_dir: folder that relative names start from: that of the experiment's file.
        read: reads one file.

    Raises:
        SpecErrors: a file is missing or is not YAML.
    """
    contents: dict[str, object] = {}
    sources: list[_Source] = []
    problems: list[SpecError] = []
    lines: list[str] = []
    for path, name in _file_names(doc):
        filename = str(PurePath(base_dir) / name)
        try:
            contents[path], locate = parse_yaml(_read(filename, read), filename)
        except SpecError as error:
            fix = "names start from the folder of the experiment's file"
            problems.append(SpecError(path, f"{error.message}; {fix}"))
            lines.append(str(problems[-1]))
            continue
        except SpecErrors as errors:
            problems += errors.errors
            lines += errors.lines
            continue
        sources.append(_Source(path, filename, locate))
    if problems:
        raise SpecErrors(problems, lines)
    return _replaced(doc, contents), tuple(sources)


def _file_names(doc: object) -> list[tuple[str, str]]:
    """Return path and text of each place where a document may stand and a name does."""
    if not isinstance(doc, Mapping):
        return []
    slos, remediation = doc.get("slos"), doc.get("remediation")
    found = []
    if isinstance(slos, list | tuple):
        found = [(f"slos[{i}]", item) for i, item in enumerate(slos) if isinstance(item, str)]
    if isinstance(remediation, Mapping) and isinstance(remediation.get("policy"), str):
        found.append(("remediation.policy", remediation["policy"]))
    return found


def _replaced(doc: object, contents: Mapping[str, object]) -> object:
    if not contents or not isinstance(doc, Mapping):
        return doc
    copy: dict[Any, Any] = dict(doc)
    if isinstance(copy.get("slos"), list | tuple):
        copy["slos"] = [contents.get(f"slos[{i}]", item) for i, item in enumerate(copy["slos"])]
    if "remediation.policy" in contents:
        copy["remediation"] = {**copy["remediation"], "policy": contents["remediation.policy"]}
    return copy


def _read(filename: str, read: Read) -> str:
    try:
        return read(filename)
    except UnicodeDecodeError:
        raise SpecError("", f"{filename} is not UTF-8 text") from None
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise SpecError("", f"cannot read {filename}: {why}") from None
    except ValueError:  # NUL, or half of a surrogate pair
        raise SpecError("", f"cannot read {filename}: no file can have this name") from None


__all__ = [
    "Document",
    "Read",
    "SpecError",
    "SpecErrors",
    "inline_files",
    "load_experiment",
    "objectives",
    "parse_experiment",
    "parse_yaml",
    "read_document",
]
