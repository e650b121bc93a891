"""`make bench-soak`: the gateway for an hour under traffic and faults, and nothing lost or leaked.

A gateway process serves 50 requests a second from a client that counts each of them, while every
fault template of the catalogue is switched on and off through leases. At the end each request must
have exactly one record that agrees with what its client saw; memory, journal, files, connections
and tasks must not have grown. The first fifth fills the bounded buffers; memory is judged after it.

    python -m benchmarks.soak [--minutes 60] [--rate 50]
"""

import argparse
import asyncio
import json
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

from tests.soak.soaking import Options, Sample, soak
from tests.soak.verdict import Limits, judge

RESULT = Path(__file__).resolve().parent / "results" / "soak.json"
WARM_SHARE = 0.2
GROWTH_BYTES = 64.0
"""Bytes a request may leave behind. Source: ours, 2026-11: the counters' 3,600 one-second buckets
fill during the hour, about 12; a leaked request would leave thousands."""

SHOWN_SAMPLES = 60


def thinned(samples: list[Sample]) -> list[dict[str, Any]]:
    """Return some of the samples, evenly over the time."""
    step = max(1, len(samples) // SHOWN_SAMPLES)
    return [
        {
            "minute": round(each.at / 60, 1),
            "rss_mb": round(each.rss_bytes / 1e6, 2),
            "files": each.files,
            "journal_mb": round(each.journal_bytes / 1e6, 2),
        }
        for each in samples[::step]
    ]


def main() -> None:
    """Run, print the table, and write the result."""
    parser = argparse.ArgumentParser(description="The gateway under faults for a long time.")
    parser.add_argument("--minutes", type=float, default=60.0, help="how long (default 60)")
    parser.add_argument("--rate", type=float, default=50.0, help="requests a second (default 50)")
    parser.add_argument("--no-result", action="store_true", help="only print")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    seconds = options.minutes * 60
    with tempfile.TemporaryDirectory(prefix="burnproof-soak-") as folder:
        soaked = asyncio.run(soak(Path(folder), Options(seconds=seconds, rate=options.rate)))
    judged = judge(soaked, Limits(seconds * WARM_SHARE, GROWTH_BYTES))
    for name, target in judged["targets"].items():
        mark = "met" if judged["met_each"][name] else "NOT MET"
        print(f"{name:<26}{judged['figures'][name]!s:<10} {target}: {mark}")
    for saw, outcomes in judged["ends"].items():
        told = ", ".join(f"{outcome} {count}" for outcome, count in outcomes.items())
        print(f"client saw {saw:<22}record says {told}")
    for line in judged["shown"]:
        print(f"  {line}")
    result = {
        "name": "soak",
        "engine": "SIMULATED",
        "minutes": round(soaked.seconds / 60, 1),
        "rate": options.rate,
        "postponed": soaked.postponed,
        **judged,
        "samples": thinned(soaked.samples),
        "machine": {
            "cpus": os.cpu_count(),
            "machine": platform.machine(),
            "python": platform.python_version(),
            "load_1m_before": round(load, 1),
            "load_1m_after": round(os.getloadavg()[0], 1),
        },
    }
    if not options.no_result:
        RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    raise SystemExit(0 if judged["met"] else 1)


if __name__ == "__main__":
    main()
