"""The soak's figures against its targets, for the bench and the test alike."""

from dataclasses import dataclass
from typing import Any

from faults.catalog import CATALOG
from tests.soak.evidence import Comparison, compare, outlived, slope
from tests.soak.soaking import Soaked
from tests.soak.traffic import Saw

Json = dict[str, Any]

SHOWN = 5
"""Disagreements that are written out."""


@dataclass(frozen=True)
class Limits:
    """What a soak of some length can prove."""

    warm_seconds: float
    """Samples before this are not judged: the bounded buffers fill."""
    growth_bytes: float
    """Largest growth of memory for each request, bytes: upper end of the 95 % interval."""


def judge(soaked: Soaked, limits: Limits) -> Json:
    """Return figures, targets, and which are met."""
    comparison = compare(soaked.asked, soaked.records)
    memory = _memory(soaked, limits)
    journal = max(each.journal_bytes for each in soaked.samples)
    bound = soaked.options.journal_bytes
    late = outlived(soaked.records, soaked.turned.ended_at)
    idle = sorted(
        template
        for template, turns in soaked.turned.turns.items()
        if CATALOG[template].expects_effect and turns and not soaked.turned.touched[template]
    )
    sequences = [record.seq for record in soaked.records]
    rest = soaked.rest
    figures: Json = {
        "requests": len(soaked.asked),
        "records": len(soaked.records),
        "lost": comparison.lost,
        "extra": comparison.extra,
        "disagreements": len(comparison.disagreements),
        "hung": sum(each.saw in {Saw.HANGS, None} for each in soaked.asked),
        "journal_gaps": soaked.gaps + (sequences != list(range(1, rest.last_seq + 1))),
        "memory_bytes_per_request": memory,
        "journal_bytes": {"most": journal, "bound": bound, "written": soaked.journal_written},
        "at_rest": vars(rest),
        "faults_after_their_end": len(late),
        "faults_without_effect": idle,
        "write_errors": soaked.write_errors,
    }
    met = {
        "requests": len(soaked.asked) > 0,
        "records": len(soaked.records) == len(soaked.asked),
        "lost": comparison.lost == 0,
        "extra": comparison.extra == 0,
        "disagreements": not comparison.disagreements,
        "hung": figures["hung"] == 0,
        "journal_gaps": figures["journal_gaps"] == 0,
        "memory_bytes_per_request": memory["high"] <= limits.growth_bytes,
        "journal_bytes": journal <= bound,
        "at_rest": rest.is_reached(),
        "faults_after_their_end": not late,
        "faults_without_effect": not idle,
        "write_errors": soaked.write_errors == 0,
    }
    targets = {
        "requests": "sent by the client, counted there",
        "records": "one for each request",
        "lost": "0",
        "extra": "0",
        "disagreements": "0 records that say another end than the client saw",
        "hung": f"0 requests that had no end after {60:g} s",
        "journal_gaps": "0",
        "memory_bytes_per_request": f"upper end of the 95 % interval <= {limits.growth_bytes:g}",
        "journal_bytes": "never above the bound",
        "at_rest": "files, connections and tasks as before the first request",
        "faults_after_their_end": "0",
        "faults_without_effect": "none",
        "write_errors": "0",
    }
    return {
        "figures": figures,
        "targets": targets,
        "met": all(met.values()),
        "met_each": met,
        "ends": _ends(comparison),
        "shown": [*comparison.disagreements[:SHOWN], *late[:SHOWN]],
        "turns": _turns(soaked),
    }


def _memory(soaked: Soaked, limits: Limits) -> Json:
    """Return the growth of memory after the warm-up, for each request."""
    samples = [each for each in soaked.samples if each.at >= limits.warm_seconds]
    rate = len(soaked.asked) / max(each.at for each in soaked.samples)
    found = slope([each.at for each in samples], [each.rss_bytes for each in samples])
    return {
        "slope": round(found.value / rate, 1),
        "low": round(found.low / rate, 1),
        "high": round(found.high / rate, 1),
        "judged_seconds": round(samples[-1].at - samples[0].at),
        "rss_mb_first": round(samples[0].rss_bytes / 1e6, 1),
        "rss_mb_last": round(samples[-1].rss_bytes / 1e6, 1),
        "rss_mb_most": round(max(each.rss_bytes for each in soaked.samples) / 1e6, 1),
        "files_most": max(each.files for each in soaked.samples),
    }


def _ends(comparison: Comparison) -> Json:
    """Return what clients saw against what records say, with counts."""
    found: Json = {}
    for (saw, outcome), count in sorted(comparison.pairs.items()):
        found.setdefault(saw, {})[outcome] = count
    return found


def _turns(soaked: Soaked) -> Json:
    turned = soaked.turned
    return {
        "endings": dict(turned.endings),
        "missed": turned.missed,
        "templates": {
            template: {
                "turns": turns,
                "exposed": turned.exposed[template],
                "touched": turned.touched[template],
            }
            for template, turns in turned.turns.items()
        },
    }
