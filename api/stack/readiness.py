"""When a process counts as ready: it did its work once, not merely opened a port.

An engine has answered with a token; Temporal takes our client, knows our search attributes and
has the sweep on its schedule; the worker says so in its log; the gateway answers its own check.
Each check waits for ever: whoever calls it sets the deadline and watches for the process's end.
"""

import asyncio
import importlib
from collections.abc import Callable, Coroutine
from typing import Any

import httpx

from api.stack.guarded import Guarded
from api.stack.options import EMBEDDINGS_MODEL, MODEL
from api.stack.ports import HOST

PAUSE_SECONDS = 0.05
"""Between two looks at a process that starts."""

_SLOW_PAUSE_SECONDS = 0.5
_ANSWER_SECONDS = 60.0
"""One token. The first one of a real engine on a busy machine takes seconds."""

ONE_TOKEN = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "ping"}],
    "max_tokens": 1,
    "temperature": 0,
}

ONE_VECTOR = {"model": EMBEDDINGS_MODEL, "input": "ping"}

Check = Callable[[Guarded], Coroutine[Any, Any, None]]


async def temporal_ready(address: str) -> None:
    """Wait until the server works and is set up for our workflows."""
    port = int(address.rpartition(":")[2])
    loading = asyncio.create_task(asyncio.to_thread(importlib.import_module, "api.client"))
    await port_opens(port)
    await loading
    from temporalio.service import RPCError

    from api import client as facade
    from api.errors import NotReachable
    from settings import TemporalSettings

    while True:
        try:
            client = await facade.connect(TemporalSettings(address=address, namespace="default"))
            await facade.ensure_search_attributes(client)
            await facade.ensure_sweep(client)
            return
        except (NotReachable, RPCError):
            await asyncio.sleep(PAUSE_SECONDS)


async def answers_a_token(url: str, headers: dict[str, str] | None = None) -> None:
    """Wait until a server completes one token."""
    await _answers(url, "/v1/chat/completions", ONE_TOKEN, headers)


async def answers_a_vector(url: str) -> None:
    """Wait until a server answers with one embedding."""
    await _answers(url, "/v1/embeddings", ONE_VECTOR, None)


async def _answers(
    url: str, path: str, body: dict[str, Any], headers: dict[str, str] | None
) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=_ANSWER_SECONDS, trust_env=False) as http:
        while True:
            try:
                answer = await http.post(path, json=body, headers=headers)
                if answer.is_success:
                    return
                await asyncio.sleep(_SLOW_PAUSE_SECONDS)
            except httpx.RequestError:
                await asyncio.sleep(PAUSE_SECONDS)


async def answers_get(url: str, path: str) -> None:
    """Wait until a server answers a GET with success."""
    async with httpx.AsyncClient(base_url=url, timeout=5, trust_env=False) as http:
        while True:
            try:
                if (await http.get(path)).is_success:
                    return
            except httpx.RequestError:
                pass
            await asyncio.sleep(PAUSE_SECONDS)


async def says(process: Guarded, words: str) -> None:
    """Wait until the process has written these words since its start."""
    while words not in process.output():  # noqa: ASYNC110 - a file has no event to wait for
        await asyncio.sleep(PAUSE_SECONDS)


async def port_opens(port: int) -> None:
    """Wait until something accepts connections."""
    while True:
        try:
            _, writer = await asyncio.open_connection(HOST, port)
        except OSError:
            await asyncio.sleep(PAUSE_SECONDS)
            continue
        writer.close()
        await writer.wait_closed()
        return
