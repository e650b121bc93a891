"""Did what one tenant did reach another? Latency, quota and content, each with its own verdict.

The `source` is the tenant whose load, fault or overrun is looked at, the `subject` the one that
must not notice. Wrong bills and foreign content are facts: one is a failure. Latency, errors and
refusals are compared, exposed against not, with at most one event for each unit, by exact tests
that hold if the groups are alike; where events come in clumps, blocks of time are the units. A
pass needs proof too: that a difference above the margin is out of reach, that the source did
something while the subject was exposed, and that a leak would have been seen. No data is never a
pass.

Hard part: units of a window are not drawn by lot, and neighbours in time share their luck. So a
window is compared unit by unit only when the unexposed show no clumps; else it needs blocks.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from math import ceil, inf
from typing import Any

from pydantic import BaseModel, Field, FiniteFloat

from canary.dispersion import BlockDispersion
from canary.exact import chance_of_at_least, chance_of_at_most
from canary.exposure import Exposure
from slo.burn_rate import clopper_pearson
from slo.objective import Indicator
from slo.records import Outcome, RequestRecord
from slo.verdict import Verdict, combine

QUANTILES = (0.5, 0.9, 0.95, 0.99)
"""Levels at which a failure is looked for. Source: the levels of the comparison of arms."""

MAX_DISPERSION = 1.3
"""Index of clumps below which units count one by one. Source: ours, by simulation, 2026-12."""

BLOCK_SECONDS = 10.0
"""Length of a block. Source: ours: several times the bursts seen, some seconds."""

LEAST_OF_BLOCK = 5
"""Units that a block needs to have a median. Source: ours."""

TOO_MANY = 429


class IsolationConfig(BaseModel, frozen=True):
    """What is asked, and what would be too much."""

    source: str = Field(min_length=1)
    subject: str = Field(min_length=1)
    alpha: FiniteFloat = Field(default=0.01, gt=0, lt=0.5)
    """Chance of a false failure, over all comparisons, and of each false pass."""
    fail_ratio: FiniteFloat = Field(default=1.25, ge=1)
    """A failure proves latencies more than this many times as long."""
    pass_ratios: dict[str, FiniteFloat] = {"p50": 1.25, "p95": 1.875}
    """A pass proves that these quantiles are not so many times as long."""
    margin: FiniteFloat = Field(default=0.01, gt=0, lt=1)
    """A pass proves that bad, refused, misbilled or leaked ones are less than this share more."""
    indicator: Indicator = Indicator()


@dataclass(frozen=True)
class Finding:
    """One of the three questions."""

    name: str
    verdict: Verdict
    reasons: tuple[str, ...]
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class IsolationReport:
    """The answer."""

    source: str
    subject: str
    verdict: Verdict
    findings: tuple[Finding, ...]
    reasons: tuple[str, ...] = ()
    """What stands against a pass as a whole."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


@dataclass(slots=True)
class _Unit:
    """One unit of the subject in its group."""

    is_exposed: bool
    at: float
    latency: float | None = None
    """Of its first request that was let in; infinity without a first token."""
    is_bad: bool = False
    is_refused: bool = False
    tokens: int = 0
    is_billed: bool = False
    is_misbilled: bool = False
    is_answered: bool = False
    is_leaked: bool = False


def judge_isolation(
    records: Iterable[RequestRecord],
    config: IsolationConfig,
    exposure: Exposure,
    *,
    has_gap: bool = False,
) -> IsolationReport:
    """Answer from records. `has_gap`: some were lost, so that a pass is out of reach."""
    kept = [each for each in records if not each.probe]
    acts = [each for each in kept if each.tenant == config.source and exposure.of(each)]
    units = _units(kept, config, exposure)
    against = []
    if has_gap:
        against.append("records were lost")
    if not acts:
        against.append(f"{config.source} did nothing while {config.subject} was exposed")
    seen = any(
        config.source in (*each.tenancy.planted, *each.tenancy.markers)
        for each in acts
        if each.tenancy is not None
    )
    findings = (
        _latency(units, config, exposure),
        _quota(units, config, _demand(kept, config, exposure)),
        _content(units, config, is_marker_alive=seen),
    )
    verdict = combine(finding.verdict for finding in findings)
    if against and verdict is Verdict.PASS:
        verdict = Verdict.INCONCLUSIVE
    return IsolationReport(config.source, config.subject, verdict, findings, tuple(against))


def _units(
    records: Sequence[RequestRecord], config: IsolationConfig, exposure: Exposure
) -> list[_Unit]:
    """Sum the subject's records up to units; a unit stays in the group it was first seen in."""
    found: dict[str, _Unit] = {}
    for record in sorted(records, key=lambda each: each.accepted):
        if record.tenant != config.subject:
            continue
        is_exposed = exposure.of(record)
        if is_exposed is None:
            continue
        unit = found.setdefault(record.unit, _Unit(is_exposed, record.accepted))
        if unit.is_exposed is is_exposed:
            _add(unit, record, config)
    return list(found.values())


