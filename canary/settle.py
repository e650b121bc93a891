"""When is an objective met (again), and when may a good end be believed?

`Settle` asks whether the burn of every objective over the trailing window is proven to be below 1.
`DrainGate` holds back every good end, a settled objective and a passed comparison alike: what was
in flight when the good end came into sight must have ended first, since the requests that hang are
the ones not seen yet. If they turn it bad, the good end is taken back.

Hard part: only the oldest accept time in flight is known, so the gate waits until that is later
than the moment at which the good end came into sight. With a request that hangs it waits
for that request, and the limit on the observation makes the end inconclusive.
"""

from fractions import Fraction

from canary.config import SettleConfig
from canary.trailing import TrailingWindow
from slo.burn_rate import Burn, BurnDecision, burn_of
from slo.objective import Objective
from slo.records import Page

_BUDGET_RATE = Fraction(1)


class DrainGate:
    """Opens when all that was in flight at the first sight of a good end has ended."""

    def __init__(self, arm: str | None = None) -> None:
        """Wait for one arm only, or for all.

        Args:
            arm: requests of the other arms do not matter; None: all do.
        """
        self._arm = arm
        self.since: float | None = None
        """Since when the good end is in sight without a break, unix seconds; None: it is not."""
        self.is_open = False

    def update(self, holds: bool, page: Page) -> bool:
        """Take the state at the end of a page; return whether the good end may be believed."""
        if not holds:
            self.since, self.is_open = None, False
            return False
        if self.since is None:
            self.since = page.now
        self.is_open = not page.more and self._drained(page, self.since)
        return self.is_open

    def _drained(self, page: Page, since: float) -> bool:
        if self._arm is not None and page.in_flight.get(self._arm, 0) == 0:
            return True
        return page.oldest_in_flight is None or page.oldest_in_flight > since


class Settle:
    """Watches all objectives."""

    def __init__(self, config: SettleConfig, objectives: tuple[Objective, ...]) -> None:
        self._config = config
        self._objectives = objectives
        self.windows = [TrailingWindow(config.window_seconds) for _ in objectives]
        """One for each objective; the fold counts into them."""
        self.gate = DrainGate()

    def look_at_page(self, page: Page) -> bool:
        """Return whether the objectives are met, and what was in flight has ended."""
        for window in self.windows:
            window.forget(page.now)
        return self.gate.update(self._holds(), page)

    def burns(self) -> list[Burn]:
        """Return the trailing windows."""
        return [
            burn_of(window.bad, window.total, objective.exact_ratio)
            for window, objective in zip(self.windows, self._objectives, strict=True)
        ]

    def state(self) -> str:
        """Return settled, waiting, unsettled or too_little."""
        if self.gate.is_open:
            return "settled"
        if self.gate.since is not None:
            return "waiting"
        little = any(window.total < self._config.min_requests for window in self.windows)
        return "too_little" if little else "unsettled"

    def is_burning(self) -> bool:
        """Whether some objective is proven to be missed, with enough requests."""
        return any(
            window.total >= self._config.min_requests
            and burn.decide(_BUDGET_RATE) is BurnDecision.BURNING
            for window, burn in zip(self.windows, self.burns(), strict=True)
        )

    def _holds(self) -> bool:
        if any(window.total < self._config.min_requests for window in self.windows):
            return False
        return all(burn.decide(_BUDGET_RATE) is BurnDecision.FINE for burn in self.burns())
