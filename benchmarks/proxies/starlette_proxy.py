"""The proxy that one writes first: Starlette before httpx, on uvicorn. Run in the peers' venv.

uvicorn --app-dir benchmarks proxies.starlette_proxy:app
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

HOP = {"connection", "keep-alive", "transfer-encoding", "host", "content-length"}


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Keep one client for the process."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=512)
    base = os.environ["BENCH_UPSTREAM"]
    async with httpx.AsyncClient(base_url=base, limits=limits, timeout=60) as client:
        app.state.client = client
        yield


async def forward(request: Request) -> StreamingResponse:
    """Send the request on and stream the answer back."""
    client: httpx.AsyncClient = request.app.state.client
    headers = [(key, value) for key, value in request.headers.raw if key.decode() not in HOP]
    body = await request.body()
    outgoing = client.build_request(request.method, request.url.path, headers=headers, content=body)
    answer = await client.send(outgoing, stream=True)

    async def chunks() -> AsyncIterator[bytes]:
        try:
            async for piece in answer.aiter_raw():
                yield piece
        finally:
            await answer.aclose()

    kept = {key: value for key, value in answer.headers.items() if key.lower() not in HOP}
    return StreamingResponse(chunks(), status_code=answer.status_code, headers=kept)


app = Starlette(routes=[Route("/{path:path}", forward, methods=["GET", "POST"])], lifespan=lifespan)
