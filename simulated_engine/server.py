"""HTTP face of the simulated engine: routes, streams, refusals.

It keeps the endpoints' answers like vLLM's and leaves scheduling, text and counting to the other
modules. The hard part is the client that goes away: the handler is cancelled, and the answer must
leave its slot at once, or a few impatient clients would block the engine for good.
"""

import asyncio
import random
import time
import uuid
from collections.abc import Awaitable, Callable

from aiohttp import web

from simulated_engine.adapters import Adapters
from simulated_engine.errors import ApiError, bad_request, internal_error, unknown_model
from simulated_engine.extras import call_answer, call_stream, embeddings_answer, named_call
from simulated_engine.generation import Generation, Pace
from simulated_engine.language import Voice, base_voice
from simulated_engine.metrics import Metrics
from simulated_engine.options import SERVER_NAME, VERSION, EngineOptions
from simulated_engine.requests import CompletionRequest, read_request
from simulated_engine.scheduler import Scheduler
from simulated_engine.wire import DONE, StreamShape, compact, whole_answer

_MAX_BODY_BYTES = 64 * 2**20

_CLIENT_GONE = 499
"""Status counted when the client has left. Source: nginx's code for it."""

EVENTS = "text/event-stream; charset=utf-8"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Engine:
    """One simulated engine: state and handlers."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._scheduler = Scheduler(options.slots, options.kv_tokens)
        self._metrics = Metrics(options, self._scheduler)
        self._adapters = Adapters(options.max_loras)
        self._pace = Pace(options)
        self._random = random.Random(options.seed + 1)
        self._created = int(time.time())
        if options.misbehaviour.hang_completions:
            self._scheduler.pause()

    def app(self) -> web.Application:
        """Return the application with its routes."""
        app = web.Application(client_max_size=_MAX_BODY_BYTES, middlewares=[self._count_answers])
        app.on_response_prepare.append(_name_the_server)
        app.add_routes(
            [
                web.get("/health", self._health),
                web.get("/ping", self._health),
                web.get("/version", self._version),
                web.get("/metrics", self._expose),
                web.get("/v1/models", self._models),
                web.get("/is_paused", self._is_paused),
                web.post("/pause", self._pause),
                web.post("/resume", self._resume),
                web.post("/v1/chat/completions", self._chat),
                web.post("/v1/completions", self._completion),
                web.post("/v1/embeddings", self._embeddings),
                web.post("/v1/load_lora_adapter", self._load_adapter),
                web.post("/v1/unload_lora_adapter", self._unload_adapter),
            ]
        )
        return app

    @web.middleware
    async def _count_answers(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            response = await handler(request)
        except ApiError as refusal:
            response = web.Response(
                status=refusal.status, body=refusal.body(), content_type="application/json"
            )
        except ConnectionResetError:
            # The client went away between two writes; nobody is there to read this answer.
            response = web.Response(status=_CLIENT_GONE)
        except web.HTTPNotFound:
            response = _json({"detail": "Not Found"}, status=404)
        except web.HTTPMethodNotAllowed:
            response = _json({"detail": "Method Not Allowed"}, status=405)
        resource = request.match_info.route.resource
        path = resource.canonical if resource is not None else "none"
        self._metrics.answered(path, request.method, response.status)
        return response

    async def _health(self, _: web.Request) -> web.StreamResponse:
        return web.Response()

    async def _version(self, _: web.Request) -> web.StreamResponse:
        return _json({"version": VERSION})

    async def _expose(self, _: web.Request) -> web.StreamResponse:
        body = b"" if self._options.misbehaviour.empty_metrics else self._metrics.render()
        return web.Response(
            body=body, headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    async def _models(self, _: web.Request) -> web.StreamResponse:
        limit = self._options.max_model_len
        base = self._options.model
        data = [self._model(base, base, None) | {"max_model_len": limit}]
        data += [self._model(one.name, one.path, base) for one in self._adapters.all()]
        return _json({"object": "list", "data": data})

    def _model(self, name: str, root: str, parent: str | None) -> dict[str, object]:
        return {
            "id": name,
            "object": "model",
            "created": self._created,
            "owned_by": "vllm",
            "root": root,
            "parent": parent,
            "max_model_len": None,
        }

    async def _is_paused(self, _: web.Request) -> web.StreamResponse:
        return _json({"is_paused": self._scheduler.paused})

    async def _pause(self, _: web.Request) -> web.StreamResponse:
        self._scheduler.pause()
        return _json({"status": "paused"})

    async def _resume(self, _: web.Request) -> web.StreamResponse:
        self._scheduler.resume()
        return _json({"status": "resumed"})

    async def _load_adapter(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text=self._adapters.load(await _read_json(request)))

    async def _unload_adapter(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text=self._adapters.unload(await _read_json(request)))

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, chat=True)

    async def _embeddings(self, request: web.Request) -> web.StreamResponse:
        fields = await _read_json(request)
        body = embeddings_answer(fields, self._options.model, int(time.time()))
        return web.Response(body=body, content_type="application/json")

    async def _call_tool(
        self, http: web.Request, asked: CompletionRequest, call: tuple[str, str]
    ) -> web.StreamResponse:
        head = {"id": _identity(asked), "created": int(time.time()), "model": asked.model}
        if not asked.stream:
            body = call_answer(head, *call)
            return web.Response(body=body, content_type="application/json")
        response = web.StreamResponse(headers={"content-type": EVENTS})
        await response.prepare(http)
        for chunk in call_stream(head, *call):
            await response.write(chunk)
        await response.write_eof()
        return response

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, chat=False)

    async def _answer(self, request: web.Request, chat: bool) -> web.StreamResponse:
        if request.content_type.startswith("text/"):
            # The real engine refuses all but JSON; here a body without a type is read all the same.
            raise bad_request("Unsupported Media Type: Only 'application/json' is allowed")
        raw, options = await request.read(), self._options
        asked = read_request(raw, chat, options.max_model_len, options.model)
        voice, adapter = self._voice_of(asked.model)
        call = named_call(raw) if chat else None
        if call is not None:
            return await self._call_tool(request, asked, call)
        if self._draw(options.misbehaviour.error_rate):
            raise internal_error("EngineCore encountered an issue (injected by --error-rate)")
        generation = Generation(asked, adapter, self._pace, self._scheduler)
        finished = False
        generation.start()
        if adapter:
            self._metrics.note_adapters()
        try:
            if options.misbehaviour.hang_completions:
                # Not even headers: those would go out before the first token otherwise.
                await asyncio.get_running_loop().create_future()
            if asked.stream:
                response, finished = await self._stream(request, generation, voice)
            else:
                response, finished = await self._whole(generation, voice), True
        finally:
            generation.end(self._metrics, finished)
        return response

    def _voice_of(self, model: str) -> tuple[Voice, str]:
        if model == self._options.model:
            return base_voice(), ""
        adapter = self._adapters.get(model)
        if adapter is None:
            raise unknown_model(model, [self._options.model])
        return adapter.voice, adapter.name

    def _draw(self, rate: float) -> bool:
        return rate > 0 and self._random.random() < rate

    async def _whole(self, generation: Generation, voice: Voice) -> web.StreamResponse:
        request = generation.request
        start = voice.start(request.prompt)
        for _ in range(generation.length):
            await generation.token(self._metrics)
        text = "".join(voice.token(start, i) for i in range(generation.length))
        head = {"id": _identity(request), "created": int(time.time())}
        body = whole_answer(request, head, text, generation.finish_reason, generation.length)
        return web.Response(body=body, content_type="application/json")

    async def _stream(
        self, http: web.Request, generation: Generation, voice: Voice
    ) -> tuple[web.StreamResponse, bool]:
        request, length = generation.request, generation.length
        misbehaviour = self._options.misbehaviour
        fails = self._draw(misbehaviour.stream_error_rate)
        cut = not fails and self._draw(misbehaviour.truncate_rate)
        written = length // 2 if fails or cut else length
        shape = StreamShape(request, _identity(request), int(time.time()))
        response = web.StreamResponse(headers={"content-type": EVENTS})
        await response.prepare(http)
        start = voice.start(request.prompt)
        # The engine's first output makes both the role chunk and the first token.
        pending = shape.role()
        for i in range(written):
            if not generation.is_due() and i:
                await response.write(pending)
                pending = b""
            await generation.token(self._metrics)
            last = generation.finish_reason if i == length - 1 else None
            pending += shape.token(voice.encoded(start, i), last)
        if fails:
            error = internal_error("EngineCore encountered an issue (injected in the stream)")
            pending += b"data: " + error.body() + b"\n\n" + DONE
        elif not cut:
            tail = shape.usage(request.prompt_tokens, length) if request.include_usage else b""
            pending += tail + DONE
        await response.write_eof(pending)
        return response, not fails and not cut


async def _name_the_server(_: web.Request, response: web.StreamResponse) -> None:
    response.headers["server"] = SERVER_NAME


async def _read_json(request: web.Request) -> object:
    try:
        body: object = await request.json()
    except ValueError as error:
        raise bad_request("JSON decode error") from error
    return body


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(status=status, body=compact(value), content_type="application/json")


def _identity(request: CompletionRequest) -> str:
    return ("chatcmpl-" if request.chat else "cmpl-") + uuid.uuid4().hex[:16]
