"""Proof that bad events are *not* much more frequent in the chaos-like group, at any share.

The null is that the chaos-like bad ratio is at least `margin` higher. Each unit bets against it:
Z = margin - y (1{chaos}/share - 1{control}/(1-share)) has mean at most 0 under the null, for y = 1
when the unit has a bad event. The mean over a grid of stakes L of the products of 1 + L Z is an
e-process; reaching 1/alpha is a proof at level alpha. Since Z takes three values only, three
counts say all.

Hard part: a unit lives on. It is counted good when first seen and turns bad later; the counts then
change as if it had been bad from the start. Evidence for a pass can therefore shrink, and a pass is
only taken once the requests that were in flight have ended (`canary/settle.py`).

Source: Waudby-Smith and Ramdas, JRSS-B 2024 (betting); inverse-probability form and grid ours,
2026-12, by simulation.
"""

from math import log

from canary.event_race import log_mean_exp

STAKES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
"""Stakes as shares of the largest that cannot go broke. Source: see the module."""


class DifferencePass:
    """The e-process of "the chaos-like bad ratio is less than `margin` higher"."""

    def __init__(self, share: float, margin: float) -> None:
        """Fix the grid.

        Args:
            share: probability in (0, 1) that a unit is in the chaos-like group.
            margin: absolute difference of ratios, in (0, 1).
        """
        largest = 1.0 / (1.0 / share - margin)
        self._steps = [
            (
                log(1.0 + stake * margin),
                log(1.0 + stake * (margin - 1.0 / share)),
                log(1.0 + stake * (margin + 1.0 / (1.0 - share))),
            )
            for stake in (part * largest for part in STAKES)
        ]

    def log_e(self, units: int, bad_chaos: int, bad_control: int) -> float:
        """Return the natural logarithm of the e-value of these counts of units."""
        good = units - bad_chaos - bad_control
        return log_mean_exp([good * g + bad_chaos * t + bad_control * c for g, t, c in self._steps])
