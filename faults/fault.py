"""A fault as an experiment writes it: template, parameters, duration, and whom it may meet.

`Fault` is a discriminated union and is only ever used as a field of another model: as a bare
handler parameter it would lose its discriminator on the wire. An empty `match` is left out of what
is sent, so that a payload without rules looks as it did before there were any.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from faults.durations import Seconds
from faults.match import Match
from faults.parameters import (
    ConstantEmbeddings,
    DependencyLatency,
    ErrorAnswer,
    Headers,
    LatencyFixed,
    LatencyPareto,
    LatencyPerToken,
    Null,
    QuotaOverrun,
    RateLimit,
    SlowDrip,
    StreamCut,
    StreamGarble,
    StreamStall,
    TenantConfusion,
    ToolCalls,
)

Matched = Annotated[Match, Field(exclude_if=lambda match: match.is_empty)]
"""Rules that are not sent when there are none: then all that reach the replicas may be met."""


class LatencyParetoFault(BaseModel, frozen=True):
    """`gateway/latency-pareto` in an experiment."""

    template: Literal["gateway/latency-pareto"]
    parameters: LatencyPareto
    duration: Seconds
    match: Matched = Match()


class LatencyFixedFault(BaseModel, frozen=True):
    """`gateway/latency-fixed` in an experiment."""

    template: Literal["gateway/latency-fixed"]
    parameters: LatencyFixed
    duration: Seconds
    match: Matched = Match()


class LatencyPerTokenFault(BaseModel, frozen=True):
    """`gateway/latency-per-token` in an experiment."""

    template: Literal["gateway/latency-per-token"]
    parameters: LatencyPerToken
    duration: Seconds
    match: Matched = Match()


class DependencyLatencyFault(BaseModel, frozen=True):
    """`gateway/dependency-latency` in an experiment."""

    template: Literal["gateway/dependency-latency"]
    parameters: DependencyLatency
    duration: Seconds
    match: Matched = Match()


class ErrorFault(BaseModel, frozen=True):
    """`gateway/error` in an experiment."""

    template: Literal["gateway/error"]
    parameters: ErrorAnswer
    duration: Seconds
    match: Matched = Match()


class RateLimitFault(BaseModel, frozen=True):
    """`gateway/rate-limit` in an experiment."""

    template: Literal["gateway/rate-limit"]
    parameters: RateLimit
    duration: Seconds
    match: Matched = Match()


class QuotaOverrunFault(BaseModel, frozen=True):
    """`gateway/quota-overrun` in an experiment."""

    template: Literal["gateway/quota-overrun"]
    parameters: QuotaOverrun
    duration: Seconds
    match: Matched = Match()


class StreamStallFault(BaseModel, frozen=True):
    """`gateway/stream-stall` in an experiment."""

    template: Literal["gateway/stream-stall"]
    parameters: StreamStall
    duration: Seconds
    match: Matched = Match()


class StreamCutFault(BaseModel, frozen=True):
    """`gateway/stream-cut` in an experiment."""

    template: Literal["gateway/stream-cut"]
    parameters: StreamCut
    duration: Seconds
    match: Matched = Match()


class StreamGarbleFault(BaseModel, frozen=True):
    """`gateway/stream-garble` in an experiment."""

    template: Literal["gateway/stream-garble"]
    parameters: StreamGarble
    duration: Seconds
    match: Matched = Match()


class SlowDripFault(BaseModel, frozen=True):
    """`gateway/slow-drip` in an experiment."""

    template: Literal["gateway/slow-drip"]
    parameters: SlowDrip
    duration: Seconds
    match: Matched = Match()


class HeadersFault(BaseModel, frozen=True):
    """`gateway/headers` in an experiment."""

    template: Literal["gateway/headers"]
    parameters: Headers
    duration: Seconds
    match: Matched = Match()


class TenantConfusionFault(BaseModel, frozen=True):
    """`gateway/tenant-confusion` in an experiment."""

    template: Literal["gateway/tenant-confusion"]
    parameters: TenantConfusion
    duration: Seconds
    match: Matched = Match()


class ConstantEmbeddingsFault(BaseModel, frozen=True):
    """`gateway/constant-embeddings` in an experiment."""

    template: Literal["gateway/constant-embeddings"]
    parameters: ConstantEmbeddings
    duration: Seconds
    match: Matched = Match()


class ToolCallsFault(BaseModel, frozen=True):
    """`gateway/tool-calls` in an experiment."""

    template: Literal["gateway/tool-calls"]
    parameters: ToolCalls
    duration: Seconds
    match: Matched = Match()


class NullFault(BaseModel, frozen=True):
    """`null` in an experiment."""

    template: Literal["null"]
    parameters: Null = Null()
    duration: Seconds
    match: Matched = Match()


Fault = Annotated[
    LatencyParetoFault
    | LatencyFixedFault
    | LatencyPerTokenFault
    | DependencyLatencyFault
    | ErrorFault
    | RateLimitFault
    | QuotaOverrunFault
    | StreamStallFault
    | StreamCutFault
    | StreamGarbleFault
    | SlowDripFault
    | HeadersFault
    | TenantConfusionFault
    | ConstantEmbeddingsFault
    | ToolCallsFault
    | NullFault,
    Field(discriminator="template"),
]
"""A fault of an experiment. Only ever a field."""
