"""What several gateways say, as one: pages of records, leases and receipts. Pure.

Records are ordered by (end time, gateway, sequence), over all pages and not only within one. What
was hard: each gateway answers at a moment of its own, so behind the earliest of those moments a
record of another gateway may still be missing. Records behind it are held back for the next page
and count as in flight until then, and each gateway has a cursor of its own; the merged sequence is
a count. So the order never depends on who was asked first, and a page that is stored is enough to
read on. A gateway that could not be read, or whose clock is not like the others', makes a gap: a
comparison that leaves one of them out would be of another traffic than was split.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

CLOCKS_APART_SECONDS = 1.0
"""Largest difference of two gateways' clocks. Source: ours: NTP keeps hosts to milliseconds, and a
second of records held back is what the guard can bear."""

OPEN = "open"
UNKNOWN = "unknown"
"""State of a lease at a gateway that never saw it: one that was restarted, or came later."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One gateway's answer to one question, or why there is none. Times are local, monotonic."""

    body: Json | None
    sent: float
    received: float
    silent: str = ""


def clocks_apart(answers: Mapping[str, Answer]) -> float:
    """Return by how many seconds the gateways' clocks differ for sure; 0 if they may agree.

    Each answer was made between two local moments, so each offset is known up to their distance.
    """
    read = [each for each in answers.values() if each.body is not None]
    ahead = max((_now(each) - each.received for each in read), default=0.0)
    behind = min((_now(each) - each.sent for each in read), default=0.0)
    return max(0.0, ahead - behind)


def _now(answer: Answer) -> float:
    return float((answer.body or {})["now"])


def epoch_of(answers: Mapping[str, Answer]) -> str:
    """Return one word for the lives of all gateways: it changes when one of them restarts."""
    return ";".join(
        f"{name}={'?' if each.body is None else each.body['epoch']}"
        for name, each in sorted(answers.items())
    )


def merge_pages(answers: Mapping[str, Answer], after: int) -> Json:
    """Return one page of the pages that gateways gave; at least one of them must have.

    Args:
        answers: by gateway.
        after: the merged cursor: how many records were handed out before.
    """
    read = {name: each.body for name, each in sorted(answers.items()) if each.body is not None}
    until = min(_complete_until(page) for page in read.values())
    apart = clocks_apart(answers)
    parts: dict[str, Json] = {
        name: {"silent": each.silent} for name, each in sorted(answers.items()) if not each.body
    }
    taken: list[tuple[float, str, int, Json]] = []
    in_flight: dict[str, int] = {}
    oldest: list[float] = []
    for name, page in read.items():
        ready = [record for record in page["records"] if record["at"] < until]
        held = page["records"][len(ready) :]
        taken += [(record["at"], name, record["seq"], record) for record in ready]
        _add_in_flight(in_flight, oldest, page, held, until)
        parts[name] = _part(page, held)
    taken.sort(key=lambda each: each[:3])
    records = [
        {**record, "seq": after + index, "gateway": name, "gateway_seq": seq}
        for index, (_, name, seq, record) in enumerate(taken, start=1)
    ]
    if apart > CLOCKS_APART_SECONDS:
        for part in parts.values():
            part["clocks_apart"] = round(apart, 3)
    return {
        "now": until,
        "after": after,
        "next": after + len(records),
        "epoch": epoch_of(answers),
        "gap": len(read) < len(answers)
        or apart > CLOCKS_APART_SECONDS
        or any(page["gap"] for page in read.values()),
        "in_flight": in_flight,
        "oldest_in_flight": min(oldest, default=None),
        "lease": merge_leases({name: page.get("lease") for name, page in read.items()}),
        "more": any(page.get("more", False) for page in read.values()),
        "gateways": dict(sorted(parts.items())),
        "records": records,
    }


def _complete_until(page: Json) -> float:
    """Return the moment before which this page has every record of its gateway."""
    records = page["records"]
    return float(records[-1]["at"] if page.get("more") and records else page["now"])


def _part(page: Json, held: Sequence[Json]) -> Json:
    part = {
        "epoch": page["epoch"],
        "now": page["now"],
        "after": page["after"],
        "next": held[0]["seq"] - 1 if held else page["next"],
        "held_back": len(held),
    }
    if page["gap"]:
        part["gap"] = True
    return part


def _add_in_flight(
    counts: dict[str, int], oldest: list[float], page: Json, held: Iterable[Json], until: float
) -> None:
    """Count what had not ended at that moment, the records that are held back included."""
    for arm, count in page["in_flight"].items():
        counts[arm] = counts.get(arm, 0) + count
    if page["oldest_in_flight"] is not None:
        oldest.append(page["oldest_in_flight"])
    for record in held:
        if not record["probe"] and record["accepted"] < until:
            counts[record["arm"]] = counts.get(record["arm"], 0) + 1
            oldest.append(record["accepted"])


