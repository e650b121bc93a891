"""One metric of a comparison: its proof of harm, its proofs of a pass, and its counts.

Two kinds with one shape: events (a unit is bad or not) and latencies (a unit has a number of
seconds). Both leave to the judge which requests are shown to them and what a proof is worth.
"""

from math import inf

from canary.config import JudgeConfig
from canary.event_race import LabelRace
from canary.latency_race import LatencyRace
from canary.pass_process import DifferencePass
from canary.report import Classification, MetricReport, PassReport, capped_log10
from slo.records import Outcome, RequestRecord


class EventMetric:
    """Bad events, at most one for each unit."""

    def __init__(self, name: str, config: JudgeConfig, exposed: list[int]) -> None:
        """Start without events.

        Args:
            name: as in the report.
            config: shares and margins.
            exposed: units so far, control-like and chaos-like; the judge counts into it.
        """
        self.name = name
        self.log_e_max = 0.0
        self._race = LabelRace(config.share, base_ratio=config.fail_ratio_errors)
        self._pass = DifferencePass(config.share, config.margin_errors)
        self._margin = config.margin_errors
        self._exposed = exposed

    @property
    def n_control(self) -> int:
        """Exposed control-like units."""
        return self._exposed[False]

    @property
    def n_chaos(self) -> int:
        """Exposed chaos-like units."""
        return self._exposed[True]

    def bad(self, is_chaos: bool) -> None:
        """Count the first bad event of an exposed unit."""
        self._race.add(is_chaos)
        if is_chaos:
            self.log_e_max = max(self.log_e_max, self._race.log_e())

    def log_e(self) -> float:
        """Return the natural log e-value of harm now."""
        return self._race.log_e()

    def ceiling(self) -> float:
        """Return a bound on `log_e`: itself, events are rare."""
        return self._race.log_e()

    def passes(self) -> list[PassReport]:
        """Return each proof of a pass as it stands."""
        units = self.n_control + self.n_chaos
        log_e = self._pass.log_e(units, self._race.chaos, self._race.control)
        return [PassReport(name="margin", margin=self._margin, log10_e=capped_log10(log_e))]

    def report(self, classification: Classification) -> MetricReport:
        """Return the metric as the report shows it."""
        passes = self.passes()
        return MetricReport(
            name=self.name,
            classification=classification,
            log10_e_fail=capped_log10(self.log_e()),
            log10_e_fail_max=capped_log10(self.log_e_max),
            log10_e_pass=min(item.log10_e for item in passes),
            passes=tuple(passes),
            n_control=self.n_control,
            n_chaos=self.n_chaos,
            bad_control=self._race.control,
            bad_chaos=self._race.chaos,
        )


class LatencyMetric:
    """Seconds, one number for each unit."""

    def __init__(self, name: str, config: JudgeConfig) -> None:
        self.name = name
        self.log_e_max = 0.0
        self._whole_request = name == "e2e"
        self._race = LatencyRace(config.share, config.latency_fail_ratio, config.latency_pass)
        self.n_control = 0
        self.n_chaos = 0

    def take(self, record: RequestRecord, is_chaos: bool) -> bool:
        """Take the first request of a unit; say whether the proof of harm may have grown."""
        if is_chaos:
            self.n_chaos += 1
        else:
            self.n_control += 1
        if not self._race.add(self._seconds(record), is_chaos):
            return False
        if self._race.ceiling() > self.log_e_max:
            self.log_e_max = max(self.log_e_max, self._race.log_e())
        return True

    def _seconds(self, record: RequestRecord) -> float:
        """Return the latency; infinity when what was waited for never came."""
        if self._whole_request:
            return record.e2e_s if record.outcome is Outcome.OK else inf
        return inf if record.ttft_s is None else record.ttft_s

    def log_e(self) -> float:
        """Return the natural log e-value of harm now."""
        return self._race.log_e()

    def ceiling(self) -> float:
        """Return a bound on `log_e` that costs nothing."""
        return self._race.ceiling()

    def passes(self) -> list[PassReport]:
        """Return each proof of a pass as it stands; empty before the first threshold."""
        if not self._race.started:
            return []
        return [
            PassReport(name=name, margin=ratio, log10_e=capped_log10(race.log_e()))
            for name, (_, ratio, race) in self._race.passes.items()
        ]

    def report(self, classification: Classification) -> MetricReport:
        """Return the metric as the report shows it."""
        passes = self.passes()
        return MetricReport(
            name=self.name,
            classification=classification,
            log10_e_fail=capped_log10(self.log_e()),
            log10_e_fail_max=capped_log10(self.log_e_max),
            log10_e_pass=min((item.log10_e for item in passes), default=None),
            passes=tuple(passes),
            n_control=self.n_control,
            n_chaos=self.n_chaos,
            driving_quantile=self._race.driving_quantile(),
        )
