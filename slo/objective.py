"""What a good request is, and how many of them are promised.

An `Objective` is a target ratio over a window; its `Indicator` sorts each record into not valid,
good or bad. It reads one record at a time and knows neither arms nor faults.

Hard part: clients that give up. A client that closes the tab after half a second is no evidence
about the service and is not a valid event. A client that gives up because nothing came for longer
than the bound is the very failure the objective is about, and counts as bad; otherwise only the
survivors of a hang would be measured.

Two narrower kinds of bad event stand beside "the request failed or broke a bound", since neither a
latency nor a share of error statuses shows them: the stream that breaks off in the middle, and the
failure behind a status that says success.
"""

from fractions import Fraction
from typing import Annotated, Literal

from pydantic import BaseModel, Field, FiniteFloat

from slo.records import Outcome, RequestRecord

KNOWN_FLAGS = ("empty", "rep4", "non_finite", "bad_tool_json", "bad_tool_fields")
"""Text flags the gateway can raise."""

Event = Literal["request", "interruption", "hidden-error"]
"""What an indicator counts as bad: any failure or broken bound, or one of the two kinds below."""

_BREAKS_OFF = frozenset(
    {Outcome.TRUNCATED, Outcome.STREAM_ERROR, Outcome.TIMEOUT, Outcome.CLIENT_ABORT}
)
_FIRST_ERROR_STATUS = 400


def is_interrupted(record: RequestRecord) -> bool:
    """Say whether a valid request broke off after its first token.

    No end mark, a cut, an error object, or a client that gave up after a silence: ask `is_valid`.
    """
    return record.ttft_s is not None and record.outcome in _BREAKS_OFF


def is_hidden_error(record: RequestRecord) -> bool:
    """Say whether a valid request failed though no error status told its client.

    An error object in the stream, an end without the end mark, or a cut: ask `is_valid` first.
    """
    return record.outcome is not Outcome.OK and record.status < _FIRST_ERROR_STATUS


class Indicator(BaseModel, frozen=True):
    """Which requests are bad: every failed one, and every one that breaks a bound given here."""

    event: Annotated[Event, Field(exclude_if=lambda event: event == "request")] = "request"
    """The kind of bad event. The two narrow kinds look at no bound but the gap of a client that
    gave up. Not written down when it is the default."""
    max_gap_seconds: FiniteFloat | None = Field(default=2.0, gt=0)
    """Longest silence allowed after the first token, seconds. None: no bound.

    Source: ours, 2026-12: a stall after the first token is neither an error nor a TTFT event.
    """
    max_ttft_seconds: FiniteFloat | None = Field(default=None, gt=0)
    """Longest wait for the first token, seconds. None: no bound."""
    max_e2e_seconds: FiniteFloat | None = Field(default=None, gt=0)
    """Longest whole request, seconds. None: no bound."""
    bad_flags: tuple[str, ...] = ()
    """Text flags that make a request bad."""

    def is_stalled(self, record: RequestRecord) -> bool:
        """Say whether a silence in this request broke the gap or first-token bound.

        Before the first token the first-token bound counts, or, when there is none, the gap bound.
        """
        gap, ttft_bound = self.max_gap_seconds, self.max_ttft_seconds
        ttft = record.ttft_s
        if ttft is None:
            bound = gap if ttft_bound is None else ttft_bound
            return bound is not None and record.e2e_s > bound
        if gap is not None and record.max_gap_s > gap:
            return True
        return ttft_bound is not None and ttft > ttft_bound

    def is_valid(self, record: RequestRecord) -> bool:
        """Say whether this request may be counted; of interruptions only an answer that began."""
        if self.event == "interruption" and record.ttft_s is None:
            return False
        return self.is_judged(record)

    def is_judged(self, record: RequestRecord) -> bool:
        """Say whether this request is evidence.

        Not: a probe, a client that left of its own, a request that its tenant's own rules refused.
        """
        if record.probe:
            return False
        if record.tenancy is not None and record.tenancy.is_refused_by_rule:
            return False
        return record.outcome is not Outcome.CLIENT_ABORT or self.is_stalled(record)

    def is_bad(self, record: RequestRecord) -> bool:
        """Say whether a valid request is bad. Ask `is_valid` first."""
        if self.event != "request":
            narrow = is_interrupted if self.event == "interruption" else is_hidden_error
            return narrow(record)
        if record.outcome is not Outcome.OK:
            return True
        gap = self.max_gap_seconds
        if gap is not None and record.max_gap_s > gap:
            return True
        bound = self.max_ttft_seconds
        # A finished answer without a token (max_tokens 0, tool call only) has no wait to judge.
        if bound is not None and record.ttft_s is not None and record.ttft_s > bound:
            return True
        bound = self.max_e2e_seconds
        if bound is not None and record.e2e_s > bound:
            return True
        return bool(self.bad_flags) and any(flag in self.bad_flags for flag in record.flags)


class Objective(BaseModel, frozen=True):
    """A target ratio of good requests among valid ones, over a rolling window."""

    name: str = Field(min_length=1)
    objective_ratio: FiniteFloat = Field(gt=0, lt=1)
    """Ratio in (0, 1): 0.985 promises 985 good requests of 1,000."""
    window_days: FiniteFloat = Field(default=30.0, gt=0)
    """Days the budget lasts. Source: SRE workbook, chapter 5, uses 30 days."""
    indicator: Indicator = Indicator()

    @property
    def exact_ratio(self) -> Fraction:
        """The ratio as it was written: 0.985 is 197/200, not its binary neighbour."""
        return Fraction(repr(self.objective_ratio))

    @property
    def budget_ratio(self) -> Fraction:
        """The share of requests that may be bad, exact."""
        return 1 - self.exact_ratio

    def is_valid(self, record: RequestRecord) -> bool:
        """See `Indicator.is_valid`."""
        return self.indicator.is_valid(record)

    def is_bad(self, record: RequestRecord) -> bool:
        """See `Indicator.is_bad`."""
        return self.indicator.is_bad(record)
