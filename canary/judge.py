"""The judge: burnproof-judge/1. Is the chaos-like group worse, proven not to be, or neither?

It takes records one by one and keeps counts. **Fail**: the mean of the metrics' e-values of harm
reaches 1/alpha at any record (so it does as soon as one metric of n reaches n/alpha). **Pass**:
every pass test of every metric is at 1/alpha or more at once; testing that *all* nulls are wrong
needs no correction. Neither word is given when the split did not do what it was told, or when too
many requests could not be judged. It does not read pages and does not know when to stop.

Hard part: what one unit may contribute. A conversation is one draw of the group, so it gives at
most one event to each event metric (its first bad request), and one number to each latency (its
first request seen here). It is exposed once, and stays good until its first bad request. The
memory of units this needs is bounded: one small entry for each conversation, and the session ends
at `most_units`. The record's own `first_of_unit` is not trusted for this, since a gateway
may forget a unit; it only says which units the check of the split may count.

Alarms about the split come before a fail: a race of labels against a wrong share proves nothing.
"""

from math import exp, log

from canary.config import JudgeConfig
from canary.dispersion import BlockDispersion
from canary.metric import EventMetric, LatencyMetric
from canary.ratio_mismatch import RatioMismatch
from canary.report import Classification, JudgeReport, MetricReport, capped_log10, rounded
from slo.objective import is_hidden_error, is_interrupted
from slo.records import Outcome, RequestRecord
from slo.verdict import Verdict

MIN_COVERAGE = 0.8
"""Least share of a group's requests that could be judged. Source: ours, 2026-12."""

_SEEN, _EXPOSED, _BAD_ERRORS, _BAD_SLO, _BROKE_OFF, _HIDDEN = 1, 2, 4, 8, 16, 32
_EXP_CAP = 700.0
_GROUPS = {"arms": ("control", "chaos"), "treatment": ("treated", "holdout")}


