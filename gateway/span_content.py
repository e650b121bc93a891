"""What a span of ours says: its name, attributes, events and status. Pure; no text of anybody.

Names are written out here: the GenAI ones are declared deprecated in the Python package of
OpenTelemetry, only because their definition has moved to a repository of its own, and have no
stable constants yet. Times of events are unix nanoseconds.
"""

from collections.abc import Iterator, Mapping, Sequence

from gateway.tracing import Finished
from slo.records import Outcome

Value = str | int | float | bool | Sequence[str]

# Source: OpenTelemetry GenAI semantic conventions, as of the package's version 0.66b2.
OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_STREAM = "gen_ai.request.stream"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"

# Source: OpenTelemetry semantic conventions, HTTP server spans, stable.
METHOD = "http.request.method"
ROUTE = "http.route"
STATUS = "http.response.status_code"
ERROR_TYPE = "error.type"

SLO_ID = "slo_id"
OURS = "burnproof."
SENT = OURS + "sent"
HEAD = OURS + "answer_begins"
CHUNK = OURS + "chunk"
CHUNK_INDEX = OURS + "chunk.index"
CHUNK_GAP = OURS + "chunk.gap_s"
CHUNK_CONTENT = OURS + "chunk.has_content"

DIALECT = "openai"
"""The conventions' value for an engine that speaks OpenAI's API and is not known otherwise."""

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"})
OTHER_METHOD = "_OTHER"

PATHS = {
    "chat": "/v1/chat/completions",
    "text_completion": "/v1/completions",
    "embeddings": "/v1/embeddings",
}

NO_ERROR = frozenset({Outcome.OK, Outcome.CLIENT_ABORT, Outcome.SHED})
SERVER_ERROR_FROM = 500


def name(ended: Finished) -> str:
    """Return one of few names: the operation and a model that the route lists, or the method."""
    operation = ended.trace.operation
    if not operation:
        return method(ended)
    return f"{operation} {ended.model}" if ended.is_known_model else operation


def method(ended: Finished) -> str:
    """Return the method, if it is a known one."""
    return ended.trace.method if ended.trace.method in METHODS else OTHER_METHOD


def error_type(ended: Finished) -> str:
    """Return what kind of failure of the service it was; empty if it was none."""
    record = ended.record
    if record.outcome is Outcome.HTTP_ERROR:
        return str(record.status) if record.status >= SERVER_ERROR_FROM else ""
    return "" if record.outcome in NO_ERROR else record.outcome.value


def attributes(ended: Finished) -> dict[str, Value]:
    """Return what is known of the request; what is not known is left out."""
    record, trace = ended.record, ended.trace
    found: Mapping[str, Value | None] = {
        METHOD: method(ended),
        ROUTE: PATHS.get(trace.operation),
        STATUS: record.status or None,
        ERROR_TYPE: error_type(ended) or None,
        OPERATION: trace.operation or None,
        PROVIDER: DIALECT if trace.operation else None,
        REQUEST_MODEL: ended.model or None,
        REQUEST_STREAM: ended.is_stream or None,
        INPUT_TOKENS: record.prompt_tokens or None,
        OUTPUT_TOKENS: record.tokens or None,
        FIRST_CHUNK: record.ttft_s,
        SLO_ID: ended.slo_id or None,
        OURS + "outcome": record.outcome.value,
        OURS + "route": record.route or None,
        OURS + "replica": record.replica or None,
        OURS + "assigned": record.assigned or None,
        OURS + "fallback": record.fallback or None,
        OURS + "unit": record.unit,
        OURS + "arm": record.arm or None,
        OURS + "treatment": record.treatment or None,
        OURS + "lease_ids": [lease for lease, _ in trace.held] or None,
        OURS + "run_ids": [run for _, run in trace.held] or None,
        OURS + "exposed_items": list(record.exposed) or None,
        OURS + "touched_items": list(record.touched) or None,
        OURS + "journal_seq": record.seq,
        OURS + "max_gap_s": record.max_gap_s,
        OURS + "chunks_dropped": ended.dropped or None,
        OURS + "client_run_id": record.client_run_id or None,
    }
    return {key: value for key, value in found.items() if value is not None}


def events(ended: Finished) -> Iterator[tuple[str, int, dict[str, Value]]]:
    """Give the events in the order of their times: name, unix nanoseconds, attributes."""
    if ended.sent_s is not None:
        yield SENT, at(ended, ended.sent_s), {}
    if ended.head_s is not None:
        yield HEAD, at(ended, ended.head_s), {}
    before = ended.chunks[0] if ended.chunks else 0.0
    for index, (offset, has_content) in enumerate(zip(ended.chunks, ended.content, strict=True)):
        yield (
            CHUNK,
            at(ended, offset),
            {CHUNK_INDEX: index, CHUNK_GAP: offset - before, CHUNK_CONTENT: has_content},
        )
        before = offset


def at(ended: Finished, offset: float) -> int:
    """Return unix nanoseconds of a moment, given in seconds since the request was accepted."""
    return round((ended.record.accepted + offset) * 1e9)
