"""What a remedy may not do: try too often, try the same again too soon, repeat what did not help.

Pure: the time comes from the caller. What was hard is the second trial of the same act under
another name; acts are therefore compared by fingerprint, never by position in the policy.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, FiniteFloat

from remediation.actions import Action, fingerprint
from remediation.policy import PolicyLimits


class PastTrial(BaseModel, frozen=True):
    """One act that was tried, in this run or in an earlier one on the same route."""

    fingerprint: str
    at: FiniteFloat
    """When it began, unix seconds."""
    result: Literal["helped", "useless", "undecided"]
    this_run: bool = True


def why_not(
    action: Action, limits: PolicyLimits, trials: tuple[PastTrial, ...], now: FiniteFloat | None
) -> str | None:
    """Return why the act may not be tried now, or None.

    Args:
        action: the act.
        limits: those of the policy.
        trials: what was tried, in any order.
        now: unix seconds; None: the cooldown cannot be checked, so any earlier trial counts.
    """
    same = [trial for trial in trials if trial.fingerprint == fingerprint(action)]
    if any(trial.this_run and trial.result != "helped" for trial in same):
        return "it was tried in this run and did not help"
    if same:
        since = None if now is None else now - max(trial.at for trial in same)
        if since is None or since < limits.cooldown:
            ago = "before" if since is None else f"{since:.0f} s ago"
            return f"it was tried {ago}; the cooldown is {limits.cooldown:.0f} s"
    return None


def trials_left(limits: PolicyLimits, tried: int) -> int:
    """Return how many trials this run may still make, at least 0."""
    return max(0, limits.max_trials - tried)
