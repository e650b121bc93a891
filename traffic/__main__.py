"""`python -m traffic`: drive one address, write a record a request, print one summary line.

Exit codes: 0 the drive ended as planned or by a signal, 3 nothing was sent (usage, or a remote
target).
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
import uuid
from pathlib import Path
from typing import IO, NoReturn

import aiohttp
import uvloop
from yarl import URL

from traffic.client import Client
from traffic.driver import Driver, Plan
from traffic.parent import die_with_parent
from traffic.profiles import ChatProfile, parse_lengths
from traffic.records import ClientRecord
from traffic.target import RemoteTarget, check_target

_CHAT_PATH = "/v1/chat/completions"
_DRAIN_AFTER_SIGNAL_SECONDS = 0.5
_KEEP_ALIVE_SECONDS = 15.0
"""Below the idle limit of every server we drive, so that none closes under a request."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Exit with 3: 2 means inconclusive in this project."""
        self.print_usage(sys.stderr)
        self.exit(3, f"{self.prog}: error: {message}\n")


def _parser() -> _Parser:
    parser = _Parser(prog="traffic", description="Synthetic load for an OpenAI-compatible server.")
    add = parser.add_argument
    add("--url", required=True, help="base address, or a full completion address")
    load = parser.add_mutually_exclusive_group(required=True)
    load.add_argument("--rate", type=float, help="requests a second, open loop")
    load.add_argument("--concurrency", type=int, help="users, closed loop")
    add("--conversations", default="geometric:3", help="geometric:MEAN or fixed:N requests each")
    add("--single", action="store_true", help="no conversation key: each request stands alone")
    add("--profile", choices=["chat"], default="chat")
    add("--model", default="tiny-chat")
    add("--max-tokens", type=int, default=16)
    add("--think-ms", type=float, help="mean pause in a conversation (200 open, 0 closed loop)")
    add("--body-file", type=Path, help="send exactly the bytes of this file each time")
    add("--duration", type=float, default=60.0, help="seconds")
    add("--max-requests", type=int, default=1_000_000)
    add("--timeout", type=float, default=60.0, help="of one request, seconds")
    add("--drain", type=float, default=5.0, help="time for requests in flight at the end, seconds")
    add("--out", type=Path, help="JSON lines, one a request")
    add("--seed", type=int, default=1)
    add("--run-id", default="", help="prefix of ids and conversation keys; random by default")
    add("--allow-remote", action="store_true", help="permit an address that is not loopback")
    add("--die-with-parent", action="store_true", help="end when the parent process ends")
    return parser


def _plan(arguments: argparse.Namespace) -> Plan:
    return Plan(
        seed=arguments.seed,
        run_id=arguments.run_id or uuid.uuid4().hex[:8],
        rate=arguments.rate or 0.0,
        concurrency=arguments.concurrency or 0,
        duration_seconds=arguments.duration,
        max_requests=arguments.max_requests,
        drain_seconds=arguments.drain,
        single=arguments.single,
        body=arguments.body_file.read_bytes() if arguments.body_file else None,
    )


def _profile(arguments: argparse.Namespace) -> ChatProfile:
    think_ms = arguments.think_ms
    if think_ms is None:
        think_ms = 0.0 if arguments.concurrency else 200.0
    return ChatProfile(
        model=arguments.model,
        max_tokens=arguments.max_tokens,
        lengths=parse_lengths(arguments.conversations),
        think_seconds=think_ms / 1e3,
    )


def _endpoint(url: URL) -> URL:
    return url if url.path.endswith("/completions") else url.with_path(_CHAT_PATH)


async def _drive(url: URL, plan: Plan, profile: ChatProfile, arguments: argparse.Namespace) -> None:
    # Appending would mix two drives, so an existing file is replaced.
    out: IO[str] | None = arguments.out.open("w", buffering=1) if arguments.out else None

    def sink(record: ClientRecord) -> None:
        if out is not None:
            out.write(json.dumps(record.to_json(), separators=(",", ":")) + "\n")

    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS)
    begin = time.monotonic()
    async with aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
        headers={"user-agent": "burnproof-traffic", "accept-encoding": "identity"},
    ) as session:
        driver = Driver(plan, profile, Client(session, url, arguments.timeout), sink)
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, driver.stop, "signal", _DRAIN_AFTER_SIGNAL_SECONDS)
        print(json.dumps({"event": "driving", "target": str(url), "pid": os.getpid()}), flush=True)
        tally = await driver.run()
    seconds = time.monotonic() - begin
    if out is not None:
        out.close()
    summary = {
        "event": "summary",
        "target": str(url),
        "engine": {None: "unknown", True: "SIMULATED", False: "not simulated"}[tally.simulated],
        "run_id": plan.run_id,
        "stopped_by": driver.stopped_by,
        "seconds": round(seconds, 3),
        "requests_per_second": round(tally.requests / seconds, 3),
    }
    print(json.dumps(summary | tally.to_json()), flush=True)


def main() -> None:
    """Read the options and drive."""
    parser = _parser()
    arguments = parser.parse_args()
    if (arguments.rate or arguments.concurrency or 0) <= 0:
        parser.error("--rate or --concurrency must be above 0")
    try:
        url = _endpoint(check_target(arguments.url, arguments.allow_remote))
        plan, profile = _plan(arguments), _profile(arguments)
    except (RemoteTarget, ValueError, OSError) as error:
        parser.error(str(error))
    if arguments.die_with_parent:
        # SIGTERM to ourselves: the usual end, with its summary.
        die_with_parent(lambda: os.kill(os.getpid(), signal.SIGTERM))
    uvloop.run(_drive(url, plan, profile, arguments))


if __name__ == "__main__":
    main()
