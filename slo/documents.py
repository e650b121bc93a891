"""From what a person wrote to a typed model, strictly: nothing unknown is ever dropped.

Models themselves ignore unknown fields, so that a payload of a newer version can be read; the
strictness is passed at validation, and this is the one place that passes it. It also turns
pydantic's reports into `SpecError`s: one line, a path as the author sees it, the nearest known
key. What was hard: pydantic puts the tag of a union into the path, and reports a typo twice (the
wrong key is unknown, the right one is missing); the second report is noise and is left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from slo.durations import DOCUMENT
from slo.errors import SpecError, SpecErrors, nearest, one_line

Model = TypeVar("Model", bound=BaseModel)

MAX_DEPTH = 40
"""Deepest nesting of a document. Source: ours: the deepest real one has 8 levels."""

MAX_PROBLEMS = 100
"""Most problems that are told of one document. Source: ours: each costs time to explain, and a
worker that explains 50,000 of them renews no lease meanwhile."""

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def validate_document(model: type[Model], raw: object, *, written_by_hand: bool = True) -> Model:
    """Return the model that the document describes.

    Args:
        model: the model, as deep as it goes.
        raw: the parsed document.
        written_by_hand: durations need a unit; False where a program wrote seconds as numbers.

    Raises:
        SpecErrors: the document is not one; all problems, each with its path.
    """
    if not isinstance(raw, Mapping):
        raise SpecErrors([SpecError("", f"a mapping is needed, not {_kind(raw)}")])
    foreign = list(islice(_foreign_values(raw, "", 0), MAX_PROBLEMS))
    if foreign:
        raise SpecErrors(foreign)
    try:
        context = DOCUMENT if written_by_hand else None
        return model.model_validate(raw, extra="forbid", context=context)
    except ValidationError as error:
        raise SpecErrors(_translate(model, error)) from None


def _foreign_values(value: object, path: str, depth: int) -> Iterator[SpecError]:
    """Find what JSON cannot carry: dates, non-finite numbers, keys that are not text."""
    if depth > MAX_DEPTH:
        yield SpecError(path, f"nested deeper than {MAX_DEPTH} levels")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                yield SpecError(path, f"the key {key!r} is not text; put it in quotes")
            elif _UNSTORABLE.search(key):
                yield SpecError(path, f"the key {key!r} {_NOT_TEXT}")
            else:
                yield from _foreign_values(item, f"{path}.{key}" if path else key, depth + 1)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _foreign_values(item, f"{path}[{index}]", depth + 1)
    elif isinstance(value, str) and _UNSTORABLE.search(value):
        yield SpecError(path, f"the text {_NOT_TEXT}")
    elif isinstance(value, float) and not math.isfinite(value):
        yield SpecError(path, f"{value} is not a finite number")
    elif value is not None and not isinstance(value, str | int | float):
        yield SpecError(path, f"{_kind(value)} is not allowed here; put it in quotes")


_NOT_TEXT = "holds NUL or half of a surrogate pair, which cannot be stored; leave it out"


def _kind(value: object) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true or false"}
    if value is None:
        return "nothing"
    return names.get(type(value), f"a {type(value).__name__}")


def _translate(model: type[BaseModel], error: ValidationError) -> list[SpecError]:
    unknown: list[SpecError] = []
    others: list[tuple[str, SpecError]] = []
    details = error.errors(include_url=False)
    for detail in details[:MAX_PROBLEMS]:
        path, parent = _author_path(model, detail["loc"])
        if detail["type"] == "extra_forbidden":
            unknown.append(_unknown_key(path, str(detail["loc"][-1]), parent))
        else:
            others.append((detail["type"], _problem(path, dict(detail))))
    meant = {_sibling(item.path, item.suggestion) for item in unknown if item.suggestion}
    paths = [item.path for _, item in others]
    kept = [
        item
        for kind, item in others
        if not (kind == "missing" and item.path in meant)
        and not (kind == "too_short" and any(path.startswith(item.path + "[") for path in paths))
    ]
    left = len(details) - MAX_PROBLEMS
    more = [SpecError("", f"there are {left:,} more problems; mend these first")]
    return unknown + kept + (more if left > 0 else [])


def _unknown_key(path: str, key: str, parent: type[BaseModel] | None) -> SpecError:
    known = _keys(parent) if parent else []
    guess = nearest(key, known)
    listed = f"; known here: {', '.join(known)}" if known and not guess else ""
    nothing = "; there are none here" if parent and not known else ""
    return SpecError(path, f"unknown key{listed}{nothing}", guess)


def _problem(path: str, detail: dict[str, Any]) -> SpecError:
    kind, context, given = detail["type"], detail.get("ctx", {}), detail.get("input")
    if kind == "missing":
        return SpecError(path, "is missing")
    if kind == "union_tag_not_found":
        return SpecError(f"{path}.{str(context['discriminator']).strip(chr(39))}", "is missing")
    if kind == "union_tag_invalid":
        known = _quoted(context["expected_tags"])
        tag_path = f"{path}.{str(context['discriminator']).strip(chr(39))}"
        if context["tag"] == "None" and "null" in known:
            return SpecError(tag_path, 'is empty: in YAML a plain null is nothing; write "null"')
        return _wrong_word(tag_path, str(context["tag"]), known)
    if kind in {"literal_error", "enum"} and isinstance(given, str):
        return _wrong_word(path, given, _quoted(context["expected"]))
    if kind == "value_error":
        return SpecError(path, str(context["error"]))
    if kind == "too_short":
        return SpecError(path, "at least one entry is needed")
    if kind in _PLAIN:
        return SpecError(path, f"{_PLAIN[kind]}, not {_kind(given)}")
    message = detail["msg"].replace("Input should be", "must be").replace("valid ", "")
    return SpecError(path, f"{message}, not {one_line(_shown(given))}")


_PLAIN = {
    "dict_type": "a mapping is needed",
    "model_type": "a mapping is needed",
    "tuple_type": "a list is needed",
    "list_type": "a list is needed",
    "string_type": "text is needed",
}


def _shown(value: object) -> str:
    if value is None or isinstance(value, dict | list | bool):
        return _kind(value)
    return f'"{value}"' if isinstance(value, str) else str(value)


def _wrong_word(path: str, given: str, known: Sequence[str]) -> SpecError:
    guess = nearest(given, known)
    return SpecError(path, f'"{given}" is not one of {", ".join(known)}', guess)


def _quoted(expected: str) -> list[str]:
    """Return the words in pydantic's `'a', 'b' or 'c'`."""
    return [word for index, word in enumerate(expected.split("'")) if index % 2]


