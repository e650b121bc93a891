"""One objective of an observation: its counts, and who looks at each of its events."""

from canary.config import ObserveConfig
from canary.guard import Guard
from canary.report import GuardReport, TriggerReport
from canary.trailing import TrailingWindow
from canary.trigger import Trigger
from slo.objective import Objective
from slo.records import RequestRecord


class Watch:
    """Counts the valid events of one objective and hands them on."""

    def __init__(self, objective: Objective, config: ObserveConfig) -> None:
        self.objective = objective
        self.indicator = objective.indicator
        self.total = 0
        self.bad = 0
        self.settle: TrailingWindow | None = None
        self._guard = Guard(config.guard, objective) if config.guard else None
        self._trigger = Trigger(config.trigger, objective.name) if config.trigger else None

    @property
    def breach(self) -> GuardReport | None:
        """What the guard proved, if it did."""
        return self._guard.breach if self._guard else None

    @property
    def fired(self) -> TriggerReport | None:
        """What called for a remedy, if something did."""
        return self._trigger.fired if self._trigger else None

    def add(self, record: RequestRecord, is_bad: bool, counts: bool) -> None:
        """Take one valid event; `counts` is False before the instant from which requests count."""
        if self._guard is not None:
            self._guard.add(record.at, is_bad, record.seq)
        if not counts:
            return
        self.total += 1
        self.bad += is_bad
        if self._trigger is not None:
            self._trigger.add(record.at, is_bad, record.seq)
        if self.settle is not None:
            self.settle.add(record.at, is_bad)
