"""Fakes of the ports: they keep what they were told, in one list of acts, and fail on demand."""

import asyncio
import dataclasses
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from activities.ports import Answer, Json
from audit.errors import HoldNotOwned, HoldRefused, ProofMissing, SegmentConflict
from audit.records import Hold, HoldState, RunRecord, StopState
from slo.records import Outcome, Page, RequestRecord
from targets.errors import TargetError, TargetRejected, TargetUnavailable

T0 = datetime(2026, 12, 1, tzinfo=UTC)
Acts = list[tuple[str, str]]


def clock() -> datetime:
    return T0


class Stored:
    """What an append gives back."""

    def __init__(self, payload: Json) -> None:
        self.stored = payload


class FakeAudit:
    """An audit log in memory: the first event under a key wins, a segment's number too."""

    def __init__(self, acts: Acts | None = None) -> None:
        self.acts = acts if acts is not None else []
        self.fails: Exception | None = None
        self.hangs = False
        self.runs: dict[str, RunRecord] = {}
        self.events: dict[tuple[str, str], Json] = {}
        self.segments: dict[tuple[str, str], list[list[Json]]] = defaultdict(list)
        self.finished: dict[str, str] = {}

    async def _gate(self) -> None:
        if self.hangs:
            await asyncio.sleep(3600)
        if self.fails is not None:
            raise self.fails

    def remember(self, run_id: str, workflow_id: str, outcome: str | None = None) -> None:
        blank = {field.name: "" for field in dataclasses.fields(RunRecord)}
        self.runs[run_id] = RunRecord(
            **{**blank, "run_id": run_id, "workflow_id": workflow_id, "outcome": outcome}
        )

    async def open_run(self, run_id: str, workflow_id: str, *_: Any, **__: Any) -> None:
        await self._gate()
        if run_id not in self.runs:
            self.remember(run_id, workflow_id)

    async def append(self, run_id: str, key: str, kind: str, payload: Json, at: datetime) -> Stored:
        await self._gate()
        self.acts.append(("append", kind))
        return Stored(self.events.setdefault((run_id, key), payload))

    async def finish_run(self, run_id: str, outcome: str, exit_code: int, at: datetime) -> None:
        await self._gate()
        self.finished[run_id] = outcome

    async def run(self, run_id: str) -> RunRecord | None:
        await self._gate()
        return self.runs.get(run_id)

    async def put_segment(
        self, run_id: str, stream: str, index: int, pages: list[Json], at: datetime
    ) -> None:
        await self._gate()
        kept = self.segments[run_id, stream]
        if index < len(kept):
            if kept[index] != pages:
                raise SegmentConflict(f"segment {index} was stored with other content")
            return
        assert index == len(kept), "a segment is missing"
        kept.append(list(pages))

    async def load_segments(self, run_id: str, stream: str) -> list[list[Json]]:
        await self._gate()
        return [list(pages) for pages in self.segments[run_id, stream]]


class FakeHolds:
    """Holds in memory, with the rules of the real ones that activities rely on."""

    def __init__(self) -> None:
        self.kept: dict[str, Hold] = {}
        self.proofs: dict[str, Json] = {}
        self.renewed: list[str] = []
        self.fails: Exception | None = None
        self.hangs = False
        self.stop = StopState(stopped=False)

    def put(self, target: str, run_id: str, state: HoldState = HoldState.HELD) -> Hold:
        self.kept[target] = Hold(target, state, run_id, None, T0, "", 1, None)
        return self.kept[target]

    def state(self, target: str) -> HoldState:
        return self.kept[target].state

    async def acquire_hold(self, target: str, run_id: str, seconds: float, now: datetime) -> Hold:
        hold = self.kept.get(target)
        if hold is not None and hold.state is not HoldState.FREE and hold.run_id != run_id:
            raise HoldRefused(hold)
        return self.put(target, run_id)

    async def renew_hold(self, target: str, run_id: str, seconds: float, now: datetime) -> bool:
        if self.hangs:
            await asyncio.sleep(3600)
        if self.fails is not None:
            raise self.fails
        self.renewed.append(target)
        return True

    async def release_hold(
        self, target: str, run_id: str, proof: Json, now: datetime, *, by_sweep: bool = False
    ) -> None:
        if not proof:
            raise ProofMissing(target)
        if self.kept[target].run_id != run_id:
            raise HoldNotOwned(target)
        self.proofs[target] = proof
        self.kept[target] = dataclasses.replace(
            self.kept[target], state=HoldState.FREE, run_id=None
        )

    async def quarantine_hold(self, target: str, run_id: str, reason: str, now: datetime) -> None:
        self.kept[target] = dataclasses.replace(
            self.kept[target], state=HoldState.QUARANTINED, reason=reason
        )

    async def list_holds(self) -> list[Hold]:
        return list(self.kept.values())

    async def stop_state(self) -> StopState:
        return self.stop