def _sibling(path: str, key: str | None) -> str:
    head, dot, _ = path.rpartition(".")
    return f"{head}{dot}{key}"


def _keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _author_path(
    model: type[BaseModel], loc: tuple[int | str, ...]
) -> tuple[str, type[BaseModel] | None]:
    """Return the path as the author sees it, and the model that holds its last key."""
    path, here, members = "", [model], [model]
    for step in loc:
        if step == "[key]":  # pydantic says that it means the key, not the value
            continue
        tagged = [item for item in members if step in _tags(item)]
        if len(members) > 1 and tagged:
            members = tagged
            continue
        here = members
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else str(step)
        members = members if isinstance(step, int) else _children(here, step)
    return path, here[0] if len(here) == 1 else None


def _tags(model: type[BaseModel]) -> set[object]:
    """Return the words by which a discriminated union can name the model."""
    annotations = [field.annotation for field in model.model_fields.values()]
    return {word for item in annotations if get_origin(item) is Literal for word in get_args(item)}


def _children(models: Sequence[type[BaseModel]], key: str) -> list[type[BaseModel]]:
    found: list[type[BaseModel]] = []
    for model in models:
        for name, field in model.model_fields.items():
            if key == (field.alias or name):
                found += _models_in(field.annotation)
    return found


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    is_union = get_origin(annotation) in {Union, type(int | str), tuple, list}
    nested = get_args(annotation) if is_union else get_args(annotation)[:1]
    return [model for item in nested for model in _models_in(item)]
