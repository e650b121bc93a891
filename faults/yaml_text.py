"""YAML text to plain values, with the line of every key.

Stricter than YAML where YAML is a trap: one document a file, no key twice, no alias that makes
the document many times larger than its text. It reads no file. What was hard: an author needs the
line of the *key* that is wrong, and the loader that makes values forgets lines; so the node tree
is kept and `locate` walks it along the path of a problem.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import yaml
from yaml.constructor import ConstructorError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from slo.errors import SpecError, SpecErrors, one_line

MAX_BYTES = 1_000_000
"""Largest file, in bytes of UTF-8. Source: ours: the largest real one has 3 kB."""

MAX_NODES = 100_000
"""Most values after aliases are expanded. Source: ours: aliases of aliases grow exponentially."""

Locate = Callable[[str], int | None]
"""Dotted path → line from 1, of its key or of the nearest part of it that exists."""


def parse_yaml(text: str, filename: str) -> tuple[object, Locate]:
    """Return the value of the one document in `text`, and the way to find lines in it.

    Raises:
        SpecErrors: not one YAML document; one line, with file and line where known.
    """
    size = len(text.encode("utf-8", "replace"))
    if size > MAX_BYTES:
        raise _error(filename, f"the file is too large; at most {MAX_BYTES:,} bytes are read")
    try:
        nodes = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = error.problem or error.context or "not YAML"
        hint = "; indent with spaces" if "'\\t'" in what else ""
        line = mark.line + 1 if mark else None
        raise _error(filename, f"not valid YAML: {what}{hint}", line) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise _error(filename, f"not valid YAML: {one_line(str(error))}") from None
    if not nodes or nodes[0] is None:
        raise _error(filename, "the file is empty")
    if len(nodes) > 1:
        raise _error(filename, "one document a file, but here a second one begins", _line(nodes[1]))
    _check_keys(nodes[0], filename)
    return _construct(nodes[0], filename), lambda path: _locate(nodes[0], path)


def _error(filename: str, message: str, line: int | None = None) -> SpecErrors:
    problem = SpecError("", message, line=line)
    where = filename if line is None else f"{filename}:{line}"
    return SpecErrors([problem], [f"{where}: {problem.message}"])


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


def _check_keys(root: Node, filename: str) -> None:
    """Refuse a key that is there twice, a key that is not a scalar, and too many values."""
    open_nodes, count = [root], 0
    while open_nodes:
        node = open_nodes.pop()
        count += 1
        if count > MAX_NODES:
            raise _error(filename, f"more than {MAX_NODES:,} values once aliases are expanded")
        if isinstance(node, SequenceNode):
            open_nodes += node.value
        elif isinstance(node, MappingNode):
            seen: dict[str, int] = {}
            for key, value in node.value:
                if not isinstance(key, ScalarNode):
                    raise _error(filename, "a key must be text", _line(key))
                if key.value in seen:
                    first = f'the key "{key.value}" is here twice, first on line {seen[key.value]}'
                    raise _error(filename, first, _line(key))
                seen[key.value] = _line(key)
                open_nodes.append(value)


def _construct(root: Node, filename: str) -> object:
    loader = yaml.SafeLoader("")
    try:
        value: object = loader.construct_document(root)
        return value
    except ConstructorError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise _error(filename, f"not allowed: {error.problem}", line) from None
    except (ValueError, OverflowError, RecursionError) as error:
        raise _error(filename, f"not valid YAML: {one_line(str(error))}") from None
    except (LookupError, AttributeError):  # what PyYAML raises on `!!bool maybe`, `!!int ""` …
        why = "not valid YAML: a value does not fit the tag written before it; leave the tag out"
        raise _error(filename, why) from None
    finally:
        loader.dispose()


def _locate(root: Node, path: str) -> int | None:
    node, line, rest = root, _line(root), path
    while rest:
        found = _step(node, rest)
        if found is None:
            break
        node, line, rest = found
    return line


def _step(node: Node, rest: str) -> tuple[Node, int, str] | None:
    """Follow one key or index of the path; None when the document does not have it."""
    rest = rest.removeprefix(".")
    if isinstance(node, SequenceNode):
        index = re.match(r"\[(\d+)\]|(\d+)", rest)
        position = int(index[1] or index[2]) if index else len(node.value)
        if index is None or position >= len(node.value):
            return None
        item = node.value[position]
        return item, _line(item), rest[index.end() :]
    if not isinstance(node, MappingNode):
        return None
    # Keys may themselves contain dots (labels do), so the longest key that fits is taken.
    for key, value in sorted(node.value, key=lambda pair: -len(pair[0].value)):
        name = key.value
        if rest == name or (rest.startswith(name) and rest[len(name)] in ".["):
            return value, _line(key), rest[len(name) :]
    return None
