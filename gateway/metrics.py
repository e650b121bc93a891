"""The gateway's own metrics in the Prometheus text format.

Written by hand, since the data path can afford a dictionary update per request and no more. Every
name is a constant here. Series appear when the first request of their kind ends; `le` values are
written as Prometheus writes floats ("1.0", never "1"). Probes are counted apart and stand in no
other series, so that no SLI can be built on them by accident.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

PREFIX = "burnproof_gateway_"
REQUESTS = PREFIX + "requests_total"
PROBES = PREFIX + "probes_total"
TTFT = PREFIX + "ttft_seconds"
GAP = PREFIX + "max_gap_seconds"
E2E = PREFIX + "e2e_seconds"
TOKENS = PREFIX + "completion_tokens_total"
INTERRUPTIONS = PREFIX + "interruptions_total"
HIDDEN_ERRORS = PREFIX + "hidden_errors_total"
FALLBACKS = PREFIX + "fallbacks_total"
EXPOSED = PREFIX + "fault_exposed_total"
TOUCHED = PREFIX + "fault_touched_total"
RESETS = PREFIX + "idle_socket_resets_total"
IN_FLIGHT = PREFIX + "in_flight"
BREAKER_STATE = PREFIX + "breaker_state"
BREAKER_THRESHOLD = PREFIX + "breaker_threshold_ratio"
ALL_OPEN = PREFIX + "breaker_all_open_total"
LEASES = PREFIX + "leases_open"
FAULTS = PREFIX + "faults_active"
STOPPED = PREFIX + "stopped"
DRAINING = PREFIX + "draining"
CONFIG_GENERATION = PREFIX + "config_generation"
CONFIG_INFO = PREFIX + "config_info"
RELOADS = PREFIX + "config_reloads_total"
WRITE_ERRORS = PREFIX + "record_write_errors_total"
JOURNAL_SEQ = PREFIX + "journal_sequence"
CLIENTS = PREFIX + "client_connections"
IDLE_REPLICAS = PREFIX + "idle_replica_connections"
TASKS = PREFIX + "tasks"
TENANT_SIGNS = PREFIX + "tenant_sign_problems_total"
TENANT_REFUSALS = PREFIX + "tenant_refusals_total"
TENANT_BILLED = PREFIX + "tenant_tokens_total"
TENANT_CROSSED = PREFIX + "tenant_crossings_total"
TENANT_QUEUED = PREFIX + "tenant_queue_seconds"
TENANT_HERE = PREFIX + "tenant_in_flight"
TENANT_QUOTA = PREFIX + "tenant_quota_tokens"
ROUTE_SERVED = PREFIX + "route_places_taken"
ROUTE_WAITING = PREFIX + "route_waiting"
SAMPLED = PREFIX + "sampled_requests_total"
SPANS = PREFIX + "spans_total"

HELP: Mapping[str, tuple[str, str]] = {
    REQUESTS: ("counter", "Requests that ended, by outcome."),
    PROBES: ("counter", "Labelled probes that ended; they are in no other series."),
    TTFT: ("histogram", "Seconds from accept to the first content token."),
    GAP: ("histogram", "Longest silence after the first token, seconds."),
    E2E: ("histogram", "Seconds from accept to end."),
    TOKENS: ("counter", "Completion tokens passed on."),
    INTERRUPTIONS: ("counter", "Answers that broke off after their first token."),
    HIDDEN_ERRORS: ("counter", "Requests that failed though no error status said so."),
    FALLBACKS: ("counter", "Requests served by another replica than the one picked first."),
    EXPOSED: ("counter", "Requests served by a replica with this fault armed."),
    TOUCHED: ("counter", "Requests that this fault changed."),
    RESETS: ("counter", "Idle upstream sockets that died as they were used again."),
    IN_FLIGHT: ("gauge", "Requests accepted and not ended."),
    BREAKER_STATE: ("gauge", "0 closed, 1 half open, 2 open."),
    BREAKER_THRESHOLD: ("gauge", "Bad share that opens the breaker, ratio."),
    ALL_OPEN: ("counter", "Requests served by the least bad replica: every breaker was open."),
    LEASES: ("gauge", "Open leases."),
    FAULTS: ("gauge", "Fault items that may act now."),
    DRAINING: ("gauge", "1 while the process ends."),
    CONFIG_GENERATION: ("gauge", "1 at the start, one more for each configuration since."),
    CONFIG_INFO: ("gauge", "1; the label is the hash of the configuration in force."),
    RELOADS: ("counter", "Configurations read again: applied, unchanged or refused."),
    STOPPED: ("gauge", "1 while new leases are refused."),
    WRITE_ERRORS: ("counter", "Failed writes of the durable record and the journal."),
    JOURNAL_SEQ: ("gauge", "Sequence of the latest record."),
    CLIENTS: ("gauge", "Open connections of clients."),
    IDLE_REPLICAS: ("gauge", "Connections to replicas that wait for a request."),
    TASKS: ("gauge", "Tasks on the event loop: a few at rest."),
    TENANT_SIGNS: ("counter", "Requests whose signs of the tenant were wrong, by what was done."),
    TENANT_REFUSALS: ("counter", "Requests that were not let in, by reason."),
    TENANT_BILLED: ("counter", "Prompt and completion tokens charged."),
    TENANT_CROSSED: ("counter", "Traces of another tenant: sign, echo or marker."),
    TENANT_QUEUED: ("histogram", "Seconds for which a request waited for its turn."),
    TENANT_HERE: ("gauge", "Requests let in and not ended, waiting ones included."),
    TENANT_QUOTA: ("gauge", "Tokens that may be used now; below 0: owed."),
    ROUTE_SERVED: ("gauge", "Places taken on a route with a limit."),
    ROUTE_WAITING: ("gauge", "Requests that wait for a place."),
    SAMPLED: ("counter", "Sampled requests that ended."),
    SPANS: ("counter", "Spans for the collector: sent, failed, or dropped for want of room."),
}

BOUNDS = (
    *(0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0),
    *(3.0, 5.0, 10.0, 30.0, 60.0),
)
"""Upper bounds in seconds. 0.12, 0.3, 0.8 and 1.5 are the levels that the specification names."""

Labels = tuple[tuple[str, str], ...]
Sample = tuple[str, Labels, float]


@dataclass(slots=True)
class Histogram:
    """One histogram series."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def observe(self, value: float) -> None:
        """Count one value, in seconds."""
        self.counts[bisect_left(BOUNDS, value)] += 1
        self.total += value


