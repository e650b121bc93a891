"""Streams that break off and errors behind a 200 are seen everywhere that counts (A28)."""

from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from canary.config import JudgeConfig, ObserveConfig
from canary.report import Classification, StopReason
from canary.session import observe
from gateway.counters import Ended
from slo.objective import Indicator, Objective
from slo.openslo import read_openslo
from slo.records import Outcome, Page, RequestRecord
from tests.canary.build import record
from tests.faults.documents import ROOT
from tests.gateway.harness import SPLIT, Gate
from tests.simulated_engine.running import serving

SLOS = ROOT / "examples" / "stall-the-chat-stream" / "slos"
AT_PEAK = 0.41
"""Share of streams interrupted at peak. Source: the case that A28 is made of."""


def example(name: str) -> Objective:
    return read_openslo(yaml.safe_load((SLOS / name).read_text("utf-8")))


def rate(objective: Objective, records: list[RequestRecord]) -> tuple[int, int]:
    valid = [each for each in records if objective.is_valid(each)]
    return sum(objective.is_bad(each) for each in valid), len(valid)


async def traffic(gate: Gate, count: int) -> None:
    for n in range(count):
        body = {
            "model": "tiny-chat",
            "stream": True,
            "max_tokens": 6,
            "messages": [{"role": "user", "content": f"tell me {n}"}],
        }
        try:
            async with gate.client.post(
                gate.url + "/v1/chat/completions",
                json=body,
                headers={"x-conversation-id": f"c{n}"},
            ) as got:
                assert got.status == 200
                await got.read()
        except aiohttp.ClientPayloadError:
            pass


CUT = {"after_tokens": 2, "probability": AT_PEAK}
CASES = {
    "a cut": ("gateway/stream-cut", CUT, True),
    "a polite end without the end mark": ("gateway/stream-cut", {**CUT, "ending": "clean"}, True),
    "a cut before the first token": ("gateway/stream-cut", {**CUT, "after_tokens": 0}, False),
    "an error object in the middle": (
        "gateway/error",
        {"in_stream": True, "after_tokens": 2, "probability": AT_PEAK},
        True,
    ),
    "an error object at once": (
        "gateway/error",
        {"in_stream": True, "probability": AT_PEAK},
        False,
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_an_engine_that_breaks_off_shows_in_the_slis_the_counters_and_the_metrics(
    case: str, tmp_path: Path
) -> None:
    template, parameters, interrupts = CASES[case]
    async with serving() as (url, _), Gate(tmp_path, {"a": url}) as gate:
        await gate.lease()
        await gate.fault(template, parameters)
        await traffic(gate, 60)
        records = await gate.wait_records(60)
        buckets = (await gate.ok("GET", "/counters?route=chat&seconds=600"))["buckets"]
        async with gate.client.get(gate.url + "/metrics") as got:
            families = {f.name: f for f in text_string_to_metric_families(await got.text())}
    touched = sum(bool(each.touched) for each in records)
    begun = sum(each.ttft_s is not None for each in records)
    assert 10 < touched < 40, "the engine's answers are longer than two tokens"
    assert {each.status for each in records} == {200}, "no status shows any of it"
    assert rate(example("interruptions.yaml"), records) == (touched * interrupts, begun)
    assert rate(example("hidden-errors.yaml"), records) == (touched, 60)
    latency = Objective(name="t", objective_ratio=0.9, indicator=Indicator(max_ttft_seconds=5))
    assert all(each.ttft_s < 5 for each in records if each.ttft_s is not None)
    assert rate(latency, records) == (touched, 60), "a whole-request SLI still counts each failure"
    summed = {key: sum(each[key] for each in buckets) for key in ("begun", "interrupted", "hidden")}
    assert summed == {"begun": begun, "interrupted": touched * interrupts, "hidden": touched}

    def metric(name: str) -> float:
        family = families.get("burnproof_gateway_" + name)
        return sum(sample.value for sample in family.samples) if family else 0.0

    assert metric("interruptions") == touched * interrupts
    assert metric("hidden_errors") == touched


async def test_the_judge_finds_the_arm_that_breaks_off(tmp_path: Path) -> None:
    async with serving() as (one, _), serving() as (two, _):
        async with Gate(tmp_path, {"a": one, "b": two}) as gate:
            await gate.lease()
            await gate.put("S", "split", SPLIT)
            await gate.fault("gateway/stream-cut", CUT, replicas=["b"])
            await traffic(gate, 160)
            await gate.wait_records(160)
            page = await gate.page("after=-1&limit=1000")
    config = ObserveConfig(
        mode="compare",
        objectives=(example("interruptions.yaml"),),
        judge=JudgeConfig(share=0.5, metrics=("interruptions", "hidden_errors")),
        max_seconds=600,
    )
    report = observe(config, [Page.from_json(page.to_json())])
    assert report.reason is StopReason.VERDICT
    assert report.judge is not None
    found = {metric.name: metric for metric in report.judge.metrics}
    assert set(found) == {"interruptions", "hidden_errors"}
    for metric in found.values():
        assert metric.classification is Classification.HIGH
    (slo,) = report.slo
    assert (slo.objective, slo.decision) == ("chat-interruptions", "burning")


@pytest.mark.parametrize(
    ("changes", "interrupted", "hidden"),
    [
        ({}, False, False),
        ({"outcome": Outcome.TRUNCATED}, True, True),
        ({"outcome": Outcome.STREAM_ERROR}, True, True),
        ({"outcome": Outcome.TIMEOUT}, True, True),
        ({"outcome": Outcome.TRUNCATED, "ttft_s": None}, None, True),
        ({"outcome": Outcome.STREAM_ERROR, "ttft_s": None}, None, True),
        ({"outcome": Outcome.TIMEOUT, "ttft_s": None, "status": 504}, None, False),
        ({"outcome": Outcome.HTTP_ERROR, "ttft_s": None, "status": 500}, None, False),
        ({"outcome": Outcome.TRANSPORT, "ttft_s": None, "status": 502}, None, False),
        ({"outcome": Outcome.SHED, "ttft_s": None, "status": 404}, None, False),
        ({"outcome": Outcome.CLIENT_ABORT}, None, None),
        ({"outcome": Outcome.CLIENT_ABORT, "max_gap_s": 3.0}, True, True),
        ({"probe": True, "outcome": Outcome.TRUNCATED}, None, None),
    ],
)
def test_what_is_an_interruption_and_what_a_hidden_error(
    changes: dict[str, Any], interrupted: bool | None, hidden: bool | None
) -> None:
    item = record(1, **changes)
    for event, expected in (("interruption", interrupted), ("hidden-error", hidden)):
        indicator = Indicator(event=event)
        assert indicator.is_valid(item) is (expected is not None), event
        if expected is not None:
            assert indicator.is_bad(item) is expected, event
    ended = Ended.of(item, Indicator())
    assert (ended.interrupted, ended.hidden) == (bool(interrupted), bool(hidden))


def test_the_default_event_is_not_written_down_so_that_old_evidence_keeps_its_digests() -> None:
    assert "event" not in Indicator().model_dump(mode="json")
    assert Indicator(event="interruption").model_dump(mode="json")["event"] == "interruption"
