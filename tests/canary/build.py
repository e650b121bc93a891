"""Records, pages and configurations for the tests of the judge, with quiet defaults."""

import random
from collections.abc import Sequence
from typing import Any

from canary.config import JudgeConfig, ObserveConfig
from slo.objective import Indicator, Objective
from slo.records import Outcome, Page, RequestRecord

START = 1_000_000.0
CHAT = Objective(name="chat", objective_ratio=0.985, indicator=Indicator(max_gap_seconds=2.0))


def record(seq: int, **changes: Any) -> RequestRecord:
    values: dict[str, Any] = {
        "seq": seq,
        "at": START + seq * 0.05,
        "accepted": START + seq * 0.05 - 0.2,
        "route": "chat",
        "unit": f"u{seq}",
        "first_of_unit": True,
        "arm": "control",
        "treatment": "",
        "replica": "a",
        "assigned": "a",
        "fallback": False,
        "exposed": (),
        "touched": (),
        "tenant": "t",
        "probe": False,
        "outcome": Outcome.OK,
        "status": 200,
        "ttft_s": 0.1,
        "max_gap_s": 0.02,
        "e2e_s": 0.2,
        "tokens": 4,
        "prompt_tokens": 8,
        "flags": (),
    }
    return RequestRecord(**(values | changes))


def page(records: Sequence[RequestRecord], after: int = -1, **changes: Any) -> Page:
    last = records[-1].seq if records else after
    values: dict[str, Any] = {
        "now": (records[-1].at if records else START) + 0.01,
        "after": after,
        "next": last,
        "epoch": "e1",
        "gap": False,
        "in_flight": {},
        "oldest_in_flight": None,
        "lease": None,
        "records": list(records),
    }
    return Page(**(values | changes))


def pages(records: Sequence[RequestRecord], size: int, **changes: Any) -> list[Page]:
    """Cut the records into pages of `size`."""
    cut, after = [], -1
    for begin in range(0, len(records), size):
        part = records[begin : begin + size]
        cut.append(page(part, after, **changes))
        after = part[-1].seq
    return cut


def traffic(count: int, share: float = 0.5, seed: int = 1, **by_arm: Any) -> list[RequestRecord]:
    """Return single requests; `chaos=` and `control=` are functions of a Random to changes."""
    rng = random.Random(seed)
    made = []
    for seq in range(count):
        arm = "chaos" if rng.random() < share else "control"
        changes = {"ttft_s": rng.lognormvariate(-2.1, 0.3)}
        changes |= by_arm[arm](rng) if arm in by_arm else {}
        made.append(record(seq, arm=arm, **changes))
    return made


def compare(**changes: Any) -> ObserveConfig:
    """Return a comparison; `judge=` holds changes of its JudgeConfig."""
    judge = JudgeConfig(**({"share": 0.5, "unit": "request"} | changes.pop("judge", {})))
    values = {"mode": "compare", "objectives": (CHAT,), "judge": judge, "max_seconds": 3600.0}
    return ObserveConfig(**(values | changes))
