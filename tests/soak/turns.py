"""The soak's faults: every template in turn, each under a lease of its own, ended in three ways."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from tests.gateway.processes import Admin, LeaseEnded

SHARE = 0.5
PAUSE_SECONDS = 0.7
"""Time without a fault between two turns."""

TURNS: list[tuple[str, dict[str, Any]]] = [
    ("gateway/latency-pareto", {"base": 0.01, "cap": 0.5}),
    ("gateway/latency-fixed", {"delay": 0.05}),
    ("gateway/latency-per-token", {"delay": 0.01}),
    ("gateway/dependency-latency", {"upstream": "*", "delay": 0.05}),
    ("gateway/error", {"status": 503}),
    ("gateway/error", {"in_stream": True}),
    ("gateway/error", {"in_stream": True, "after_tokens": 2}),
    ("gateway/rate-limit", {"retry_after": 1.0}),
    ("gateway/quota-overrun", {"limit": 500}),
    ("gateway/stream-stall", {"after_tokens": 2, "stall": 0.3}),
    ("gateway/stream-cut", {"after_tokens": 2}),
    ("gateway/stream-cut", {"after_tokens": 2, "ending": "clean"}),
    ("gateway/stream-cut", {"after_tokens": 2, "ending": "clean", "final_chunk": True}),
    ("gateway/stream-garble", {"kind": "flip-byte"}),
    ("gateway/stream-garble", {"kind": "half-event"}),
    ("gateway/stream-garble", {"kind": "invalid-utf8"}),
    ("gateway/slow-drip", {"piece_bytes": 200, "pause": 0.01}),
    ("gateway/headers", {"side": "request", "action": "remove", "name": "x-extra"}),
    ("gateway/headers", {"side": "answer", "action": "set", "name": "x-more", "value": "1"}),
    ("gateway/tenant-confusion", {"kind": "repeat-header", "tenant": "other"}),
    ("gateway/tenant-confusion", {"kind": "header", "tenant": "other"}),
    ("gateway/constant-embeddings", {}),
    ("gateway/tool-calls", {"kind": "truncated"}),
    ("gateway/tool-calls", {"kind": "missing-required"}),
    ("gateway/tool-calls", {"kind": "wrong-type"}),
    ("null", {}),
]
"""Template and parameters; half of the requests are drawn."""

SPLIT = {"share": 0.5, "control": ["a"], "chaos": ["b"], "unit": "conversation"}
ENDINGS = ("item", "lease", "lapse")
"""The item is deleted; the lease is closed; nobody renews the lease."""


@dataclass
class Turned:
    """What the turns came to."""

    turns: Counter[str] = field(default_factory=Counter)
    missed: int = 0
    """Turns whose lease lapsed before its fault was on."""
    endings: Counter[str] = field(default_factory=Counter)
    exposed: Counter[str] = field(default_factory=Counter)
    touched: Counter[str] = field(default_factory=Counter)
    """By template, over all its turns."""
    ended_at: dict[str, float] = field(default_factory=dict)
    """Item → when it had ended for certain, unix seconds by the gateway's clock."""


async def turn_faults(admin: Admin, over: asyncio.Event, seconds: float, found: Turned) -> None:
    """Switch faults on and off until told to stop; each stays on for `seconds`."""
    endings = cycle(ENDINGS)
    for number, (template, parameters) in enumerate(cycle(TURNS)):
        if over.is_set():
            return
        try:
            await _turn(admin, number, (template, parameters), (next(endings), seconds), found)
        except LeaseEnded:
            found.missed += 1
        await asyncio.sleep(PAUSE_SECONDS)


async def _turn(
    admin: Admin,
    number: int,
    fault: tuple[str, dict[str, Any]],
    how: tuple[str, float],
    found: Turned,
) -> None:
    template, parameters = fault
    ending, seconds = how
    lease, item = f"lease-{number}", f"fault-{number}"
    lasts = seconds if ending == "lapse" else min(60.0, seconds + 30.0)
    body = {"lease_id": lease, "run_id": "soak", "route": "chat", "seconds": lasts}
    begun = time.monotonic()
    await admin("POST", "/leases", body)
    split = {**SPLIT, "experiment": f"turn-{number}", "salt": f"salt-{number}"}
    await admin("PUT", f"/leases/{lease}/items/split", {"kind": "split", "spec": split})
    given = parameters if template == "null" else {**parameters, "probability": SHARE}
    spec = {"template": template, "parameters": given, "replicas": ["*"], "seed": number}
    spec["max_seconds"] = 3600.0
    await admin("PUT", f"/leases/{lease}/items/{item}", {"kind": "fault", "spec": spec})
    await asyncio.sleep(max(0.0, seconds - (time.monotonic() - begun)))
    if ending == "item":
        await admin("DELETE", f"/leases/{lease}/items/{item}")
    if ending != "lapse":
        await admin("POST", f"/leases/{lease}/close")
    view = await admin("GET", f"/leases/{lease}")
    while view["state"] == "open":
        await asyncio.sleep(0.05)
        view = await admin("GET", f"/leases/{lease}")
    found.ended_at[item] = (await admin("GET", "/state"))["now"]
    found.turns[template] += 1
    found.endings[view["state"]] += 1
    counts = view["items"][item]
    found.exposed[template] += counts["exposed"]
    found.touched[template] += counts["touched"]
