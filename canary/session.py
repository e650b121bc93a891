"""One observation: a fold over journal pages that ends with a reason and a report.

`observe(config, pages)` is a pure function of its input, and the only way in which samples become a
verdict; a replay of the stored pages calls it again and must get the same bytes. It combines the
judge, the guard, the trigger and the settle window, and knows when to stop. It starts and undoes
nothing.

What is *counted* depends on the stream of records alone: guard, trigger and the proof of harm look
at every record and remember. What is *noticed* depends on the pages: an observation stops at the
end of a page, and settled objectives, passes, limits and the check of the split are looked at there
only. Another cut of the same records can therefore change when it stops, not what a record meant.

Hard part: good ends. No data, lost records, a lease that lapsed and requests still in flight
all look like silence, and silence looks like health. Each of them ends INCONCLUSIVE; a pass in
sight waits for what was in flight then (`canary/settle.py`). A proof of harm waits for nothing.
"""

from collections.abc import Iterable
from typing import Any

from canary.config import ObserveConfig
from canary.effect import Effect
from canary.judge import Judge
from canary.report import ObserveReport, SloReport, StopReason
from canary.settle import DrainGate, Settle
from canary.summary import explain, settle_report, slo_report
from canary.watch import Watch
from slo.records import Page, RequestRecord
from slo.verdict import Verdict


