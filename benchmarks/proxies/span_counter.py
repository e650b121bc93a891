"""Stands in for a trace collector in the bench: takes OTLP over HTTP, counts, and keeps nothing.

    python -m proxies.span_counter

Prints its port. `GET /` answers how many spans and events have come, as JSON. It is no collector:
it reads each body whole with the published message types and forgets it.
"""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

ANSWER = ExportTraceServiceResponse().SerializeToString()


class Counter(BaseHTTPRequestHandler):
    """Counts spans; one number for all connections, since each export is one short call."""

    protocol_version = "HTTP/1.1"
    spans = 0
    events = 0

    def do_POST(self) -> None:
        """Take one export."""
        request = ExportTraceServiceRequest()
        request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                Counter.spans += len(scope.spans)
                Counter.events += sum(len(span.events) for span in scope.spans)
        self._answer(ANSWER, "application/x-protobuf")

    def do_GET(self) -> None:
        """Say how many there were."""
        counts = {"spans": Counter.spans, "events": Counter.events}
        self._answer(json.dumps(counts).encode(), "application/json")

    def _answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing of each call."""


def main() -> None:
    """Serve until killed."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Counter)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
