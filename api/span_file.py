"""Read the spans of a collector's file: ours, and the engine's that belong to them.

The file is what OpenTelemetry's file exporter writes: one JSON document a line, each an OTLP
request. Spans of the gateway become sampled requests again; a span of vLLM whose parent is one of
them gives that request the engine's own times, so that the wait for its first token is parted
without means. All other spans are passed over.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topology.engine import times_of_span
from topology.stages import EngineTimes
from topology.traces import RequestTrace

OUR_SCOPE = "burnproof.gateway"
SENT, CHUNK = "burnproof.sent", "burnproof.chunk"
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"


@dataclass(frozen=True)
class Spans:
    """What a file holds."""

    traces: list[RequestTrace]
    engine: dict[str, EngineTimes]
    """Trace id → the engine's times, where its span is there."""


def read_spans(path: Path) -> Spans:
    """Read a file.

    Raises:
        ValueError: a line is no OTLP document, or no span of the gateway is in it.
        OSError: the file cannot be read.
    """
    traces: dict[str, RequestTrace] = {}
    children: list[tuple[str, EngineTimes]] = []
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                for scope, span in _spans(json.loads(line)):
                    if scope == OUR_SCOPE:
                        traces[span["spanId"]] = _trace(span)
                    elif times := times_of_span(_plain(span.get("attributes", []))):
                        children.append((span.get("parentSpanId", ""), times))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ValueError(
                    f"{path}:{number}: no spans in OTLP's JSON ({type(error).__name__}): "
                    "give the file that a collector's file exporter writes"
                ) from error
    if not traces:
        raise ValueError(f"{path}: no span of the gateway in it: is tracing.endpoint set there?")
    engine = {traces[parent].trace_id: times for parent, times in children if parent in traces}
    return Spans(list(traces.values()), engine)


def _spans(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for resource in document["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                yield scope.get("scope", {}).get("name", ""), span


def _plain(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    return {pair["key"]: _value(pair["value"]) for pair in pairs}


def _value(value: Mapping[str, Any]) -> Any:
    (kind, inner), *_ = value.items()
    if kind == "intValue":
        return int(inner)  # OTLP's JSON writes 64 bits as text
    return inner


def _trace(span: dict[str, Any]) -> RequestTrace:
    begin = int(span["startTimeUnixNano"])
    about = _plain(span["attributes"])
    sent: float | None = None
    chunks, content = [], []
    for event in span.get("events", []):
        offset = (int(event["timeUnixNano"]) - begin) / 1e9
        if event["name"] == SENT:
            sent = offset
        elif event["name"] == CHUNK:
            chunks.append(offset)
            has_content = _plain(event["attributes"])["burnproof.chunk.has_content"]
            content.append(bool(has_content))
    return RequestTrace(
        trace_id=span["traceId"],
        is_chosen_here=not span.get("parentSpanId"),
        route=about.get("burnproof.route", ""),
        replica=about.get("burnproof.replica", ""),
        arm=about.get("burnproof.arm", ""),
        outcome=about["burnproof.outcome"],
        accepted=begin / 1e9,
        is_stream=bool(about.get("gen_ai.request.stream")),
        sent_s=sent,
        first_token_s=about.get(FIRST_CHUNK),
        e2e_s=(int(span["endTimeUnixNano"]) - begin) / 1e9,
        chunks=tuple(chunks),
        content=tuple(content),
        dropped_chunks=about.get("burnproof.chunks_dropped", 0),
        prompt_bytes=0,
        prefixes=(),
        client_run_id=about.get("burnproof.client_run_id", ""),
    )