def _add(unit: _Unit, record: RequestRecord, config: IsolationConfig) -> None:
    tenancy = record.tenancy
    refused = tenancy is not None and bool(tenancy.refusal)
    unit.is_refused |= refused or record.status == TOO_MANY
    if not refused:
        if config.indicator.is_valid(record):
            unit.is_bad |= record.status != TOO_MANY and config.indicator.is_bad(record)
        if unit.latency is None and record.outcome is not Outcome.CLIENT_ABORT:
            whole = record.e2e_s if record.outcome is Outcome.OK else inf
            unit.latency = whole if record.ttft_s is None else record.ttft_s
    if tenancy is None:
        return
    unit.tokens += tenancy.billed
    if tenancy.billed:
        unit.is_billed = True
        unit.is_misbilled |= config.source in (*tenancy.signs, tenancy.echo)
    unit.is_answered |= record.outcome is Outcome.OK
    unit.is_leaked |= config.source in tenancy.leaked(config.subject)


# Latency and errors


def _latency(units: list[_Unit], config: IsolationConfig, exposure: Exposure) -> Finding:
    let_in = [unit for unit in units if unit.latency is not None]
    exposed = [unit for unit in let_in if unit.is_exposed]
    other = [unit for unit in let_in if not unit.is_exposed]
    figures: dict[str, Any] = {"exposed": len(exposed), "not_exposed": len(other)}
    if not exposed or not other:
        return Finding("latency", Verdict.INCONCLUSIVE, ("one of the groups is empty",), figures)
    figures["dispersion"] = dispersion = _dispersion(other)
    by_unit = exposure.is_randomised or (dispersion is not None and dispersion < MAX_DISPERSION)
    figures["units"] = "units" if by_unit else f"blocks of {BLOCK_SECONDS:g} s"
    groups = _by_unit(exposed, other) if by_unit else _by_block(exposed, other)
    figures["compared"] = [len(groups.exposed), len(groups.other)]
    level = config.alpha / (len(QUANTILES) + 2)
    worse = groups.harm(config.fail_ratio)
    reasons = [f"{name} is worse, p = {p:.2g}" for name, p in worse.items() if p <= level]
    if reasons:
        return Finding("latency", Verdict.FAIL, tuple(reasons), figures)
    open_points = groups.unproven(config)
    verdict = Verdict.INCONCLUSIVE if open_points else Verdict.PASS
    return Finding("latency", verdict, tuple(open_points), figures)


def _dispersion(units: list[_Unit]) -> float | None:
    """Return how clumped slow or bad units are, in order of time; None: too few to say."""
    ordered = sorted(units, key=lambda unit: unit.at)
    cut = _quantile([unit.latency or 0.0 for unit in ordered], 0.9)
    index = BlockDispersion()
    for unit in ordered:
        index.add_unit()
        if unit.is_bad or (unit.latency or 0.0) > cut:
            index.add_bad()
    return index.index()


@dataclass(frozen=True, slots=True)
class _Groups:
    """What is compared: latencies and bad shares of units or of blocks."""

    exposed: list[tuple[float, float]]
    """For each: latency in seconds, bad share."""
    other: list[tuple[float, float]]
    is_blocks: bool

    def harm(self, ratio: float) -> dict[str, float]:
        """Return, for each measure, the chance of what was seen if the groups were alike."""
        levels = (0.5,) if self.is_blocks else QUANTILES
        slow = [(latency / ratio) for latency, _ in self.exposed]
        base = [latency for latency, _ in self.other]
        found = {f"latency above p{q * 100:g}": _above(slow, base, q) for q in levels}
        bad = [share for _, share in self.exposed], [share for _, share in self.other]
        found["the share of bad ones"] = _above(*bad, 0.5 if self.is_blocks else 0.0)
        return found

    def unproven(self, config: IsolationConfig) -> list[str]:
        """Return what a pass still lacks."""
        base = [latency for latency, _ in self.other]
        found = []
        for name, ratio in config.pass_ratios.items():
            q = 0.5 if self.is_blocks else float(name[1:]) / 100
            slow = [latency / ratio for latency, _ in self.exposed]
            p = _below(slow, base, q)
            if p > config.alpha:
                found.append(f"{name} within {ratio:g} times is not proven, p = {p:.2g}")
        exposed, other = [s for _, s in self.exposed], [s for _, s in self.other]
        if self.is_blocks:
            shifted = [share - config.margin for share in exposed]
            is_proven = _below(shifted, other, 0.5) <= config.alpha
        else:
            is_proven = _is_within(exposed, other, config)
        if not is_proven:
            found.append(f"bad ones within {config.margin:.0%} are not proven")
        return found


def _by_unit(exposed: list[_Unit], other: list[_Unit]) -> _Groups:
    values = [
        [(inf if unit.latency is None else unit.latency, float(unit.is_bad)) for unit in group]
        for group in (exposed, other)
    ]
    return _Groups(values[0], values[1], is_blocks=False)


