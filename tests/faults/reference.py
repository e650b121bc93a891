"""The reference tables of documents, made from the models: key, unit, default, bounds, meaning.

`rows` is the truth; a test compares it with the page; `BURNPROOF_GOLDEN_WRITE=1` writes it there.
"""

import ast
import inspect
import os
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from faults.durations import Seconds, format_duration
from faults.match import Match

_SECONDS = get_args(Seconds)[-1]
ROOT = Path(__file__).parents[2]


def table(model: type[BaseModel]) -> str:
    head = "| key | type | default | bounds | meaning |\n| --- | --- | --- | --- | --- |\n"
    return head + "".join(f"| {' | '.join(row)} |\n" for row in rows(model, ""))


def rows(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, ...]]:
    told = _told(model)
    for name, field in model.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        models = [m for m in _models(field.annotation) if not _is_union(field)]
        is_list = get_origin(_plain(field.annotation)) is tuple
        kind = _kind(field)
        meaning = told.get(name) or (inspect.getdoc(models[0]) if models else "") or ""
        yield (f"`{key}`", kind, _default(field), _bounds(field), " ".join(meaning.split()))
        if _is_union(field):
            yield from _template_rows(key, models_of_union(field))
        for inner in models:
            yield from rows(inner, f"{key}[]." if is_list else f"{key}.")


def models_of_union(field: FieldInfo) -> list[type[BaseModel]]:
    return list(get_args(_plain(field.annotation)))


def _template_rows(key: str, models: list[type[BaseModel]]) -> Iterator[tuple[str, ...]]:
    words = " or ".join(f"`{get_args(m.model_fields['template'].annotation)[0]}`" for m in models)
    yield (f"`{key}.template`", words, "needed", "", "Which fault.")
    yield (f"`{key}.parameters`", "mapping", "needed", "", "See docs/faults.md.")
    length = models[0].model_fields["duration"]
    told = "Longest that the fault holds."
    yield (f"`{key}.duration`", _kind(length), _default(length), _bounds(length), told)
    told = "Which requests it may meet; default: all that reach its replicas."
    yield (f"`{key}.match`", "mapping", "none", "", told)
    yield from rows(Match, f"{key}.match.")


def _is_union(field: FieldInfo) -> bool:
    return field.discriminator is not None


def _plain(annotation: Any) -> Any:
    """Return the annotation without `| None` and without metadata."""
    if hasattr(annotation, "__metadata__"):
        return _plain(annotation.__origin__)
    options = [item for item in get_args(annotation) if item is not type(None)]
    return _plain(options[0]) if type(None) in get_args(annotation) else annotation


def _models(annotation: Any) -> list[type[BaseModel]]:
    plain = _plain(annotation)
    if isinstance(plain, type) and issubclass(plain, BaseModel):
        return [plain]
    return _models(get_args(plain)[0]) if get_origin(plain) is tuple else []


def _metadata(field: FieldInfo) -> list[Any]:
    found = list(field.metadata)
    pending = [field.annotation]
    while pending:
        item = pending.pop()
        found += getattr(item, "__metadata__", ())
        pending += [*get_args(item)] if not hasattr(item, "__metadata__") else [item.__origin__]
    flat = []
    for item in found:
        flat += item.metadata if isinstance(item, FieldInfo) else [item]
    return flat


def _kind(field: FieldInfo) -> str:
    if any(item == _SECONDS for item in _metadata(field)):
        return "duration"
    plain = _plain(field.annotation)
    origin = get_origin(plain)
    if _is_union(field):
        return "one of the templates"
    if _models(field.annotation):
        return "list of mappings" if origin is tuple else "mapping"
    if origin is Literal:
        return " or ".join(f"`{word}`" for word in get_args(plain))
    if origin is tuple:
        inner = _plain(get_args(plain)[0])
        return "list of " + (
            "documents"
            if get_origin(inner) is dict
            else " ".join(f"`{w}`" for w in get_args(inner))
            if get_origin(inner) is Literal
            else {float: "numbers", str: "names"}[inner]
        )
    if origin is dict:
        key, value = get_args(plain)
        words = " ".join(f"`{w}`" for w in get_args(key))
        if words:
            return f"mapping of {words} to numbers"
        return "mapping of text to text" if value is str else "document"
    return {float: "number", int: "whole number", bool: "true or false", str: "text"}[plain]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined or value is None or value in ("", {}, ()):
        return "none"
    if isinstance(value, BaseModel):
        return "as below"
    if _kind(field) == "duration":
        return f"`{format_duration(value)}`"
    if isinstance(value, dict):
        return "`{" + ", ".join(f"{k}: {v:g}" for k, v in value.items()) + "}`"
    if isinstance(value, tuple):
        return "`[" + ", ".join(map(str, value)) + "]`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _bounds(field: FieldInfo) -> str:
    shown = format_duration if _kind(field) == "duration" else "{:,}".format
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    parts: dict[str, str] = {}
    for item in _metadata(field):
        for name, sign in signs.items():
            if getattr(item, name, None) is not None:
                parts[name] = f"{sign} {shown(getattr(item, name))}"
        for name, word in (("min_length", "at least"), ("max_length", "at most")):
            if getattr(item, name, None) is not None:
                parts[name] = f"{word} {getattr(item, name)} long"
    order = [*signs, "min_length", "max_length"]
    return ", ".join(parts[name] for name in order if name in parts)


def _told(model: type[BaseModel]) -> dict[str, str]:
    """Return the text under each field of the model's source."""
    tree = ast.parse(Path(sys.modules[model.__module__].__file__ or "").read_text("utf-8"))
    body = next(
        n.body for n in tree.body if isinstance(n, ast.ClassDef) and n.name == model.__name__
    )
    told = {}
    for field, after in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr):
            told[ast.unparse(field.target)] = ast.literal_eval(after.value)
    return told


def check_page(page: str, tables: dict[str, type[BaseModel]]) -> None:
    """Compare each table of a page with its model, or write it when asked to."""
    path = ROOT / page
    text = path.read_text(encoding="utf-8")
    wanted = text
    for name, model in tables.items():
        pattern = rf"(<!-- table {re.escape(name)} -->\n).*?(<!-- end -->)"
        assert re.search(pattern, wanted, re.S), f"{page} has no table {name}"
        head, _, rest = wanted.partition(f"<!-- table {name} -->\n")
        wanted = (
            f"{head}<!-- table {name} -->\n\n{table(model)}\n{rest[rest.index('<!-- end -->') :]}"
        )
    if os.environ.get("BURNPROOF_GOLDEN_WRITE") == "1":
        path.write_text(wanted, encoding="utf-8")
    else:
        assert text == wanted, f"{page} is behind the models: run with BURNPROOF_GOLDEN_WRITE=1"
