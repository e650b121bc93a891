"""`burnproof tenants`: from a gateway under a real fault to the verdict and its exit code."""

import asyncio
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from api.cli import run
from audit.store import AuditStore
from tests.canary.build import page
from tests.canary.test_isolation import HARM, traffic
from tests.gateway.effects import bearer
from tests.gateway.harness import CHAT, DONE, FINISH, ROLE, TOKEN, Gate, Stub, event, streams, token
from text.markers import digest_of, marker_of

MARKER = marker_of(b"m" * 16)
TENANTS: dict[str, Any] = {
    "signs": [{"kind": "header"}, {"kind": "claim"}],
    "on_conflict": "count",
    "members": [
        {"name": "loud", "marker_sha256": [digest_of(MARKER)]},
        {"name": "calm", "tokens_per_second": 1e6},
    ],
}
USAGE = event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}})


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURNPROOF_STACK_DIR", str(tmp_path / "no-stack"))
    monkeypatch.setenv("BURNPROOF_AUDIT_URL", f"sqlite:///{tmp_path / 'audit.db'}")
    monkeypatch.setenv("BURNPROOF_GATEWAY_ADMIN_TOKEN", TOKEN)


async def say(gate: Gate, tenant: str, count: int, **headers: str) -> None:
    for n in range(count):
        conversation = f"{tenant}-{n}-{len(headers)}-{gate.server.core.journal.last_seq}"
        sent = {"x-tenant-id": tenant, "x-conversation-id": conversation, **headers}
        body = {**CHAT, "prompt": MARKER} if tenant == "loud" else CHAT
        async with gate.client.post(gate.url + "/v1/x", json=body, headers=sent) as got:
            await got.read()


async def under_fault(
    folder: Path, monkeypatch: pytest.MonkeyPatch, template: str, parameters: Any, match: str
) -> tuple[int, Any]:
    """Send both tenants' requests before and under a fault; ask whether calm noticed loud."""
    answer = streams(ROLE, token("a"), FINISH, USAGE, DONE)
    async with Stub(answer) as stub, Gate(folder, {"a": stub.url}, tenants=TENANTS) as gate:
        monkeypatch.setenv("BURNPROOF_GATEWAY_URL", gate.url)
        (folder / "front").mkdir()
        async with Gate(folder / "front", {"ours": gate.url}) as front:
            claims = {"authorization": bearer({"tenant": "loud"})}
            await say(front, "loud", 5, **claims)
            await say(front, "calm", 60)
            start = datetime.now(UTC)
            where = front if template == "gateway/tenant-confusion" else gate
            await where.lease()
            await where.fault(template, parameters, match={"tenant": match})
            await say(front, "loud", 30, **claims)
            await say(front, "calm", 60)
            end = datetime.now(UTC)
        window = f"{start.isoformat()}/{end.isoformat()}"
        words = ["tenants", "isolation", "loud", "calm", "--during", window, "--json"]
        return await asyncio.to_thread(run, words), words


CASES = {
    "a quota that is overrun by calm itself": (
        "gateway/quota-overrun",
        {"probability": 0.5},
        "calm",
        (1, "quota"),
    ),
    "a quota that loud overruns alone": (
        "gateway/quota-overrun",
        {"probability": 1.0},
        "loud",
        (2, None),
    ),
    "a header of loud that a proxy turns into calm": (
        "gateway/tenant-confusion",
        {"kind": "header", "tenant": "calm", "probability": 1.0},
        "loud",
        (1, "quota"),
    ),
    "a header of loud that a proxy repeats as calm": (
        "gateway/tenant-confusion",
        {"kind": "repeat-header", "tenant": "calm", "probability": 1.0},
        "loud",
        (2, None),
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_fault_of_one_tenant_is_found_at_the_other_and_only_there(
    tmp_path: Path,
    case: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    template, parameters, match, (code, failed) = CASES[case]
    got, _ = await under_fault(tmp_path, monkeypatch, template, parameters, match)
    report = json.loads(capsys.readouterr().out)
    names = [each["name"] for each in report["findings"] if each["verdict"] == "FAIL"]
    assert (got, names) == (code, [failed] if failed else [])


def put_run(folder: Path, records: list[Any]) -> str:
    store = AuditStore(f"sqlite:///{folder / 'audit.db'}")
    store.upgrade()
    now = datetime.now(UTC)
    run_id = "run-with-tenants"
    what = ("workflow", "name", "FaultExperiment", {})
    store.open_run(run_id, *what, requested_by="me", trigger="test", at=now)
    store.put_segment(run_id, "observe", 0, [page(records).to_json()], now)
    store.close()
    return run_id


WINDOW = "1970-01-01T00:20:00/1970-01-01T00:23:20"


@pytest.mark.parametrize(
    ("harm", "code", "words"),
    [
        (None, 0, "isolation: PASS"),
        ("one leak", 1, "held a marker of a"),
        ("all slower", 1, "latency above p50 is worse"),
    ],
)
def test_a_run_on_the_trail_is_read_again(
    tmp_path: Path,
    harm: str | None,
    code: int,
    words: str,
    capsys: pytest.CaptureFixture[str],
):
    records = traffic() if harm is None else traffic(HARM[harm][1], count=1800)
    name = put_run(tmp_path, records)
    arguments = ["tenants", "isolation", "a", "b", "--run", name[:8]]
    assert run([*arguments, "--during", WINDOW]) == code
    assert words in capsys.readouterr().out


def test_records_without_the_split_or_fault_that_is_asked_for_prove_nothing(tmp_path: Path):
    arguments = ["tenants", "isolation", "a", "b", "--run", put_run(tmp_path, traffic(count=60))]
    assert run(arguments) == 2, "no split was on, so nobody was exposed by lot"
    assert run([*arguments, "--overrun"]) == 3
    assert run([*arguments, "--fault", "F"]) == 3


@pytest.mark.parametrize(
    "words",
    [
        ["a", "a"],
        ["a", "b", "--overrun", "--fault", "F"],
        ["a", "b", "--minutes", "0"],
        ["a"],
    ],
    ids=" ".join,
)
def test_a_question_that_cannot_be_asked_is_exit_3(
    words: list[str], capsys: pytest.CaptureFixture[str]
):
    assert run(["tenants", "isolation", *words]) == 3
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("window", ["now", "2026-01-01/2025-01-01", "2026-01-01", "1/2/3"])
def test_a_window_that_cannot_be_read_is_one_line(
    tmp_path: Path, window: str, capsys: pytest.CaptureFixture[str]
):
    name = put_run(tmp_path, traffic(count=20))
    assert run(["tenants", "isolation", "a", "b", "--run", name, "--during", window]) == 3
    assert "--during" in capsys.readouterr().err


def test_a_marker_and_the_digest_of_a_key_are_what_the_gateway_compares(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert run(["tenants", "marker"]) == 0
    marker, digest = (line.split()[1] for line in capsys.readouterr().out.splitlines())
    assert digest == digest_of(marker)
    monkeypatch.setattr("sys.stdin", io.StringIO("sk-key\n"))
    assert run(["tenants", "digest"]) == 0
    assert capsys.readouterr().out.strip() == digest_of("sk-key")
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert run(["tenants", "digest"]) == 3
