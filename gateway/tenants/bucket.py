"""A bucket of tokens: a rate, and what may be used at once. Pure; `now` is handed in.

A request takes what it may need at most and gives back what it did not. What it used beyond that is
a debt which later requests wait for. So what was used by any moment is at most the burst, plus the
rate times the time, plus what the requests in flight used beyond what they had set aside.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Bucket:
    """Tokens of one tenant. Seconds are of any clock that never goes back."""

    rate: float
    """Tokens per second, above 0."""
    burst: float
    """Most tokens that it holds, above 0."""
    level: float
    """Tokens there at `at`; below 0: a debt."""
    at: float

    def fill(self, now: float) -> None:
        """Let the time pass."""
        if now > self.at:
            self.level = min(self.burst, self.level + (now - self.at) * self.rate)
            self.at = now

    def take(self, tokens: float, now: float) -> float:
        """Set tokens aside and return 0; or take nothing and return the seconds until it could.

        More than a full bucket is never there at once: such a request takes a full one.
        """
        self.fill(now)
        wanted = min(tokens, self.burst)
        if self.level >= wanted:
            self.level -= wanted
            return 0.0
        return (wanted - self.level) / self.rate

    def settle(self, taken: float, used: float, now: float) -> None:
        """Give back what a request took, less what it used."""
        self.fill(now)
        self.level = min(self.burst, self.level + taken - used)

    def limit(self, rate: float, burst: float, now: float) -> None:
        """Go on under other limits; what is owed stays owed."""
        self.fill(now)
        self.rate, self.burst = rate, burst
        self.level = min(burst, self.level)
