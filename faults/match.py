"""Which requests a fault may meet at all: five properties, each a literal or a pattern.

A rule that is left out matches everything. What does not match is not exposed: it is in no count
of the fault, so that "met by the fault and not affected" keeps its meaning. What was hard is the
adapter: engines address a LoRA adapter by `model`, so it is the model's name unless that is the
route's first, which is the base model.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import BaseModel, StringConstraints

Pattern = Annotated[str, StringConstraints(min_length=1, max_length=200)]
"""A literal or a glob: `*` any characters, `?` one, `[ab]` one of these; case counts."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the rules look at in one request; empty where it has none."""

    model: str = ""
    adapter: str = ""
    tenant: str = ""
    path: str = ""
    arm: str = ""


class Match(BaseModel, frozen=True):
    """Which requests the fault may meet: all rules that are given must match."""

    model: Pattern | None = None
    """The `model` that the request names."""
    adapter: Pattern | None = None
    """The same, where it is not the route's base model (the first of its `models`)."""
    tenant: Pattern | None = None
    """The tenant: `x-tenant-id`, or what the signs of tenants say."""
    path: Pattern | None = None
    """The path of the request, without its query."""
    arm: Pattern | None = None
    """The arm: `control` or `chaos`; no arm matches when no split is on."""

    @property
    def is_empty(self) -> bool:
        """Whether every request matches."""
        return not any((self.model, self.adapter, self.tenant, self.path, self.arm))

    def allows(self, asked: Asked) -> bool:
        """Return whether a request matches every rule that is given."""
        return all(
            pattern is None or fnmatchcase(value, pattern)
            for pattern, value in (
                (self.model, asked.model),
                (self.adapter, asked.adapter),
                (self.tenant, asked.tenant),
                (self.path, asked.path),
                (self.arm, asked.arm),
            )
        )
