"""Ask whether one tenant noticed another: fetch the records, sort them, hand them to the judge."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from api.context import Context
from canary.exposure import Arms, During, Exposure, while_refused, while_touched
from slo.records import Page, RequestRecord


@dataclass(frozen=True)
class Evidence:
    """Records in order, and whether some were lost."""

    records: list[RequestRecord]
    has_gap: bool


async def from_gateway(context: Context, route: str | None, minutes: float) -> Evidence:
    """Read what the running gateway still has of the last minutes.

    Raises:
        TargetError: the gateway cannot be asked, or has no such route.
    """
    admin = context.admin()
    try:
        name = route or str((await admin.routes())[0]["name"])
        pages = [Page.from_json(await admin.journal(name, tail_seconds=60.0 * minutes))]
        while pages[-1].more:
            pages.append(Page.from_json(await admin.journal(name, after=pages[-1].next)))
    finally:
        await admin.aclose()
    return _evidence(pages)


def from_run(context: Context, run_id: str) -> Evidence:
    """Read what a run put on the audit trail while it observed."""
    store = context.trail()
    pages = [
        Page.from_json(raw)
        for stream in store.streams(run_id)
        for segment in store.load_segments(run_id, stream)
        for raw in segment
        if "records" in raw
    ]
    return _evidence(pages)


def _evidence(pages: Iterable[Page]) -> Evidence:
    """Put pages together: two streams of a run may hold the same record."""
    found: dict[tuple[str, int], RequestRecord] = {}
    has_gap = False
    for page in pages:
        has_gap |= page.gap
        found |= {(page.epoch, record.seq): record for record in page.records}
    return Evidence(list(found.values()), has_gap)


def parse_window(text: str) -> During:
    """Read `FROM/TO`, two ISO 8601 times; a time without a zone is UTC.

    Raises:
        ValueError: not two times in order.
    """
    parts = text.split("/")
    try:
        start, end = (_unix(part) for part in parts)
    except ValueError:
        raise ValueError(
            f"--during {text}: write two times, as in 2026-12-01T14:05:00/2026-12-01T14:10:00"
        ) from None
    if start >= end:
        raise ValueError(f"--during {text}: the first time must be before the second")
    return During(start, end)


def _unix(text: str) -> float:
    at = datetime.fromisoformat(text.strip())
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def exposure_of(
    evidence: Evidence, source: str, *, during: str, fault: str, overrun: bool
) -> Exposure:
    """Return who counts as exposed: by the arms of a split unless a window is asked for.

    Raises:
        ValueError: the window cannot be read, or nothing in the records says when it was.
    """
    if during:
        return parse_window(during)
    found: Exposure | None = Arms()
    if fault:
        found = while_touched(evidence.records, source, fault)
    elif overrun:
        found = while_refused(evidence.records, source)
    if found is None:
        what = f"fault {fault} changed no request" if fault else "no quota was overrun"
        raise ValueError(f"{what} of tenant {source} in these records: nothing to compare")
    return found


def lines(report: dict[str, Any]) -> list[str]:
    """Return a report as lines for a person."""
    out = [f"did {report['source']} affect {report['subject']}?  isolation: {report['verdict']}"]
    out += [f"  {reason}" for reason in report["reasons"]]
    for finding in report["findings"]:
        out.append(f"{finding['name']}: {finding['verdict']}")
        out += [f"  {reason}" for reason in finding["reasons"]]
        figures = ", ".join(f"{key} {value}" for key, value in finding["figures"].items())
        out.append(f"  ({figures})")
    return out
