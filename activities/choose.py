"""Choose what to break: the named route, or the one whose SLO is most at risk, and its arms.

Pure. Risk here is the share of bad requests over the last minutes that the gateway reports beside
each route; the full ranking (probability of exhaustion, impact, age) belongs to the SLO engine. The
reason is always a sentence with the figures, because the choice is part of the evidence.
"""

from typing import Any

from pydantic import BaseModel, FiniteFloat

from activities.errors import fatal
from faults.experiment import ExperimentSpec


class Candidate(BaseModel, frozen=True):
    """A route that could be chosen."""

    route: str
    labels: dict[str, str] = {}
    replicas: tuple[str, ...] = ()
    model: str = ""
    total: int = 0
    bad: int = 0
    reason: str = ""

    @classmethod
    def from_route(cls, route: dict[str, Any]) -> "Candidate":
        """Read the gateway's view of a route."""
        recent = route.get("recent") or {}
        models = route.get("models") or [""]
        return cls(
            route=route["name"],
            labels=route.get("labels") or {},
            replicas=tuple(replica["name"] for replica in route.get("replicas", [])),
            model=str(models[0]),
            total=int(recent.get("total", 0)),
            bad=int(recent.get("bad", 0)),
        )

    def bad_ratio(self) -> FiniteFloat:
        """Return the share of bad requests, in [0, 1]; 0 without traffic."""
        return self.bad / self.total if self.total else 0.0


def choose_target(spec: ExperimentSpec, candidates: list[Candidate]) -> Candidate:
    """Pick the target.

    Raises:
        ApplicationError: `NotAdmitted` when nothing matches.
    """
    if spec.target.route is not None:
        for candidate in candidates:
            if candidate.route == spec.target.route:
                return candidate.model_copy(update={"reason": "named in the document"})
        known = ", ".join(candidate.route for candidate in candidates) or "none"
        raise fatal("NotAdmitted", f"target.route: no route {spec.target.route!r} (known: {known})")
    wanted = spec.target.labels()
    matching = [c for c in candidates if wanted.items() <= c.labels.items()]
    if not matching:
        raise fatal("NotAdmitted", f"target.from: no route has the labels {wanted}")
    ranked = sorted(matching, key=lambda c: (-c.bad_ratio(), -c.total, c.route))
    best = ranked[0]
    figures = ", ".join(f"{c.route} {c.bad}/{c.total} bad" for c in ranked)
    return best.model_copy(update={"reason": f"highest risk of {len(ranked)} ({figures})"})


def split_replicas(
    spec: ExperimentSpec, target: Candidate
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (control, chaos): the named chaos replicas, else the last one.

    Raises:
        ApplicationError: `NotAdmitted` when a named replica does not exist.
    """
    named = tuple(spec.arms.chaos.replicas)
    unknown = [name for name in named if name not in target.replicas]
    if unknown:
        raise fatal(
            "NotAdmitted",
            f"arms.chaos.replicas: route {target.route} has no replica {unknown[0]!r} "
            f"(it has: {', '.join(target.replicas)})",
        )
    chaos = named or target.replicas[-1:]
    return tuple(name for name in target.replicas if name not in chaos), chaos
