"""The gateway process: `python -m gateway --config gateway.json`.

Prints one JSON line when it listens: {"listening": "http://host:port", "epoch": …}. Reads its
configuration again on SIGHUP. Ends with 0 on SIGTERM or SIGINT after requests in flight had their
time, with 3 when the configuration cannot be used. A kill needs no care: the next start drops
whatever was held.
"""

import argparse
import asyncio
import gc
import json
import logging
import signal
import sys
from contextlib import suppress
from pathlib import Path

import uvloop

from gateway.app import GatewayServer
from gateway.config import ConfigError, GatewayConfig, load_config, load_token
from gateway.leases import AdminError

CONFIGURATION_EXIT = 3

COLLECT_FROM = 20_000
"""New objects before the collector looks for cycles. Source: ours, 2026-11: a request makes about
a hundred, none of them in a cycle; Python's default of 700 looks seven requests long."""


async def serve(config: GatewayConfig, token: str, path: Path) -> None:
    """Run until a signal asks for the end."""
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    # Not the loop's own handlers: as it closes it gives the signals their default back, and a
    # second one would then kill a process that is about to end with 0.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(done.set))
    server = GatewayServer(config, token, path)
    port = await server.start()
    reloads: set[asyncio.Task[None]] = set()

    def reload() -> None:
        task = loop.create_task(_reload(server))
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    signal.signal(signal.SIGHUP, lambda *_: loop.call_soon_threadsafe(reload))
    gc.freeze()  # the collector need not look through the modules again and again
    gc.set_threshold(COLLECT_FROM)
    line = {
        "listening": f"http://{config.host}:{port}",
        "epoch": server.core.epoch,
        "dropped": server.core.dropped_at_start,
    }
    print(json.dumps(line), flush=True)
    await done.wait()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    await asyncio.gather(*reloads)
    await server.stop()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


async def _reload(server: GatewayServer) -> None:
    """Read the configuration again; a refusal is in the log and in the admin log already."""
    with suppress(AdminError):
        await server.reloader.reload("signal")


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and run; return the exit code."""
    parser = argparse.ArgumentParser(prog="gateway", description="The request path of burnproof.")
    parser.add_argument("--config", type=Path, required=True, help="the gateway.json")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        config = load_config(arguments.config)
        token = load_token(config.admin_token_file)
    except ConfigError as error:
        print(f"gateway: {error}", file=sys.stderr)
        return CONFIGURATION_EXIT
    uvloop.run(serve(config, token, arguments.config))
    return 0


if __name__ == "__main__":
    sys.exit(main())
