"""What each fault of the gateway is told: one frozen model a template, with its bounds.

Only values and the bounds that make sense by themselves; what a template does and how it is proven
is in `faults.catalog`. Every model but `Null` has `probability`, so that a share of the requests
can be spared. Bounds are wide enough for any honest test and narrow enough that a typo is caught.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, FiniteFloat, StringConstraints, model_validator

from faults.durations import Seconds
from faults.match import Pattern
from faults.numbers import Name, Probability

Tokens = Annotated[int, Field(strict=True, ge=0, le=100_000)]
"""A number of content chunks of a stream."""

HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$")]
"""A header's name. Source: RFC 9110 section 5.6.2, token."""

HeaderValue = Annotated[str, StringConstraints(pattern=r"^[\x20-\x7e]{0,1000}$")]
"""A header's value: printable ASCII, so that no second header hides in it."""

FRAMING = frozenset(
    {
        *("connection", "content-length", "expect", "host", "keep-alive", "te", "trailer"),
        *("transfer-encoding", "upgrade", "x-burnproof-probe", "x-burnproof-replica"),
    }
)
"""Headers that no fault may touch: without them one message runs into the next, or the pin of a
probe is lost."""


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


class LatencyFixed(BaseModel, frozen=True):
    """Delay a share of requests by one and the same time."""

    delay: Annotated[Seconds, Field(ge=0.001, le=300)]
    """Delay before the request is passed on, 1 ms to 5 min."""
    probability: Probability
    """Share of requests touched, in (0, 1]."""


class LatencyPerToken(BaseModel, frozen=True):
    """Make a share of streams slow, token by token."""

    delay: Annotated[Seconds, Field(ge=0.001, le=60)]
    """Delay before each content chunk, the first included, 1 ms to 1 min."""
    probability: Probability
    """Share of requests touched, in (0, 1]."""


class DependencyLatency(BaseModel, frozen=True):
    """Delay what goes to one upstream, by its name."""

    upstream: Pattern
    """Name of the replica, or a pattern; requests to others are left alone."""
    delay: Annotated[Seconds, Field(ge=0.001, le=300)]
    """Delay before the request is passed on, 1 ms to 5 min."""
    probability: Probability
    """Share of requests touched, in (0, 1]."""


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
    after_tokens: Annotated[Tokens, Field(exclude_if=lambda tokens: tokens == 0)] = 0
    """With `in_stream`: content chunks of the real answer that pass before the error; 0: it comes
    instead of an answer. Shorter answers are not touched."""

    @model_validator(mode="after")
    def _a_stream_has_no_retry_header(self) -> Self:
        if self.in_stream and self.retry_after is not None:
            raise ValueError("retry_after is a header: it cannot be sent inside a 200 stream")
        if self.after_tokens and not self.in_stream:
            raise ValueError(
                "after_tokens needs in_stream: only a stream has begun before it fails"
            )
        return self


class RateLimit(BaseModel, frozen=True):
    """Refuse a share of requests as a rate limit does."""

    probability: Probability
    """Share of requests touched, in (0, 1]."""
    retry_after: Annotated[Seconds, Field(ge=0, le=86_400)] | None = None
    """When to come again, 0 s to 24 h; default: no `Retry-After` header is sent."""
    form: Literal["seconds", "http-date"] = "seconds"
    """How `Retry-After` is written. Source: RFC 9110 section 10.2.3."""

    @model_validator(mode="after")
    def _a_form_needs_a_time(self) -> Self:
        if self.form == "http-date" and self.retry_after is None:
            raise ValueError("form says how retry_after is written, and there is none")
        return self


class QuotaOverrun(BaseModel, frozen=True):
    """Refuse a share of requests as if their tenant had used up its tokens."""

    probability: Probability
    """Share of requests touched, in (0, 1]."""
    limit: Annotated[int, Field(strict=True, ge=1, le=1_000_000_000)] = 100_000
    """Tokens that the answer says were allowed, and used."""
    retry_after: Annotated[Seconds, Field(ge=0, le=86_400)] | None = None
    """When the quota is said to be whole again, 0 s to 24 h; default: no `Retry-After`."""


class StreamStall(BaseModel, frozen=True):
    """Let a stream begin, then hold it back once: no error, no late first token, only silence."""

    after_tokens: Annotated[int, Field(strict=True, ge=1, le=100_000)]
    """Content chunks that pass before the stall, at least 1. Shorter answers are not touched."""
    stall: Annotated[Seconds, Field(ge=0.001, le=300)]
    """Length of the silence, 1 ms to 5 min."""
    probability: Probability
    """Share of requests touched, in (0, 1]."""


