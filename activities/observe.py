"""Watch one route: read the journal, fold it, keep the evidence, say when to stop.

The fold (`canary.session`) is pure and sees only pages that are stored first or with it, so replay
gets the same answer. The hard part is moving to another worker: the new attempt folds what is
stored and goes on from that cursor; two attempts at once collide on a segment's number, and the
later one starts over. Pages are stored at least every ten seconds and always before the report.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import structlog
from pydantic import BaseModel, FiniteFloat
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.errors import fatal, passing
from activities.heartbeats import heartbeats
from activities.ports import AuditLog, Json, Now, RecordSource, Sleep
from audit.errors import SegmentConflict
from audit.events import decision
from canary.config import ObserveConfig
from canary.report import ObserveReport
from canary.session import Session
from slo.records import Page
from targets.errors import TargetError

SEGMENT_SECONDS = 10.0
# Source: ours, 2026-12: twenty writers queue under 2 s; longer is an outage.
STORE_SECONDS = 10.0
# Source: ours, 2026-12: a gateway restart takes under 2 s; longer silence is an outage of ours.
GATEWAY_SILENCE_SECONDS = 30.0
PAGE_RECORDS = 5000
# Source: ours, 2026-12: a worker that is told to go has about a second to hand over.
LAST_FLUSH_SECONDS = 1.0

log = structlog.get_logger()

T = TypeVar("T")


class ObserveInput(BaseModel, frozen=True):
    """What to watch, and the rules to judge by."""

    run_id: str
    stream: str
    route: str
    config: ObserveConfig
    tail_seconds: FiniteFloat = 5.0


def _clock() -> float:
    """Return the loop's monotonic time in seconds: a test may let it fly."""
    return asyncio.get_running_loop().time()


class Evidence:
    """Pages of one stream: those stored, and those not yet."""

    def __init__(self, audit: AuditLog, input: ObserveInput, now: Now) -> None:
        """Bind to one run's stream."""
        self._audit = audit
        self._run_id = input.run_id
        self._stream = input.stream
        self._now = now
        self._fresh: list[Json] = []
        self._since = _clock()
        self._index = 0

    async def stored(self) -> list[Json]:
        """Return the pages of earlier attempts, in order."""
        segments = await self._bounded(self._audit.load_segments(self._run_id, self._stream))
        self._index = len(segments)
        return [page for segment in segments for page in segment]

    def add(self, page: Json) -> None:
        """Keep a page; it is stored by the next flush."""
        self._fresh.append(page)

    async def flush(self, *, now: bool) -> None:
        """Store what is due (`now` stores all).

        Raises:
            SegmentConflict: another attempt has stored this segment.
        """
        if not self._fresh or (not now and _clock() - self._since < SEGMENT_SECONDS):
            return
        await self._bounded(
            self._audit.put_segment(
                self._run_id, self._stream, self._index, self._fresh, self._now()
            )
        )
        self._index += 1
        self._fresh = []
        self._since = _clock()

    async def _bounded(self, work: Awaitable[T]) -> T:
        """Wait for the store a while only: nobody guards the budget meanwhile.

        Raises:
            ApplicationError: `EvidenceNotStored`, never retried, so that the run withdraws.
        """
        try:
            async with asyncio.timeout(STORE_SECONDS):
                return await work
        except SegmentConflict:
            raise
        except Exception as error:
            raise fatal("EvidenceNotStored", f"the audit store failed: {error!r}") from error

    async def flush_last(self) -> None:
        """Store what there is before this attempt ends early; never raise.

        Nobody waits for it: the next attempt reads again what could not be stored.
        """
        try:
            async with asyncio.timeout(LAST_FLUSH_SECONDS):
                await self.flush(now=True)
        except Exception as error:
            log.warning("last pages not stored", run=self._run_id, error=repr(error)[:200])


class Observation:
    """Observe."""

    def __init__(
        self,
        source: RecordSource,
        audit: AuditLog,
        now: Now,
        poll_seconds: float = 0.5,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Take the ports and the pause between two reads, in seconds."""
        self._source = source
        self._audit = audit
        self._now = now
        self._poll_seconds = poll_seconds
        self._sleep = sleep

    @activity.defn(name="observe")
    async def observe(self, input: ObserveInput) -> ObserveReport:
        """Fold the journal until a rule says stop; return and record the report.

        Raises:
            ApplicationError: `GatewaySilent` after 30 s without an answer; `Superseded` when
                another attempt took over (retried).
            CancelledError: after storing the pages it has.
        """
        session = Session(input.config)
        evidence = Evidence(self._audit, input, self._now)
        before: Page | None = None
        reason: str | None = None
        try:
            async with heartbeats(session.live):
                for stored in await evidence.stored():
                    before = Page.from_json(stored)
                    reason = session.feed(before)
                    await asyncio.sleep(0)  # a long record must not hold up the beats of others
                while reason is None:
                    raw = await self._read(input, before)
                    before = page = Page.from_json(raw)
                    evidence.add(raw)
                    reason = session.feed(page)
                    await evidence.flush(now=reason is not None)
                    if reason is None and len(page.records) < PAGE_RECORDS:
                        await self._sleep(self._poll_seconds)
        except SegmentConflict as conflict:
            raise passing("Superseded", str(conflict)) from conflict
        except (asyncio.CancelledError, ApplicationError):
            await evidence.flush_last()
            raise
        report = session.report()
        await self._record(input, report)
        return report

    async def _read(self, input: ObserveInput, before: Page | None) -> Json:
        since = _clock()
        while True:
            try:
                return await self._source.journal(
                    input.route,
                    after=None if before is None else before.next,
                    tail_seconds=input.tail_seconds,
                    lease_id=input.config.lease_id,
                    limit=PAGE_RECORDS,
                    cursors=None if before is None else before.cursors,
                )
            except TargetError as error:
                if _clock() - since > GATEWAY_SILENCE_SECONDS:
                    raise fatal("GatewaySilent", str(error)) from error
                await self._sleep(self._poll_seconds)

    async def _record(self, input: ObserveInput, report: ObserveReport) -> None:
        payload = decision("observe/1", input.config, report, [input.stream])
        key = f"decision:observe:{input.stream}"
        await self._audit.append(input.run_id, key, "decision", payload, self._now())
