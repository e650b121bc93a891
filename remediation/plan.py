"""From a diagnosis to the ordered acts that may be tried, or to a person.

`plan` is pure and total: it always answers, and when it has nothing to try it says why and that a
person is needed. It never returns more acts than the policy has trials left. What was hard: an
empty plan means two opposite things, "nothing is wrong" and "nothing more may be done", so
`escalate` tells them apart.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, FiniteFloat

from remediation.actions import INFO, Action, ReplicaFacts, fingerprint, why_it_cannot_help
from remediation.diagnosis import Diagnosis, Pattern, diagnose
from remediation.guardrails import PastTrial, trials_left, why_not
from remediation.policy import RemediationPolicy


class PlanInput(BaseModel, frozen=True):
    """Everything that a plan rests on."""

    policy: RemediationPolicy
    compliance: FiniteFloat | None
    """Share of good requests of the route in the policy's window; None: no data."""
    requests: Annotated[int, Field(ge=0)]
    """Valid requests in that window."""
    tried: Annotated[int, Field(ge=0)] = 0
    """Acts of the policy already tried in this run: the first so many of them."""
    trials: tuple[PastTrial, ...] = ()
    """What is known of trials, earlier runs on this route included."""
    replicas: tuple[ReplicaFacts, ...] = ()
    """The same window by replica; empty: not known."""
    now: FiniteFloat | None = None
    """Unix seconds, for the cooldown."""


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
    this_run = sum(trial.this_run for trial in given.trials)
    left = trials_left(policy.limits, max(given.tried, this_run))
    allowed: list[Action] = []
    refused: list[Refusal] = []
    for action in policy.actions[given.tried :]:
        reason = _why_not(given, action, len(allowed) < left)
        if reason is None:
            allowed.append(action)
        else:
            print_ = fingerprint(action)
            refused.append(Refusal(action=action.action, fingerprint=print_, why=reason))
    if allowed:
        return _plan(diagnosis, allowed, refused, escalate=False, why=diagnosis.why)
    exhausted = refused[0].why if refused else "every act of the policy was tried"
    return _plan(diagnosis, (), refused, escalate=True, why=f"{diagnosis.why}; {exhausted}")


def _why_not(given: PlanInput, action: Action, has_trials: bool) -> str | None:
    limits = given.policy.limits
    return (
        why_not(action, limits, given.trials, given.now)
        or why_it_cannot_help(action, given.replicas)
        or (None if has_trials else f"no trial is left of {limits.max_trials}")
    )


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
