"""`make bench-fuzz`: 50,000 exchanges by chance through the gateway and nginx, which must agree.

Each exchange is drawn from the seed and its number: method, headers, sizes, framings, cuts on both
sides, aborts on both sides, new or used connection. Both proxies stand before the same upstream and
carry each out; bodies must be equal to the byte. At the end the gateway's files, connections and
tasks are counted. The test suite does 5,000 of them.

    python -m benchmarks.fuzz [--exchanges 50000] [--seed 1]
"""

import argparse
import asyncio
import json
import os
import platform
import resource
import tempfile
from pathlib import Path

from benchmarks.proxies.peers import free_port
from tests.gateway.differential import compare

RESULT = Path(__file__).resolve().parent / "results" / "fuzz.json"


def main() -> None:
    """Run, print what was drawn, and write the result; a difference ends it with a traceback."""
    parser = argparse.ArgumentParser(description="The gateway and nginx on the same exchanges.")
    parser.add_argument("--exchanges", type=int, default=50_000, help="how many (default 50000)")
    parser.add_argument("--seed", type=int, default=2, help="what is drawn (default 2)")
    parser.add_argument("--no-result", action="store_true", help="only print")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="burnproof-fuzz-") as folder:
        tally = asyncio.run(compare(Path(folder), free_port(), options.exchanges, options.seed))
    print("\n".join(tally.lines()))
    result = {
        "name": "fuzz",
        "seed": options.seed,
        "figures": {
            "exchanges": tally.exchanges,
            "agreed": tally.agreed,
            "files_before_and_after": tally.files,
            "tasks_before_and_after": tally.tasks,
            "connections_after": tally.connections,
            "records": tally.records,
        },
        "targets": {
            "agreed": "all: equal statuses, headers and bodies, equal breaks",
            "files_before_and_after": "no more than before",
            "tasks_before_and_after": "no more than before",
            "connections_after": "0",
        },
        "met": tally.agreed == tally.exchanges,
        "kinds": dict(sorted(tally.kinds.items())),
        "seconds": round(tally.seconds, 1),
        "machine": {
            "cpus": os.cpu_count(),
            "machine": platform.machine(),
            "python": platform.python_version(),
            "load_1m_before": round(load, 1),
            "own_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        },
    }
    if not options.no_result:
        RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
