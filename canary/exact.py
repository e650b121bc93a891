"""Exact tests of one table: how odd is it that so many of the marked ones lie in one group?

Of `total` units, `marked` have an event and `drawn` are in the group that is looked at. If the
group does not matter, which of them are marked is as good as drawn by lot, and the number in the
group has a hypergeometric law, whatever made the events frequent. Nothing is estimated, so the
answer holds for few units too.

Source: Fisher, The Design of Experiments (1935); the law is in every textbook.
"""

from math import exp, lgamma


def chance_of_at_least(hits: int, drawn: int, marked: int, total: int) -> float:
    """Return the chance of `hits` or more marked ones in the group, in [0, 1].

    Raises:
        ValueError: the counts cannot be.
    """
    low, high = _range(hits, drawn, marked, total)
    if hits <= low:
        return 1.0
    terms = [exp(_log_mass(k, drawn, marked, total)) for k in range(hits, high + 1)]
    return min(1.0, sum(terms))


def chance_of_at_most(hits: int, drawn: int, marked: int, total: int) -> float:
    """Return the chance of `hits` or fewer marked ones in the group, in [0, 1].

    Raises:
        ValueError: the counts cannot be.
    """
    low, high = _range(hits, drawn, marked, total)
    if hits >= high:
        return 1.0
    terms = [exp(_log_mass(k, drawn, marked, total)) for k in range(low, hits + 1)]
    return min(1.0, sum(terms))


def _range(hits: int, drawn: int, marked: int, total: int) -> tuple[int, int]:
    low, high = max(0, drawn + marked - total), min(drawn, marked)
    if not (0 <= drawn <= total and 0 <= marked <= total and low <= hits <= high):
        raise ValueError(f"{hits} of {drawn} with {marked} of {total} is no table")
    return low, high


def _log_mass(k: int, drawn: int, marked: int, total: int) -> float:
    return _log_ways(marked, k) + _log_ways(total - marked, drawn - k) - _log_ways(total, drawn)


def _log_ways(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
