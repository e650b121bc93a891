"""What a remedy can do, with its precondition, its proof and its undo.

Each action is a frozen model; nothing here acts. What was hard: an action that cannot help looks
like one that was tried and failed. Tightening a breaker moves traffic only when the bad replica
lies between the old and the new threshold, so that is its precondition, and it is checked before
a trial is spent.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from slo.burn_rate import clopper_pearson
from slo.durations import Seconds

_ALIASED = ConfigDict(frozen=True, serialize_by_alias=True)


class Verify(BaseModel, frozen=True):
    """How it is proven that the remedy helped: treated units against a hold-out."""

    alpha: Annotated[FiniteFloat, Field(strict=True, ge=1e-6, le=0.2)] = 0.01
    """Probability of crediting a remedy that does nothing."""
    within: Annotated[Seconds, Field(ge=5, le=3600)] = 180.0
    """Longest that is waited for the proof, 5 s to 1 h."""


class BreakerTighten(BaseModel):
    """Lower the failure ratio at which the circuit breakers of the route open."""

    model_config = _ALIASED

    action: Literal["breaker/tighten"]
    """What is done."""
    threshold_ratio: Annotated[FiniteFloat, Field(alias="threshold", strict=True, gt=0, lt=1)]
    """New threshold, ratio in (0, 1); lower than the one in force."""
    holdout_share: Annotated[FiniteFloat, Field(alias="holdout", strict=True, gt=0, le=0.5)] = 0.2
    """Share of units that keep the old threshold while it is tried, in (0, 0.5]."""
    verify: Verify = Verify()


class BreakerRestore(BaseModel, frozen=True):
    """Give the circuit breakers their own threshold back: the undo of `breaker/tighten`."""

    action: Literal["breaker/restore"]


Action = BreakerTighten
"""What a policy can ask for."""


class Act(BaseModel, frozen=True):
    """Anything that is done to a route by a remedy, as the audit trail names it."""

    act: Annotated[BreakerTighten | BreakerRestore, Field(discriminator="action")]


class ReplicaFacts(BaseModel, frozen=True):
    """What one replica did lately."""

    name: str
    total: Annotated[int, Field(ge=0)]
    """Valid requests that it served."""
    bad: Annotated[int, Field(ge=0)]
    """Those of them that were bad for the SLO."""
    threshold_ratio: Annotated[FiniteFloat, Field(gt=0, lt=1)] = 0.05
    """Threshold of its breaker now in force, ratio in (0, 1)."""


class ActionInfo(BaseModel, frozen=True):
    """What is said about a kind of action."""

    summary: str
    effect_check: str
    undo: str
    undone_by: str
    expected_seconds: FiniteFloat
    """Typical time from the act until traffic has changed, at about 24 requests/s."""


INFO: dict[str, ActionInfo] = {
    "breaker/tighten": ActionInfo(
        summary="opens the breaker of a replica earlier, so that traffic leaves it",
        effect_check="treated units break the SLO less often than the hold-out, e-value ≥ 1/alpha",
        undo="detach the setting: the threshold of the route's configuration holds again",
        undone_by="breaker/restore",
        # Source: ours, 2026-11, simulated: a 1 % threshold trips in 8 to 18 s on a 4 % replica.
        expected_seconds=18.0,
    ),
    "breaker/restore": ActionInfo(
        summary="gives the breakers their own threshold back",
        effect_check="the threshold in force is that of the configuration",
        undo="none: it is an undo",
        undone_by="",
        expected_seconds=1.0,
    ),
}
"""Kind of action → what is said about it."""


def fingerprint(action: Action) -> str:
    """Return a short text equal for two actions that do the same, however they are verified."""
    same = {"action": action.action, "threshold": action.threshold_ratio}
    return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()[:12]


def why_it_cannot_help(action: Action, replicas: tuple[ReplicaFacts, ...]) -> str | None:
    """Return why the action could not change anything, or None if it may help.

    Without facts about replicas nothing is known against it, and it may be tried.
    """
    if not replicas:
        return None
    new = action.threshold_ratio
    looser = [item for item in replicas if new < item.threshold_ratio]
    if not looser:
        lowest = min(item.threshold_ratio for item in replicas)
        return f"{new:g} is not below the threshold in force ({lowest:g})"
    reachable = [item for item in looser if clopper_pearson(item.bad, item.total)[1] > new]
    if not reachable:
        return f"no replica can be as bad as {new:g}: the breaker would stay closed"
    if len(reachable) == len(replicas):
        proven = [r for r in replicas if r.total and clopper_pearson(r.bad, r.total)[0] > new]
        if len(proven) == len(replicas):
            return f"every replica is worse than {new:g}: there is none for the traffic to go to"
    return None