class FakeRuns:
    """What Temporal says: a script of answers, and which workflows are open (None: no telling)."""

    def __init__(self, *answers: Answer) -> None:
        self.script = list(answers)
        self.last = Answer.ALIVE
        self.answer_takes = 0.0
        self.open: dict[str, bool | None] = {}

    async def answers(self, workflow_id: str, run_id: str, seconds: float) -> Answer:
        await asyncio.sleep(self.answer_takes)
        if self.script:
            self.last = self.script.pop(0)
        return self.last

    async def is_open(self, workflow_id: str) -> bool:
        known = self.open.get(workflow_id, False)
        if known is None:
            raise ConnectionError("Temporal does not answer")
        return known


class FakeGateway:
    """Leases in memory; every method may be slow, or fail a number of times."""

    def __init__(self, acts: Acts | None = None) -> None:
        self.acts = acts if acts is not None else []
        self.leases: dict[str, Json] = {}
        self.takes = 0.0
        self.failures: list[TargetError] = []
        self.renewals: list[float] = []
        self.touching: list[int] = []
        self.leaves_items = False
        self.probed: list[RequestRecord] = []
        self.still_exposes: tuple[str, ...] = ()

    async def _gate(self, name: str, about: str) -> None:
        await asyncio.sleep(self.takes)
        if self.failures:
            raise self.failures.pop(0)
        self.acts.append((name, about))

    def put(self, lease_id: str, run_id: str, state: str = "open", **items: str) -> None:
        self.leases[lease_id] = {
            "id": lease_id,
            "lease_id": lease_id,
            "run_id": run_id,
            "state": state,
            "items": {key: {"kind": kind, "state": "active"} for key, kind in items.items()},
        }

    def is_open(self, lease_id: str) -> bool:
        return bool(self.leases[lease_id]["state"] == "open")

    async def state(self) -> Json:
        await self._gate("state", "")
        return {"now": 1000.0, "stopped": False}

    async def routes(self) -> list[Json]:
        return []

    async def open_lease(self, lease_id: str, run_id: str, route: str, seconds: float) -> Json:
        await self._gate("open", lease_id)
        self.put(lease_id, run_id)
        return self.leases[lease_id]

    async def renew_lease(self, lease_id: str, seconds: float) -> Json:
        await self._gate("renew", lease_id)
        if not self.is_open(lease_id):
            raise TargetRejected("over", "lease_closed")
        self.renewals.append(asyncio.get_running_loop().time())
        return self.leases[lease_id]

    async def open_leases(self) -> list[Json]:
        await self._gate("list", "")
        return [lease for lease in self.leases.values() if lease["state"] == "open"]

    async def attach(self, lease_id: str, item_id: str, kind: str, spec: Json) -> Json:
        await self._gate("attach", item_id)
        lease = self.leases[lease_id]
        if lease["state"] != "open":
            raise TargetRejected("over", "lease_closed")
        first = item_id not in lease["items"]
        lease["items"].setdefault(item_id, {"kind": kind, "state": "active", "spec": spec})
        return {"item_id": item_id, "state": "active", "at": 1000.0, "first": first}

    async def detach(self, lease_id: str, item_id: str) -> Json:
        await self._gate("detach", item_id)
        lease = self.leases.get(lease_id, {"items": {}})
        known = lease["items"].pop(item_id, None) is not None
        return {"item_id": item_id, "state": "removed" if known else "never_applied"}

    async def close_lease(self, lease_id: str) -> Json:
        await self._gate("close", lease_id)
        lease = self.leases.setdefault(
            lease_id, {"lease_id": lease_id, "run_id": "", "state": "open", "items": {}}
        )
        if lease["state"] == "open" and not self.leaves_items:
            lease["state"] = "closed"
        touching = self.touching.pop(0) if self.touching else 0
        return {"state": lease["state"], "still_touching": touching, "at": 1000.0}

    async def probe(self, model: str, replica: str, deadline_seconds: float) -> Json:
        await self._gate("probe", replica)
        self.probed.append(probe_record(len(self.probed), replica, self.still_exposes))
        return {"status": 200, "seconds": 0.01, "error": ""}

    async def journal(
        self,
        route: str,
        after: int | None = None,
        tail_seconds: float | None = None,
        lease_id: str | None = None,
        limit: int = 5000,
        cursors: Mapping[str, int] | None = None,
    ) -> Json:
        """One record a page: whoever reads only the first page misses the rest."""
        await self._gate("journal", route)
        start = -1 if after is None else after
        found = self.probed[start + 1 : start + 2]
        return page(start, found, more=len(self.probed) > start + 2)


