import json
import sqlite3
from pathlib import Path

import pytest

from audit.errors import UnknownRun
from audit.markdown import render
from audit.replay import replay
from audit.report import assemble
from audit.store import AuditStore
from audit.tested import verdict_words
from tests.audit.conftest import NOW, open_run
from tests.audit.test_replay import STREAM, finished

__all__ = ["finished"]


def test_a_report_holds_what_a_reader_asks_for(finished: AuditStore) -> None:
    report = assemble(finished, "run-1", replay(finished, "run-1"))
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert report["outcome"] == finished.run("run-1").outcome
    assert report["reasons"]
    (phase,) = report["phases"]
    assert (phase["mode"], phase["verdict"], phase["requests"]) == (
        "compare",
        "INCONCLUSIVE",
        1000,
    )
    (evidence,) = report["evidence"]
    assert (evidence["stream"], evidence["segments"], evidence["records"]) == (STREAM, 2, 1000)
    assert report["record"] == {
        "events": 6,
        "head_hash": finished.run("run-1").head_hash,
        "problems": [],
    }
    assert report["replay"] == {"decisions": 2, "mismatches": []}
    text = render(report)
    for part in ("## Phases", "## Evidence", evidence["digests"][1][:12], "6 events, intact"):
        assert part in text
    assert "2 decisions recomputed, 0 differ" in text


def test_receipts_holds_and_children_are_told(store: AuditStore) -> None:
    open_run(store)
    open_run(store, "child", parent_run_id="run-1", kind="remediation")
    store.acquire_hold("route/chat", "run-1", 10, NOW)
    store.append("run-1", "injected", "injected", {"state": "active", "at": 1.5}, NOW)
    store.append("run-1", "odd", "other", {"receipt": {"state": "removed"}}, NOW)
    proof = {"active_items": []}
    store.release_hold("route/chat", "run-1", proof, NOW, by_sweep=True)
    report = assemble(store, "run-1")
    assert [r["receipt"]["state"] for r in report["receipts"]] == ["active", "removed"]
    assert [(h["action"], h["version"]) for h in report["holds"]] == [
        ("acquired", 1),
        ("released", 2),
    ]
    assert [child["run_id"] for child in report["children"]] == ["child"]
    text = render(report)
    assert "not finished" in text
    assert "part of run `run-1`" in render(assemble(store, "child"))
    assert "not replayed" in text


def test_a_changed_record_is_said_loudly(finished: AuditStore, path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE events SET payload = 'broken' WHERE seq = 4")
    connection.close()
    report = assemble(finished, "run-1", replay(finished, "run-1"))
    assert report["record"]["problems"][0]["field"] == "events[4].payload"
    assert "**CHANGED AFTER IT WAS WRITTEN**" in render(report)


def test_a_record_that_was_changed_beyond_reading_is_still_shown_and_replayed(
    finished: AuditStore, path: Path
) -> None:
    broken = '{"function":"outcome/1","streams":[7],"result":{"reasons":7,"rests_on":null}}'
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE events SET payload = ? WHERE kind = 'decision'", [broken])
        connection.execute("UPDATE runs SET name = x'fffe' WHERE run_id = 'run-1'")
    connection.close()
    assert any(item.field.endswith(".streams") for item in replay(finished, "run-1"))
    assert "CHANGED AFTER IT WAS WRITTEN" in render(assemble(finished, "run-1"))


def test_a_text_from_outside_cannot_break_the_page(store: AuditStore) -> None:
    open_run(store, name="a | b\n# Faked: PASS `x` <script>", requested_by="r" * 200)
    text = render(assemble(store, "run-1"))
    assert "\n# Faked" not in text
    assert "<script>" not in text
    assert text.count("\n# ") == 0
    assert text.startswith("# a \\| b # Faked: PASS 'x' &lt;script>: not finished\n")


def test_a_run_that_is_not_there_has_no_report(store: AuditStore) -> None:
    with pytest.raises(UnknownRun):
        assemble(store, "nobody")


def test_a_simulated_run_is_called_that_and_a_record_without_an_engine_says_nothing(
    store: AuditStore,
) -> None:
    for run_id, engine in (("sim", "simulated"), ("real", "vllm"), ("old", "")):
        open_run(store, run_id, engine=engine)
    reports = {run_id: assemble(store, run_id) for run_id in ("sim", "real", "old")}
    found = {name: (r["engine"], r["is_simulated"]) for name, r in reports.items()}
    assert found == {"sim": ("simulated", True), "real": ("vllm", False), "old": (None, None)}
    assert "SIMULATED engine" in render(reports["sim"])
    assert "- engine vllm" in render(reports["real"])
    assert "engine" not in render(reports["old"])
    assert "engine" not in store.events("old")[0].payload
    assert store.engines(["sim", "real", "old"]) == {"sim": "simulated", "real": "vllm"}
    assert not any(store.verify_chain(run_id) for run_id in reports)


def test_a_report_says_what_was_tested(store: AuditStore) -> None:
    fault = {"template": "gateway/error", "parameters": {"status": 503}, "duration": 120.0}
    spec = {
        "spec": {
            "hypothesis": "withstands",
            "fault": fault,
            "arms": {"chaos": {"share": 0.25}, "unit": "request"},
        },
        "objectives": [
            {"name": "chat", "objective_ratio": 0.99, "indicator": {"max_gap_seconds": 2.0}}
        ],
    }
    open_run(store, spec=spec)
    report = assemble(store, "run-1")
    assert report["tested"]["parameters"] == {"status": 503}
    text = render(report)
    for row in (
        "| fault | gateway/error |",
        "| status | 503 |",
        "| duration | 120.0 s |",
        "| share | 0.25 of requests |",
        "| SLO chat | 0.99 good; max_gap_seconds 2.0 |",
    ):
        assert row in text, text


@pytest.mark.parametrize(
    ("verdict", "reason", "words"),
    [
        ("FAIL", "verdict", "HELPS"),
        ("PASS", "verdict", "DOES NOT HELP"),
        ("FAIL", "guard", "FAIL"),
        ("INCONCLUSIVE", "limit_time", "INCONCLUSIVE"),
    ],
)
def test_a_remedy_helps_or_does_not(verdict: str, reason: str, words: str) -> None:
    assert verdict_words("remedy", verdict, reason) == words
    assert verdict_words("compare", verdict, reason) == verdict