def merge_leases(views: Mapping[str, Json | None]) -> Json | None:
    """Return one view of a lease: open where it is open everywhere, active likewise.

    None if no gateway knows it.
    """
    known = {name: view for name, view in views.items() if view is not None}
    if not known:
        return None
    states = {name: UNKNOWN if view is None else view["state"] for name, view in views.items()}
    ids = dict.fromkeys(item for view in views_of(known) for item in view.get("items", {}))
    items = {
        item: _merge_item([view.get("items", {}).get(item) for view in views_of(known)])
        for item in ids
    }
    lead = next(iter(known.values()))
    return {
        **lead,
        "state": _worst(states.values()),
        "items": items,
        "gateways": states,
        **_least(known.values(), "seconds_left"),
        **_most(known.values(), "granted_seconds"),
    }


def views_of(known: Mapping[str, Json]) -> list[Json]:
    """Return the views in the order of their gateways."""
    return [view for _, view in sorted(known.items())]


def _least(views: Iterable[Json], key: str) -> Json:
    found = [view[key] for view in views if key in view]
    return {key: min(found)} if found else {}


def _most(views: Iterable[Json], key: str) -> Json:
    found = [view[key] for view in views if key in view]
    return {key: max(found)} if found else {}


def _worst(states: Iterable[str]) -> str:
    """Return open if all are; else how the first of them ended, an unknown one last."""
    ended = [state for state in states if state != OPEN]
    return next((state for state in ended if state != UNKNOWN), ended[0]) if ended else OPEN


def _merge_item(views: Sequence[Json | None]) -> Json:
    known = [view for view in views if view is not None]
    states = ["missing" if view is None else view["state"] for view in views]
    counts = {
        key: sum(view.get(key) or 0 for view in known)
        for key in ("exposed", "touched", "still_touching")
    }
    state = next((each for each in states if each != "active"), "active")
    return {**known[0], **counts, "state": state}


def merge_receipts(receipts: Mapping[str, Json]) -> Json:
    """Return one receipt of several: the latest time, sums of what was seen, and each of them."""
    ordered = views_of(receipts)
    return {
        **ordered[0],
        "at": max(each["at"] for each in ordered),
        **({"first": any(each["first"] for each in ordered)} if "first" in ordered[0] else {}),
        **(
            {"still_touching": sum(each.get("still_touching", 0) for each in ordered)}
            if any("still_touching" in each for each in ordered)
            else {}
        ),
        "gateways": dict(sorted(receipts.items())),
    }


def closed_state(states: Iterable[str]) -> str:
    """Return the state of a lease that was closed at several gateways: open while it is anywhere.

    One that had ended by itself anywhere had ended: the run must not take it for its own close.
    """
    found = list(states)
    if OPEN in found:
        return OPEN
    return next((state for state in found if state in {"lapsed", "dropped"}), "closed")


def merge_routes(views: Mapping[str, Sequence[Json]]) -> tuple[list[Json], str]:
    """Return the routes as all gateways have them, and in what they differ (empty: in nothing)."""
    by_name = {
        gateway: {route["name"]: route for route in routes} for gateway, routes in views.items()
    }
    first, *others = sorted(by_name)
    for other in others:
        differing = sorted(set(by_name[first]) ^ set(by_name[other]))
        differing += sorted(
            name
            for name in set(by_name[first]) & set(by_name[other])
            if _fixed(by_name[first][name]) != _fixed(by_name[other][name])
        )
        if differing:
            return [], (
                f"gateways {first} and {other} do not have the same route {differing[0]}: give "
                "them the same configuration and reload"
            )
    return [
        _merge_route([by_name[gateway][name] for gateway in sorted(by_name)])
        for name in by_name[first]
    ], ""


def _fixed(route: Json) -> Json:
    replicas = [(each["name"], each.get("url")) for each in route["replicas"]]
    base = (route.get("breaker") or {}).get("base_threshold_ratio")
    return {
        "models": route.get("models"),
        "labels": route.get("labels"),
        "replicas": replicas,
        "breaker": base,
    }


def _merge_route(views: Sequence[Json]) -> Json:
    recent = [view.get("recent") or {} for view in views]
    merged: Json = {
        **views[0],
        "recent": {key: sum(each.get(key, 0) for each in recent) for key in ("total", "bad")},
    }
    if "leases" in merged:
        merged["leases"] = sorted({lease for view in views for lease in view["leases"]})
    return merged
