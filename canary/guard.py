"""The guard: when is it proven that an experiment does too much harm?

For each objective, over every valid request of the route, in whichever group: abort when the burn
rate of the trailing window, or the share of the budget spent since the start, is above its limit
*by the lower Clopper-Pearson bound*. Small counts that look bad do not abort; an abort is never
remedied under the fault, so it must not be a matter of luck. It looks at each bad record, so that
the way the journal was cut into pages cannot hide a breach.

Hard part: the budget is meant for 30 days and nobody knows how many requests those will have. Its
share is taken at the request rate seen here: burn rate times elapsed time over the period.
"""

from canary.config import GuardConfig
from canary.report import GuardReport, rounded
from canary.trailing import TrailingWindow
from slo.burn_rate import clopper_pearson
from slo.objective import Objective

_DAY = 86_400.0


class Guard:
    """Watches one objective."""

    def __init__(self, config: GuardConfig, objective: Objective) -> None:
        self._config = config
        self._name = objective.name
        self._budget = float(objective.budget_ratio)
        self._period = objective.window_days * _DAY
        self._window = TrailingWindow(config.window_seconds)
        self._started: float | None = None
        self._total = 0
        self._bad = 0
        self.breach: GuardReport | None = None

    def add(self, at: float, is_bad: bool, seq: int) -> None:
        """Take one valid event that ended at `at`, unix seconds."""
        if self._started is None:
            self._started = at
        self._window.add(at, is_bad)
        self._total += 1
        if not is_bad:
            return
        self._bad += 1
        if self.breach is None:
            self.breach = self._burn_rate(seq) or self._budget_share(at - self._started, seq)

    def _burn_rate(self, seq: int) -> GuardReport | None:
        bad, total = self._window.bad, self._window.total
        limit = self._config.abort_burn_rate
        if total < self._config.min_requests or bad <= limit * self._budget * total:
            return None
        low = clopper_pearson(bad, total)[0] / self._budget
        return self._report("burn_rate", low, limit, seq) if low > limit else None

    def _budget_share(self, elapsed: float, seq: int) -> GuardReport | None:
        limit = self._config.budget_share
        part = elapsed / self._period / self._budget
        if self._total < self._config.min_requests or self._bad * part <= limit * self._total:
            return None
        low = clopper_pearson(self._bad, self._total)[0] * part
        return self._report("budget_share", low, limit, seq) if low > limit else None

    def _report(self, kind: str, low: float, limit: float, seq: int) -> GuardReport:
        return GuardReport(
            objective=self._name, kind=kind, value_low=rounded(low), limit=limit, seq=seq
        )
