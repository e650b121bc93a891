"""Whether the arguments of tool calls have the fields that the request's schemas ask for.

Only what a call must have to be carried out is checked: the required fields of the top level, and
the type of each field that the schema gives one. Anything else in a schema is ignored, and a tool
without a readable schema fits: a flag must be silent on what it does not understand.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}
"""JSON type → what Python reads for it. Source: JSON Schema 2020-12, validation, section 6.1.1."""


def fields_fit(calls: Iterable[tuple[str, str]], tools: object) -> bool:
    """Say whether every call has its required fields, each of its type.

    Args:
        calls: name and arguments of each call; arguments that are no JSON object are not judged.
        tools: the `tools` of the request, as it came.
    """
    schemas = _schemas(tools)
    return all(_fits(arguments, schemas[name]) for name, arguments in calls if name in schemas)


def _schemas(tools: object) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for tool in tools if isinstance(tools, list) else ():
        function = tool.get("function") if isinstance(tool, dict) else None
        schema = function.get("parameters") if isinstance(function, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(schema, dict) and isinstance(name, str):
            found[name] = schema
    return found


def _fits(arguments: str, schema: Mapping[str, Any]) -> bool:
    try:
        fields = json.loads(arguments)
    except (ValueError, RecursionError):
        return True
    if not isinstance(fields, dict):
        return True
    required = schema.get("required")
    if any(name not in fields for name in _names(required)):
        return False
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return True
    return all(
        _is_of(value, properties[name].get("type"))
        for name, value in fields.items()
        if isinstance(properties.get(name), dict)
    )


def _names(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _is_of(value: object, kind: object) -> bool:
    kinds = [kind] if isinstance(kind, str) else _names(kind)
    known = [each for each in kinds if each in _TYPES]
    return not known or any(_is(value, each) for each in known)


def _is(value: object, kind: str) -> bool:
    if isinstance(value, bool):  # which Python counts among the integers
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[kind])
