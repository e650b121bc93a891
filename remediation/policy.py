"""The remediation policy document: when something is done, what, and how often at most.

Parsed strictly where a person wrote it. It decides nothing: `remediation.plan` does. What was
hard: a policy may ask for the same act twice under two names and so double its number of trials;
two actions with one effect are therefore refused.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StringConstraints, model_validator

from remediation.actions import Action, fingerprint
from slo.documents import validate_document
from slo.durations import Seconds
from slo.errors import SpecError, SpecErrors

_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,99}$")]


class PolicyMetadata(BaseModel, frozen=True):
    """The name it goes by in reports."""

    name: _Name
    """1 to 100 letters, digits, `.`, `_`, `/`, `-`."""


class When(BaseModel, frozen=True):
    """The signal: compliance of the whole route, as a point estimate."""

    compliance_below: Annotated[FiniteFloat, Field(strict=True, gt=0, lt=1)]
    """Act when the share of good requests is below this ratio in (0, 1). Source: B15, 0.985."""
    window: Annotated[Seconds, Field(ge=1, le=3600)] = 60.0
    """Trailing window of the estimate, 1 s to 1 h."""
    min_requests: Annotated[int, Field(strict=True, ge=1, le=10_000_000)] = 1000
    """Fewest requests in the window for the signal to count."""


class PolicyLimits(BaseModel, frozen=True):
    """How much may be tried without a person."""

    max_trials: Annotated[int, Field(strict=True, ge=1, le=20)] = 2
    """Trials in one run, 1 to 20; then a person is asked."""
    cooldown: Annotated[Seconds, Field(ge=0, le=86_400)] = 600.0
    """Least time between two trials of an act on a route, in whatever run, 0 s to 24 h."""


class RemediationPolicy(BaseModel):
    """One policy, complete."""

    model_config = ConfigDict(frozen=True, serialize_by_alias=True)

    api_version: Annotated[Literal["burnproof/v1"], Field(alias="apiVersion")]
    """Version of this form of document."""
    kind: Literal["RemediationPolicy"]
    """What the document is."""
    metadata: PolicyMetadata
    when: When
    actions: Annotated[tuple[Action, ...], Field(min_length=1, max_length=10)]
    """What is tried, in this order."""
    limits: PolicyLimits = PolicyLimits()

    @model_validator(mode="after")
    def _no_action_twice(self) -> Self:
        prints = [fingerprint(action) for action in self.actions]
        if len(set(prints)) != len(prints):
            raise ValueError("two actions do the same; each is tried once")
        return self

    def document(self) -> dict[str, Any]:
        """Return the wire form: JSON types only, durations in seconds; reads back equal."""
        return self.model_dump(mode="json")


def read_policy(doc: object) -> RemediationPolicy:
    """Return the policy of a raw document.

    Raises:
        SpecErrors: every problem; paths are relative to the policy.
    """
    return validate_document(RemediationPolicy, doc)


def parse_policy(doc: object) -> RemediationPolicy:
    """Return the policy of a raw document.

    Raises:
        SpecError: the first problem; the path is relative to the policy.
    """
    try:
        return read_policy(doc)
    except SpecErrors as errors:
        raise errors.errors[0] from None


__all__ = ["RemediationPolicy", "SpecError", "SpecErrors", "parse_policy", "read_policy"]