class StreamCut(BaseModel, frozen=True):
    """End a stream early, rudely or politely, with or without the words that end an answer."""

    after_tokens: Tokens
    """Content chunks that pass before the cut; what follows is lost. 0: no token comes."""
    probability: Probability
    """Share of requests touched, in (0, 1]."""
    ending: Literal["abrupt", "clean"] = "abrupt"
    """`abrupt`: the connection breaks. `clean`: the body ends as HTTP says it should."""
    final_chunk: Annotated[bool, Field(strict=True)] = False
    """Let the chunks with a finish reason or usage pass all the same."""
    done: Annotated[bool, Field(strict=True)] = False
    """Let `[DONE]` pass all the same."""


class StreamGarble(BaseModel, frozen=True):
    """Spoil one event of a stream."""

    kind: Literal["flip-byte", "half-event", "invalid-utf8"] = "flip-byte"
    """`flip-byte`: one bit of a byte of the JSON, so that it is none any more. `half-event`: the
    second half of the event is missing. `invalid-utf8`: a byte 0xFF in a string."""
    after_tokens: Tokens = 1
    """Content chunks that pass before; the next event of JSON is spoilt."""
    probability: Probability
    """Share of requests touched, in (0, 1]."""


class SlowDrip(BaseModel, frozen=True):
    """Hand an answer on in small pieces with pauses; characters may be split on purpose."""

    piece_bytes: Annotated[int, Field(strict=True, ge=1, le=65_536)] = 16
    """Bytes of a piece, 1 to 65,536."""
    pause: Annotated[Seconds, Field(ge=0.001, le=60)] = 0.02
    """Pause before each piece but the first, 1 ms to 1 min."""
    probability: Probability
    """Share of requests touched, in (0, 1]."""


class Headers(BaseModel, frozen=True):
    """Tamper with one header, on the way to the replica or back."""

    side: Literal["request", "answer"]
    """What the replica gets, or what the client gets."""
    action: Literal["remove", "set", "duplicate"]
    """`duplicate` adds a second line of a header that is there."""
    name: HeaderName
    """Name of the header; those of the framing are refused."""
    value: HeaderValue | None = None
    """Needed for `set`; for `duplicate` the second value, by default the first one again."""
    probability: Probability
    """Share of requests touched, in (0, 1]."""

    @model_validator(mode="after")
    def _value_fits_the_action(self) -> Self:
        if self.name.lower() in FRAMING:
            raise ValueError(f"{self.name} is part of the framing: no fault may touch it")
        if self.action == "set" and self.value is None:
            raise ValueError("set needs a value")
        if self.action == "remove" and self.value is not None:
            raise ValueError("remove takes no value")
        return self


class TenantConfusion(BaseModel, frozen=True):
    """Send on what a confused proxy would: a request whose signs of its tenant disagree."""

    kind: Literal["repeat-header", "header", "claim", "route"]
    """`repeat-header`: a second tenant header. `header`: another tenant there. `claim`: another in
    the bearer token, whose signature is then wrong. `route`: another in the path."""
    tenant: Name
    """The other tenant."""
    header: HeaderName = "x-tenant-id"
    """The header that names the tenant."""
    claim: Annotated[str, StringConstraints(min_length=1, max_length=100)] = "tenant"
    """The claim of the token that names the tenant."""
    probability: Probability
    """Share of requests touched, in (0, 1]."""

    @model_validator(mode="after")
    def _header_is_not_framing(self) -> Self:
        if self.header.lower() in FRAMING:
            raise ValueError(f"{self.header} is part of the framing: no fault may touch it")
        return self


class ConstantEmbeddings(BaseModel, frozen=True):
    """Replace every vector of an embeddings answer by one and the same."""

    vector: Literal["unit", "zeros"] = "unit"
    """`unit`: equal components, length 1, so that everything is alike. `zeros`: no length."""
    probability: Probability
    """Share of requests touched, in (0, 1]."""


class ToolCalls(BaseModel, frozen=True):
    """Spoil the arguments of the tool calls in an answer, streamed or not."""

    kind: Literal["truncated", "missing-required", "wrong-type"]
    """`truncated`: the JSON ends early. `missing-required`: a required field is gone. `wrong-type`:
    its value is of another type. Without a schema in the request the first field is taken."""
    probability: Probability
    """Share of requests touched, in (0, 1]."""


class Null(BaseModel, frozen=True):
    """Do nothing: the same loop without a fault, to see what the judge says of equal arms."""


Parameters = (
    LatencyPareto
    | LatencyFixed
    | LatencyPerToken
    | DependencyLatency
    | ErrorAnswer
    | RateLimit
    | QuotaOverrun
    | StreamStall
    | StreamCut
    | StreamGarble
    | SlowDrip
    | Headers
    | TenantConfusion
    | ConstantEmbeddings
    | ToolCalls
    | Null
)
"""What the injector is given; found by template with `faults.catalog.parse_parameters`."""
