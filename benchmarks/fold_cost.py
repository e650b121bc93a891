"""What one record costs the fold: microseconds of processor time, everything switched on.

python benchmarks/fold_cost.py
"""

import random
import time

from canary.config import GuardConfig, JudgeConfig, ObserveConfig, TriggerConfig
from canary.session import Session
from slo.objective import Objective
from slo.records import Outcome, Page, RequestRecord

RECORDS = 40_000
PAGE_RECORDS = 200
PASSES = 5
"""A busy neighbour slows a pass, hardly the same page in all of them."""

TARGET_MICROSECONDS = 15.0


def build() -> list[Page]:
    """Return pages of single requests, half of them in each group, 1 % bad."""
    rng, records = random.Random(1), []
    for seq in range(RECORDS):
        outcome = Outcome.TIMEOUT if rng.random() < 0.01 else Outcome.OK
        arm, ttft = rng.choice(("control", "chaos")), rng.lognormvariate(-2.0, 0.3)
        end, begun, e2e = seq * 0.05 + 1, seq * 0.05, ttft + 0.3
        head = (seq, end, begun, "chat", f"u{seq}", True, arm, "", arm, arm, False, (), (), "")
        records.append(RequestRecord(*head, False, outcome, 200, ttft, 0.1, e2e, 4, 8, ()))
    cut = [records[i : i + PAGE_RECORDS] for i in range(0, RECORDS, PAGE_RECORDS)]
    return [
        Page(part[-1].at, part[0].seq - 1, part[-1].seq, "e", False, {}, None, None, part)
        for part in cut
    ]


def main() -> None:
    """Fold the pages a few times; each page counts with its cheapest pass."""
    judge = JudgeConfig(share=0.5, stop_on_pass=False, metrics=("errors", "slo_bad", "ttft", "e2e"))
    config = ObserveConfig(
        mode="compare",
        objectives=(Objective(name="chat", objective_ratio=0.985),),
        judge=judge,
        guard=GuardConfig(abort_burn_rate=20, budget_share=0.05),
        trigger=TriggerConfig(compliance_below=0.9),
        max_seconds=1e9,
    )
    pages = build()
    cheapest = [float("inf")] * len(pages)
    for _ in range(PASSES):
        session = Session(config)
        for number, page in enumerate(pages):
            began = time.process_time()
            session.feed(page)
            cheapest[number] = min(cheapest[number], time.process_time() - began)
        if session.report().requests != RECORDS:
            raise SystemExit("the fold stopped early: nothing was measured")
    best = sum(cheapest) / RECORDS * 1e6
    mark = "met" if best < TARGET_MICROSECONDS else "NOT MET"
    print(f"{best:.1f} us a record; target < {TARGET_MICROSECONDS:g}: {mark}")


if __name__ == "__main__":
    main()
