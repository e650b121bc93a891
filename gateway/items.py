"""The three kinds of things that a lease can put on a route, as asked for and as they run.

The models are strict, since they come over the admin API from a program: an unknown key is a bug
there, not a wish. A running item knows whom it touches and carries the event that wakes every
sleeping hook when it ends.
"""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from faults.catalog import Null, Parameters, parse_parameters
from faults.match import Asked, Match
from gateway.names import Name
from gateway.routing import Split

if TYPE_CHECKING:
    from gateway.flight import Flight

EVERY_REPLICA = "*"


class _Spec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SplitSpec(_Spec):
    """Two arms: which replicas serve them and which share of units goes to the chaos arm."""

    experiment: Name
    salt: str = Field(min_length=1, max_length=256)
    share: float = Field(gt=0, lt=1)
    control: tuple[Name, ...] = Field(min_length=1)
    chaos: tuple[Name, ...] = Field(min_length=1)
    unit: Literal["conversation", "request"] = "conversation"

    @model_validator(mode="after")
    def _arms_are_disjoint(self) -> Self:
        both = [*self.control, *self.chaos]
        if len(set(both)) != len(both):
            raise ValueError("a replica is named twice in control and chaos")
        return self

    def split(self, item_id: str) -> Split:
        """Return the pure form that routing reads."""
        return Split(
            item_id=item_id,
            experiment=self.experiment,
            salt=self.salt,
            share=self.share,
            control=self.control,
            chaos=self.chaos,
            by_conversation=self.unit == "conversation",
        )


class MatchSpec(Match, extra="forbid"):
    """Match rules from a program: an unknown one is a bug there."""


class FaultSpec(_Spec):
    """A fault on some replicas, for at most `max_seconds`."""

    template: str
    parameters: dict[str, Any] = {}
    replicas: tuple[str, ...] = Field(min_length=1)
    max_seconds: float = Field(gt=0, le=86_400)
    seed: int = 0
    match: Annotated[MatchSpec, Field(exclude_if=lambda match: match.is_empty)] = MatchSpec()
    """Which requests it may meet; not written down when there is no rule."""


class BreakerSpec(_Spec):
    """Another breaker threshold for the treated units; the hold-out keeps the base one."""

    threshold_ratio: float = Field(gt=0, lt=1)
    holdout_share: float = Field(default=0.0, ge=0, lt=1)
    salt: str = Field(min_length=1, max_length=256)
    replicas: tuple[str, ...] = Field(default=(EVERY_REPLICA,), min_length=1)


Spec = SplitSpec | FaultSpec | BreakerSpec

KINDS: dict[str, type[Spec]] = {"split": SplitSpec, "fault": FaultSpec, "breaker": BreakerSpec}
"""Kind of item on the wire → its model."""


@dataclass(eq=False)
class Running:
    """An item that acts on a route, or did. Its lease says for how long."""

    item_id: str
    spec: Spec
    at_unix: float
    exposed: int = 0
    touched: int = 0
    touching: "set[Flight]" = field(default_factory=set)
    """Requests in flight that it touched, probes included."""
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def active(self) -> bool:
        """Whether it may act now."""
        return not self.over.is_set()

    def end(self) -> None:
        """Stop acting for good and wake every hook that sleeps."""
        self.over.set()

    def counts(self) -> dict[str, int]:
        """Return what a page and a receipt say about its effect."""
        return {
            "exposed": self.exposed,
            "touched": self.touched,
            "still_touching": len(self.touching),
        }


@dataclass(eq=False)
class RunningFault(Running):
    """A fault that runs. Probes are touched but not counted: they are not traffic."""

    parameters: Parameters = field(default_factory=Null)
    seed: int = 0
    match: Match = field(default_factory=Match)

    def may_meet(self, flight: "Flight", base_model: str) -> bool:
        """Return whether its rules let it meet this request; asked for each one, so empty is fast.

        `base_model` is the route's first model; another one is an adapter.
        """
        if self.match.is_empty:
            return True
        adapter = "" if flight.model == base_model else flight.model
        asked = Asked(flight.model, adapter, flight.tenant, flight.path, flight.arm)
        return self.match.allows(asked)

    def note_touch(self, flight: "Flight") -> None:
        """Count a request that this item changed."""
        self.touching.add(flight)
        if not flight.probe:
            self.touched += 1


def start_item(item_id: str, spec: Spec, at_unix: float) -> Running:
    """Make the running form of an item.

    Raises:
        SpecErrors: The fault template is unknown or a parameter is out of bounds.
    """
    if isinstance(spec, FaultSpec):
        parameters = parse_parameters(spec.template, spec.parameters)
        return RunningFault(
            item_id, spec, at_unix, parameters=parameters, seed=spec.seed, match=spec.match
        )
    return Running(item_id, spec, at_unix)
