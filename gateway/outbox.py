"""Send spans to a collector by OTLP over HTTP, from a thread of its own.

A request puts what is known of it into a bounded queue, without a lock and without waiting. Once a
second the thread makes spans of it and sends them; a collector that is gone, slow or refuses costs
spans, which are counted, and nothing else. The tracer is given times and ids of requests that have
ended, so the SDK's own queue, clock and sampling have no part in it. Headers for the collector
(its key) come from the environment, as the exporter reads it: OTEL_EXPORTER_OTLP_HEADERS.
"""

import logging
import threading
from collections import deque
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from gateway.span_content import attributes, error_type, events, name
from gateway.tracing import Finished

log = logging.getLogger("gateway.outbox")

QUEUE = 1024
"""Requests that wait to be sent; the oldest goes when there is no room."""

SEND_SECONDS = 1.0
"""Pause between two sendings."""

BATCH = 64
"""Spans of one sending. Source: ours: a span of 4,096 events is 0.4 MB; collectors take 20 MB."""

TIMEOUT_SECONDS = 3.0
"""Longest wait for the collector, its repeats included; below the time that a drain takes."""

MORE_EVENTS = 2
"""Events of a span that are no chunk."""


class Ids(IdGenerator):
    """Gives out the ids that a request was given when it was sampled."""

    def __init__(self) -> None:
        self.trace_id = 0
        self.span_id = 0

    def generate_trace_id(self) -> int:
        """Return the trace of the request at hand."""
        return self.trace_id

    def generate_span_id(self) -> int:
        """Return the span of the request at hand."""
        return self.span_id


class Collected(SpanProcessor):
    """Keeps ended spans for the next sending."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        """Take a span."""
        self.spans.append(span)


class SpanMaker:
    """Makes spans of requests that have ended."""

    def __init__(self, max_events: int, epoch: str) -> None:
        self._ids = Ids()
        self._collected = Collected()
        provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=Resource.create(
                {"service.name": "burnproof-gateway", "service.instance.id": epoch}
            ),
            shutdown_on_exit=False,
            id_generator=self._ids,
            span_limits=SpanLimits(max_events=max_events + MORE_EVENTS),
        )
        provider.add_span_processor(self._collected)
        self._tracer = provider.get_tracer("burnproof.gateway")

    def make(self, several: Sequence[Finished]) -> list[ReadableSpan]:
        """Return their spans."""
        for ended in several:
            self._make(ended)
        made, self._collected.spans = self._collected.spans, []
        return made

    def _make(self, ended: Finished) -> None:
        trace, record = ended.trace, ended.record
        self._ids.trace_id, self._ids.span_id = trace.trace_id, trace.span_id
        context = None
        if trace.parent is not None:
            parent = SpanContext(
                trace.parent.trace_id,
                trace.parent.span_id,
                is_remote=True,
                trace_flags=TraceFlags(TraceFlags.SAMPLED),
            )
            context = set_span_in_context(NonRecordingSpan(parent))
        span = self._tracer.start_span(
            name(ended),
            context=context,
            kind=SpanKind.SERVER,
            attributes=attributes(ended),
            start_time=round(record.accepted * 1e9),
        )
        for title, when, more in events(ended):
            span.add_event(title, more, when)
        if error_type(ended):
            span.set_status(Status(StatusCode.ERROR))
        span.end(round((record.accepted + record.e2e_s) * 1e9))


class Outbox:
    """The queue, the thread, and what became of the spans."""

    def __init__(
        self, endpoint: str, max_events: int, epoch: str, exporter: SpanExporter | None = None
    ) -> None:
        self._endpoint = endpoint
        self._exporter = exporter or OTLPSpanExporter(endpoint, timeout=TIMEOUT_SECONDS)
        # It says the same at each sending; one line when that begins and one when it ends is ours.
        logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
        self._maker = SpanMaker(max_events, epoch)
        self._waiting: deque[Finished] = deque(maxlen=QUEUE)
        self._stop = threading.Event()
        self._is_failing = False
        self.sent = 0
        self.failed = 0
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="gateway-spans", daemon=True)
        self._thread.start()

    def put(self, ended: Finished) -> None:
        """Take a request that has ended."""
        if len(self._waiting) == QUEUE:
            self.dropped += 1
        self._waiting.append(ended)

    def counts(self) -> dict[str, int]:
        """Return how many spans were sent, could not be sent, and had no room."""
        return {"sent": self.sent, "failed": self.failed, "dropped": self.dropped}

    def _run(self) -> None:
        while not self._stop.wait(SEND_SECONDS):
            self._send_waiting()
        self._send_waiting()

    def _send_waiting(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            try:
                done = self._exporter.export(self._maker.make(batch)) is SpanExportResult.SUCCESS
            except Exception:
                log.exception("spans could not be made or sent")
                done = False
            if done:
                self.sent += len(batch)
            else:
                self.failed += len(batch)
            if not done and self._stop.is_set():
                return
            if done == self._is_failing:
                self._is_failing = not done
                says = "takes spans again" if done else "takes no spans; they are lost and counted"
                log.warning("the collector at %s %s", self._endpoint, says)

    def close(self, seconds: float) -> None:
        """Send what waits, for at most `seconds`; what is left is lost. Blocks."""
        self._stop.set()
        self._thread.join(seconds)
        self._exporter.shutdown()
