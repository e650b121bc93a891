"""The rules that a linter does not know, as functions from one source file to its violations.

Each rule reads a parsed file and says where it is broken; which files a rule applies to is part of
the rule. Nothing here reads the disk but `tracked_files`, so that every rule can be tested on a
planted violation. A file that must break a rule stands in an allow list beside it, with the reason.

The hard one is set iteration: whether a name holds a set cannot be known without running the code,
so the rule follows plain assignments in the same file and no further.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

MAX_LINES = 400
"""Lines a file may have. Source: ours, 2026-12, twice the 90th percentile that we aim at."""

ROOMS = (
    "activities",
    "api",
    "audit",
    "canary",
    "faults",
    "gateway",
    "remediation",
    "simulated_engine",
    "slo",
    "targets",
    "text",
    "topology",
    "traffic",
    "workflows",
)
SINGLE_FILES = ("settings", "worker")

BROAD_EXCEPT_ALLOWED = {
    "workflows/undo.py": "a failing revert must not stop the others; it is named at the end",
    "workflows/fault_experiment.py::run": "a bug of the body is noted, undone, then raised",
}
ENVIRONMENT_ALLOWED = {
    "settings.py": "the one place that turns the environment into typed settings",
    "api/stack/": "the supervisor hands its own environment on to the processes that it starts",
    "api/doctor.py": "reports what the environment lacks",
    "deploy/": "scripts that run before anything is installed",
    "tests/": "tests start processes with an environment of their own",
    "benchmarks/": "benchmarks start processes with an environment of their own",
}

# Spelt in halves, so that this file does not break its own rule.
FORBIDDEN_TEXTS = (
    "pypi" + ".org",
    "python" + "hosted.org",
    "registry." + "npmjs",
    "deb." + "debian.org",
    "download." + "pytorch.org",
    "/work" + "/main",
    "/work" + "/shared",
    "/work" + "/.",
    "/tmp" + "/h/",
    "/opt" + "/wheels",
    "/opt" + "/pypi",
)

_STARTERS = ("execute_activity", "execute_local_activity", "start_activity", "start_local_activity")
_BROAD = {"Exception", "BaseException"}
_TOO_WIDE_FAILURES = {"Exception", "BaseException", "NondeterminismError"}


@dataclass(frozen=True)
class SourceFile:
    """One Python file: its path from the root of the repository, with slashes, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """Parse the text, once."""
        return ast.parse(self.text, filename=self.path)


@dataclass(frozen=True)
class Violation:
    """Where a rule is broken, and how, in words that say what to do."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        """Show it as compilers do, so that editors can jump to it."""
        return f"{self.path}:{self.line}: {self.message}"


Rule = Callable[[SourceFile], Iterator[Violation]]


def tracked_files(root: Path) -> list[str]:
    """List the files git knows or would add, from the root; ignored files are left out."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
    ).stdout.decode()
    return sorted(p for p in listed.split("\0") if p and (root / p).is_file())


def no_timedelta_at_activity_calls(file: SourceFile) -> Iterator[Violation]:
    """Time-outs live in workflows/policies.py, never where an activity is called."""
    if not file.path.startswith("workflows/"):
        return
    for call in _calls(file.tree):
        if not _last_name(call.func).startswith(_STARTERS):
            continue
        for inner in _calls(call):
            if _last_name(inner.func) == "timedelta":
                yield Violation(
                    file.path, inner.lineno, "timedelta at an activity call: use a policy"
                )


def no_set_iteration_in_workflows(file: SourceFile) -> Iterator[Violation]:
    """The order of a set changes with the hash seed, so a replay would take another path."""
    if not file.path.startswith("workflows/"):
        return
    tree = file.tree
    names = _names_of_sets(tree)
    for node in ast.walk(tree):
        for iterated in _iterated(node):
            if _is_set(iterated, names):
                yield Violation(file.path, iterated.lineno, "iterates a set: sort it first")


