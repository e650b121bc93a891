"""Both examples on the real engine, as a person runs them, and what their records say."""

import pytest

from audit.records import RunRecord
from audit.report import assemble
from tests.e2e.conftest import RealStack

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

AA, STALL = "aa-null", "stall-the-chat-stream"
ATTEMPTS, INCONCLUSIVE = 3, 2
RUN_SECONDS = 600.0
"""Four minutes for the longer one on a quiet machine."""


def run(real: RealStack, name: str) -> dict:
    """Run an example until it says something, and only then; return its report.

    "Not proven" (exit 2) is an honest end on two busy cores, so it may happen twice. Any other
    end is final: a FAIL of equal replicas, or a clean-up that is not proven, is a failure here.
    """
    if name not in real.codes:
        for _ in range(ATTEMPTS):
            done = real.burnproof("run", f"examples/{name}/experiment.yaml", seconds=RUN_SECONDS)
            assert "SIMULATED" not in done.stdout
            real.codes[name] = done.returncode
            if done.returncode != INCONCLUSIVE:
                break
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert real.codes[name] == 0
    return assemble(real.store, real.run_of(name))


def phase(report: dict, stream: str) -> dict:
    """Return one observation of a report."""
    (found,) = (p for p in report["phases"] if p["key"] == f"decision:observe:{stream}")
    return found


def receipt(report: dict, key: str) -> dict:
    (found,) = (r["receipt"] for r in report["receipts"] if r["key"] == key)
    return found


def hold(real: RealStack) -> str:
    (found,) = (hold.state for hold in real.store.list_holds())
    return str(found)


def record(real: RealStack, run_id: str) -> RunRecord:
    found = real.store.run(run_id)
    assert found is not None
    return found


def test_two_equal_replicas_pass(real: RealStack) -> None:
    report = run(real, AA)
    assert report["outcome"] == "PASS"
    compared = phase(report, "compare")
    assert (compared["verdict"], compared["reason"]) == ("PASS", "verdict")
    fault = receipt(report, "withdrawn")["receipt"]["observed"]["items"]["fault"]
    assert fault["exposed"] > 0
    assert fault["touched"] == 0
    assert hold(real) == "free"


def test_the_stall_is_mended_and_the_remedy_is_credited(real: RealStack) -> None:
    report = run(real, STALL)
    assert report["outcome"] == "PASS"
    assert phase(report, "compare")["reason"] == "trigger"
    trial = phase(report, "remedy-1")
    # in a trial FAIL says that the hold-out is worse: the remedy, not chance, made the difference
    assert (trial["verdict"], trial["reason"]) == ("FAIL", "verdict")
    assert phase(report, "met-again")["reason"] == "settled"
    assert any(reason.startswith("The remedy did it") for reason in report["reasons"])


def test_the_objective_is_met_within_three_minutes_while_the_fault_holds(real: RealStack) -> None:
    report = run(real, STALL)
    events = {e.key: e.payload["result"] for e in real.store.events(real.run_of(STALL), "decision")}
    signal = events["decision:observe:compare"]["ended_at"]
    met = events["decision:observe:met-again"]["ended_at"]
    withdrawn = receipt(report, "withdrawn")["receipt"]["at"]
    assert signal < met < withdrawn
    assert met - signal <= 180


def test_every_act_has_its_receipt_and_everything_is_taken_back(real: RealStack) -> None:
    report = run(real, STALL)
    assert receipt(report, "injected:0")["fault"]["observed"]["faults_on_replicas"] == {
        "b": ["fault"]
    }
    assert receipt(report, "remedy:remedy-1")["state"] == "active"
    withdrawn = receipt(report, "withdrawn")
    items = withdrawn["receipt"]["observed"]["items"]
    assert {name: item["state"] for name, item in items.items()} == dict.fromkeys(
        ("split-0", "fault", "remedy-1"), "removed"
    )
    assert items["fault"]["touched"] > 0
    assert withdrawn["proof"]["active_items"] == []
    assert withdrawn["proof"]["probes"] == {"a": 200, "b": 200}
    assert hold(real) == "free"


@pytest.mark.parametrize("name", [AA, STALL])
def test_a_record_is_whole_and_replays_equal(real: RealStack, name: str) -> None:
    report = run(real, name)
    assert report["record"]["problems"] == []
    assert {e["stream"] for e in report["evidence"]} >= {"steady", "compare", "recovery"}
    done = real.burnproof("replay", "--all")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{real.run_of(name)}: equal" in done.stdout
    assert "0 differences" in done.stdout
