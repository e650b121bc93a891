"""From what an experiment names to what there is: one route, and its replicas by arm.

It is given what the gateway reported and looks nothing up. What was hard: a selector that matches
nothing, or more than was meant, is the classic way of breaking the wrong thing; so nothing
matching is an error that lists what there is, and the choice among several is made by one stated
figure, never by order of arrival.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, FiniteFloat

from faults.experiment import Target
from slo.errors import SpecError, nearest


class RouteFacts(BaseModel, frozen=True):
    """What is known of one route."""

    name: str
    labels: dict[str, str] = {}
    replicas: tuple[str, ...] = ()
    risk: FiniteFloat | None = None
    """How much of the budget its traffic is burning (burn rate); None: no data."""


class ResolvedTarget(BaseModel, frozen=True):
    """The route chosen, and why."""

    route: str
    replicas: tuple[str, ...]
    why: str


class ResolvedArms(BaseModel, frozen=True):
    """Which replicas serve which arm."""

    control: tuple[str, ...]
    chaos: tuple[str, ...]


def resolve_target(target: Target, routes: Sequence[RouteFacts]) -> ResolvedTarget:
    """Return the route that the target names or selects.

    Raises:
        SpecError: nothing matches; the message lists what there is.
    """
    by_name = {route.name: route for route in routes}
    if target.route is not None:
        if target.route not in by_name:
            message = f'there is no route "{target.route}"; {_listed(sorted(by_name))}'
            raise SpecError("target.route", message, nearest(target.route, by_name))
        route = by_name[target.route]
        return ResolvedTarget(route=route.name, replicas=route.replicas, why="named")
    assert target.from_ is not None, "select goes with from"
    wanted = target.from_.labels
    matching = [route for route in routes if wanted.items() <= route.labels.items()]
    if not matching:
        raise _no_match(wanted, routes)
    # No data is the greatest risk only when there is nothing better to go by: sorted last.
    matching.sort(key=lambda r: (r.risk is None, -(r.risk or 0.0), r.name))
    chosen = matching[0]
    burn = "no data yet" if chosen.risk is None else f"burn {chosen.risk:.3g}"
    why = f"highest risk of {len(matching)} that match ({burn})"
    return ResolvedTarget(route=chosen.name, replicas=chosen.replicas, why=why)


def _no_match(wanted: dict[str, str], routes: Sequence[RouteFacts]) -> SpecError:
    asked = ", ".join(f"{key}={value}" for key, value in sorted(wanted.items()))
    have = sorted({f"{key}={value}" for r in routes for key, value in r.labels.items()})
    missing = [f"{k}={v}" for k, v in sorted(wanted.items()) if f"{k}={v}" not in have]
    guess = nearest(missing[0], have) if missing else None
    there = f"labels there are: {', '.join(have)}" if have else "no route has labels"
    return SpecError("target.from.labels", f"no route has {asked}; {there}", guess)


def resolve_arms(wanted: Sequence[str], replicas: Sequence[str]) -> ResolvedArms:
    """Return the replicas of each arm; with none wanted the last by name serves the chaos arm.

    Raises:
        SpecError: a replica is not there, or one arm would have none.
    """
    there = sorted(replicas)
    for index, name in enumerate(wanted):
        if name not in there:
            message = f'the route has no replica "{name}"; {_listed(there)}'
            raise SpecError(f"arms.chaos.replicas[{index}]", message, nearest(name, there))
    if len(there) < 2:
        message = f"one replica for each arm is needed; {_listed(there)}"
        raise SpecError("arms.chaos.replicas", message)
    chaos = sorted(wanted) or there[-1:]
    control = [name for name in there if name not in chaos]
    if not control:
        raise SpecError("arms.chaos.replicas", "names every replica: none is left for control")
    return ResolvedArms(control=tuple(control), chaos=tuple(chaos))


def _listed(names: Sequence[str]) -> str:
    return f"there are {', '.join(names)}" if names else "there are none"