class Judge:
    """The comparison of two groups, fed record by record."""

    def __init__(self, config: JudgeConfig) -> None:
        self.config = config
        self.control_name, self.chaos_name = _GROUPS[config.groups]
        self.mismatch = RatioMismatch(config.share)
        self._by_treatment = config.groups == "treatment"
        self._sticky = config.unit == "conversation"
        self._units: dict[str, int] = {}
        # Pairs of counts: control-like, chaos-like.
        self.units = [0, 0]
        self._exposed = [0, 0]
        self._requests = [0, 0]
        self._judged = [0, 0]
        self._errors = EventMetric("errors", config, self._exposed)
        self._slo_bad = EventMetric("slo_bad", config, self._exposed)
        self._latencies = [LatencyMetric(n, config) for n in config.metrics if n in {"ttft", "e2e"}]
        self._kinds = [
            (bit, kind, EventMetric(name, config, self._exposed))
            for bit, name, kind in (
                (_BROKE_OFF, "interruptions", is_interrupted),
                (_HIDDEN, "hidden_errors", is_hidden_error),
            )
            if name in config.metrics
        ]
        known: dict[str, EventMetric | LatencyMetric] = {
            "errors": self._errors,
            "slo_bad": self._slo_bad,
            **{metric.name: metric for _, _, metric in self._kinds},
            **{metric.name: metric for metric in self._latencies},
        }
        self._metrics = [known[name] for name in config.metrics]
        self._dispersion = BlockDispersion()
        self._total_limit = len(config.metrics) / config.alpha
        self._total_max = float(len(config.metrics))
        self._pass_limit = capped_log10(log(1.0 / config.alpha))
        self.fail_seq: int | None = None
        self._high: set[str] = set()

    @property
    def most_units(self) -> int:
        """Units, both groups together, at which the comparison ends at the latest."""
        rarer = min(self.config.share, 1.0 - self.config.share)
        return int(2.0 * self.config.max_requests / rarer)

    @property
    def is_exhausted(self) -> bool:
        """Whether the limit on units is reached."""
        if min(self.units) >= self.config.max_requests:
            return True
        return sum(self.units) >= self.most_units

    def add(self, record: RequestRecord, is_valid: bool, is_slo_bad: bool) -> None:
        """Take one record.

        Args:
            record: not a probe.
            is_valid: whether it is an event of any objective (a client that just left is not).
            is_slo_bad: whether it is a bad event of any objective.
        """
        group = record.treatment if self._by_treatment else record.arm
        if group == self.chaos_name:
            is_chaos = True
        elif group == self.control_name:
            is_chaos = False
        else:
            return
        state = self._units.get(record.unit, 0) if self._sticky else 0
        new = self._expose(record, is_chaos, is_valid, state)
        grown = False
        if not state & _SEEN:
            for metric in self._latencies:
                grown |= metric.take(record, is_chaos)
        failed = record.outcome is not Outcome.OK
        if is_valid and (is_slo_bad or failed):
            bits = (_BAD_ERRORS if failed else 0) | (_BAD_SLO if is_slo_bad else 0)
            for bit, kind, _ in self._kinds:
                bits |= bit if kind(record) else 0
            fresh = bits & ~state
            new |= fresh
            grown |= self._events(fresh, is_chaos)
        if self._sticky and new != state:
            self._units[record.unit] = new
        if grown:
            self._look(record.seq)

    def _expose(self, record: RequestRecord, is_chaos: bool, is_valid: bool, state: int) -> int:
        self._requests[is_chaos] += 1
        if not state & _SEEN:
            self.units[is_chaos] += 1
            if record.first_of_unit:
                self.mismatch.add(record.accepted, is_chaos)
        if not is_valid:
            return state | _SEEN
        self._judged[is_chaos] += 1
        if not state & _EXPOSED:
            self._exposed[is_chaos] += 1
            if not is_chaos:
                self._dispersion.add_unit()
        return state | _SEEN | _EXPOSED

    def _events(self, fresh: int, is_chaos: bool) -> bool:
        if fresh & _BAD_ERRORS:
            self._errors.bad(is_chaos)
        if fresh & _BAD_SLO:
            self._slo_bad.bad(is_chaos)
            if not is_chaos:
                self._dispersion.add_bad()
        for bit, _, metric in self._kinds:
            if fresh & bit:
                metric.bad(is_chaos)
        return is_chaos and fresh != 0

    def _look(self, seq: int) -> None:
        """Add up the family, unless it cannot have reached a new height.

        Only an event of the chaos-like group can raise it, and each by a known amount at most.
        """
        bound = sum([exp(min(metric.ceiling(), _EXP_CAP)) for metric in self._metrics])
        if bound <= self._total_max:
            return
        values = [exp(min(metric.log_e(), _EXP_CAP)) for metric in self._metrics]
        total = sum(values)
        self._total_max = max(self._total_max, total)
        if total >= self._total_limit and self.fail_seq is None:
            self.fail_seq = seq
            self._high.add(self._metrics[values.index(max(values))].name)

    def look_at_page(self, complete_until: float) -> None:
        """Check the split, up to an instant before which nothing is in flight."""
        self.mismatch.advance(complete_until)

    def is_fail(self) -> bool:
        """Whether harm is proven and the split is sound."""
        return self.fail_seq is not None and not self.mismatch.alarm

    def holds_pass(self) -> bool:
        """Whether every test proves a pass now; requests in flight may still change it."""
        return self.fail_seq is None and not self.objections()

    def objections(self) -> tuple[str, ...]:
        """Return why this is not a pass, in sentences; empty when it is one."""
        found = []
        if self.mismatch.alarm:
            found.append("The groups do not have the wanted shares of units.")
        if 0 in self.units:
            found.append("One group has no units.")
        coverage = self._coverage()
        if coverage is not None and coverage < MIN_COVERAGE:
            found.append(f"Only {coverage:.0%} of a group's requests could be judged.")
        open_metrics = [m.name for m in self._metrics if not self._is_proven(m)]
        if open_metrics:
            found.append(f"Not proven within its margin: {', '.join(open_metrics)}.")
        return tuple(found)

    def _is_proven(self, metric: EventMetric | LatencyMetric) -> bool:
        passes = metric.passes()
        return bool(passes) and all(item.log10_e >= self._pass_limit for item in passes)

    def _coverage(self) -> float | None:
        shares = [done / n for done, n in zip(self._judged, self._requests, strict=True) if n]
        return min(shares, default=None)

    def _classify(self, metric: EventMetric | LatencyMetric) -> Classification:
        if self.fail_seq is not None and (
            metric.name in self._high or metric.log_e_max >= log(self._total_limit)
        ):
            return Classification.HIGH
        if metric.n_control == 0 or metric.n_chaos == 0:
            return Classification.NODATA
        return Classification.PASS if self._is_proven(metric) else Classification.UNDECIDED

    def metrics(self) -> tuple[MetricReport, ...]:
        """Return every metric as it stands."""
        return tuple(metric.report(self._classify(metric)) for metric in self._metrics)

    def log10_e_total(self) -> float:
        """Return log10 of the family e-value now."""
        total = sum(exp(min(metric.log_e(), _EXP_CAP)) for metric in self._metrics)
        return capped_log10(log(total / len(self._metrics)))

    def report(
        self, verdict: Verdict, pass_since: float | None, waiting: tuple[str, ...] = ()
    ) -> JudgeReport:
        """Return the comparison as the report shows it."""
        total_max = capped_log10(log(self._total_max / len(self._metrics)))
        coverage, dispersion = self._coverage(), self._dispersion.index()
        reasons = self.objections() + waiting if verdict is Verdict.INCONCLUSIVE else ()
        return JudgeReport(
            judge=self.config.judge,
            verdict=verdict,
            metrics=self.metrics(),
            log10_e_total=self.log10_e_total(),
            log10_e_total_max=total_max,
            anytime_p=rounded(min(1.0, 10.0**-total_max)),
            log10_srm_e=capped_log10(self.mismatch.log_e_max),
            srm_alarm=self.mismatch.alarm,
            units_control=self.units[False],
            units_chaos=self.units[True],
            coverage=None if coverage is None else rounded(coverage),
            dispersion=None if dispersion is None else rounded(dispersion),
            pass_since=pass_since,
            fail_seq=self.fail_seq,
            inconclusive_reasons=reasons,
        )
