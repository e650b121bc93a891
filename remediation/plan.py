"""From a diagnosis to the ordered acts that may be tried, or to a person.

`plan` is pure and total: it always answers, and when it has nothing to try it says why and that a
person is needed. It never returns more acts than the policy has trials left. What was hard: an
empty plan means two opposite things, "nothing is wrong" and "nothing more may be done", so
`escalate` tells them apart. Acts are compared by fingerprint, never by position in the policy, so
that none is tried twice because one before it was refused.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, FiniteFloat

from remediation.actions import INFO, Action, ReplicaFacts, fingerprint, why_it_cannot_help
from remediation.diagnosis import Diagnosis, Pattern, diagnose
from remediation.policy import RemediationPolicy


class PlanInput(BaseModel, frozen=True):
    """Everything that a plan rests on."""

    policy: RemediationPolicy
    compliance: FiniteFloat | None
    """Share of good requests of the route in the policy's window; None: no data."""
    requests: Annotated[int, Field(ge=0)]
    """Valid requests in that window."""
    tried: tuple[str, ...] = ()
    """Fingerprints of the acts that were tried in this run."""
    seconds_since: dict[str, FiniteFloat] = {}
    """Fingerprint of an act → seconds since an earlier run on this route last tried it."""
    replicas: tuple[ReplicaFacts, ...] = ()
    """The same window by replica; empty: not known."""


class Refusal(BaseModel, frozen=True):
    """An act of the policy that is not planned."""

    action: str
    fingerprint: str
    why: str


class Plan(BaseModel, frozen=True):
    """What may be tried, in this order, one after the other."""

    diagnosis: Diagnosis
    actions: tuple[Action, ...]
    refused: tuple[Refusal, ...]
    escalate: bool
    """A person is needed: something is wrong and nothing more may be tried."""
    expected_seconds: FiniteFloat
    """Typical time until the first act shows, in seconds; 0 without one."""
    why: str


def plan(given: PlanInput) -> Plan:
    """Return the acts that may be tried."""
    policy = given.policy
    diagnosis = diagnose(policy.when, given.compliance, given.requests, given.replicas)
    if diagnosis.pattern in {Pattern.TOO_LITTLE_TRAFFIC, Pattern.OBJECTIVE_MET}:
        return _plan(diagnosis, (), (), escalate=False, why=diagnosis.why)
    left = policy.limits.max_trials - len(given.tried)
    allowed: list[Action] = []
    refused: list[Refusal] = []
    for action in policy.actions:
        print_ = fingerprint(action)
        if print_ in given.tried:
            continue
        reason = (
            _cooling(given, print_)
            or why_it_cannot_help(action, given.replicas)
            or (None if len(allowed) < left else f"no trial is left of {policy.limits.max_trials}")
        )
        if reason is None:
            allowed.append(action)
        else:
            refused.append(Refusal(action=action.action, fingerprint=print_, why=reason))
    if allowed:
        return _plan(diagnosis, allowed, refused, escalate=False, why=diagnosis.why)
    exhausted = refused[0].why if refused else "every act of the policy was tried"
    return _plan(diagnosis, (), refused, escalate=True, why=f"{diagnosis.why}; {exhausted}")


def _cooling(given: PlanInput, print_: str) -> str | None:
    since, cooldown = given.seconds_since.get(print_), given.policy.limits.cooldown
    if since is None or since >= cooldown:
        return None
    return f"an earlier run tried it {since:.0f} s ago, and the cooldown is {cooldown:.0f} s"


def _plan(
    diagnosis: Diagnosis,
    actions: list[Action] | tuple[Action, ...],
    refused: list[Refusal] | tuple[Refusal, ...],
    *,
    escalate: bool,
    why: str,
) -> Plan:
    expected = INFO[actions[0].action].expected_seconds if actions else 0.0
    return Plan(
        diagnosis=diagnosis,
        actions=tuple(actions),
        refused=tuple(refused),
        escalate=escalate,
        expected_seconds=expected,
        why=why,
    )
