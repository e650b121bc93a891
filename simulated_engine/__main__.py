"""`python -m simulated_engine`: start one engine and serve until told to stop."""

import argparse
import asyncio
import json
import os
import signal
import sys
from typing import NoReturn

import uvloop
from aiohttp import web

from simulated_engine.options import FINGERPRINT, EngineOptions, Misbehaviour
from simulated_engine.server import Engine
from traffic.parent import die_with_parent

_SHUTDOWN_SECONDS = 0.2
"""How long open answers may go on after the stop: next to nothing, there is nothing to save."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Exit with 3: 2 means inconclusive in this project."""
        self.print_usage(sys.stderr)
        self.exit(3, f"{self.prog}: error: {message}\n")


def _parser() -> _Parser:
    parser = _Parser(prog="simulated_engine", description="A simulated vLLM: no model, no GPU.")
    default = EngineOptions()
    add = parser.add_argument
    add("--name", default=default.name, help="name in the logs")
    add("--host", default=default.host)
    add("--port", type=int, default=default.port, help="0 takes a free one")
    add("--model", default=default.model, help="name of the base model")
    add("--max-model-len", type=int, default=default.max_model_len, help="context, tokens")
    add(
        "--ttft-ms",
        type=float,
        default=default.ttft_seconds * 1e3,
        help="mean time to a first token",
    )
    add("--prefill-us", type=float, default=0.0, help="more time to it for each prompt token")
    add("--itl-ms", type=float, default=default.itl_seconds * 1e3, help="mean time between tokens")
    add("--jitter", type=float, default=0.0, help="sigma of the lognormal factor on all")
    add("--slots", type=int, default=default.slots, help="requests decoded at the same time")
    add("--kv-tokens", type=int, default=default.kv_tokens, help="KV cache, tokens")
    add("--max-loras", type=int, default=default.max_loras)
    add("--seed", type=int, default=0)
    add("--error-rate", type=float, default=0.0, help="share of HTTP 500, ratio in [0, 1]")
    add("--stream-error-rate", type=float, default=0.0, help="share of errors within a stream")
    add("--truncate-rate", type=float, default=0.0, help="share of streams cut without an end")
    add("--hang-completions", action="store_true", help="never answer a completion")
    add("--empty-metrics", action="store_true", help="answer /metrics with nothing")
    add("--die-with-parent", action="store_true", help="end when the parent process ends")
    return parser


def _options(arguments: argparse.Namespace) -> EngineOptions:
    return EngineOptions(
        name=arguments.name,
        host=arguments.host,
        port=arguments.port,
        model=arguments.model,
        max_model_len=arguments.max_model_len,
        ttft_seconds=arguments.ttft_ms / 1e3,
        prefill_token_seconds=arguments.prefill_us / 1e6,
        itl_seconds=arguments.itl_ms / 1e3,
        jitter=arguments.jitter,
        slots=arguments.slots,
        kv_tokens=arguments.kv_tokens,
        max_loras=arguments.max_loras,
        seed=arguments.seed,
        misbehaviour=Misbehaviour(
            hang_completions=arguments.hang_completions,
            empty_metrics=arguments.empty_metrics,
            error_rate=arguments.error_rate,
            stream_error_rate=arguments.stream_error_rate,
            truncate_rate=arguments.truncate_rate,
        ),
    )


async def _serve(options: EngineOptions) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    runner = web.AppRunner(
        Engine(options).app(),
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=_SHUTDOWN_SECONDS,
    )
    await runner.setup()
    await web.TCPSite(runner, options.host, options.port, backlog=1024).start()
    ready = {
        "event": "listening",
        "name": options.name,
        "host": options.host,
        "port": runner.addresses[0][1],
        "pid": os.getpid(),
        "engine": FINGERPRINT,
    }
    print(json.dumps(ready), flush=True)
    await stop.wait()
    await runner.cleanup()


def main() -> None:
    """Read the options and serve."""
    parser = _parser()
    arguments = parser.parse_args()
    options = _options(arguments)
    problems = options.problems()
    if problems:
        parser.error("; ".join(problems))
    if arguments.die_with_parent:
        # Nothing is worth saving here, and the loop may be stuck: leave at once.
        die_with_parent(lambda: os._exit(0))
    uvloop.run(_serve(options))


if __name__ == "__main__":
    main()