class Metrics:
    """Counters and histograms by labels."""

    def __init__(self) -> None:
        self._counters: dict[tuple[str, Labels], float] = {}
        self._histograms: dict[tuple[str, Labels], Histogram] = {}

    def add(self, name: str, labels: Labels, amount: float = 1.0) -> None:
        """Raise a counter."""
        key = (name, labels)
        self._counters[key] = self._counters.get(key, 0.0) + amount

    def observe(self, name: str, labels: Labels, value: float) -> None:
        """Count a value of a histogram."""
        key = (name, labels)
        histogram = self._histograms.get(key)
        if histogram is None:
            histogram = self._histograms[key] = Histogram()
        histogram.observe(value)

    def render(self, gauges: Iterable[Sample]) -> str:
        """Write everything, with the gauges of the moment."""
        lines: dict[str, list[str]] = {}
        for (name, labels), value in self._counters.items():
            lines.setdefault(name, []).append(_sample(name, labels, value))
        for name, labels, value in gauges:
            lines.setdefault(name, []).append(_sample(name, labels, value))
        for (name, labels), histogram in self._histograms.items():
            lines.setdefault(name, []).extend(_histogram(name, labels, histogram))
        out = []
        for name in sorted(lines):
            kind, text = HELP[name]
            out += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *lines[name]]
        return "\n".join(out) + "\n"


def _histogram(name: str, labels: Labels, histogram: Histogram) -> list[str]:
    lines = []
    running = 0
    for bound, count in zip((*map(repr, BOUNDS), "+Inf"), histogram.counts, strict=True):
        running += count
        lines.append(_sample(name + "_bucket", (*labels, ("le", bound)), running))
    lines.append(_sample(name + "_sum", labels, histogram.total))
    lines.append(_sample(name + "_count", labels, running))
    return lines


def _sample(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{key}="{_escape(text)}"' for key, text in labels)
    shown = str(int(value)) if value == int(value) else repr(value)
    return f"{name}{{{inside}}} {shown}" if inside else f"{name} {shown}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
