"""`make bench-gateway`: what the gateway costs beside nothing, nginx, and other proxies.

Closed loops of 1, 16 and 256 connections ask for a stream of 17 chunks or one JSON answer,
through each proxy before the same upstream. All proxies are measured in turns within one run,
several times, and the median counts, since the machine is not ours alone. "Added" is against the
direct way in the same run. CPU is that of the proxy's process and its children, by the kernel's
count. The gateway runs with journal, records, a split over two arms, and 1 % of its requests
traced: their spans go to a process that counts them (`proxies/span_counter.py`) and shares the
machine. nginx runs with one worker, unbuffered. `--proxies burnproof burnproof-untraced
burnproof-all-traced` tells what tracing costs.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import psutil
from proxies.peers import KEY, PEERS, VARIANTS, NotThereError, Running

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "gateway.json"
CONNECTIONS = (1, 16, 256)
KINDS = ("sse", "json")
OURS = "burnproof"
NGINX_RATIO = 0.45
ADDED_P50_MS = 0.6
LITELLM_RATIO = 40.0
SPANS_ARE_IN_SECONDS = 3.0
"""The gateway sends spans once a second; the last ones are in after this."""
SLOW = frozenset({"litellm"})
"""Proxies that get one round: a hundred answers take them as long as thousands take others."""

Json = dict[str, Any]
Cell = tuple[str, str, int]
"""Proxy, kind, connections."""


def cpu_seconds(process: "subprocess.Popen[bytes] | None") -> float:
    """Return the CPU time of a process and its children so far."""
    if process is None:
        return 0.0
    root = psutil.Process(process.pid)
    times = [each.cpu_times() for each in (root, *root.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def measure(proxy: Running, kind: str, connections: int, seconds: float) -> Json:
    """Run the load once and return its figures."""
    proxy.before()
    command = [
        *(sys.executable, "-m", "proxies.load", "--port", str(proxy.port)),
        *("--connections", str(connections), "--seconds", str(seconds), "--kind", kind),
        *("--model", proxy.model, "--key", KEY, *(["--exact"] if proxy.exact else [])),
    ]
    with subprocess.Popen(command, cwd=ROOT / "benchmarks", stdout=subprocess.PIPE) as load:
        assert load.stdout is not None
        load.stdout.readline()  # it counts from here
        before = cpu_seconds(proxy.process)
        line = load.stdout.readline()
        used = cpu_seconds(proxy.process) - before
    if not line:
        return {"error": "the load generator ended without a figure"}
    found: Json = json.loads(line)
    if "error" not in found:
        found["cpu_ms"] = used / found["requests"] * 1e3
    return found


def run(options: argparse.Namespace, folder: Path) -> tuple[dict[Cell, list[Json]], Json, Json]:
    """Start everything, measure in turns; return all figures, who is not there, and spans."""
    upstream = subprocess.Popen(
        [sys.executable, "-m", "proxies.upstream"],
        cwd=ROOT / "benchmarks",
        stdout=subprocess.PIPE,
    )
    assert upstream.stdout is not None
    port = int(upstream.stdout.readline())
    proxies = [Running("direct", port, None)]
    missing: Json = {}
    spans: Json = {}
    found: dict[Cell, list[Json]] = defaultdict(list)
    try:
        for name in options.proxies:
            try:
                proxies.append({**PEERS, **VARIANTS}[name](folder, port))
            except NotThereError as reason:
                missing[name] = str(reason)
                print(f"{name}: {reason}", flush=True)
        for number in range(options.rounds):
            for kind in options.kinds:
                for connections in options.connections:
                    for proxy in proxies:
                        if number and proxy.name in SLOW:
                            continue
                        figures = measure(proxy, kind, connections, options.seconds)
                        found[proxy.name, kind, connections].append(figures)
            print(f"round {number + 1} of {options.rounds} done", flush=True)
        time.sleep(SPANS_ARE_IN_SECONDS)
        spans = {each.name: each.spans() for each in proxies if each.span_counter is not None}
    finally:
        for proxy in proxies:
            proxy.stop()
        upstream.terminate()
        upstream.wait()
    return found, missing, spans


def summarise(found: dict[Cell, list[Json]]) -> list[Json]:
    """Return one row per cell: medians over the rounds, and what was added to the direct way."""
    rows = {}
    for (name, kind, connections), rounds in found.items():
        errors = [each["error"] for each in rounds if "error" in each]
        row: Json = {"proxy": name, "kind": kind, "connections": connections}
        if errors:
            row["error"] = errors[0]
        else:
            for figure in ("requests_per_second", "p50_ms", "p99_ms", "cpu_ms"):
                row[figure] = round(statistics.median(each[figure] for each in rounds), 3)
        rows[name, kind, connections] = row
    for (_, kind, connections), row in rows.items():
        direct = rows["direct", kind, connections]
        if "error" not in row and "error" not in direct:
            row["added_p50_ms"] = round(row["p50_ms"] - direct["p50_ms"], 3)
            row["added_p99_ms"] = round(row["p99_ms"] - direct["p99_ms"], 3)
    return list(rows.values())


def judge(rows: list[Json], missing: Json, options: argparse.Namespace, load: float) -> Json:
    """Hold the figures against the targets; what was not measured is not met."""
    cells = {(row["proxy"], row["kind"], row["connections"]): row for row in rows}

    def rate(name: str, kind: str, connections: int) -> float | None:
        value = cells.get((name, kind, connections), {}).get("requests_per_second")
        return None if value is None else float(value)

    def ratio(to: str, kind: str, connections: int) -> float | None:
        mine, other = rate(OURS, kind, connections), rate(to, kind, connections)
        return round(mine / other, 3) if mine and other else None

    added = cells.get((OURS, "sse", 1), {}).get("added_p50_ms")
    figures = {
        "of_nginx_at_16": ratio("nginx", "sse", 16),
        "added_p50_ms_at_1": added,
        "of_litellm_at_16": ratio("litellm", "sse", 16),
    }
    met = {
        "of_nginx_at_16": (figures["of_nginx_at_16"] or 0.0) >= NGINX_RATIO,
        "added_p50_ms_at_1": added is not None and added <= ADDED_P50_MS,
        "of_litellm_at_16": (figures["of_litellm_at_16"] or 0.0) >= LITELLM_RATIO,
    }
    names = sorted({row["proxy"] for row in rows} - {OURS, "direct"})
    return {
        "name": "gateway",
        "figures": figures,
        "targets": {
            "of_nginx_at_16": f">= {NGINX_RATIO:g} x its requests a second",
            "added_p50_ms_at_1": f"<= {ADDED_P50_MS:g}",
            "of_litellm_at_16": f">= {LITELLM_RATIO:g} x its requests a second",
        },
        "met": all(met.values()),
        "met_each": met,
        "ratios": {
            f"{kind} {connections}": {name: ratio(name, kind, connections) for name in names}
            for kind in options.kinds
            for connections in options.connections
        },
        "not_there": missing,
        "rounds": options.rounds,
        "seconds": options.seconds,
        "rows": rows,
        "machine": {
            "cpus": os.cpu_count(),
            "machine": platform.machine(),
            "python": platform.python_version(),
            "load_1m_before": round(load, 1),
            "is_calm": load < (os.cpu_count() or 1),
        },
    }


def show(rows: list[Json]) -> None:
    """Print the table."""
    print(
        f"{'proxy':<21}{'kind':<6}{'conns':>5}{'req/s':>9}{'p50 ms':>9}{'p99 ms':>9}"
        f"{'+p50':>8}{'+p99':>8}{'CPU ms':>8}"
    )
    for row in sorted(rows, key=lambda each: (each["kind"], each["connections"])):
        head = f"{row['proxy']:<21}{row['kind']:<6}{row['connections']:>5}"
        if "error" in row:
            print(f"{head}  {row['error'][:80]}")
            continue
        print(
            f"{head}{row['requests_per_second']:>9.0f}{row['p50_ms']:>9.2f}{row['p99_ms']:>9.2f}"
            f"{row['added_p50_ms']:>8.2f}{row['added_p99_ms']:>8.2f}{row['cpu_ms']:>8.2f}"
        )


def main() -> None:
    """Run, print the table, and write the result."""
    parser = argparse.ArgumentParser(description="What the gateway costs beside other proxies.")
    parser.add_argument("--rounds", type=int, default=3, help="turns per figure (default 3)")
    parser.add_argument("--seconds", type=float, default=3.0, help="per measurement (default 3)")
    parser.add_argument("--connections", type=int, nargs="+", default=list(CONNECTIONS))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--proxies", nargs="+", choices=[*PEERS, *VARIANTS], default=list(PEERS))
    parser.add_argument("--no-result", action="store_true", help="only print")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="burnproof-bench-") as folder:
        found, missing, spans = run(options, Path(folder))
    rows = summarise(found)
    show(rows)
    result = {**judge(rows, missing, options, load), "spans_counted": spans}
    for name, counts in spans.items():
        print(f"{name}: {counts['spans']} spans with {counts['events']} events were counted")
    for name, target in result["targets"].items():
        mark = "met" if result["met_each"][name] else "NOT MET"
        print(f"{name:<20}{result['figures'][name]!s:<10}{target}: {mark}")
    if not result["machine"]["is_calm"]:
        print(f"the machine was busy with other work: load {load:.1f} before the start")
    if not options.no_result:
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