def no_swallowed_broad_except_in_workflows(file: SourceFile) -> Iterator[Violation]:
    """A workflow that swallows every exception hides bugs and cancels from its undo."""
    if not file.path.startswith("workflows/") or file.path in BROAD_EXCEPT_ALLOWED:
        return
    allowed = {
        id(handler)
        for function in ast.walk(file.tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        and f"{file.path}::{function.name}" in BROAD_EXCEPT_ALLOWED
        for handler in ast.walk(function)
    }
    for node in ast.walk(file.tree):
        if not isinstance(node, ast.ExceptHandler) or id(node) in allowed:
            continue
        if _is_broad(node) and not _raises(node.body):
            yield Violation(file.path, node.lineno, "broad except without raise: name the types")


def every_definition_names_itself(file: SourceFile) -> Iterator[Violation]:
    """A name on the wire is written down, so that renaming Python code cannot change it."""
    if file.path.startswith("tests/"):
        return
    for node in ast.walk(file.tree):
        if not isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for decorator in node.decorator_list:
            call = decorator if isinstance(decorator, ast.Call) else None
            dotted = ast.unparse(call.func if call else decorator)
            if dotted.removeprefix("temporalio.") not in {"activity.defn", "workflow.defn"}:
                continue
            if call is None or not any(k.arg in {"name", "dynamic"} for k in call.keywords):
                yield Violation(file.path, decorator.lineno, f"@{dotted} without name=")


def holding_workflows_list_their_failures(file: SourceFile) -> Iterator[Violation]:
    """A workflow with an undo stack says which exceptions end it, and never 'all of them'."""
    if not file.path.startswith("workflows/") or file.path == "workflows/undo.py":
        return
    for node in ast.walk(file.tree):
        if not isinstance(node, ast.ClassDef):
            continue
        uses_undo = any(isinstance(n, ast.Name) and n.id == "UndoStack" for n in ast.walk(node))
        for call in (d for d in node.decorator_list if isinstance(d, ast.Call)):
            if _last_name(call.func) != "defn":
                continue
            listed = next(
                (k.value for k in call.keywords if k.arg == "failure_exception_types"), None
            )
            if uses_undo and listed is None:
                yield Violation(file.path, call.lineno, "holds, without failure_exception_types=")
            elif (
                listed is not None
                and {
                    _last_name(n)
                    for n in ast.walk(listed)
                    if isinstance(n, (ast.Name, ast.Attribute))
                }
                & _TOO_WIDE_FAILURES
            ):
                yield Violation(file.path, call.lineno, "failure_exception_types is too wide")


def no_environment_outside_settings(file: SourceFile) -> Iterator[Violation]:
    """Nothing reads the environment in the middle: settings.py does, and hands values down."""
    if file.path.startswith(tuple(ENVIRONMENT_ALLOWED)):
        return
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in {"os.environ", "os.getenv"}:
            yield Violation(file.path, node.lineno, "reads the environment: use settings.py")
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            for name in node.names:
                if name.name in {"environ", "getenv"}:
                    yield Violation(file.path, node.lineno, "reads the environment")


def no_long_file(file: SourceFile) -> Iterator[Violation]:
    """A file past the limit holds more than one thing."""
    lines = len(file.text.splitlines())
    if lines > MAX_LINES:
        yield Violation(file.path, lines, f"{lines} lines, more than {MAX_LINES}: split it")


def every_module_has_a_docstring(file: SourceFile) -> Iterator[Violation]:
    """A module says what it does, what it does not, and what was hard; tests are exempt."""
    if not file.path.startswith("tests/") and not ast.get_docstring(file.tree):
        yield Violation(file.path, 1, "module without a docstring")


def no_forbidden_text(path: str, text: str) -> Iterator[Violation]:
    """No address of a package index and no path of a build machine is part of the product."""
    for number, line in enumerate(text.splitlines(), start=1):
        for forbidden in FORBIDDEN_TEXTS:
            if forbidden in line:
                yield Violation(path, number, f"names {forbidden!r}")


RULES: tuple[Rule, ...] = (
    no_timedelta_at_activity_calls,
    no_set_iteration_in_workflows,
    no_swallowed_broad_except_in_workflows,
    every_definition_names_itself,
    holding_workflows_list_their_failures,
    no_environment_outside_settings,
    no_long_file,
    every_module_has_a_docstring,
)


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (n for n in ast.walk(node) if isinstance(n, ast.Call))


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_set(node: ast.AST, names: frozenset[str]) -> bool:
    if isinstance(node, (ast.Set, ast.SetComp)):
        return True
    if isinstance(node, ast.BinOp) and isinstance(
        node.op, (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)
    ):
        return _is_set(node.left, names) or _is_set(node.right, names)
    if isinstance(node, ast.Call):
        return _last_name(node.func) in {"set", "frozenset"}
    return isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) in names


def _names_of_sets(tree: ast.Module) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            annotation = ast.unparse(node.annotation)
            is_set = annotation.split("[")[0] in {"set", "frozenset"}
            if is_set or (node.value is not None and _is_set(node.value, frozenset())):
                found.add(ast.unparse(node.target))
        elif isinstance(node, ast.Assign) and _is_set(node.value, frozenset()):
            found.update(ast.unparse(target) for target in node.targets)
    return frozenset(found)


def _iterated(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        yield node.iter
    elif isinstance(node, ast.Call) and node.args:
        name = _last_name(node.func)
        if name in {"list", "tuple", "enumerate", "zip", "map", "iter", "next", "join"}:
            yield from node.args
    elif isinstance(node, ast.Starred):
        yield node.value


def _is_broad(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    return any(_last_name(n) in _BROAD for n in ast.walk(handler.type))


def _raises(body: list[ast.stmt]) -> bool:
    """Say whether the body ends in a raise on every path that we can see."""
    last = body[-1]
    if isinstance(last, ast.Raise):
        return True
    if isinstance(last, ast.If):
        return bool(last.orelse) and _raises(last.body) and _raises(last.orelse)
    if isinstance(last, ast.Try):
        return _raises(last.finalbody) if last.finalbody else _raises(last.body)
    return False
