"""Write burn.json: burn windows computed without the code under test.

Ratios are Fractions. Each Clopper-Pearson bound is found by bisection on the binomial tail itself,
summed term by term with mpmath at 50 digits; no beta quantile is used. Run by hand:

    python tests/slo/vectors/make_burn.py
"""

import json
from fractions import Fraction
from pathlib import Path

from mpmath import mp, mpf

mp.dps = 50
TAIL = mpf("0.025")
CASES = [
    # bad, total, objective, threshold, note
    (3, 400, "0.99", "2", "ordinary"),
    (0, 244, "0.985", "1", "no errors, one request too few to be fine"),
    (0, 245, "0.985", "1", "no errors, just enough"),
    (0, 1, "0.9", "1", "one good request"),
    (1, 1, "0.9", "1", "one bad request"),
    (7, 7, "0.985", "20", "all bad"),
    (72, 5000, "0.999", "14.4", "exactly on the threshold: must not fire"),
    (73, 5000, "0.999", "14.4", "one event above it"),
    (15, 1000, "0.985", "1", "exactly at the budget rate"),
    (60, 500, "0.985", "5", "proven"),
    (8, 100, "0.985", "5", "above by the point estimate, not proven"),
    (1999, 2000, "0.999", "6", "nearly all bad"),
]


def lower_tail(bad: int, total: int, p: mpf) -> mpf:
    """P(at most `bad` of `total`), term by term."""
    term = (1 - p) ** total
    added = term
    for k in range(1, bad + 1):
        term *= mpf(total - k + 1) / k * p / (1 - p)
        added += term
    return added


def upper_tail(bad: int, total: int, p: mpf) -> mpf:
    """P(at least `bad` of `total`)."""
    return 1 - lower_tail(bad - 1, total, p)


def bisect(rises: bool, tail, bad: int, total: int) -> mpf:
    """Find the p at which the tail is 0.025."""
    low, high = mpf(0), mpf(1)
    for _ in range(100):
        middle = (low + high) / 2
        if (tail(bad, total, middle) < TAIL) == rises:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def case(bad: int, total: int, objective: str, threshold: str, note: str) -> dict:
    """Compute one vector."""
    budget = 1 - Fraction(objective)
    burn = Fraction(bad, total) / budget
    share = mpf(budget.numerator) / budget.denominator
    low = mpf(0) if bad == 0 else bisect(True, upper_tail, bad, total)
    high = mpf(1) if bad == total else bisect(False, lower_tail, bad, total)
    low, high, limit = low / share, high / share, mpf(threshold)
    return {
        "note": note,
        "input": {"bad": bad, "total": total, "objective": objective, "threshold": threshold},
        "burn": str(burn),
        "low": float(low),
        "high": float(high),
        "fires": burn > Fraction(threshold),
        "decision": "burning" if low > limit else "fine" if high < limit else "inconclusive",
    }


if __name__ == "__main__":
    vectors = [case(*item) for item in CASES]
    target = Path(__file__).parent / "burn.json"
    target.write_text(json.dumps(vectors, indent=1) + "\n", encoding="utf-8")
