"""The shape of everything that travels, taken from what the worker registers.

`breaks` says what a reader of yesterday or a history of yesterday could not bear: it allows new
optional fields and new members of tagged unions, and nothing else.
"""

from collections.abc import Iterator
from typing import Any, cast

from pydantic import TypeAdapter
from temporalio import activity, workflow

from worker import WORKFLOWS, Crew, Ports
from workflows import queues
from workflows.search_attributes import ALL

Json = dict[str, Any]
PROSE = {"title", "description"}


def handlers() -> Iterator[tuple[str, list[Any], Any]]:
    """Return each name on the wire with the types that it takes and gives."""
    for cls in WORKFLOWS:
        found = workflow._Definition.must_from_class(cls)
        yield f"workflow {found.name}", found.arg_types or [], found.ret_type
        for update in found.updates.values():
            yield f"{found.name} update {update.name}", update.arg_types or [], update.ret_type
        for signal in found.signals.values():
            yield f"{found.name} signal {signal.name}", signal.arg_types or [], None
        for query in found.queries.values():
            yield f"{found.name} query {query.name}", query.arg_types or [], query.ret_type
    for queue, functions in crew().items():
        for function in functions:
            act = activity._Definition.must_from_callable(function)
            yield f"activity {act.name} on {queue}", act.arg_types or [], act.ret_type


def crew() -> dict[str, list[Any]]:
    """Return the activities by task queue; none is called, so none is given a port."""
    nothing = cast("Any", None)
    ports = Ports(nothing, nothing, nothing, nothing, nothing)
    made = Crew(ports, poll_seconds=1.0)
    return {
        queues.MAIN: made.main,
        queues.HOLD: made.hold,
        queues.OBSERVE: made.observe,
        queues.UNDO: made.undo,
    }


def names() -> list[str]:
    """Return every name that another program or a history may know."""
    own = [name for name, _, _ in handlers()]
    return sorted(own + [f"search attribute {key.name}" for key in ALL])


def schemas() -> Json:
    """Return the JSON schema of every argument and result."""
    found: Json = {}
    for name, takes, gives in handlers():
        for index, kind in enumerate(takes):
            found[f"{name} takes {index}"] = _schema(kind)
        if gives is not None:
            found[f"{name} gives"] = _schema(gives)
    return found


def _schema(kind: Any) -> Json:
    schema: Json = TypeAdapter(kind).json_schema(mode="validation")
    return schema


def breaks(old: Json, new: Json, at: str = "") -> list[str]:
    """Return what changed beside new optional fields, one sentence each."""
    return list(_differences((old, old), (new, new), at, frozenset()))


def _differences(
    old: tuple[Any, Json], new: tuple[Any, Json], at: str, seen: frozenset[str]
) -> Iterator[str]:
    """Walk two schemas side by side, each with the document that its references point into."""
    (before, old_root), (after, new_root) = old, new
    if isinstance(before, dict) and "$ref" in before:
        if before["$ref"] in seen:
            return
        seen |= {before["$ref"]}
    before, after = _follow(before, old_root), _follow(after, new_root)
    if isinstance(before, dict) and isinstance(after, dict):
        apart = PROSE | {"$defs"}
        if "discriminator" in before and "discriminator" in after:
            apart |= {"discriminator", "oneOf"}
            yield from _members((before, old_root), (after, new_root), at, seen)
        for key in sorted((set(before) | set(after)) - apart):
            yield from _key(key, (before, old_root), (after, new_root), f"{at}.{key}", seen)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _differences((one, old_root), (other, new_root), f"{at}[{index}]", seen)
    elif before != after:
        yield f"{at}: was {before!r}, is {after!r}"


def _members(
    old: tuple[Json, Json], new: tuple[Json, Json], at: str, seen: frozenset[str]
) -> Iterator[str]:
    """Compare tagged unions: a new member breaks nothing, as long as nobody sends it yet."""
    (before, old_root), (after, new_root) = old, new
    was, now = before["discriminator"], after["discriminator"]
    if was["propertyName"] != now["propertyName"]:
        yield f"{at}: was told apart by {was['propertyName']!r}, is by {now['propertyName']!r}"
    for tag, ref in was["mapping"].items():
        if tag not in now["mapping"]:
            yield f"{at}[{tag}]: is gone"
            continue
        pair = {"$ref": ref}, {"$ref": now["mapping"][tag]}
        yield from _differences((pair[0], old_root), (pair[1], new_root), f"{at}[{tag}]", seen)


def _key(
    key: str, old: tuple[Json, Json], new: tuple[Json, Json], at: str, seen: frozenset[str]
) -> Iterator[str]:
    (before, old_root), (after, new_root) = old, new
    if key == "properties":
        for name, schema in before.get(key, {}).items():
            if name not in after.get(key, {}):
                yield f"{at}.{name}: is gone"
                continue
            other = (after[key][name], new_root)
            yield from _differences((schema, old_root), other, f"{at}.{name}", seen)
    elif key == "required":
        was, now = set(before.get(key, ())), set(after.get(key, ()))
        yield from (f"{at}: {name} is required now" for name in sorted(now - was))
        yield from (f"{at}: {name} is not required any more" for name in sorted(was - now))
    elif key == "default" and _widened(before.get(key), after.get(key)):
        return  # the default of a model shows its new fields
    elif key not in before:
        yield f"{at}: is new, and constrains: {after[key]!r}"
    elif key not in after:
        yield f"{at}: was {before[key]!r}, is gone"
    else:
        yield from _differences((before[key], old_root), (after[key], new_root), at, seen)


def _widened(before: Any, after: Any) -> bool:
    """Tell whether a literal is the same but for more keys in its objects."""
    if isinstance(before, dict) and isinstance(after, dict):
        return all(key in after and _widened(before[key], after[key]) for key in before)
    return before is not None and before == after


def _follow(node: Any, root: Json) -> Any:
    while isinstance(node, dict) and "$ref" in node:
        rest = {key: value for key, value in node.items() if key != "$ref"}
        node = {**root["$defs"][node["$ref"].rsplit("/", 1)[1]], **rest}
    return node
