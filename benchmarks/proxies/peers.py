"""The proxies of the bench: how each is installed, configured and started, or why it is not there.

What pip can install goes into environments of its own under ~/.cache, since the pins of these
packages must not meet ours. nginx comes from the system's packages. A proxy that cannot be had is
told in the result with the reason: it never just lacks a row.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "burnproof"
TOKEN = "a-bench-token-of-some-length"
KEY = "sk-bench-key-that-is-long-enough-0123456789"
START_SECONDS = 120.0
"""Time to listen. Source: ours, 2026-11: LiteLLM takes 16 s on a calm machine."""

PEER_PACKAGES = ("starlette", "httpx", "uvicorn", "uvloop", "httptools")
AGENTBREAK = "agentbreak==0.4.6"
LITELLM = "litellm[proxy]"


class NotThereError(Exception):
    """A proxy cannot be had here; the text says why."""


@dataclass
class Running:
    """A started proxy."""

    name: str
    port: int
    process: subprocess.Popen[bytes] | None
    model: str = "m"
    exact: bool = True
    """Its answers must be the upstream's, byte for byte."""
    before: Callable[[], None] = field(default=lambda: None)
    """Called before each measurement."""
    span_counter: "tuple[subprocess.Popen[bytes], int] | None" = None
    """What takes the spans of a traced gateway, and its port."""

    def spans(self) -> dict[str, int] | None:
        """Return how many spans and events were taken so far; None without tracing."""
        if self.span_counter is None:
            return None
        url = f"http://127.0.0.1:{self.span_counter[1]}/"
        with urllib.request.urlopen(url, timeout=10) as answer:
            counts: dict[str, int] = json.loads(answer.read())
        return counts

    def stop(self) -> None:
        """End it, and then what takes its spans."""
        beside = [] if self.span_counter is None else [self.span_counter[0]]
        for process in [self.process, *beside]:
            if process is None:
                continue
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _start(
    name: str, command: list[str], port: int, log: Path, environment: dict[str, str] | None = None
) -> Running:
    """Start a process and wait until it listens."""
    with log.open("ab") as stream:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=stream,
            stderr=stream,
            env={**os.environ, **(environment or {})},
        )
    running = Running(name, port, process)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            return running
        except OSError:
            time.sleep(0.1)
    running.stop()
    last = log.read_text("utf-8", "replace").strip().splitlines()[-1:]
    raise NotThereError(f"did not start: {' '.join(last)[:200]}")


def _environment(name: str, *packages: str) -> Path:
    """Return the folder of programs of an environment with these packages, made if missing."""
    folder = CACHE / name
    wanted = " ".join(packages)
    ready = folder / ".ready"
    if not ready.exists() or ready.read_text() != wanted:
        print(f"installing {wanted} into {folder}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [folder / "bin" / "python", "-m", "pip", "install", "-q", *packages]
        done = subprocess.run(pip, capture_output=True, text=True, check=False)
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:]
            raise NotThereError(f"cannot be installed: {' '.join(last)[:200]}")
        ready.write_text(wanted)
    return folder / "bin"


def nginx(folder: Path, upstream: int) -> Running:
    """Start nginx with one worker, unbuffered, with kept connections to the upstream.

    Raises:
        NotThereError: It is missing and cannot be installed.
    """
    program = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if program is None:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise NotThereError("nginx is not installed: apt-get install nginx-light, as root")
        install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", "nginx-light"]
        subprocess.run(install, check=False, capture_output=True)
        program = shutil.which("nginx", path="/usr/sbin:/usr/bin")
        if program is None:
            raise NotThereError("apt-get could not install nginx-light")
    port = free_port()
    home = folder / "nginx"
    home.mkdir()
    config = home / "nginx.conf"
    config.write_text(
        f"""daemon off; master_process off; worker_processes 1; pid {home}/pid;
error_log {home}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 10000000;
  client_body_temp_path {home}/body; proxy_temp_path {home}/proxy;
  fastcgi_temp_path {home}/f; uwsgi_temp_path {home}/u; scgi_temp_path {home}/s;
  upstream engine {{ server 127.0.0.1:{upstream}; keepalive 512; keepalive_requests 10000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=1024;
    location / {{
      proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_request_buffering on; client_max_body_size 32m;
    }}
  }}
}}
"""
    )
    command = [program, "-p", str(home), "-c", str(config)]
    return _start("nginx", command, port, folder / "nginx.log")


def starlette(folder: Path, upstream: int) -> Running:
    """Start the Starlette and httpx proxy on uvicorn.

    Raises:
        NotThereError: Its packages cannot be installed.
    """
    programs = _environment("bench-peers", *PEER_PACKAGES, AGENTBREAK)
    port = free_port()
    command = [
        *(str(programs / "uvicorn"), "--app-dir", str(ROOT / "benchmarks")),
        *("--port", str(port), "--log-level", "warning", "proxies.starlette_proxy:app"),
    ]
    environment = {"BENCH_UPSTREAM": f"http://127.0.0.1:{upstream}"}
    return _start("starlette+httpx", command, port, folder / "starlette.log", environment)