def _by_block(exposed: list[_Unit], other: list[_Unit]) -> _Groups:
    values = []
    for group in (exposed, other):
        blocks: dict[int, list[_Unit]] = {}
        for unit in group:
            blocks.setdefault(int(unit.at // BLOCK_SECONDS), []).append(unit)
        values.append(
            [
                (
                    _quantile([unit.latency or 0.0 for unit in block], 0.5),
                    sum(unit.is_bad for unit in block) / len(block),
                )
                for block in blocks.values()
                if len(block) >= LEAST_OF_BLOCK
            ]
        )
    return _Groups(values[0], values[1], is_blocks=True)


def _quantile(values: list[float], q: float) -> float:
    """Return the empirical quantile, the higher neighbour."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, ceil(q * (len(ordered) - 1)))] if ordered else 0.0


def _marked(exposed: list[float], other: list[float], q: float) -> tuple[int, int, int, int]:
    """Return the table of those above the quantile of both groups together; 0: above zero."""
    cut = _quantile([*exposed, *other], q) if q else 0.0
    hits = sum(value > cut for value in exposed)
    return hits, len(exposed), hits + sum(value > cut for value in other), len(exposed) + len(other)


def _above(exposed: list[float], other: list[float], q: float) -> float:
    if not exposed or not other:
        return 1.0
    return chance_of_at_least(*_marked(exposed, other, q))


def _below(exposed: list[float], other: list[float], q: float) -> float:
    if not exposed or not other:
        return 1.0
    return chance_of_at_most(*_marked(exposed, other, q))


def _is_within(exposed: list[float], other: list[float], config: IsolationConfig) -> bool:
    """Say whether the share of bad ones is proven to be less than the margin higher."""
    sure = 1.0 - config.alpha  # two bounds, one-sided, each at half the level
    high = clopper_pearson(int(sum(exposed)), len(exposed), sure)[1]
    low = clopper_pearson(int(sum(other)), len(other), sure)[0]
    return high - low < config.margin


# Quota and content


def _demand(
    records: Sequence[RequestRecord], config: IsolationConfig, exposure: Exposure
) -> tuple[float, float]:
    """Return how many requests the subject sent in a block of time, exposed and not."""
    asked, blocks = {True: 0, False: 0}, {True: set[int](), False: set[int]()}
    for record in records:
        is_exposed = exposure.of(record)
        if is_exposed is not None:
            blocks[is_exposed].add(int(record.accepted // BLOCK_SECONDS))
            asked[is_exposed] += record.tenant == config.subject
    return (
        asked[True] / max(1, len(blocks[True])),
        asked[False] / max(1, len(blocks[False])),
    )


def _quota(units: list[_Unit], config: IsolationConfig, demand: tuple[float, float]) -> Finding:
    exposed = [unit for unit in units if unit.is_exposed]
    other = [unit for unit in units if not unit.is_exposed]
    billed = [unit for unit in exposed if unit.is_billed]
    wrong = sum(unit.is_misbilled for unit in units)
    figures: dict[str, Any] = {
        "billed": len(billed),
        "misbilled": wrong,
        "misbilled_tokens": sum(unit.tokens for unit in units if unit.is_misbilled),
        "refused": [sum(unit.is_refused for unit in group) for group in (exposed, other)],
        "requests_per_block": [round(rate, 2) for rate in demand],
    }
    if wrong:
        said = f"{wrong} units of {config.source} were billed to {config.subject}"
        return Finding("quota", Verdict.FAIL, (said,), figures)
    groups = [float(unit.is_refused) for unit in exposed], [float(u.is_refused) for u in other]
    p = _above(*groups, 0.0)
    if p <= config.alpha / (len(QUANTILES) + 2):
        if demand[0] > config.fail_ratio * demand[1]:
            said = "more was refused, but it had asked for more itself"
            return Finding("quota", Verdict.INCONCLUSIVE, (said,), figures)
        return Finding("quota", Verdict.FAIL, (f"more was refused, p = {p:.2g}",), figures)
    reasons = []
    if clopper_pearson(0, len(billed), 1.0 - 2 * config.alpha)[1] >= config.margin:
        reasons.append(f"{len(billed)} billed units are too few to exclude wrong bills")
    if not _is_within(*groups, config):
        reasons.append(f"refusals within {config.margin:.0%} are not proven")
    verdict = Verdict.INCONCLUSIVE if reasons else Verdict.PASS
    return Finding("quota", verdict, tuple(reasons), figures)


def _content(units: list[_Unit], config: IsolationConfig, *, is_marker_alive: bool) -> Finding:
    leaked = sum(unit.is_leaked for unit in units)
    answered = sum(unit.is_answered and unit.is_exposed for unit in units)
    figures = {"answered": answered, "leaked": leaked}
    if leaked:
        said = f"{leaked} answers to {config.subject} held a marker of {config.source}"
        return Finding("content", Verdict.FAIL, (said,), figures)
    reasons = []
    if not is_marker_alive:
        reasons.append(f"no marker of {config.source} passed: a leak could not have been seen")
    if clopper_pearson(0, answered, 1.0 - 2 * config.alpha)[1] >= config.margin:
        reasons.append(f"{answered} answers are too few to exclude leaks")
    verdict = Verdict.INCONCLUSIVE if reasons else Verdict.PASS
    return Finding("content", verdict, tuple(reasons), figures)
