"""A small run of benchmarks/aa_sim.py: the judge holds its bound, and the mutant does not.

The seeds are fixed, so this is a check of the code and no draw of luck; the bound itself is shown
by the full simulation (2,000 runs).
"""

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "aa_sim.py"


def load():
    spec = importlib.util.spec_from_file_location("aa_sim", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_counting_by_request_raises_false_alarms_and_counting_by_conversation_does_not():
    counts = load().simulate(runs=60, conversations=150, shares=(0.5,))
    assert counts["share 0.5, per conversation"] <= 1
    assert counts["share 0.5, per request"] >= 4
