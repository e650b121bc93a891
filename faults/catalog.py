"""The catalogue of faults: what each one does, within which bounds, and how it is proven.

One template is a frozen model (its parameters) and a `TemplateInfo` (all that is said about it).
Nothing here injects anything: the gateway reads these models and acts. What was hard: whether a
fault *happened* is part of its definition. A template that expects an effect and shows none after
enough eligible requests was not injected, and its run can never pass; only `null` expects none.

`Fault` is a discriminated union and is only ever used as a field of another model: as a bare
handler parameter it would lose its discriminator on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, FiniteFloat, model_validator

from faults.durations import Seconds
from faults.numbers import Probability
from slo.documents import validate_document
from slo.errors import SpecError, SpecErrors, nearest


class LatencyPareto(BaseModel, frozen=True):
    """Delay a share of requests by `base` × X, X ~ Pareto(alpha) with minimum 1."""

    alpha: Annotated[FiniteFloat, Field(strict=True, ge=0.5, le=10)] = 1.5
    """Tail index in [0.5, 10]; up to 2 the variance is infinite. Source: A9, 1.3 to 1.8."""
    base: Annotated[Seconds, Field(ge=0.001, le=60)] = 0.05
    """Smallest delay of a touched request, 1 ms to 60 s. Untouched requests get none."""
    probability: Probability
    """Share of requests touched, in (0, 1]."""
    cap: Annotated[Seconds, Field(ge=0.001, le=300)] = 30.0
    """Largest delay, 1 ms to 5 min: a longer draw is cut to it."""

    @model_validator(mode="after")
    def _cap_is_above_base(self) -> Self:
        if self.cap < self.base:
            raise ValueError(f"cap ({self.cap:g} s) is below base ({self.base:g} s)")
        return self


class ErrorAnswer(BaseModel, frozen=True):
    """Answer a share of requests with an error instead of passing them on."""

    status: Literal[429, 500, 502, 503, 504] = 503
    """HTTP status; with `in_stream` the code inside the error object."""
    probability: Probability
    """Share of requests touched, in (0, 1]."""
    in_stream: Annotated[bool, Field(strict=True)] = False
    """Send status 200 and an error object inside the stream, as engines do when they fail late."""
    retry_after: Annotated[Seconds, Field(ge=0, le=3600)] | None = None
    """Value of the `Retry-After` header, whole seconds are sent; default none."""

    @model_validator(mode="after")
    def _a_stream_has_no_retry_header(self) -> Self:
        if self.in_stream and self.retry_after is not None:
            raise ValueError("retry_after is a header: it cannot be sent inside a 200 stream")
        return self


class StreamStall(BaseModel, frozen=True):
    """Let a stream begin, then hold it back once: no error, no late first token, only silence."""

    after_tokens: Annotated[int, Field(strict=True, ge=1, le=100_000)]
    """Content chunks that pass before the stall, at least 1. Shorter answers are not touched."""
    stall: Annotated[Seconds, Field(ge=0.001, le=300)]
    """Length of the silence, 1 ms to 5 min."""
    probability: Probability
    """Share of requests touched, in (0, 1]."""


class Null(BaseModel, frozen=True):
    """Do nothing: the same loop without a fault, to see what the judge says of equal arms."""


class LatencyParetoFault(BaseModel, frozen=True):
    """`gateway/latency-pareto` in an experiment."""

    template: Literal["gateway/latency-pareto"]
    parameters: LatencyPareto
    duration: Seconds


class ErrorFault(BaseModel, frozen=True):
    """`gateway/error` in an experiment."""

    template: Literal["gateway/error"]
    parameters: ErrorAnswer
    duration: Seconds


class StreamStallFault(BaseModel, frozen=True):
    """`gateway/stream-stall` in an experiment."""

    template: Literal["gateway/stream-stall"]
    parameters: StreamStall
    duration: Seconds


class NullFault(BaseModel, frozen=True):
    """`null` in an experiment."""

    template: Literal["null"]
    parameters: Null = Null()
    duration: Seconds


Fault = Annotated[
    LatencyParetoFault | ErrorFault | StreamStallFault | NullFault,
    Field(discriminator="template"),
]
"""A fault of an experiment. Only ever a field."""

Parameters = LatencyPareto | ErrorAnswer | StreamStall | Null
"""What the injector is given; found by template with `parse_parameters`."""


class BlastClass(StrEnum):
    """How much harm a fault can do, least first; policies allow up to one of them."""

    NONE = "none"
    DEGRADES = "degrades"
    BREAKS = "breaks"
    KILLS = "kills"


@dataclass(frozen=True, slots=True)
class TemplateInfo:
    """Everything that is said about one template."""

    id: str
    summary: str
    layer: str
    spec_ids: tuple[str, ...]
    """The systems of the specification that it covers."""
    backend: str
    """Who injects it."""
    parameters: type[BaseModel]
    expects_effect: bool
    """False: the absence of touched requests is as it should be."""
    blast: BlastClass
    may_kill_engine: bool
    attaches_to: str
    """`replica`: a request that leaves the replica leaves it. `client`: it follows the arm."""
    preconditions: tuple[str, ...]
    expected_signals: tuple[str, ...]
    effect_check: str
    undo: str


_UNDO = "The gateway drops the item; requests it already touched end by themselves and are counted."
_PASSES = "traffic of the route passes through the gateway"

CATALOG: Mapping[str, TemplateInfo] = {
    info.id: info
    for info in (
        TemplateInfo(
            id="gateway/latency-pareto",
            summary="Delays a share of requests before they are passed on, with a heavy tail",
            layer="gateway",
            spec_ids=("A9",),
            backend="gateway",
            parameters=LatencyPareto,
            expects_effect=True,
            blast=BlastClass.DEGRADES,
            may_kill_engine=False,
            attaches_to="replica",
            preconditions=(_PASSES,),
            expected_signals=("ttft", "e2e"),
            effect_check="requests whose id was drawn were delayed by at least `base`",
            undo=_UNDO,
        ),
        TemplateInfo(
            id="gateway/error",
            summary="Answers a share of requests with an error, before or inside the stream",
            layer="gateway",
            spec_ids=("A28",),
            backend="gateway",
            parameters=ErrorAnswer,
            expects_effect=True,
            blast=BlastClass.BREAKS,
            may_kill_engine=False,
            attaches_to="replica",
            preconditions=(_PASSES,),
            expected_signals=("errors", "slo_bad"),
            effect_check="requests whose id was drawn ended in the error that was set",
            undo=_UNDO,
        ),
        TemplateInfo(
            id="gateway/stream-stall",
            summary="Holds a share of streams back once, after some tokens",
            layer="gateway",
            spec_ids=("A28",),
            backend="gateway",
            parameters=StreamStall,
            expects_effect=True,
            blast=BlastClass.DEGRADES,
            may_kill_engine=False,
            attaches_to="replica",
            preconditions=(_PASSES, "answers are streamed and longer than `after_tokens`"),
            expected_signals=("slo_bad", "e2e"),
            effect_check="streams whose id was drawn had a gap of at least `stall`",
            undo=_UNDO,
        ),
        TemplateInfo(
            id="null",
            summary="Does nothing: an A/A run of the whole loop",
            layer="gateway",
            spec_ids=("C4",),
            backend="gateway",
            parameters=Null,
            expects_effect=False,
            blast=BlastClass.NONE,
            may_kill_engine=False,
            attaches_to="replica",
            preconditions=(_PASSES,),
            expected_signals=(),
            effect_check="none: no request is touched, and none may be",
            undo="Nothing to undo; the item is dropped all the same, with a receipt.",
        ),
    )
}
"""Template id → what is said about it, in the order shown to users."""


def template_info(template: str) -> TemplateInfo:
    """Return what is said about a template.

    Raises:
        SpecError: there is no such template; with the nearest one.
    """
    try:
        return CATALOG[template]
    except KeyError:
        known = ", ".join(CATALOG)
        message = f'"{template}" is not a template; there are {known}'
        raise SpecError("template", message, nearest(template, CATALOG)) from None


def parse_parameters(template: str, parameters: Mapping[str, object]) -> Parameters:
    """Return the typed parameters of a template, as an injector receives them (seconds as numbers).

    Raises:
        SpecErrors: unknown template or key, or a value out of bounds.
    """
    try:
        model = template_info(template).parameters
    except SpecError as error:
        raise SpecErrors([error]) from None
    found = validate_document(model, parameters, written_by_hand=False)
    assert isinstance(found, LatencyPareto | ErrorAnswer | StreamStall | Null)
    return found
