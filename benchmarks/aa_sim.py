"""How often does the judge call two equal groups different? A/A runs with sticky conversations.

Each run draws conversations of 1 to 8 requests. A conversation is put into a group once; its
latencies share a level of its own (log-normal) and a few conversations keep failing. The two groups
are equal, so each FAIL is a false alarm. The judge runs exactly as in production (`Session` over
pages, a look after each page), but with a latency ratio of 1, the edge of what it may call equal,
and without ending at a pass. The mutant counts each request as if it had been drawn by itself; its
false alarms must be above the bound, else this simulation would prove nothing.

    python benchmarks/aa_sim.py [--runs 2000] [--conversations 150]
"""

import argparse
import json
import os
import platform
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from canary.config import JudgeConfig, ObserveConfig
from canary.session import observe
from slo.burn_rate import clopper_pearson
from slo.objective import Objective
from slo.records import Outcome, Page, RequestRecord
from slo.verdict import Verdict

ALPHA = 0.01
SHARES = (0.2, 0.5)
UNITS = ("conversation", "request")
LEVEL_SD = 0.5
"""Spread of the conversations' log latency levels. Source: ours."""
NOISE_SD = 0.15
"""Spread of the requests around their conversation's level."""
CURSED = 0.01
"""Share of conversations that fail in half of their requests."""
PAGE_RECORDS = 50
RESULT = Path(__file__).parent / "results" / "aa_sim.json"


def run_pages(seed: int, share: float, conversations: int) -> list[Page]:
    """Return the journal of one A/A run."""
    rng = random.Random(seed)
    ends: list[tuple[float, float, str, bool, str, bool, float]] = []
    for number in range(conversations):
        arm = "chaos" if rng.random() < share else "control"
        level, cursed = rng.gauss(-2.0, LEVEL_SD), rng.random() < CURSED
        at = rng.random() * conversations * 0.2
        for turn in range(rng.randint(1, 8)):
            ttft = 2.718281828 ** (level + rng.gauss(0.0, NOISE_SD))
            failed = cursed and rng.random() < 0.5
            end = at + ttft + 0.1
            ends.append((end, at, f"c{number}", turn == 0, arm, failed, ttft))
            at = end + rng.expovariate(1.0)
    ends.sort()
    records = [_record(seq, *fields) for seq, fields in enumerate(ends)]
    return list(_pages(records))


def _record(seq: int, *fields: Any) -> RequestRecord:
    end, at, unit, first, arm, failed, ttft = fields
    return RequestRecord(
        seq, end, at, "chat", unit, first, arm, "", arm, arm, False, (), (), "", False,
        Outcome.HTTP_ERROR if failed else Outcome.OK, 500 if failed else 200, ttft, 0.0,
        end - at, 4, 8, (),
    )  # fmt: skip


def _pages(records: list[RequestRecord]) -> Iterator[Page]:
    for begin in range(0, len(records), PAGE_RECORDS):
        part = records[begin : begin + PAGE_RECORDS]
        yield Page(part[-1].at, begin - 1, part[-1].seq, "e", False, {}, None, None, part)


def config(share: float, unit: str) -> ObserveConfig:
    """Return the comparison that is put to the test."""
    judge = {"share": share, "unit": unit, "alpha": ALPHA, "latency_fail_ratio": 1.0}
    return ObserveConfig(
        mode="compare",
        objectives=(Objective(name="chat", objective_ratio=0.985),),
        judge=JudgeConfig.model_validate(judge | {"stop_on_pass": False}),
        max_seconds=1e9,
    )


def simulate(runs: int, conversations: int, shares: tuple[float, ...] = SHARES) -> dict[str, Any]:
    """Return, for each share and unit, how many of the runs ended with FAIL."""
    fails = {(share, unit): 0 for share in shares for unit in UNITS}
    configs = {key: config(*key) for key in fails}
    for share in shares:
        for seed in range(runs):
            pages = run_pages(seed, share, conversations)
            for unit in UNITS:
                report = observe(configs[share, unit], pages)
                fails[share, unit] += report.verdict is Verdict.FAIL
    return {f"share {share}, per {unit}": count for (share, unit), count in fails.items()}


def _row(name: str, count: int, runs: int) -> dict[str, Any]:
    low, high = clopper_pearson(count, runs)
    mutant = name.endswith("per request")
    return {
        "name": name,
        "fails": count,
        "runs": runs,
        "rate": count / runs,
        "low95": low,
        "high95": high,
        "target": f"low95 > {ALPHA}" if mutant else f"rate <= {ALPHA}",
        "met": low > ALPHA if mutant else count / runs <= ALPHA,
    }


def main() -> None:
    """Run, print the table, and write the result."""
    parser = argparse.ArgumentParser(description="False alarms of the judge on equal groups.")
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--conversations", type=int, default=150)
    options = parser.parse_args()
    began, began_cpu = time.perf_counter(), time.process_time()
    counts = simulate(options.runs, options.conversations)
    rows = [_row(name, count, options.runs) for name, count in counts.items()]
    print(f"{'A/A':<30}{'FAIL':>6}{'runs':>7}{'rate':>9}   95 % interval     target")
    for row in rows:
        interval = f"{row['low95']:7.2%} – {row['high95']:.2%}"
        mark = "met" if row["met"] else "NOT MET"
        print(
            f"{row['name']:<30}{row['fails']:>6}{row['runs']:>7}{row['rate']:>9.2%} {interval:>18}"
            f"   {row['target']}: {mark}"
        )
    seconds = round(time.perf_counter() - began, 1)
    cpu_seconds = round(time.process_time() - began_cpu, 1)
    print(f"{seconds} s, of which {cpu_seconds} s on the processor")
    result = {
        "name": "aa_sim",
        "figures": rows,
        "targets": {row["name"]: row["target"] for row in rows},
        "met": all(row["met"] for row in rows),
        "conversations": options.conversations,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "machine": {
            "cpus": os.cpu_count(),
            "machine": platform.machine(),
            "python": platform.python_version(),
        },
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
