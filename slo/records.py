"""What the gateway writes about each request, and what every decision reads.

A `RequestRecord` is one finished request; a `Page` is one read of the gateway's journal. A fold
over stored pages is the only input of a decision, so a stored page must give back exactly the
same fold: `to_json` and `from_json` are exact inverses on finite floats.

This module decides nothing. What counts as bad is `slo/objective.py`; what the arms say about one
another is `canary/`.

Hard part: one non-finite float in a payload loses a whole run later (a database refuses it, a JSON
reader turns it into null). It is therefore refused here, when the record is made. A request
without a first token has `ttft_s = None`, never infinity.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite
from typing import Any

from slo.tenancy import Tenancy


class Outcome(StrEnum):
    """How a request ended. The members exclude one another."""

    OK = "ok"
    HTTP_ERROR = "http_error"
    """The upstream answered with a status of 400 or more."""
    STREAM_ERROR = "stream_error"
    """An error object inside a stream that had begun with status 200."""
    TRUNCATED = "truncated"
    """The stream closed without finish_reason or without [DONE]."""
    CLIENT_ABORT = "client_abort"
    """The client went away first."""
    TIMEOUT = "timeout"
    """Our own limit on the upstream passed."""
    TRANSPORT = "transport"
    """The connection to the upstream was refused or lost."""
    SHED = "shed"
    """Refused by us: breaker without a replica left, admission, or stop."""


_OUTCOMES = {member.value: member for member in Outcome}


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One finished request as the gateway saw it. Times are unix seconds, durations seconds.

    Raises:
        ValueError: a float is not finite.
    """

    seq: int
    """Gateway sequence, one more for each record, in order of end."""
    at: float
    """End, unix seconds."""
    accepted: float
    """Accept, unix seconds."""
    route: str
    unit: str
    """Hash of the conversation key, else of the request id: the unit that was randomised."""
    first_of_unit: bool
    """The first request of this unit under this split."""
    arm: str
    """control, chaos, or empty when no split was in force."""
    treatment: str
    """treated, holdout, or empty when no remedy was on trial."""
    replica: str
    """The replica that served; empty when none did."""
    assigned: str
    """The replica that was picked first."""
    fallback: bool
    exposed: tuple[str, ...]
    """Ids of the fault items armed on the replica when it served this request."""
    touched: tuple[str, ...]
    """Ids of the fault items that changed this request."""
    tenant: str
    probe: bool
    """A labelled probe: never part of an SLI or of a comparison."""
    outcome: Outcome
    status: int
    """HTTP status sent to the client; 0 when there was none."""
    ttft_s: float | None
    """Accept to first token, seconds, injected delay included; None: there was no first token."""
    max_gap_s: float
    """Longest silence after the first token up to the end, seconds; 0 without one."""
    e2e_s: float
    """Accept to end, seconds."""
    tokens: int
    """Content chunks, or the usage figure when the engine gave one."""
    prompt_tokens: int
    flags: tuple[str, ...]
    """Text flags: empty, rep4, non_finite, bad_tool_json, bad_tool_fields."""
    gateway: str = ""
    """Which of several gateways wrote this; empty when there is one. `seq` is then a count over all
    of them, in order of (end time, gateway, its own sequence)."""
    gateway_seq: int = 0
    """That gateway's own sequence."""
    tenancy: Tenancy | None = None
    """What was noted about its tenant; None where no tenants or limits are configured."""

    client_run_id: str = ""
    """Run id of the client's own tracing (LangChain's, say), a UUID; empty: it gave none."""

    def __post_init__(self) -> None:
        ttft = 0.0 if self.ttft_s is None else self.ttft_s
        # One sum is finite only if each term is; the terms are far from overflow.
        if not isfinite(self.at + self.accepted + self.max_gap_s + self.e2e_s + ttft):
            raise ValueError(f"record {self.seq}: a time or duration is not finite")

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types; `from_json` gives back an equal record.

        What only some requests have is left out of the others: evidence stays small, and that of
        versions that did not know it reads the same.
        """
        raw: dict[str, Any] = {
            "seq": self.seq,
            "at": self.at,
            "accepted": self.accepted,
            "route": self.route,
            "unit": self.unit,
            "first_of_unit": self.first_of_unit,
            "arm": self.arm,
            "treatment": self.treatment,
            "replica": self.replica,
            "assigned": self.assigned,
            "fallback": self.fallback,
            "exposed": list(self.exposed),
            "touched": list(self.touched),
            "tenant": self.tenant,
            "probe": self.probe,
            "outcome": self.outcome.value,
            "status": self.status,
            "ttft_s": self.ttft_s,
            "max_gap_s": self.max_gap_s,
            "e2e_s": self.e2e_s,
            "tokens": self.tokens,
            "prompt_tokens": self.prompt_tokens,
            "flags": list(self.flags),
        }
        if self.gateway:  # evidence of one gateway has no such keys
            raw |= {"gateway": self.gateway, "gateway_seq": self.gateway_seq}
        if self.tenancy is not None:
            raw["tenancy"] = self.tenancy.to_json()
        if self.client_run_id:
            raw["client_run_id"] = self.client_run_id
        return raw

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> "RequestRecord":
        """Read one record; unknown keys are ignored.

        Raises:
            KeyError: a key is missing.
            ValueError: a float is not finite, or the outcome is unknown.
        """
        outcome = _OUTCOMES.get(raw["outcome"])
        if outcome is None:
            raise ValueError(f"record {raw['seq']}: unknown outcome {raw['outcome']!r}")
        return cls(
            seq=raw["seq"],
            at=raw["at"],
            accepted=raw["accepted"],
            route=raw["route"],
            unit=raw["unit"],
            first_of_unit=raw["first_of_unit"],
            arm=raw["arm"],
            treatment=raw["treatment"],
            replica=raw["replica"],
            assigned=raw["assigned"],
            fallback=raw["fallback"],
            exposed=tuple(raw["exposed"]),
            touched=tuple(raw["touched"]),
            tenant=raw["tenant"],
            probe=raw["probe"],
            outcome=outcome,
            status=raw["status"],
            ttft_s=raw["ttft_s"],
            max_gap_s=raw["max_gap_s"],
            e2e_s=raw["e2e_s"],
            tokens=raw["tokens"],
            prompt_tokens=raw["prompt_tokens"],
            flags=tuple(raw["flags"]),
            gateway=raw.get("gateway", ""),
            gateway_seq=raw.get("gateway_seq", 0),
            tenancy=Tenancy.from_json(raw["tenancy"]) if "tenancy" in raw else None,
            client_run_id=raw.get("client_run_id", ""),
        )


@dataclass(frozen=True, slots=True)
class Page:
    """One read of the journal.

    Raises:
        ValueError: a time is not finite.
    """

    now: float
    """The gateway's clock when it answered, unix seconds."""
    after: int
    """The cursor that was asked for: records with a larger sequence follow."""
    next: int
    """The cursor for the next read."""
    epoch: str
    """New for each gateway process."""
    gap: bool
    """Records between `after` and `next` were lost."""
    in_flight: dict[str, int]
    """Requests accepted and not ended, by arm (key empty: no arm)."""
    oldest_in_flight: float | None
    """Accept time of the oldest of them, unix seconds; None when there is none."""
    lease: dict[str, Any] | None
    """The lease that was asked for: {id, state, items: {id: {kind, state, exposed, touched}}}."""
    records: list[RequestRecord] = field(default_factory=list)
    more: bool = False
    """More records had already ended than this page holds (the read hit its limit)."""
    gateways: dict[str, dict[str, Any]] | None = None
    """Of several gateways what each said: {name: {epoch, now, after, next, held_back}}, or
    {silent: why}. None: there is one, or it is evidence from before there were several."""

    def __post_init__(self) -> None:
        if not isfinite(self.now + (self.oldest_in_flight or 0.0)):
            raise ValueError(f"page after {self.after}: a time is not finite")

    @property
    def cursors(self) -> dict[str, int] | None:
        """The cursor for the next read of each gateway; None when there is one gateway."""
        if self.gateways is None:
            return None
        return {name: part["next"] for name, part in self.gateways.items() if "next" in part}

    def mixed(self) -> tuple[str, ...]:
        """Return which gateways make this page one of unlike parts, a sentence each."""
        states = (self.lease or {}).get("gateways", {})
        found = []
        for name, part in (self.gateways or {}).items():
            if "silent" in part:
                found.append(f"Gateway {name} does not answer.")
            elif part.get("gap"):
                found.append(f"Gateway {name} lost records.")
            elif "clocks_apart" in part:
                found.append(f"The clock of gateway {name} is not like the others'.")
            elif states.get(name, "open") != "open":
                found.append(f"At gateway {name} the lease is {states[name]}.")
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types; `from_json` gives back an equal page."""
        several = {} if self.gateways is None else {"gateways": self.gateways}
        return {
            "now": self.now,
            "after": self.after,
            "next": self.next,
            "epoch": self.epoch,
            "gap": self.gap,
            "in_flight": dict(self.in_flight),
            "oldest_in_flight": self.oldest_in_flight,
            "lease": self.lease,
            "more": self.more,
            **several,
            "records": [record.to_json() for record in self.records],
        }

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> "Page":
        """Read one page; unknown keys are ignored.

        Raises:
            KeyError: a key is missing.
            ValueError: a time is not finite, or an outcome is unknown.
        """
        return cls(
            now=raw["now"],
            after=raw["after"],
            next=raw["next"],
            epoch=raw["epoch"],
            gap=raw["gap"],
            in_flight=dict(raw["in_flight"]),
            oldest_in_flight=raw["oldest_in_flight"],
            lease=raw["lease"],
            records=[RequestRecord.from_json(item) for item in raw["records"]],
            more=raw.get("more", False),
            gateways=raw.get("gateways"),
        )
