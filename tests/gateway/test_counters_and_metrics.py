"""Counters, metrics and records tell the same story."""

import asyncio
from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gateway.counters import Ended, Series
from gateway.metrics import BOUNDS, HELP, Metrics
from slo.objective import Indicator
from tests.gateway.harness import SPLIT, Gate, Seen, Stub, answer, good

SOME = {"gateway/error": {"status": 503, "probability": 0.3}}


async def test_counters_and_metrics_equal_the_records(tmp_path: Path):
    count = 0

    async def mixed(seen: Seen) -> None:
        nonlocal count
        count += 1
        if count % 5 == 0:
            await seen.send(answer(b"{}", status="500 Oops"))
        elif count % 7 == 0:
            seen.writer.close()
        else:
            await good()(seen)

    async with Stub(mixed) as one, Stub(good()) as two:
        async with Gate(tmp_path, {"a": one.url, "b": two.url}) as gate:
            await gate.lease()
            await gate.put("S", "split", SPLIT)
            await gate.fault("gateway/error", SOME["gateway/error"], replicas=["b"])
            for n in range(80):
                await gate.chat(f"c{n}")
            records = await gate.wait_records(80)
            indicator = Indicator()
            valid = [record for record in records if indicator.is_valid(record)]
            bad = [record for record in valid if indicator.is_bad(record)]
            outcomes = Counter(record.outcome.value for record in records)
            for query in ("seconds=3600", "minutes=60"):
                buckets = (await gate.ok("GET", f"/counters?route=chat&{query}"))["buckets"]
                assert sum(each["total"] for each in buckets) == len(valid) == 80
                assert sum(each["bad"] for each in buckets) == len(bad) > 0
                summed: Counter[str] = Counter()
                for each in buckets:
                    summed.update(each["by_outcome"])
                assert summed == outcomes
            recent = (await gate.ok("GET", "/routes"))["routes"][0]["recent"]
            assert recent == {"total": 80, "bad": len(bad)}
            async with gate.client.get(gate.url + "/metrics") as got:
                assert got.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                text = await got.text()
    families = {each.name: each for each in text_string_to_metric_families(text)}
    seen: Counter[tuple[str, str, str]] = Counter()
    for sample in families["burnproof_gateway_requests"].samples:
        labels = sample.labels
        seen[labels["replica"], labels["arm"], labels["outcome"]] += int(sample.value)
    assert seen == Counter((r.replica, r.arm, r.outcome.value) for r in records)
    touched = families["burnproof_gateway_fault_touched"].samples
    assert sum(sample.value for sample in touched) == sum(len(r.touched) for r in records) > 0
    for family in families.values():
        assert family.name.startswith("burnproof_gateway_")
        assert family.documentation


async def test_histograms_are_cumulative_and_write_bounds_as_floats(tmp_path: Path):
    async with Stub(good()) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        await asyncio.gather(*(gate.chat() for _ in range(5)))
        await gate.wait_records(5)
        async with gate.client.get(gate.url + "/metrics") as got:
            text = await got.text()
    for bound in ("0.12", "0.3", "0.8", "1.0", "1.5", "+Inf"):
        assert f'le="{bound}"' in text
    assert 'le="1"' not in text
    families = {each.name: each for each in text_string_to_metric_families(text)}
    buckets = [
        sample.value
        for sample in families["burnproof_gateway_ttft_seconds"].samples
        if sample.name.endswith("_bucket")
    ]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 5


@given(st.floats(0, 100), st.text(max_size=20))
def test_any_value_and_any_label_text_is_read_back(value: float, label: str):
    metrics = Metrics()
    name = "burnproof_gateway_e2e_seconds"
    metrics.observe(name, (("route", label),), value)
    (family,) = text_string_to_metric_families(metrics.render([]))
    samples = [each for each in family.samples if each.name == name + "_bucket"]
    assert {each.labels["route"] for each in samples} == {label}
    assert len(samples) == len(BOUNDS) + 1
    for sample in samples:
        assert sample.value == (value <= float(sample.labels["le"]))


def test_every_metric_has_a_kind_and_a_text():
    for name, (kind, text) in HELP.items():
        assert kind in {"counter", "gauge", "histogram"}
        assert (kind == "counter") == name.endswith("_total")
        assert text.endswith(".")


@given(st.lists(st.floats(0, 50), max_size=60))
def test_buckets_add_up_and_old_ones_are_forgotten(steps: list[float]):
    series = Series(width=1, kept=100)
    at, times = 1000.0, []
    for step in steps:
        at += step
        times.append(at)
        series.add(at, Ended("ok", True))
    buckets = series.since(0.0)
    starts = [each["t"] for each in buckets]
    assert starts == sorted(set(starts))
    assert len(buckets) <= 100
    if times:
        newest = int(times[-1])
        assert starts[0] > newest - 100
        kept = [each for each in times if int(each) > newest - 100]
        assert sum(each["total"] for each in buckets) == len(kept)
        assert series.since(times[-1] + 2) == []
