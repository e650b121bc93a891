"""The trigger: when is a remedy due?

When the route's compliance over the trailing window, as a point estimate of enough requests, is
below the policy's ratio. A remedy is cheap and is undone if it does not help, so the point estimate
is enough here, where an abort needs proof. It looks at each record.

Hard part: none; the comparison is exact, in whole numbers.
"""

from fractions import Fraction

from canary.config import TriggerConfig
from canary.report import TriggerReport, rounded
from canary.trailing import TrailingWindow
from slo.burn_rate import exact


class Trigger:
    """Watches one objective."""

    def __init__(self, config: TriggerConfig, objective: str) -> None:
        self._objective = objective
        self._least = config.min_requests
        allowed: Fraction = 1 - exact(config.compliance_below)
        self._numerator, self._denominator = allowed.numerator, allowed.denominator
        self._window = TrailingWindow(config.window_seconds)
        self.fired: TriggerReport | None = None

    def add(self, at: float, is_bad: bool, seq: int) -> None:
        """Take one valid event that ended at `at`, unix seconds."""
        window = self._window
        window.add(at, is_bad)
        if window.total < self._least or self.fired is not None:
            return
        if window.bad * self._denominator > window.total * self._numerator:
            self.fired = TriggerReport(
                objective=self._objective,
                total=window.total,
                bad=window.bad,
                compliance=rounded(1.0 - window.bad / window.total),
                seq=seq,
                at=at,
            )
