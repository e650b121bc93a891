"""Payloads only ever gain optional fields, and names on the wire never change.

A history may be replayed years later, and during a deploy two versions talk to one another: a field
that is renamed, retyped or newly required leaves a run stuck where nobody can undo it.
"""

import copy
import json
from typing import Annotated, Any, Literal, Union

import pytest
from pydantic import BaseModel, Field, TypeAdapter, create_model

from tests.golden.schemas import breaks, names, schemas
from tests.golden.snapshot import stored

WHAT_TO_DO = (
    "give the field a default instead, or add a handler under a new name (…V2) and let the old one "
    "live until no run knows it. If no run can know the old shape (nothing was released): "
    "`make golden`, and review the diff"
)


def test_payloads_only_gain_optional_fields() -> None:
    now = schemas()
    before = json.loads(stored("schemas.json", json.dumps(now, indent=1, sort_keys=True) + "\n"))
    gone = [f"{name}: is gone" for name in before if name not in now]
    found = [
        problem
        for name in before
        if name in now
        for problem in breaks(before[name], now[name], name)
    ]
    assert not gone + found, "\n".join([*gone, *found, WHAT_TO_DO])


def test_names_on_the_wire_stay() -> None:
    text = "\n".join(names()) + "\n"
    before, now = stored("names.txt", text).splitlines(), text.splitlines()
    missing = [f"{name}: is gone" for name in before if name not in now]
    new = [f"{name}: is new (`make golden` writes it down)" for name in now if name not in before]
    assert not missing + new, "\n".join([*missing, *new, WHAT_TO_DO])


def test_every_handler_takes_and_gives_models_of_its_own() -> None:
    """Bare scalars cannot gain a field. The document is raw, and a sign of life is one word."""
    bare = {
        name
        for name, schema in schemas().items()
        if schema.get("type") != "object" or "properties" not in schema
    }
    empty = {"workflow LeaseSweep takes 0", "activity sweep on burnproof takes 0"}
    assert bare - empty == {
        "workflow FaultExperiment takes 0",
        "FaultExperiment query alive gives",
    }


class Inner(BaseModel):
    ratio: float
    kind: str = "a"


class Model(BaseModel):
    name: str
    usual: Inner = Inner(ratio=0.5)
    inner: Inner
    many: tuple[Inner, ...] = ()


def schema(model: Any) -> dict[str, Any]:
    found: dict[str, Any] = TypeAdapter(model).json_schema()
    return found


def test_the_same_shape_breaks_nothing() -> None:
    assert breaks(schema(Model), schema(Model)) == []


def test_a_new_optional_field_breaks_nothing_wherever_it_is() -> None:
    wider = create_model("Inner", __base__=Inner, note=(str, ""))
    new = create_model(
        "Model",
        __base__=Model,
        inner=(wider, ...),
        many=(tuple[wider, ...], ()),
        usual=(wider, wider(ratio=0.5)),
    )
    assert breaks(schema(Model), schema(new)) == []


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("ratio", {"ratio": (int, ...)}),
        ("kind", {"kind": (str, ...)}),
        ("kind", {"kind": (str, "b")}),
        ("new", {"new": (str, ...)}),
        ("ratio", {"ratio": (float | None, None)}),
    ],
)
def test_any_other_change_is_told_with_its_place(field: str, change: dict[str, Any]) -> None:
    inner = create_model("Inner", __base__=Inner, **change)
    new = create_model("Model", __base__=Model, inner=(inner, ...))
    found = breaks(schema(Model), schema(new), "handler")
    assert found and all(line.startswith("handler.properties.inner") for line in found)
    assert any(field in line for line in found)


class A(BaseModel):
    kind: Literal["a"]
    ratio: float


class B(BaseModel):
    kind: Literal["b"]


class C(BaseModel):
    kind: Literal["c"]


def union(*members: Any) -> dict[str, Any]:
    tagged = Annotated[Union[members], Field(discriminator="kind")]  # noqa: UP007
    return schema(create_model("Holder", one=(tagged, ...)))


def test_a_new_member_of_a_tagged_union_breaks_nothing_and_any_other_change_is_told() -> None:
    assert breaks(union(A, B), union(A, B, C)) == []
    assert breaks(union(A, B, C), union(A, B)) == [".properties.one[c]: is gone"]
    changed = create_model("A", kind=(Literal["a"], ...), ratio=(int, ...))
    (told,) = breaks(union(A, B), union(changed, B, C))
    assert told.startswith(".properties.one[a].properties.ratio")


def test_a_field_that_is_gone_is_told() -> None:
    old, new = schema(Model), copy.deepcopy(schema(Model))
    del new["$defs"]["Inner"]["properties"]["kind"]
    assert ".properties.inner.properties.kind: is gone" in breaks(old, new)
