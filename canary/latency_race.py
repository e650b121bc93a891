"""Races of latencies: is the chaos-like group slower, or proven not to be?

A latency becomes an event when it is above a quantile of the control-like group seen *before*; a
race of labels then says which group has too many of them. Quantiles from the median to the 99th
percentile run side by side and their mean is one e-process, so that a shift of everything and a
change in the tail alone are both seen. The same thresholds, from the other side, prove a pass:
few chaos-like latencies above a multiple of the median and of the 95th percentile.

It takes one latency of each unit, and infinity for a request without a first token. It decides
nothing and keeps no request, only the control-like latencies (8 bytes and a pointer each, at most
one for each unit).

Hard part: the thresholds. They may only use what came before, and they are moved at a few counts
rather than with each latency, which costs nothing in validity and saves the sorting.

Source: ours, 2026-12, by simulation; grid, quantiles and counts are those that were simulated.
"""

from collections.abc import Mapping
from math import ceil, inf

from canary.event_race import BETTER_RATIOS, LabelRace, log_mean_exp

QUANTILES = (0.5, 0.9, 0.95, 0.98, 0.99)
"""Quantiles of the control-like group that are raced. Source: see the module."""

FIRST_REFRESH = 50
"""Control-like latencies before the first threshold. Source: see the module."""

REFRESH_GROWTH = 1.4
"""Thresholds move at 50, 70, 98, 137 ... latencies. Source: see the module."""


def quantile_name(quantile: float) -> str:
    """Return `p95` for 0.95."""
    return f"p{quantile * 100:g}"


def parse_quantile(name: str) -> float:
    """Return 0.95 for `p95`.

    Raises:
        ValueError: not the name of a quantile in (0, 1).
    """
    percent = float(name[1:]) if name[:1] == "p" and name[1:].replace(".", "", 1).isdigit() else 0.0
    if not 0.0 < percent < 100.0:
        raise ValueError(f"{name!r} is not a quantile such as p95")
    return round(percent / 100.0, 6)


class LatencyRace:
    """The e-processes of one latency."""

    def __init__(self, share: float, fail_ratio: float, margins: Mapping[str, float]) -> None:
        """Start without thresholds.

        Args:
            share: probability in (0, 1) that a unit is in the chaos-like group.
            fail_ratio: a failure proves latencies more than this many times as long.
            margins: for each quantile name, the ratio that a pass proves to be out of reach.
        """
        self._fail_ratio = fail_ratio
        self._control: list[float] = []
        self._refresh_at = FIRST_REFRESH
        self.fail = {q: LabelRace(share) for q in QUANTILES}
        self.passes = {
            name: (parse_quantile(name), ratio, LabelRace(share, BETTER_RATIOS))
            for name, ratio in margins.items()
        }
        # (threshold of a control latency, threshold of a chaos latency, race), rising.
        self._fail_cuts: list[tuple[float, float, LabelRace]] = []
        self._pass_cuts: list[tuple[float, float, LabelRace]] = []
        self._gain = max(race.gain for race in self.fail.values())
        self._log_e = 0.0
        self._rise = 0.0
        self._is_stale = False

    @property
    def started(self) -> bool:
        """Whether there are thresholds."""
        return bool(self._fail_cuts)

    def add(self, latency: float, is_chaos: bool) -> bool:
        """Take one latency, seconds or infinity; say whether the proof of harm may have grown."""
        hit = False
        for control_cut, chaos_cut, race in self._fail_cuts:
            if latency <= (chaos_cut if is_chaos else control_cut):
                break
            race.add(is_chaos)
            hit = True
        for control_cut, chaos_cut, race in self._pass_cuts:
            if latency > (chaos_cut if is_chaos else control_cut):
                race.add(is_chaos)
        if hit:
            self._is_stale = True
            if is_chaos:
                self._rise += self._gain
        if not is_chaos:
            self._control.append(latency)
            if len(self._control) == self._refresh_at:
                self._refresh()
        return hit and is_chaos

    def log_e(self) -> float:
        """Return the natural logarithm of the e-value of harm now: the mean over the quantiles."""
        if self._is_stale:
            self._log_e = log_mean_exp([race.log_e() for race in self.fail.values()])
            self._rise, self._is_stale = 0.0, False
        return self._log_e

    def ceiling(self) -> float:
        """Return a bound on `log_e` that costs nothing: only chaos events can raise it."""
        return self._log_e + self._rise

    def driving_quantile(self) -> float | None:
        """Return the quantile with the largest e-value; None before the first threshold."""
        if not self.started:
            return None
        return max(self.fail, key=lambda quantile: self.fail[quantile].log_e())

    def _refresh(self) -> None:
        self._control.sort()
        self._refresh_at = int(self._refresh_at * REFRESH_GROWTH)
        self._fail_cuts = [
            (cut, cut * self._fail_ratio, race)
            for cut, race in ((self._quantile(q), race) for q, race in self.fail.items())
        ]
        self._pass_cuts = [
            (cut, cut * ratio, race)
            for cut, ratio, race in (
                (self._quantile(q), ratio, race) for q, ratio, race in self.passes.values()
            )
        ]

    def _quantile(self, quantile: float) -> float:
        """Return the empirical quantile of the sorted latencies, the higher neighbour."""
        values = self._control
        return values[min(len(values) - 1, ceil(quantile * (len(values) - 1)))] if values else inf
