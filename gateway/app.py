"""Wiring: one core, one data path, and the process's own pages beside it.

The process's own pages are four: /healthz, /readyz, /metrics and the admin prefix; every other path
belongs to the replicas. The own pages are served by aiohttp, which is handed a connection for one
request; the data path is `gateway.http1`. `GatewayServer` starts and stops all of it, in a process
of its own or in a test.
"""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from aiohttp import web

from gateway import metrics as names
from gateway.admin import Admin
from gateway.config import GatewayConfig
from gateway.core import Core
from gateway.durable import DurableRecord
from gateway.http1.client import MAX_BODY_BYTES
from gateway.http1.heads import MAX_HEAD_BYTES
from gateway.http1.listener import Connections, Listener
from gateway.http1.pool import Pool
from gateway.metrics import Sample
from gateway.proxy import Proxy
from gateway.reload import Reloader

FLUSH_SECONDS = 0.5
"""How often the journal goes to disk. Source: ours: a kill loses half a second of the disk copy."""

OWN_PAGES_SECONDS = 5.0
"""How long a call of the admin API may go on at the end of the process."""

LAST_SPANS_SECONDS = 2.0
"""How long the spans that wait at the end may take; what a collector does not take is lost."""


class GatewayServer:
    """A gateway that can be started and stopped."""

    def __init__(self, config: GatewayConfig, token: str, path: Path | None = None) -> None:
        """Take what was read; `path` is where it may be read again."""
        self._config = config
        self._path = path
        self._token = token
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="gateway-writer")
        self._pool: Pool | None = None
        self._listener: Listener | None = None
        self._runner: web.AppRunner | None = None
        self._flusher: asyncio.Task[None] | None = None
        self.core: Core
        self.reloader: Reloader
        self.connections: Connections
        self.port = 0

    async def start(self) -> int:
        """Listen. Return the port."""
        config = self._config
        loop = asyncio.get_running_loop()
        record = DurableRecord(config.journal_dir)
        self.core = await loop.run_in_executor(self._executor, Core, config, record, self._executor)
        self.reloader = Reloader(self.core, self._path, self._executor)
        self._pool = Pool()
        proxy = Proxy(self.core, self._pool, self._token)
        self.connections = proxy.connections
        self._runner = web.AppRunner(
            self._own_pages(),
            access_log=None,
            max_line_size=MAX_HEAD_BYTES,
            max_field_size=MAX_HEAD_BYTES,
            shutdown_timeout=OWN_PAGES_SECONDS,
        )
        await self._runner.setup()
        assert self._runner.server is not None
        proxy.own_factory = self._runner.server
        self._listener = Listener(proxy.connections)
        self.port = await self._listener.start(proxy.connect, config.host, config.port)
        self._flusher = asyncio.create_task(self._flush())
        return self.port

    def _own_pages(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        Admin(self.core, self._token, self.reloader.reload).add_routes(app)
        return app

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(body=b'{"status":"ok"}', content_type="application/json")

    async def _readyz(self, _request: web.Request) -> web.Response:
        if self.core.stopping:
            body = b'{"status":"draining"}'
            return web.Response(status=503, body=body, content_type="application/json")
        return web.Response(body=b'{"status":"ready"}', content_type="application/json")

    async def _metrics(self, _request: web.Request) -> web.Response:
        self.core.leases.sweep()
        text = self.core.metrics.render([*self.core.gauges(), *self._process_gauges()])
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=text.encode(), headers=headers)

    def _process_gauges(self) -> Iterator[Sample]:
        yield names.CLIENTS, (), len(self.connections.all())
        yield names.IDLE_REPLICAS, (), 0 if self._pool is None else self._pool.idle()
        yield names.TASKS, (), len(asyncio.all_tasks())

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self.core.journal.flush()

    async def stop(self) -> None:
        """Withdraw everything, announce the end, let requests end, close, write down the rest.

        Faults go first: a stream that one of them holds back could not end in time.
        """
        drain = self.core.config.drain
        self.core.stopping = True
        self.core.leases.drain()
        await asyncio.sleep(drain.announce_seconds)
        if self._listener is not None:
            await self._listener.stop(drain.seconds, self._cut_off)
        if self._flusher is not None:
            self._flusher.cancel()
            with suppress(asyncio.CancelledError):
                await self._flusher
        if self._runner is not None:
            await self._runner.cleanup()
        if self._pool is not None:
            await self._pool.close()
        outbox = self.core.tracing.outbox
        if outbox is not None:
            await asyncio.to_thread(outbox.close, LAST_SPANS_SECONDS)
        await self.core.leases.settle_writes()
        await self.core.journal.flush()
        self._executor.shutdown()

    def _cut_off(self) -> None:
        self.core.cut_off = True
