"""A race of labels: does the chaos-like group have more than its share of the events?

Each unit is put into the chaos-like group with probability `share`, by itself. If the group does
not matter, each event carries the chaos label with that same probability, whatever made the events
frequent or rare: a common incident cancels. The race keeps two counts and compares, over a grid of
alternatives, how likely the labels are if the group did matter. The mean of the likelihood ratios
is an e-process: the chance that it *ever* reaches 1/alpha, looked at after every event, is at most
alpha (Ville). It does not decide; `canary/judge.py` does.

Hard part: the unit. Ten failures of one conversation are one event, since one draw put all ten into
their group; counted one by one they are a false alarm. Who counts is the caller.

Source: Lindon and Malek, NeurIPS 2022 (labels of a Poisson race); the one-sided, two-group form
with a grid of ratios is ours, 2026-12, chosen by simulation.
"""

from collections.abc import Sequence
from math import exp, log

WORSE_RATIOS = tuple(1.25 * (16.0 / 1.25) ** (step / 11.0) for step in range(12))
"""Alternatives: the chaos-like group has 1.25 to 16 times the rate. Source: ours, see above."""

BETTER_RATIOS = tuple(1.0 / (1.1 * (8.0 / 1.1) ** (step / 11.0)) for step in range(12))
"""Alternatives of a pass: 1/1.1 to 1/8 of the margin. Source: ours, see above."""


def log_mean_exp(terms: Sequence[float]) -> float:
    """Return log(mean(exp(terms))) without overflow."""
    top = max(terms)
    return top + log(sum([exp(term - top) for term in terms]) / len(terms))


class LabelRace:
    """The e-process of one kind of event."""

    __slots__ = ("_log_e", "_steps", "chaos", "control", "gain")

    def __init__(
        self, share: float, ratios: Sequence[float] = WORSE_RATIOS, base_ratio: float = 1.0
    ) -> None:
        """Fix the null and its alternatives.

        Args:
            share: probability in (0, 1) that a unit is in the chaos-like group.
            ratios: rates of the alternatives, as multiples of the null's.
            base_ratio: rate of the null: chaos-like over control-like.
        """
        null = _label_probability(share, base_ratio)
        self._steps = [
            (log(p / null), log((1.0 - p) / (1.0 - null)))
            for p in (_label_probability(share, base_ratio * ratio) for ratio in ratios)
        ]
        self.gain = max(chaos for chaos, _ in self._steps) + 1e-9
        """The most that one chaos event can add to `log_e`, rounding included."""
        self.chaos = 0
        self.control = 0
        self._log_e: float | None = 0.0

    def add(self, is_chaos: bool) -> None:
        """Count one event."""
        if is_chaos:
            self.chaos += 1
        else:
            self.control += 1
        self._log_e = None

    def log_e(self) -> float:
        """Return the natural logarithm of the e-value now."""
        if self._log_e is None:
            chaos, control = self.chaos, self.control
            self._log_e = log_mean_exp([chaos * a + control * b for a, b in self._steps])
        return self._log_e


def _label_probability(share: float, ratio: float) -> float:
    return share * ratio / (share * ratio + 1.0 - share)
