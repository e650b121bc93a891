"""The catalogue of faults: what each one does, how it is proven, and how it is undone.

One template is a frozen model (its parameters) and a `TemplateInfo` (all that is said about it).
Nothing here injects anything: the gateway reads these models and acts. What was hard: whether a
fault *happened* is part of its definition. A template that expects an effect and shows none after
enough eligible requests was not injected, and its run can never pass; only `null` expects none.

`docs/faults.md` and `burnproof faults list|show` are made from what stands here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel

from faults import parameters as given
from faults.fault import (
    ErrorFault,
    Fault,
    LatencyParetoFault,
    NullFault,
    StreamStallFault,
)
from faults.parameters import ErrorAnswer, LatencyPareto, Null, Parameters, StreamStall
from slo.documents import validate_document
from slo.errors import SpecError, SpecErrors, nearest

__all__ = [
    "CATALOG",
    "BlastClass",
    "ErrorAnswer",
    "ErrorFault",
    "Fault",
    "LatencyPareto",
    "LatencyParetoFault",
    "Null",
    "NullFault",
    "Parameters",
    "StreamStall",
    "StreamStallFault",
    "TemplateInfo",
    "parse_parameters",
    "template_info",
]


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
    spec_ids: tuple[str, ...]
    """The systems of the specification that it covers."""
    parameters: type[BaseModel]
    blast: BlastClass
    expected_signals: tuple[str, ...]
    """What an observer may see move: SLI metrics, then others."""
    effect_check: str
    needs: tuple[str, ...] = ()
    """Preconditions beside those of the layer."""
    layer: str = "gateway"
    backend: str = "gateway"
    """Who injects it."""
    expects_effect: bool = True
    """False: the absence of touched requests is as it should be."""
    may_kill_engine: bool = False
    attaches_to: str = "replica"
    """`replica`: a request that leaves the replica leaves it. `client`: it follows the arm."""
    undo: str = (
        "The gateway drops the item; requests it already touched end by themselves and are counted."
    )

    @property
    def preconditions(self) -> tuple[str, ...]:
        """What must hold for the fault to be able to act."""
        return ("traffic of the route passes through the gateway", *self.needs)


CATALOG: Mapping[str, TemplateInfo] = {
    info.id: info
    for info in (
        TemplateInfo(
            id="gateway/latency-pareto",
            summary="Delays a share of requests before they are passed on, with a heavy tail",
            spec_ids=("A9",),
            parameters=given.LatencyPareto,
            blast=BlastClass.DEGRADES,
            expected_signals=("ttft", "e2e"),
            effect_check="requests whose id was drawn were delayed by at least `base`",
        ),
        TemplateInfo(
            id="gateway/latency-fixed",
            summary="Delays a share of requests before they are passed on, all by the same time",
            spec_ids=("A9",),
            parameters=given.LatencyFixed,
            blast=BlastClass.DEGRADES,
            expected_signals=("ttft", "e2e"),
            effect_check="requests whose id was drawn were delayed by at least `delay`",
        ),
        TemplateInfo(
            id="gateway/latency-per-token",
            summary="Delays each token of a share of streams",
            spec_ids=("A9",),
            parameters=given.LatencyPerToken,
            blast=BlastClass.DEGRADES,
            expected_signals=("ttft", "e2e", "slo_bad"),
            effect_check="no two tokens of the streams whose id was drawn are closer than `delay`",
            needs=("answers are streamed as events, and not compressed",),
        ),
        TemplateInfo(
            id="gateway/dependency-latency",
            summary="Delays a share of what goes to one upstream, by its name",
            spec_ids=("A9",),
            parameters=given.DependencyLatency,
            blast=BlastClass.DEGRADES,
            expected_signals=("ttft", "e2e"),
            effect_check="requests to it whose id was drawn were delayed by at least `delay`",
            needs=("a replica that serves the fault's requests has the name `upstream`",),
        ),
        TemplateInfo(
            id="gateway/error",
            summary="Answers a share of requests with an error, before or inside the stream",
            spec_ids=("A28",),
            parameters=given.ErrorAnswer,
            blast=BlastClass.BREAKS,
            expected_signals=("errors", "slo_bad"),
            effect_check="requests whose id was drawn ended in the error that was set",
            needs=("with `after_tokens`: answers are streamed as events, and not compressed",),
        ),
        TemplateInfo(
            id="gateway/rate-limit",
            summary="Refuses a share of requests with 429, with or without a time to come again",
            spec_ids=("A9", "A14"),
            parameters=given.RateLimit,
            blast=BlastClass.BREAKS,
            expected_signals=("errors", "slo_bad"),
            effect_check="requests whose id was drawn were answered 429, with `Retry-After` as set",
        ),
        TemplateInfo(
            id="gateway/quota-overrun",
            summary="Refuses a share of requests as if their tenant had used up its tokens",
            spec_ids=("A14",),
            parameters=given.QuotaOverrun,
            blast=BlastClass.BREAKS,
            expected_signals=("errors", "slo_bad"),
            effect_check="requests whose id was drawn were answered 429, naming their tenant",
            needs=("requests name their tenant in `x-tenant-id`",),
        ),
        TemplateInfo(
            id="gateway/stream-stall",
            summary="Holds a share of streams back once, after some tokens",
            spec_ids=("A28",),
            parameters=given.StreamStall,
            blast=BlastClass.DEGRADES,
            expected_signals=("slo_bad", "e2e"),
            effect_check="streams whose id was drawn had a gap of at least `stall`",
            needs=(
                "answers are streamed as events, and not compressed",
                "answers are longer than `after_tokens`",
            ),
        ),
        TemplateInfo(
            id="gateway/stream-cut",
            summary="Ends a share of streams early, rudely or politely",
            spec_ids=("A28",),
            parameters=given.StreamCut,
            blast=BlastClass.BREAKS,
            expected_signals=("errors", "slo_bad", "interruptions", "hidden_errors"),
            effect_check="streams whose id was drawn lack what follows the token, and end as set",
            needs=(
                "answers are streamed as events, and not compressed",
                "answers are longer than `after_tokens`",
            ),
        ),
        TemplateInfo(
            id="gateway/stream-garble",
            summary="Spoils one event of a share of streams: a bit, a half, or its UTF-8",
            spec_ids=("A28",),
            parameters=given.StreamGarble,
            blast=BlastClass.BREAKS,
            expected_signals=("errors",),
            effect_check="one event of the streams whose id was drawn is no JSON",
            needs=(
                "answers are streamed as events, and not compressed",
                "answers are longer than `after_tokens`",
            ),
        ),
        TemplateInfo(
            id="gateway/slow-drip",
            summary="Hands a share of answers on in small pieces, with pauses",
            spec_ids=("A28",),
            parameters=given.SlowDrip,
            blast=BlastClass.DEGRADES,
            expected_signals=("e2e", "slo_bad"),
            effect_check="answers whose id was drawn took (pieces − 1) × `pause`, every byte there",
        ),
        TemplateInfo(
            id="gateway/headers",
            summary="Removes, sets or doubles one header, of requests or of answers",
            spec_ids=("A9",),
            parameters=given.Headers,
            blast=BlastClass.BREAKS,
            expected_signals=("errors",),
            effect_check="the header of the requests or answers whose id was drawn is as set",
            needs=("for `remove` and `duplicate`: the header is there",),
        ),
        TemplateInfo(
            id="gateway/tenant-confusion",
            summary="Sends requests on with signs of their tenant that disagree",
            spec_ids=("A14",),
            parameters=given.TenantConfusion,
            blast=BlastClass.BREAKS,
            expected_signals=("errors",),
            effect_check="the replica got the second tenant where it was set",
            needs=(
                "requests name their tenant in `header`",
                "for `claim`: they carry a bearer token with that claim",
                "for `route`: the tenant is a part of the path",
            ),
        ),
        TemplateInfo(
            id="gateway/constant-embeddings",
            summary="Replaces the vectors of a share of embeddings answers by one and the same",
            spec_ids=("A9",),
            parameters=given.ConstantEmbeddings,
            blast=BlastClass.BREAKS,
            expected_signals=("content of answers",),
            effect_check="all vectors of the answers whose id was drawn are one, as long as before",
            needs=("the replicas serve `/v1/embeddings`", "answers are not compressed"),
        ),
        TemplateInfo(
            id="gateway/tool-calls",
            summary="Spoils the arguments of tool calls in a share of answers",
            spec_ids=("A9", "A14"),
            parameters=given.ToolCalls,
            blast=BlastClass.BREAKS,
            expected_signals=("flag `bad_tool_json` when truncated, else `bad_tool_fields`",),
            effect_check="the joined arguments of the calls whose id was drawn are spoilt as set",
            needs=("answers hold tool calls, and are not compressed",),
        ),
        TemplateInfo(
            id="null",
            summary="Does nothing: an A/A run of the whole loop",
            spec_ids=("C4",),
            parameters=given.Null,
            blast=BlastClass.NONE,
            expected_signals=(),
            effect_check="none: no request is touched, and none may be",
            expects_effect=False,
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
    assert isinstance(found, Parameters)
    return found