class Session:
    """The fold. Feed pages in order until `feed` returns a reason."""

    def __init__(self, config: ObserveConfig) -> None:
        self.config = config
        self._reason: StopReason | None = None
        self._after = config.accepted_after
        self._judge = Judge(config.judge) if config.judge else None
        arm = "chaos" if config.judge is None or config.judge.groups == "arms" else None
        self._pass_gate = DrainGate(arm)
        self._watches = [Watch(objective, config) for objective in config.objectives]
        self._settle = Settle(config.settle, config.objectives) if config.settle else None
        if self._settle is not None:
            for watch, window in zip(self._watches, self._settle.windows, strict=True):
                watch.settle = window
        self._effect = Effect(config.effect) if config.effect else None
        self._first_page: Page | None = None
        self._last_page: Page | None = None
        self._cursor: int | None = None
        self._first_seq: int | None = None
        self._last_seq: int | None = None
        self._requests = 0
        self._counted = 0

    def feed(self, page: Page) -> StopReason | None:
        """Take the next page; return why the observation ended, or None while it goes on.

        After the end, further pages are refused: they change nothing, and the reason is returned.
        """
        if self._reason is not None:
            return self._reason
        broken = self._broken(page)
        if self._first_page is None:
            self._first_page = page
            if self._judge is not None:
                self._judge.mismatch.start = page.now if self._after is None else self._after
        self._last_page = page
        if self._effect is not None:
            self._effect.look_at_page(page)
        if broken is not None:
            self._reason = broken
            return broken
        self._fold(page)
        self._reason = self._decide(page)
        return self._reason

    def _broken(self, page: Page) -> StopReason | None:
        """Return why this page cannot be counted at all."""
        last = self._last_page
        if page.gap or (last is not None and page.epoch != last.epoch):
            return StopReason.GAP
        if self._cursor is not None and page.after > self._cursor:
            return StopReason.GAP
        wanted = self.config.lease_id
        if wanted is None:
            return None
        lease = page.lease
        if lease is None or lease.get("id") != wanted or lease.get("state") != "open":
            return StopReason.LEASE_LOST
        faults = [i for i in (lease.get("items") or {}).values() if i.get("kind") == "fault"]
        lost = any(item.get("state") != "active" for item in faults)
        return StopReason.LEASE_LOST if lost else None

    def _fold(self, page: Page) -> None:
        cursor = self._cursor
        for record in page.records:
            if cursor is None or record.seq > cursor:
                self._take(record)
        self._cursor = max(page.next, cursor if cursor is not None else page.next)

    def _take(self, record: RequestRecord) -> None:
        self._requests += 1
        if self._first_seq is None:
            self._first_seq = record.seq
        self._last_seq = record.seq
        if record.probe:
            return
        counts = self._after is None or record.accepted > self._after
        any_valid = any_bad = False
        for watch in self._watches:
            any_valid = any_valid or watch.indicator.is_judged(record)
            if not watch.indicator.is_valid(record):
                continue
            is_bad = watch.indicator.is_bad(record)
            any_bad |= is_bad
            watch.add(record, is_bad, counts)
        if not counts:
            return
        self._counted += 1
        if self._effect is not None:
            self._effect.add(record)
        if self._judge is not None:
            self._judge.add(record, any_valid, any_bad)

    def _decide(self, page: Page) -> StopReason | None:
        """Return why to stop at the end of this page; the order is part of the contract."""
        verdict_stop = self._look_at_judge(page)
        settled = self._settle is not None and self._settle.look_at_page(page)
        if any(watch.breach is not None for watch in self._watches):
            return StopReason.GUARD
        if verdict_stop == "fail":
            return StopReason.VERDICT
        if any(watch.fired is not None for watch in self._watches):
            return StopReason.TRIGGER
        if settled:
            return StopReason.SETTLED
        if verdict_stop is not None:
            return StopReason.VERDICT
        waits = self._pass_gate.since is not None
        if self._judge is not None and self._judge.is_exhausted and not waits:
            return StopReason.LIMIT_REQUESTS
        first = self._first_page
        if first is not None and page.now - first.now >= self.config.max_seconds:
            return StopReason.LIMIT_TIME
        return None

    def _look_at_judge(self, page: Page) -> str | None:
        """Return fail, pass or void when the comparison may end here."""
        judge, config = self._judge, self.config.judge
        if judge is None or config is None:
            return None
        if not page.more:
            oldest = page.oldest_in_flight
            judge.look_at_page(page.now if oldest is None else oldest)
        passed = self._pass_gate.update(judge.holds_pass(), page)
        if judge.is_fail() and config.stop_on_fail:
            return "fail"
        if judge.mismatch.alarm and config.stop_on_fail:
            return "void"
        ends = config.stop_on_pass or judge.is_exhausted
        return "pass" if passed and ends else None

    def _mixed(self) -> tuple[str, ...]:
        """Name the gateways that ended it; a restarted one is told by its epoch."""
        first, last = self._first_page, self._last_page
        if self._reason not in {StopReason.GAP, StopReason.LEASE_LOST} or not first or not last:
            return ()
        before, now = first.gateways or {}, last.gateways or {}
        restarted = [
            f"Gateway {name} is not the process that it was."
            for name, part in now.items()
            if "epoch" in part and before.get(name, part).get("epoch") != part["epoch"]
        ]
        return (*last.mixed(), *restarted)

    def verdict(self) -> Verdict:
        """Return what is proven up to here; INCONCLUSIVE unless something is."""
        if self._judge is not None and self._judge.is_fail():
            return Verdict.FAIL
        if self._reason is StopReason.GUARD:
            return Verdict.FAIL
        if self._reason in {None, StopReason.GAP, StopReason.LEASE_LOST, StopReason.TRIGGER}:
            return Verdict.INCONCLUSIVE
        if self._judge is not None:
            return Verdict.PASS if self._pass_gate.is_open else Verdict.INCONCLUSIVE
        if self._settle is not None:
            if self._reason is StopReason.SETTLED:
                return Verdict.PASS
            return Verdict.FAIL if self._settle.is_burning() else Verdict.INCONCLUSIVE
        decisions = {item.decision for item in self._slo_reports()}
        if "burning" in decisions:
            return Verdict.FAIL
        return Verdict.PASS if decisions == {"fine"} else Verdict.INCONCLUSIVE

    def _slo_reports(self) -> tuple[SloReport, ...]:
        return tuple(slo_report(watch.objective, watch.bad, watch.total) for watch in self._watches)

    def live(self) -> dict[str, Any]:
        """Return a small summary for a heartbeat: JSON types, finite numbers, None for no data."""
        slo = self._slo_reports()
        worst = max((item.burn for item in slo if item.burn is not None), default=None)
        least = min((item.compliance for item in slo if item.compliance is not None), default=None)
        judge = self._judge
        return {
            "mode": self.config.mode,
            "reason": self._reason,
            "requests": self._requests,
            "counted": self._counted,
            "burn": worst,
            "compliance": least,
            "units": {"control": judge.units[False], "chaos": judge.units[True]} if judge else None,
            "log10_e_total": judge.log10_e_total() if judge else None,
            "metrics": {
                item.name: {"fail": item.log10_e_fail, "pass": item.log10_e_pass}
                for item in (judge.metrics() if judge else ())
            },
            "pass_since": self._pass_gate.since,
            "settle": self._settle.state() if self._settle else None,
        }

    def report(self) -> ObserveReport:
        """Return the report of everything fed so far."""
        first, last, verdict = self._first_page, self._last_page, self.verdict()
        waits = self._pass_gate.since is not None and not self._pass_gate.is_open
        waiting = ("Older requests were still in flight.",) if waits else ()
        since = self._pass_gate.since
        report = ObserveReport(
            mode=self.config.mode,
            reason=self._reason,
            verdict=verdict,
            why="",
            judge=self._judge.report(verdict, since, waiting) if self._judge else None,
            slo=self._slo_reports(),
            effect=self._effect.report() if self._effect else None,
            settle=settle_report(self._settle, self.config.objectives) if self._settle else None,
            guard=next((item.breach for item in self._watches if item.breach), None),
            trigger=next((item.fired for item in self._watches if item.fired), None),
            first_seq=self._first_seq,
            last_seq=self._last_seq,
            started_at=first.now if first else None,
            ended_at=last.now if last else None,
            requests=self._requests,
            counted=self._counted,
            in_flight_at_end=sum(last.in_flight.values()) if last else 0,
            mixed=self._mixed(),
        )
        return report.model_copy(update={"why": explain(report)})


def observe(config: ObserveConfig, pages: Iterable[Page]) -> ObserveReport:
    """Fold the pages up to the first reason to stop, and report."""
    session = Session(config)
    for page in pages:
        if session.feed(page) is not None:
            break
    return session.report()


def observe_json(config: dict[str, Any], pages: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Do the same on stored JSON: what a replay calls."""
    parsed = ObserveConfig.model_validate(config)
    report = observe(parsed, (Page.from_json(page) for page in pages))
    return report.model_dump(mode="json")