def page(after: int, records: list[RequestRecord], *, more: bool = False) -> Json:
    """One read of a journal whose clock stands where its records end."""
    last = records[-1].seq if records else after
    return Page(
        now=1000.0 + last / 10,
        after=after,
        next=last,
        epoch="scripted",
        gap=False,
        in_flight={},
        oldest_in_flight=None,
        lease=None,
        records=records,
        more=more,
    ).to_json()


def request(seq: int, *, bad: bool = False) -> RequestRecord:
    """A request, ten a second, the arms in turn."""
    return RequestRecord(
        seq=seq,
        at=1000.0 + seq / 10,
        accepted=1000.0 + seq / 10 - 0.05,
        route="chat",
        unit=f"u{seq}",
        first_of_unit=True,
        arm="chaos" if seq % 2 else "control",
        treatment="",
        replica="b" if seq % 2 else "a",
        assigned="b" if seq % 2 else "a",
        fallback=False,
        exposed=(),
        touched=(),
        tenant="",
        probe=False,
        outcome=Outcome.HTTP_ERROR if bad else Outcome.OK,
        status=500 if bad else 200,
        ttft_s=None if bad else 0.02,
        max_gap_s=0.01,
        e2e_s=0.05,
        tokens=4,
        prompt_tokens=8,
        flags=(),
    )


def probe_record(seq: int, replica: str, exposed: tuple[str, ...]) -> RequestRecord:
    """A probe that the gateway accepted after the lease was closed."""
    return dataclasses.replace(
        request(seq), accepted=1000.5, probe=True, arm="", replica=replica, exposed=exposed
    )


class ScriptedJournal:
    """A journal that reads the same however often, and from wherever; silent for a while."""

    def __init__(self, pages: int = 100, per_page: int = 10, bad_every: int = 7) -> None:
        self.records = [request(seq, bad=seq % bad_every == 0) for seq in range(pages * per_page)]
        self.per_page = per_page
        self.silent: tuple[float, float] = (0.0, 0.0)
        self.takes = 0.0
        self.reads: list[int | None] = []

    async def journal(
        self,
        route: str,
        after: int | None = None,
        tail_seconds: float | None = None,
        lease_id: str | None = None,
        limit: int = 5000,
        cursors: Mapping[str, int] | None = None,
    ) -> Json:
        await asyncio.sleep(self.takes)
        if self.silent[0] <= asyncio.get_running_loop().time() < self.silent[1]:
            raise TargetUnavailable("gone for a while")
        self.reads.append(after)
        start = -1 if after is None else after
        return page(start, self.records[start + 1 : start + 1 + self.per_page])
