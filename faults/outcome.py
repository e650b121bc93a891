"""What a run comes to: one word, one exit code, and the sentences it rests on.

Every input speaks for itself and yields findings; the gravest finding is the outcome, and PASS is
what is left when there is none. So nothing can pass by omission: a phase that is required and has
no verdict is itself a finding. This does not judge samples (the phases did) and does not know
whether the fault is off (the clean-up list says so).

    CLEANUP_FAILED > FAIL > NOT_INJECTED > CONFIGURATION > INCONCLUSIVE > PASS

What was hard is `recovers`. Its comparison may fail, but then the objective must be met again
within the limit while the fault *still holds* if a remedy was asked for; when the fault ended by
itself meanwhile, what happened afterwards is credited to nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, Field


class RunOutcome(StrEnum):
    """What a run comes to, gravest first."""

    CLEANUP_FAILED = "CLEANUP_FAILED"
    FAIL = "FAIL"
    NOT_INJECTED = "NOT_INJECTED"
    CONFIGURATION = "CONFIGURATION"
    INCONCLUSIVE = "INCONCLUSIVE"
    PASS = "PASS"

    @property
    def exit_code(self) -> int:
        """Exit code of the command that ran it."""
        return EXIT_CODES[self]


EXIT_CODES: dict[RunOutcome, int] = {
    RunOutcome.PASS: 0,
    RunOutcome.FAIL: 1,
    RunOutcome.INCONCLUSIVE: 2,
    RunOutcome.NOT_INJECTED: 3,
    RunOutcome.CONFIGURATION: 3,
    RunOutcome.CLEANUP_FAILED: 4,
}
"""0 pass · 1 SLO, comparison or guard · 2 inconclusive or stopped by a person · 3 nothing learnt ·
4 clean-up not proven."""

EffectState = Literal["seen", "none", "too_little", "not_expected"]
"""Whether the fault was seen to act on requests."""


class PhaseSummary(BaseModel, frozen=True):
    """What one observed phase said, in the observer's own words.

    In the remedy phase the compared groups are hold-out against treated, so its FAIL says that the
    hold-out is worse: the remedy works. `verdict` is kept as the observer gave it.
    """

    verdict: Literal["PASS", "FAIL", "INCONCLUSIVE"]
    reason: str
    """Why it ended: `verdict`, `guard`, `trigger`, `settled`, `lease_lost`, `gap` …"""
    effect_state: EffectState | None = None
    why: str = ""
    """One sentence."""


class OutcomeInput(BaseModel, frozen=True):
    """All that an outcome rests on."""

    hypothesis: Literal["withstands", "recovers"]
    expects_effect: bool = True
    """Of the template; only `null` expects none."""
    remedy_under_fault: bool = False
    """Whether the experiment asked for a remedy while the fault holds."""
    steady: PhaseSummary | None = None
    compare: PhaseSummary | None = None
    remedy: PhaseSummary | None = None
    """Hold-out against treated; None: no remedy was tried, or it was not observed."""
    no_remedy: str = ""
    """Why none was tried."""
    met_again: PhaseSummary | None = None
    """Whether the SLOs were met again after the remedial act, the fault still holding."""
    recovery: PhaseSummary | None = None
    """Whether the SLOs were met again after the withdrawal."""
    aborted_by: str | None = None
    """The person who stopped the run."""
    failure: str | None = None
    """What broke in the machinery."""
    configuration_error: str | None = None
    """Why the experiment could not be run as written."""
    refused: Annotated[bool, Field(exclude_if=lambda refused: not refused)] = False
    """Whether the error or failure above is a refusal by circumstances: a target in use, a stop."""
    cleanup_failed: tuple[str, ...] = ()
    """What could not be proven to be undone."""
    lease_lost: bool = False
    """The fault ended by itself while it was needed."""
    lease_end: str = ""
    """What the target said of the lease when an act came too late; empty: none did."""


class OutcomeReport(BaseModel, frozen=True):
    """The outcome and what it rests on."""

    outcome: RunOutcome
    exit_code: int
    reasons: tuple[str, ...]
    """Sentences: those that decided first, then the others, gravest first."""
    rests_on: tuple[str, ...]
    """Fields of the input that decided."""


class _Finding(NamedTuple):
    outcome: RunOutcome
    source: str
    sentence: str


_GRAVITY = {outcome: rank for rank, outcome in enumerate(RunOutcome)}
_FAIL, _OPEN = RunOutcome.FAIL, RunOutcome.INCONCLUSIVE


def decide_outcome(given: OutcomeInput) -> OutcomeReport:
    """Return what the run comes to."""
    findings = [
        *_circumstances(given),
        *_steady(given.steady),
        *_guards(given),
        *_effect(given),
        *(_withstands(given) if given.hypothesis == "withstands" else _recovers(given)),
        *_recovery(given.recovery),
    ]
    if not findings:
        return _passed(given)
    findings.sort(key=lambda item: _GRAVITY[item.outcome])  # stable: order of the run within
    outcome = findings[0].outcome
    return OutcomeReport(
        outcome=outcome,
        exit_code=outcome.exit_code,
        reasons=tuple(dict.fromkeys(item.sentence for item in findings)),
        rests_on=tuple(dict.fromkeys(i.source for i in findings if i.outcome is outcome)),
    )


def _circumstances(given: OutcomeInput) -> Iterator[_Finding]:
    for what in given.cleanup_failed:
        yield _Finding(
            RunOutcome.CLEANUP_FAILED, "cleanup_failed", f"Not proven to be undone: {what}."
        )
    if given.configuration_error is not None:
        told = "It was not begun" if given.refused else "It could not be run as written"
        sentence = f"{told}: {given.configuration_error}."
        yield _Finding(RunOutcome.CONFIGURATION, "configuration_error", sentence)
    if given.failure is not None:
        told = "It was not begun" if given.refused else "The machinery broke"
        sentence = f"{told}: {given.failure}."
        yield _Finding(RunOutcome.CONFIGURATION, "failure", sentence)
    if given.aborted_by is not None:
        yield _Finding(_OPEN, "aborted_by", f"Stopped by {given.aborted_by or 'a person'}.")
    if given.lease_end:
        sentence = f"The lease was over before the act: {given.lease_end}; nothing is credited."
        yield _Finding(_OPEN, "lease_end", sentence)
    elif _fault_expired(given):
        sentence = "The fault expired before the run was done with it; nothing after is credited."
        yield _Finding(_OPEN, "lease_lost", sentence)


def _fault_expired(given: OutcomeInput) -> bool:
    held = (given.compare, given.remedy, given.met_again)
    return given.lease_lost or any(phase and phase.reason == "lease_lost" for phase in held)


def _steady(phase: PhaseSummary | None) -> Iterator[_Finding]:
    if phase is None:
        yield _Finding(_OPEN, "steady", "The steady state was not measured.")
    elif phase.verdict == "FAIL":
        sentence = _say("There was no steady state to begin with, so nothing was learnt", phase)
        yield _Finding(RunOutcome.CONFIGURATION, "steady", sentence)
    elif not _holds(phase):
        yield _Finding(_OPEN, "steady", _say("The steady state is open", phase))


def _guards(given: OutcomeInput) -> Iterator[_Finding]:
    for name in ("compare", "remedy", "met_again", "recovery"):
        phase: PhaseSummary | None = getattr(given, name)
        if phase is not None and phase.reason == "guard":
            yield _Finding(_FAIL, name, _say("The guard stopped the run", phase))


def _effect(given: OutcomeInput) -> Iterator[_Finding]:
    if not given.expects_effect or given.compare is None:
        return
    state = given.compare.effect_state
    if state == "none":
        sentence = "Enough requests met the fault and none was affected: it was not injected."
        yield _Finding(RunOutcome.NOT_INJECTED, "compare", sentence)
    elif state != "seen":
        sentence = "Too few requests met the fault to see whether it acts."
        yield _Finding(_OPEN, "compare", sentence)


def _withstands(given: OutcomeInput) -> Iterator[_Finding]:
    phase = given.compare
    if phase is None:
        yield _Finding(_OPEN, "compare", "The arms were not compared.")
    elif _broke(phase):
        yield _Finding(_FAIL, "compare", _say("It did not withstand the fault", phase))
    elif not _holds(phase):
        yield _Finding(_OPEN, "compare", _say("The comparison is open", phase))


def _recovers(given: OutcomeInput) -> Iterator[_Finding]:
    phase = given.compare
    if phase is None:
        yield _Finding(_OPEN, "compare", "The arms were not compared.")
    elif not _broke(phase):
        if not _holds(phase):
            yield _Finding(_OPEN, "compare", _say("The comparison is open", phase))
    elif given.remedy_under_fault and not _fault_expired(given):
        yield from _cured(given)


def _cured(given: OutcomeInput) -> Iterator[_Finding]:
    """Say whether it was met again under the fault: by the SLOs themselves, else by the remedy."""
    again, remedy = given.met_again, given.remedy
    if again is not None:
        if again.verdict == "FAIL":
            yield _Finding(_FAIL, "met_again", _say("It was not met again under the fault", again))
        elif not _holds(again):
            sentence = _say("Whether it was met again under the fault is open", again)
            yield _Finding(_OPEN, "met_again", sentence)
    elif remedy is None:
        why = f"tried: {given.no_remedy}." if given.no_remedy else "observed under the fault."
        yield _Finding(_OPEN, "remedy", f"It broke, and no remedy was {why}")
    elif remedy.verdict == "PASS":
        yield _Finding(_FAIL, "remedy", _say("The remedy did not help", remedy))
    elif not _works(remedy):
        yield _Finding(_OPEN, "remedy", _say("Whether the remedy helps is open", remedy))


def _recovery(phase: PhaseSummary | None) -> Iterator[_Finding]:
    if phase is None:
        yield _Finding(_OPEN, "recovery", "The recovery was not measured.")
    elif phase.verdict == "FAIL":
        yield _Finding(_FAIL, "recovery", _say("It was not met again after the fault", phase))
    elif not _holds(phase):
        yield _Finding(_OPEN, "recovery", _say("The recovery is open", phase))


def _broke(phase: PhaseSummary) -> bool:
    return phase.verdict == "FAIL" or phase.reason == "trigger"


def _holds(phase: PhaseSummary) -> bool:
    """Return whether the phase shows that it holds; evidence with a gap shows nothing."""
    return phase.verdict == "PASS" and phase.reason not in {"gap", "lease_lost", "guard"}


def _works(remedy: PhaseSummary) -> bool:
    return remedy.verdict == "FAIL" and remedy.reason not in {"gap", "lease_lost", "guard"}


def _say(sentence: str, phase: PhaseSummary) -> str:
    return f"{sentence}: {phase.why.rstrip('.')}." if phase.why else f"{sentence}."


def _passed(given: OutcomeInput) -> OutcomeReport:
    compare = given.compare
    assert compare is not None, "an unmeasured comparison is a finding"
    rests_on, broke = ["steady", "compare"], _broke(compare)
    sentences = [
        _say("It broke under the fault, as it may", compare)
        if broke
        else _say("No arm was worse than the margins allow", compare)
    ]
    if broke and given.met_again is not None:
        rests_on.append("met_again")
        sentences.append(_say("It was met again under the fault", given.met_again))
    if broke and given.remedy is not None:
        works = _works(given.remedy)
        credit = "The remedy did it" if works else "The remedy is not credited with it"
        sentences.append(_say(credit, given.remedy))
        rests_on += ["remedy"] if works else []
    assert given.recovery is not None, "an unmeasured recovery is a finding"
    sentences.append(_say("It was met after the fault", given.recovery))
    return OutcomeReport(
        outcome=RunOutcome.PASS,
        exit_code=RunOutcome.PASS.exit_code,
        reasons=tuple(sentences),
        rests_on=(*rests_on, "recovery"),
    )
