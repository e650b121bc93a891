"""The catalogue of faults as text: for `burnproof faults` and for `docs/faults.md`.

Everything is read from the models and from `TemplateInfo`, so that no page can promise what the
code does not do; a test compares the page with what is made here. The meaning of a parameter is the
text under it in the source.
"""

import ast
import inspect
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from faults.catalog import CATALOG, TemplateInfo
from faults.durations import Seconds, format_duration
from faults.match import Match

_SECONDS = get_args(Seconds)[-1]
_WORDS = {float: "number", int: "whole number", bool: "true or false", str: "text"}
_SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


class Row(NamedTuple):
    """One key of a mapping."""

    key: str
    kind: str
    default: str
    bounds: str
    meaning: str


def rows(model: type[BaseModel]) -> list[Row]:
    """Return the keys of a flat model."""
    told = _told(model)
    return [
        Row(name, _kind(field), _default(field), _bounds(field), " ".join(told[name].split()))
        for name, field in model.model_fields.items()
    ]


def _told(model: type[BaseModel]) -> dict[str, str]:
    """Return the text under each field of the model's source."""
    tree = ast.parse(Path(inspect.getfile(model)).read_text("utf-8"))
    found = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == model.__name__)
    return {
        ast.unparse(field.target): ast.literal_eval(after.value)
        for field, after in pairwise(found.body)
        if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr)
    }


def _parts(annotation: Any) -> Iterator[Any]:
    """Give everything that an annotation is made of, outermost first."""
    yield annotation
    for item in getattr(annotation, "__metadata__", ()):
        yield item
        yield from getattr(item, "metadata", ())
    inner = [annotation.__origin__] if hasattr(annotation, "__metadata__") else []
    if not inner and get_origin(annotation) in {Union, type(int | str)}:
        inner = [part for part in get_args(annotation) if part is not type(None)]
    for part in inner:
        yield from _parts(part)


def _everything(field: FieldInfo) -> list[Any]:
    return [*field.metadata, *_parts(field.annotation)]


def _kind(field: FieldInfo) -> str:
    parts = _everything(field)
    if any(part == _SECONDS for part in parts):
        return "duration"
    words = next((get_args(part) for part in parts if get_origin(part) is Literal), ())
    if words:
        return " or ".join(f"`{word}`" for word in words)
    return next(_WORDS[part] for part in parts if isinstance(part, type) and part in _WORDS)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    if field.default is None:
        return "none"
    if _kind(field) == "duration":
        return f"`{format_duration(field.default)}`"
    if isinstance(field.default, bool):
        return f"`{str(field.default).lower()}`"
    return f"`{field.default:g}`" if isinstance(field.default, float) else f"`{field.default}`"


def _bounds(field: FieldInfo) -> str:
    show = format_duration if _kind(field) == "duration" else "{:,}".format
    found = {}
    for part in _everything(field):
        for name, sign in _SIGNS.items():
            if not isinstance(part, type) and getattr(part, name, None) is not None:
                found[name] = f"{sign} {show(getattr(part, name))}"
    return ", ".join(found[name] for name in _SIGNS if name in found)


def facts(info: TemplateInfo) -> list[tuple[str, str]]:
    """Return what is said about a template, beside its summary and its parameters."""
    kills = "; may kill the engine" if info.may_kill_engine else ""
    return [
        (
            "layer",
            f"{info.layer}, injected by the {info.backend}, attached to the {info.attaches_to}",
        ),
        ("specification", ", ".join(info.spec_ids)),
        ("blast class", f"{info.blast}{kills}"),
        ("needs", "; ".join(info.preconditions)),
        ("expected signals", ", ".join(info.expected_signals) or "none"),
        ("effect check", info.effect_check),
        ("undo", info.undo),
    ]


def _table(found: list[Row]) -> list[str]:
    lines = ["| key | type | default | bounds | meaning |", "| --- | --- | --- | --- | --- |"]
    return lines + [f"| `{row[0]}` | {' | '.join(row[1:])} |" for row in found]


def page() -> str:
    """Return docs/faults.md."""
    lines = [_HEAD]
    lines += ["| template | what it does | class |", "| --- | --- | --- |"]
    for info in CATALOG.values():
        anchor = "".join(c for c in info.id if c.isalnum() or c == "-")
        lines.append(f"| [`{info.id}`](#{anchor}) | {info.summary} | {info.blast} |")
    lines += ["", "## Match rules", "", _MATCH, "", *_table(rows(Match)), "", "## Templates"]
    for info in CATALOG.values():
        lines += ["", f"### `{info.id}`", "", f"{info.summary}.", ""]
        lines += [f"- **{name}**: {text}" for name, text in facts(info)]
        lines += ["", *(_table(found) if (found := rows(info.parameters)) else [_NOTHING])]
    return "\n".join(lines) + "\n"


_NOTHING = "It takes no parameters. Write `null` in quotes: without them it is YAML for nothing."

_HEAD = """# Faults

What the gateway can break, one section a template. This page is made from the catalogue in
`faults/`; a test says when it is behind (`BURNPROOF_GOLDEN_WRITE=1` writes it anew).

```console
$ burnproof faults list
$ burnproof faults show gateway/stream-cut
$ burnproof faults verify gateway/stream-cut
$ burnproof faults verify --all
```

`verify` proves a fault on the stack that runs. It takes a lease on the route, sends a request of
its own and sees nothing; puts the fault on, sends the same and sees the effect; takes it off, sends
it again and sees nothing. Its requests are probes of a tenant of its own, and a match rule keeps
everybody else's away from the fault: they are in no SLI and in no count. Exit code 1 if an effect
or a removal is not proven in two tries. A fault that has nothing to act on at a route (embeddings
of a chat model) is tried on the others, unless `--route` names one; what no route has is told as
`not here`: that is no proof, so the exit code is 2 then, and 3 if nothing at all was there. While
a run is on, the lease of its route is taken and `verify` is refused.

The local stack serves the chat model alone; `burnproof up --embeddings` starts one more engine, so
that every template can be proven on real vLLM. The case `search` of `gateway/constant-embeddings`
asks for the vectors of 40 passages and 40 questions and says which share of the questions finds its
passage among the 5 nearest: with equal vectors that is chance, 5 of 40.

Every fault hangs on a lease, has a seed, and touches the share `probability` of the requests it
meets: who is touched depends on seed and request alone. A fault that is drawn but cannot act on
a request (a header that is not there, an answer of another kind) leaves it untouched and does not
count it. Several faults on one answer act in a fixed order: what changes bytes, then what changes
time. A lease that ends in the middle of an answer lets the rest of it through at once.

A streamed answer that a fault may change leaves chunked; a plain one gets its new `Content-Length`.
Compressed answers are dripped and otherwise left alone.
"""

_MATCH = """`fault.match` says which requests a fault may meet at all; what does not match is not
exposed, and in no count. Each rule is a literal or a pattern with `*`, `?` and `[…]`, case counts,
and all that are given must match.

    fault:
      template: gateway/rate-limit
      parameters: {probability: 0.1, retry_after: 2s}
      match: {tenant: "team-*", path: /v1/chat/completions}
      duration: 5m"""
