"""Does the split do what it was told? An e-process of unit counts against the wanted share.

A sample-ratio mismatch means that the groups are not what the judge assumes (a broken hash, a
retrying client, lost records), and then no comparison counts. Units are taken by *acceptance*, and
only up to the moment before which nothing is in flight any more: in a hang the slow group has
ended fewer requests, and that is the finding, not a mismatch.

Hard part: the same at the start. Of the requests accepted before the observation began only the
slow ones are seen, so none of them is counted.

Source: Lindon and Malek, NeurIPS 2022: mixture over the share; prior and limit ours, 2026-12.
"""

from math import lgamma, log

ALARM = 1000.0
"""The alarm's chance is at most 1 in this many. Source: ours, 2026-12."""

PRIOR_UNITS = 100.0
"""Weight of the prior around the wanted share, in units. Source: ours: sharp for a few per cent."""


def log_e(chaos: int, control: int, share: float) -> float:
    """Return the natural logarithm of the e-value of these unit counts."""
    a, b = PRIOR_UNITS * share, PRIOR_UNITS * (1.0 - share)
    total = chaos + control
    mixture = (
        lgamma(a + chaos)
        + lgamma(b + control)
        - lgamma(PRIOR_UNITS + total)
        - lgamma(a)
        - lgamma(b)
        + lgamma(PRIOR_UNITS)
    )
    return mixture - chaos * log(share) - control * log(1.0 - share)


class RatioMismatch:
    """Counts units once everything accepted before them has ended."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._waiting: list[tuple[float, bool]] = []
        self._log_e_max = 0.0
        self.start: float | None = None
        """Only units first accepted after this instant count, unix seconds."""
        self.chaos = 0
        self.control = 0

    @property
    def log_e_max(self) -> float:
        """The largest natural log e-value so far."""
        return self._log_e_max

    @property
    def alarm(self) -> bool:
        """Whether a mismatch is proven."""
        return self._log_e_max >= log(ALARM)

    def add(self, accepted: float, is_chaos: bool) -> None:
        """Take a unit by its first request."""
        if self.start is not None and accepted > self.start:
            self._waiting.append((accepted, is_chaos))

    def advance(self, complete_until: float) -> None:
        """Count the units accepted before an instant before which nothing is in flight."""
        ready = [is_chaos for accepted, is_chaos in self._waiting if accepted < complete_until]
        if not ready:
            return
        self._waiting = [item for item in self._waiting if item[0] >= complete_until]
        self.chaos += sum(ready)
        self.control += len(ready) - sum(ready)
        self._log_e_max = max(self._log_e_max, log_e(self.chaos, self.control, self._share))