def agentbreak(folder: Path, upstream: int) -> Running:
    """Start agentbreak as a proxy without a scenario.

    Raises:
        NotThereError: It cannot be installed or started.
    """
    programs = _environment("bench-peers", *PEER_PACKAGES, AGENTBREAK)
    port = free_port()
    application = folder / "agentbreak.yaml"
    llm = {"enabled": True, "mode": "proxy", "upstream_url": f"http://127.0.0.1:{upstream}"}
    serve = {"host": "127.0.0.1", "port": port}
    application.write_text(json.dumps({"llm": llm, "serve": serve}))
    scenarios = folder / "scenarios.yaml"
    scenarios.write_text(json.dumps({"version": 1, "scenarios": []}))
    command = [
        *(str(programs / "agentbreak"), "serve", "--config", str(application)),
        *("--scenarios", str(scenarios)),
    ]
    running = _start("agentbreak", command, port, folder / "agentbreak.log")
    running.exact = False
    return running


def litellm(folder: Path, upstream: int) -> Running:
    """Start the LiteLLM proxy with one worker.

    Raises:
        NotThereError: It cannot be installed or started.
    """
    programs = _environment("bench-litellm", LITELLM)
    port = free_port()
    config = folder / "litellm.yaml"
    parameters = {
        "model": "openai/m",
        "api_base": f"http://127.0.0.1:{upstream}/v1",
        "api_key": "none",
    }
    document = {
        "model_list": [{"model_name": "m", "litellm_params": parameters}],
        "general_settings": {"master_key": KEY},
    }
    config.write_text(json.dumps(document))
    command = [
        *(str(programs / "litellm"), "--config", str(config), "--host", "127.0.0.1"),
        *("--port", str(port), "--num_workers", "1"),
    ]
    running = _start("litellm", command, port, folder / "litellm.log")
    running.exact = False
    return running


def ours(folder: Path, upstream: int) -> Running:
    """Start the gateway as the targets name it: one request of a hundred is traced."""
    return _gateway("burnproof", 0.01, folder, upstream)


def untraced(folder: Path, upstream: int) -> Running:
    """Start the gateway without tracing."""
    return _gateway("burnproof-untraced", 0.0, folder, upstream)


def all_traced(folder: Path, upstream: int) -> Running:
    """Start the gateway with every request traced."""
    return _gateway("burnproof-all-traced", 1.0, folder, upstream)


def _count_spans() -> "tuple[subprocess.Popen[bytes], int]":
    """Start what stands in for a collector; return it and its port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "proxies.span_counter"],
        cwd=ROOT / "benchmarks",
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def _gateway(name: str, sample_ratio: float, folder: Path, upstream: int) -> Running:
    """Start the gateway with journal and records, an open lease, and a split over two arms.

    `sample_ratio`: share of requests of which a span is sent to the counter; 0: no tracing at all.
    """
    home = folder / name
    home.mkdir()
    (home / "token").write_text(TOKEN)
    port = free_port()
    url = f"http://127.0.0.1:{upstream}"
    document: dict[str, Any] = {
        "port": port,
        "admin_token_file": str(home / "token"),
        "journal_dir": str(home / "state"),
        "routes": [
            {"name": "chat", "replicas": [{"name": "a", "url": url}, {"name": "b", "url": url}]}
        ],
        "tracing": {"sample_ratio": sample_ratio},
    }
    counter = _count_spans() if sample_ratio else None
    if counter is not None:
        document["tracing"]["endpoint"] = f"http://127.0.0.1:{counter[1]}/v1/traces"
    config = home / "gateway.json"
    config.write_text(json.dumps(document))
    command = [sys.executable, "-m", "gateway", "--config", str(config)]
    running = _start(name, command, port, folder / f"{name}.log")
    running.span_counter = counter
    running.before = _leases(f"http://127.0.0.1:{port}/_burnproof")
    return running


def _leases(base: str) -> Callable[[], None]:
    """Return what opens or renews the lease that the split needs."""

    def call(method: str, path: str, body: dict[str, object]) -> None:
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        data = json.dumps(body).encode()
        request = urllib.request.Request(base + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=10):
            return

    is_open = False

    def before() -> None:
        nonlocal is_open
        if is_open:
            call("POST", "/leases/bench/renew", {"seconds": 60})
            return
        call(
            "POST",
            "/leases",
            {"lease_id": "bench", "run_id": "bench", "route": "chat", "seconds": 60},
        )
        split = {
            "experiment": "bench",
            "salt": "salt",
            "share": 0.5,
            "unit": "conversation",
            "control": ["a"],
            "chaos": ["b"],
        }
        call("PUT", "/leases/bench/items/split", {"kind": "split", "spec": split})
        is_open = True

    return before


PEERS: dict[str, Callable[[Path, int], Running]] = {
    "nginx": nginx,
    "burnproof": ours,
    "starlette+httpx": starlette,
    "agentbreak": agentbreak,
    "litellm": litellm,
}
"""Every proxy by name, in the order of the table."""

VARIANTS: dict[str, Callable[[Path, int], Running]] = {
    "burnproof-untraced": untraced,
    "burnproof-all-traced": all_traced,
}
"""The gateway set up otherwise; measured only when asked for by name."""
