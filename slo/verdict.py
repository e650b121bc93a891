"""The three words a decision may end with.

INCONCLUSIVE is a result, not a failure of the tool: too little traffic, lost records or an expired
fault prove nothing, and nothing is never a pass.
"""

from collections.abc import Iterable
from enum import StrEnum


class Verdict(StrEnum):
    """What the evidence proves."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"


def combine(verdicts: Iterable[Verdict]) -> Verdict:
    """Return FAIL if any failed, PASS if there are some and all passed, else INCONCLUSIVE."""
    seen = list(verdicts)
    if Verdict.FAIL in seen:
        return Verdict.FAIL
    if seen and all(verdict is Verdict.PASS for verdict in seen):
        return Verdict.PASS
    return Verdict.INCONCLUSIVE
