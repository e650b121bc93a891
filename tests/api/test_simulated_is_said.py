"""A run on a SIMULATED engine says so wherever a person reads of it."""

from pathlib import Path

import pytest

from activities.admit import parse_documents
from api.commands import records
from api.live import plan_lines
from audit.store import AuditStore
from faults.blast_radius import AdmitInput, admit
from faults.resolve import ResolvedArms, ResolvedTarget
from tests.audit.conftest import open_run
from tests.workflows.conftest import experiment


def test_a_plan_names_the_simulated_engine_in_capitals() -> None:
    parsed = parse_documents(experiment())
    arms = ResolvedArms(control=("a",), chaos=("b",))
    chosen = ResolvedTarget(route="chat", why="named", replicas=("a", "b"))
    report = admit(AdmitInput(spec=parsed.spec, control=arms.control, chaos=arms.chaos, rate=10.0))
    simulated = "\n".join(plan_lines(parsed, chosen, arms, report, 10.0, "simulated"))
    assert "engine SIMULATED\n" in simulated
    assert "SIMULATED engine: this says nothing about a real one" in simulated
    assert "SIMULATED" not in "\n".join(plan_lines(parsed, chosen, arms, report, 10.0, "vllm"))


def test_history_marks_simulated_runs_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path / 'audit.db'}"
    store = AuditStore(url)
    store.upgrade()
    open_run(store, "sim", engine="simulated")
    open_run(store, "old")
    store.close()
    monkeypatch.setenv("BURNPROOF_AUDIT_URL", url)
    monkeypatch.setenv("COLUMNS", "200")
    records.history(20)
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.split()}
    assert "open (SIMULATED)" in lines["sim"]
    assert "SIMULATED" not in lines["old"]
