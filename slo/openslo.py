"""Read an OpenSLO v1 document of kind SLO, strictly.

One narrow form is accepted: budgeting method Occurrences, one rolling window, one objective with
`target`, and an inline ratio metric whose `bad` source is this gateway. Everything else is refused
with its path and the nearest right word.

Hard part: refusing. An SLO that cannot be evaluated must stop a run before anything is broken; a
key that was silently dropped (a time slice target, an alert policy, a misspelt bound) would leave
an experiment judged by less than its author wrote.

Source: OpenSLO specification v1, github.com/OpenSLO/OpenSLO.
"""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, FiniteFloat, model_validator

from slo.documents import validate_document
from slo.durations import Seconds
from slo.errors import SpecError, SpecErrors
from slo.objective import Event, Indicator, Objective

SOURCE_TYPE = "burnproof-gateway"
"""The only metric source that can be evaluated: the records of our own gateway."""

_WINDOW = re.compile(r"([1-9]\d{0,2})([dw])")


def _days(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError('a window is written like "30d" or "4w"')
    found = _WINDOW.fullmatch(value)
    if found is None:
        raise ValueError(f'"{value[:40]}" is not a window; write whole days or weeks: "30d", "4w"')
    return float(found[1]) * (7 if found[2] == "w" else 1)


def _positive(value: Any) -> Any:
    if value == 0 or (isinstance(value, str) and re.fullmatch(r"0+(\.0+)?(ms|s|m|h)", value)):
        raise ValueError("a bound must be longer than 0")
    return value


_Bound = Annotated[Seconds, BeforeValidator(_positive)]


class _Bounds(BaseModel, frozen=True):
    event: Event = "request"
    """`interruption` and `hidden-error` count that kind alone; see `Indicator.event`."""
    gap_over: _Bound | None = Field(default=2.0, alias="gapOver")
    """Default 2 s: a stream that falls silent is broken (see `Indicator.max_gap_seconds`)."""
    ttft_over: _Bound | None = Field(default=None, alias="ttftOver")
    e2e_over: _Bound | None = Field(default=None, alias="e2eOver")
    flags: tuple[
        Literal["empty", "rep4", "non_finite", "bad_tool_json", "bad_tool_fields"], ...
    ] = ()

    @model_validator(mode="after")
    def _bounds_are_used(self) -> Self:
        if self.event != "request" and (self.ttft_over or self.e2e_over or self.flags):
            raise ValueError(
                f"event {self.event} knows no ttftOver, e2eOver or flags: leave them out, or leave "
                "event out"
            )
        return self


class _Nothing(BaseModel, frozen=True):
    """The total is every valid request: it takes no parameters."""


class _BadSource(BaseModel, frozen=True):
    type: Literal["burnproof-gateway"]
    spec: _Bounds = _Bounds()


class _TotalSource(BaseModel, frozen=True):
    type: Literal["burnproof-gateway"]
    spec: _Nothing = _Nothing()


class _Bad(BaseModel, frozen=True):
    source: _BadSource = Field(alias="metricSource")


class _Total(BaseModel, frozen=True):
    source: _TotalSource = Field(alias="metricSource")


class _Ratio(BaseModel, frozen=True):
    counter: Literal[True] = True
    bad: _Bad
    total: _Total | None = None


class _Metadata(BaseModel, frozen=True):
    name: str = Field(min_length=1, max_length=253)
    display_name: str | None = Field(default=None, alias="displayName")
    labels: dict[str, Any] = {}
    annotations: dict[str, Any] = {}


class _IndicatorSpec(BaseModel, frozen=True):
    description: str | None = None
    ratio: _Ratio = Field(alias="ratioMetric")


class _Indicator(BaseModel, frozen=True):
    metadata: _Metadata | None = None
    spec: _IndicatorSpec


class _Window(BaseModel, frozen=True):
    duration: Annotated[float, BeforeValidator(_days)]
    is_rolling: Literal[True] = Field(alias="isRolling")


class _Target(BaseModel, frozen=True):
    display_name: str | None = Field(default=None, alias="displayName")
    target: FiniteFloat = Field(gt=0, lt=1)


class _Spec(BaseModel, frozen=True):
    description: str | None = None
    service: str | None = None
    indicator: _Indicator
    time_window: tuple[_Window, ...] = Field(alias="timeWindow", max_length=1)
    method: Literal["Occurrences"] = Field(alias="budgetingMethod")
    objectives: tuple[_Target, ...] = Field(max_length=1)


class _Document(BaseModel, frozen=True):
    api_version: Literal["openslo/v1"] = Field(alias="apiVersion")
    kind: Literal["SLO"]
    metadata: _Metadata
    spec: _Spec


def parse_openslo(doc: object) -> Objective:
    """Return the objective that the document states.

    Raises:
        SpecError: the document cannot be evaluated; the first problem.
    """
    try:
        return read_openslo(doc)
    except SpecErrors as errors:
        raise errors.errors[0] from None


def read_openslo(doc: object) -> Objective:
    """Return the objective that the document states.

    Raises:
        SpecErrors: the document cannot be evaluated; every problem.
    """
    parsed = validate_document(_Document, doc)
    bounds = parsed.spec.indicator.spec.ratio.bad.source.spec
    empty = [
        SpecError(f"spec.{key}", "one entry is needed, not none")
        for key, entries in (
            ("timeWindow", parsed.spec.time_window),
            ("objectives", parsed.spec.objectives),
        )
        if not entries
    ]
    if empty:
        raise SpecErrors(empty)
    return Objective(
        name=parsed.metadata.name,
        objective_ratio=parsed.spec.objectives[0].target,
        window_days=parsed.spec.time_window[0].duration,
        indicator=Indicator(
            event=bounds.event,
            max_gap_seconds=bounds.gap_over,
            max_ttft_seconds=bounds.ttft_over,
            max_e2e_seconds=bounds.e2e_over,
            bad_flags=bounds.flags,
        ),
    )
