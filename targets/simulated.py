"""A SIMULATED gateway with traffic, in memory, on a clock of its own: for scenario tests only.

It keeps the promises of the real one that the loop relies on (leases that lapse by themselves,
fencing, receipts, an ordered journal) and makes up requests whose numbers depend only on the seed.
Its traffic clock moves by `step_seconds` at each journal read, so that minutes of observation take
milliseconds. Leases have a clock of their own that only `pass_lease_time` moves: renewals come in
real time, and a lease must not lapse because traffic time runs faster. Every answer says SIMULATED;
nothing falls back to it.
"""

import random
from collections.abc import Mapping
from typing import Any

from faults.lease import Item, ItemState, Lease, LeaseClosed, LeaseError, LeaseState
from slo.records import Outcome, Page, RequestRecord
from targets.errors import TargetNotFound, TargetRejected, TargetUnavailable

ROUTE = "chat"
REPLICAS = ("a", "b")
BREAKER_BASE = 0.05
# Source: ours: any fixed instant; tests compare differences only.
START = 1_800_000_000.0


class SimulatedGateway:
    """Leases, journal and probes of one route with two replicas. SIMULATED."""

    def __init__(
        self,
        seed: int = 1,
        requests_per_second: float = 50.0,
        step_seconds: float = 1.0,
        base_bad_ratio: float = 0.0,
    ) -> None:
        """Start at `START` with nothing open."""
        self._random = random.Random(seed)
        self.rate = requests_per_second
        self.step_seconds = step_seconds
        self.base_bad_ratio = base_bad_ratio
        self.clock = START
        self.lease_clock = 0.0
        self.leases: dict[str, Lease] = {}
        self.owners: dict[str, str] = {}
        self.counts: dict[tuple[str, str], dict[str, int]] = {}
        self.records: list[RequestRecord] = []
        self.acts: list[str] = []
        self.unavailable = False
        self.hung_replicas: set[str] = set()
        self.fault_does_nothing = False
        self.remedy_does_nothing = False
        self.stopped = False

    def assert_steady(self) -> None:
        """Fail unless the world is as it was before any run.

        Raises:
            AssertionError: a lease is open or an item active.
        """
        self._expire()
        alive = [key for key, lease in self.leases.items() if lease.is_open(self.lease_clock)]
        assert not alive, f"open leases: {alive}"

    def pass_time(self, seconds: float) -> None:
        """Move the clock, with traffic in one-second slices."""
        end = self.clock + seconds
        while self.clock < end - 1e-9:
            slice_seconds = min(1.0, end - self.clock)
            self._expire()
            self._make_traffic(slice_seconds)
            self.clock += slice_seconds
        self._expire()

    def pass_lease_time(self, seconds: float) -> None:
        """Move the clock of the leases: those that nobody renewed lapse."""
        self.lease_clock += seconds
        self._expire()

    async def state(self) -> dict[str, Any]:
        """Say what the real one says, and that it is SIMULATED."""
        self._check()
        return {
            "now": self.clock,
            "epoch": "simulated",
            "stopped": self.stopped,
            "engine": "SIMULATED",
        }

    async def routes(self) -> list[dict[str, Any]]:
        """Return the one route."""
        self._check()
        return [
            {
                "name": ROUTE,
                "labels": {"tier": "chat"},
                "models": ["simulated"],
                "replicas": [{"name": name, "url": f"simulated://{name}"} for name in REPLICAS],
                "breaker": {"threshold_ratio": self._threshold(), "base_threshold_ratio": 0.05},
                "recent": {"total": 0, "bad": 0},
            }
        ]

    async def open_lease(
        self, lease_id: str, run_id: str, route: str, seconds: float
    ) -> dict[str, Any]:
        """Open a lease; repeating it while open is done already."""
        self._check()
        self.acts.append(f"open {lease_id}")
        lease = self.leases.get(lease_id)
        if lease is None:
            self.leases[lease_id] = Lease.open(lease_id, seconds, self.lease_clock)
            self.owners[lease_id] = run_id
        elif not lease.is_open(self.lease_clock):
            raise TargetRejected(f"lease {lease_id} is {lease.state}", "lease_closed")
        return self._view(lease_id)

    async def renew_lease(self, lease_id: str, seconds: float) -> dict[str, Any]:
        """Renew, or say that it is over."""
        self._check()
        self._expire()
        try:
            self.leases[lease_id] = self.leases[lease_id].renew(seconds, self.lease_clock)
        except (KeyError, LeaseClosed) as over:
            raise TargetRejected(f"lease {lease_id} is over", "lease_closed") from over
        return self._view(lease_id)

    async def open_leases(self) -> list[dict[str, Any]]:
        """Return the open leases."""
        self._check()
        self._expire()
        return [
            self._view(key) for key, one in self.leases.items() if one.is_open(self.lease_clock)
        ]

    async def attach(
        self, lease_id: str, item_id: str, kind: str, spec: dict[str, Any]
    ) -> dict[str, Any]:
        """Attach an item."""
        self._check()
        self._expire()
        try:
            lease = self.leases[lease_id]
            self.leases[lease_id], first = lease.attach(item_id, kind, spec, self.lease_clock)
        except KeyError as unknown:
            raise TargetNotFound(f"no lease {lease_id}", "lease") from unknown
        except LeaseError as refused:
            raise TargetRejected(f"{item_id}: {refused}", refused.code) from refused
        if first:
            self.acts.append(f"attach {kind}")
            self.counts[lease_id, item_id] = {"exposed": 0, "touched": 0}
        return {
            "item_id": item_id,
            "kind": kind,
            "state": "active",
            "at": self.clock,
            "first": first,
            "observed": {"by": "SIMULATED"},
        }

    async def detach(self, lease_id: str, item_id: str) -> dict[str, Any]:
        """Detach an item; one that was never there is done already."""
        self._check()
        self.acts.append(f"detach {item_id}")
        lease = self.leases.get(lease_id) or Lease.tombstone(lease_id)
        self.leases[lease_id], state = lease.detach(item_id, self.lease_clock)
        return {"item_id": item_id, "state": state.value, "at": self.clock, "observed": {}}

    async def close_lease(self, lease_id: str) -> dict[str, Any]:
        """Close a lease, known or not."""
        self._check()
        self.acts.append(f"close {lease_id}")
        lease = self.leases.get(lease_id) or Lease.tombstone(lease_id)
        self.leases[lease_id] = lease.close(self.lease_clock)
        return {**self._view(lease_id), "at": self.clock, "still_touching": 0}

    async def probe(self, model: str, replica: str, deadline_seconds: float) -> dict[str, Any]:
        """Answer a probe, or hang until its deadline."""
        self._check()
        if replica in self.hung_replicas:
            return {"status": 0, "error": f"no token within {deadline_seconds:g} s"}
        self._record(replica, probe=True)
        return {"status": 200, "seconds": 0.01, "error": ""}

    async def journal(
        self,
        route: str,
        after: int | None = None,
        tail_seconds: float | None = None,
        lease_id: str | None = None,
        limit: int = 5000,
        cursors: Mapping[str, int] | None = None,
    ) -> dict[str, Any]:
        """Move the clock by one step and return what ended."""
        self._check()
        self.pass_time(self.step_seconds)
        if after is None:
            since = self.clock - (tail_seconds or 0.0) - self.step_seconds
            after = next((r.seq - 1 for r in self.records if r.at >= since), len(self.records) - 1)
        found = self.records[after + 1 : after + 1 + limit]
        page = Page(
            now=self.clock,
            after=after,
            next=found[-1].seq if found else after,
            epoch="simulated",
            gap=False,
            in_flight={},
            oldest_in_flight=None,
            lease=self._view(lease_id) if lease_id in self.leases else None,
            records=found,
        )
        return page.to_json()

    def _check(self) -> None:
        if self.unavailable:
            raise TargetUnavailable("the SIMULATED gateway is switched off")

    def _expire(self) -> None:
        for key, lease in self.leases.items():
            self.leases[key] = lease.expire(self.lease_clock)

    def _view(self, lease_id: str) -> dict[str, Any]:
        lease = self.leases[lease_id]
        return {
            "id": lease_id,
            "lease_id": lease_id,
            "run_id": self.owners.get(lease_id, ""),
            "state": lease.state.value,
            "items": {
                key: {
                    "kind": item.kind,
                    "state": item.state.value,
                    **self.counts.get((lease_id, key), {"exposed": 0, "touched": 0}),
                }
                for key, item in lease.items.items()
            },
        }

    def _active(self, kind: str) -> tuple[str, Item] | None:
        for key, lease in self.leases.items():
            if lease.state is not LeaseState.OPEN:
                continue
            for item in lease.active(self.lease_clock):
                if item.kind == kind and item.state is ItemState.ACTIVE:
                    return key, item
        return None

    def _threshold(self) -> float:
        found = self._active("breaker")
        return float(found[1].spec["threshold_ratio"]) if found else BREAKER_BASE

    def _make_traffic(self, seconds: float) -> None:
        for _ in range(round(self.rate * seconds)):
            self._record(None, probe=False)

    def _record(self, pinned: str | None, *, probe: bool) -> None:
        split, fault, breaker = (
            self._active("split"),
            self._active("fault"),
            self._active("breaker"),
        )
        draw = self._random.random
        arm = treatment = ""
        replica = pinned or self._random.choice(REPLICAS)
        if split is not None and not probe:
            is_chaos = draw() < split[1].spec["share"]
            arm = "chaos" if is_chaos else "control"
            replica = split[1].spec[arm][0]
        if breaker is not None and not probe:
            is_holdout = draw() < breaker[1].spec["holdout_share"]
            treatment = "holdout" if is_holdout else "treated"
            helps = not is_holdout and not self.remedy_does_nothing
            if helps and fault is not None and replica in fault[1].spec["replicas"]:
                replica = REPLICAS[0]  # the tightened breaker has left the bad replica
        exposed: tuple[str, ...] = ()
        touched: tuple[str, ...] = ()
        bad = not probe and draw() < self.base_bad_ratio
        if fault is not None and not probe and replica in fault[1].spec["replicas"]:
            lease_id, item = fault
            exposed = (item.item_id,)
            self.counts[lease_id, item.item_id]["exposed"] += 1
            probability = item.spec["parameters"].get("probability", 0.0)
            if draw() < probability and not self.fault_does_nothing:
                touched, bad = exposed, True
                self.counts[lease_id, item.item_id]["touched"] += 1
        seq = len(self.records)
        at = self.clock + (seq % 100) / 1000
        self.records.append(
            RequestRecord(
                seq=seq,
                at=at,
                accepted=at - 0.05,
                route=ROUTE,
                unit=f"u{seq}",
                first_of_unit=True,
                arm=arm,
                treatment=treatment,
                replica=replica,
                assigned=replica,
                fallback=False,
                exposed=exposed,
                touched=touched,
                tenant="",
                probe=probe,
                outcome=Outcome.HTTP_ERROR if bad else Outcome.OK,
                status=500 if bad else 200,
                ttft_s=None if bad else 0.02 * (1 + draw()),
                max_gap_s=0.01,
                e2e_s=0.05,
                tokens=4,
                prompt_tokens=8,
                flags=(),
            )
        )
