"""From what is seen to what is wrong: a short table of patterns.

It names a pattern, not a cause, and only one that the data can carry: with too few requests the
diagnosis is `too_little_traffic`, and nothing is done about it. What was hard: "one replica is
bad" must mean that it is provably worse than the rest, or chance picks a culprit every time.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, FiniteFloat

from remediation.actions import ReplicaFacts
from remediation.policy import When
from slo.burn_rate import clopper_pearson


class Pattern(StrEnum):
    """What the signals look like."""

    TOO_LITTLE_TRAFFIC = "too_little_traffic"
    OBJECTIVE_MET = "objective_met"
    ONE_REPLICA_BAD = "one_replica_bad"
    OBJECTIVE_MISSED = "objective_missed"
    """Missed, and no single replica is provably worse than the rest."""


class Diagnosis(BaseModel, frozen=True):
    """What is wrong, and what that rests on."""

    pattern: Pattern
    replica: str | None = None
    """The replica that is worse than the rest."""
    why: str


def diagnose(
    when: When, compliance: FiniteFloat | None, requests: int, replicas: tuple[ReplicaFacts, ...]
) -> Diagnosis:
    """Return the diagnosis.

    Args:
        when: the signal of the policy.
        compliance: share of good requests of the route in its window; None: no data.
        requests: valid requests in the window.
        replicas: the same window by replica; may be empty.
    """
    if compliance is None or requests < when.min_requests:
        why = f"{requests:,} requests in {when.window:g} s, and {when.min_requests:,} are needed"
        return Diagnosis(pattern=Pattern.TOO_LITTLE_TRAFFIC, why=why)
    seen = f"compliance {compliance:.4f} of {requests:,} requests"
    if compliance >= when.compliance_below:
        why = f"{seen}, not below {when.compliance_below:g}"
        return Diagnosis(pattern=Pattern.OBJECTIVE_MET, why=why)
    culprit = _worse_than_the_rest(replicas)
    if culprit is not None:
        why = f"{seen}; {culprit.name} has {culprit.bad:,} bad of {culprit.total:,}, above the rest"
        return Diagnosis(pattern=Pattern.ONE_REPLICA_BAD, replica=culprit.name, why=why)
    why = f"{seen}, below {when.compliance_below:g}"
    return Diagnosis(pattern=Pattern.OBJECTIVE_MISSED, why=why)


def _worse_than_the_rest(replicas: tuple[ReplicaFacts, ...]) -> ReplicaFacts | None:
    """Return the replica whose interval of bad ratios lies above that of the others together."""
    known = [item for item in replicas if item.total]
    if len(known) < 2:
        return None
    worst = max(known, key=lambda item: (item.bad / item.total, item.name))
    rest_bad = sum(item.bad for item in known) - worst.bad
    rest_total = sum(item.total for item in known) - worst.total
    above = clopper_pearson(worst.bad, worst.total)[0]
    below = clopper_pearson(rest_bad, rest_total)[1]
    return worst if above > below else None
