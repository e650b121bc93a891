"""A trace collector for tests: keeps the spans that it is sent, or behaves badly."""

import asyncio
import gzip
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class SpanSeen:
    """One span, with plain values."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    seconds: float
    begin: float
    is_error: bool
    attributes: dict[str, Any]
    events: list[tuple[str, float, dict[str, Any]]]
    resource: dict[str, Any]


@dataclass
class Collector:
    """Serves OTLP over HTTP on a free port. `mode`: takes, refuses or hangs."""

    mode: str = "takes"
    spans: list[SpanSeen] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    calls: int = 0

    async def __aenter__(self) -> "Collector":
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/traces", self._take)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.endpoint = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1/traces"
        self._over = asyncio.Event()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over.set()
        await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        self.calls += 1
        body = await request.read()
        if self.mode == "hangs":
            await self._over.wait()
        if self.mode != "takes":
            return web.Response(status=400)
        if request.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.bodies.append(body)
        message = ExportTraceServiceRequest.FromString(body)
        for resource in message.resource_spans:
            about = _plain(resource.resource.attributes)
            for scope in resource.scope_spans:
                self.spans += [_seen(span, about) for span in scope.spans]
        return web.Response(body=b"", content_type="application/x-protobuf")

    async def wait(self, count: int) -> list[SpanSeen]:
        """Return the spans, once there are so many."""
        async with asyncio.timeout(10):
            while len(self.spans) < count:
                await asyncio.sleep(0.02)
        assert len(self.spans) == count
        return self.spans


def _plain(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)


def _seen(span: Any, resource: dict[str, Any]) -> SpanSeen:
    return SpanSeen(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        kind=span.kind,
        seconds=(span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
        begin=span.start_time_unix_nano / 1e9,
        is_error=span.status.code == 2,
        attributes=_plain(span.attributes),
        events=[
            (event.name, event.time_unix_nano / 1e9, _plain(event.attributes))
            for event in span.events
        ],
        resource=resource,
    )
