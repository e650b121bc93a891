import asyncio
import json
import time
from dataclasses import replace
from statistics import mean

import pytest

from simulated_engine.generation import Pace
from simulated_engine.options import EngineOptions, Misbehaviour
from tests.simulated_engine.running import FAST, chat, metric, serving

SIZES = ["request_success_total", "prompt_tokens_total", "generation_tokens_total"]


async def ask(session, url, **fields):
    async with session.post(f"{url}/v1/chat/completions", json=chat(**fields)) as response:
        assert response.status == 200
        return await response.json()


async def test_throughput_is_bounded_by_the_slots():
    options = replace(FAST, slots=2, ttft_seconds=0.03)
    async with serving(options) as (url, session):
        begin = time.monotonic()
        await asyncio.gather(*(ask(session, url) for _ in range(20)))
        elapsed = time.monotonic() - begin
        queued = await metric(session, url, "vllm:request_queue_time_seconds_sum")
    # 20 requests of 30 ms through 2 slots; timers may fire up to 1 ms early.
    assert elapsed >= 20 / 2 * 0.029
    # Requests 3 to 20 wait 1 to 9 rounds: 2 x (1 + ... + 9) x 30 ms in all.
    assert queued >= 90 * 0.029


async def test_gauges_show_who_runs_and_who_waits():
    options = replace(FAST, slots=2, ttft_seconds=30.0)
    async with serving(options) as (url, session):
        calls = [asyncio.create_task(ask(session, url)) for _ in range(5)]
        while await metric(session, url, "vllm:num_requests_running") < 2:
            await asyncio.sleep(0.01)
        while await metric(session, url, "vllm:num_requests_waiting") < 3:
            await asyncio.sleep(0.01)
        assert await metric(session, url, "vllm:num_requests_running") == 2
        assert await metric(session, url, "vllm:kv_cache_usage_perc") > 0
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def test_a_full_cache_preempts_and_yet_every_answer_is_whole():
    options = EngineOptions(
        ttft_seconds=0.001, itl_seconds=0.001, slots=8, max_model_len=64, kv_tokens=64
    )
    async with serving(options) as (url, session):
        answers = await asyncio.gather(
            *(ask(session, url, max_tokens=30, ignore_eos=True) for _ in range(6))
        )
        preempted = await metric(session, url, "vllm:num_preemptions_total")
        noted = await metric(session, url, "vllm:request_num_preemptions_sum")
        used = await metric(session, url, "vllm:kv_cache_usage_perc")
    assert [answer["usage"]["completion_tokens"] for answer in answers] == [30] * 6
    assert preempted == noted > 0
    assert used == 0


async def test_series_move_with_every_request_and_only_with_requests():
    async with serving() as (url, session):
        before = [await metric(session, url, f"vllm:{name}") for name in SIZES]
        answer = await ask(session, url)
        after = [await metric(session, url, f"vllm:{name}") for name in SIZES]
        idle = [await metric(session, url, f"vllm:{name}") for name in SIZES]
        for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds"):
            assert await metric(session, url, f"vllm:{name}_count") == 1
        assert await metric(session, url, "vllm:inter_token_latency_seconds_count") == 3
    assert before == [0, 0, 0]
    assert after == idle == [1, answer["usage"]["prompt_tokens"], 4]


async def test_bucket_bounds_carry_a_decimal_point_and_counts_are_cumulative():
    async with serving() as (url, session):
        await ask(session, url)
        async with session.get(f"{url}/metrics") as response:
            assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
            lines = (await response.text()).splitlines()
    buckets = [line for line in lines if line.startswith("vllm:e2e_request_latency_seconds_bucket")]
    assert any('le="1.0"' in line for line in buckets)
    assert not any('le="1"' in line for line in lines)
    counts = [float(line.rsplit(" ", 1)[1]) for line in buckets]
    assert counts == sorted(counts)
    assert 'le="+Inf"' in buckets[-1]
    assert counts[-1] == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_frees_its_slot_and_leaves_no_trace_in_the_series(stream):
    options = replace(FAST, slots=1, itl_seconds=0.05)
    async with serving(options) as (url, session):
        body = chat(max_tokens=1000, ignore_eos=True, stream=stream)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.15):
                async with session.post(f"{url}/v1/chat/completions", json=body) as response:
                    await response.read()
        async with asyncio.timeout(5):
            await ask(session, url)
        assert await metric(session, url, "vllm:request_success_total") == 1
        aborted = 'vllm:request_success_total{engine="0",finished_reason="abort"'
        assert await metric(session, url, aborted) == 0
        assert await metric(session, url, "vllm:e2e_request_latency_seconds_count") == 1
        assert await metric(session, url, "vllm:time_to_first_token_seconds_count") == 2


async def test_a_write_to_a_client_that_has_left_is_no_error_in_the_log(caplog):
    body = json.dumps(chat(stream=True)).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    # Without cancellation the handler runs on and meets the closed connection for certain; with
    # it that is a rare race.
    options = replace(FAST, ttft_seconds=0.2)
    async with serving(options, cancelling=False) as (url, session):
        _, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
        writer.write(head.encode() + body)
        while not await metric(session, url, "vllm:num_requests_running"):
            await asyncio.sleep(0.005)
        writer.transport.abort()
        while await metric(session, url, "vllm:num_requests_running"):
            await asyncio.sleep(0.005)
        assert await metric(session, url, "vllm:request_success_total") == 0
        assert 'status="4xx"' in await (await session.get(f"{url}/metrics")).text()
    assert [record.getMessage() for record in caplog.records] == []


def test_jitter_keeps_the_mean_and_the_seed_decides_the_draws():
    options = EngineOptions(itl_seconds=0.01, jitter=0.5, seed=7)
    draws = [Pace(options).next() for _ in range(3)]
    assert len(set(draws)) == 1
    pace = Pace(options)
    samples = [pace.next() for _ in range(20_000)]
    assert len(set(samples)) > 19_000
    # Standard error of the mean: 0.01 x sqrt(exp(0.25) - 1) / sqrt(20,000) = 38 us.
    assert abs(mean(samples) - 0.01) < 4 * 38e-6
    assert min(samples) > 0


def test_a_longer_prompt_waits_longer_for_its_first_token():
    pace = Pace(EngineOptions(ttft_seconds=0.01, prefill_token_seconds=0.001))
    assert [pace.first(tokens) for tokens in (0, 1, 100)] == pytest.approx([0.01, 0.011, 0.11])
    assert EngineOptions(prefill_token_seconds=-1.0).problems()


async def test_a_stream_is_paced_token_by_token():
    options = replace(FAST, itl_seconds=0.02)
    async with serving(options) as (url, session):
        begin, times = time.monotonic(), []
        body = chat(stream=True, max_tokens=6)
        async with session.post(f"{url}/v1/chat/completions", json=body) as response:
            async for data in response.content.iter_any():
                times += [time.monotonic() - begin] * data.count(b'"content":"')
    assert len(times) == 7
    assert times[-1] >= 5 * 0.019


async def test_errors_come_at_the_asked_rate_before_within_and_at_the_end_of_streams():
    kinds = {
        "error_rate": Misbehaviour(error_rate=1.0),
        "stream_error_rate": Misbehaviour(stream_error_rate=1.0),
        "truncate_rate": Misbehaviour(truncate_rate=1.0),
    }
    seen = {}
    for name, misbehaviour in kinds.items():
        async with serving(replace(FAST, misbehaviour=misbehaviour)) as (url, session):
            async with session.post(
                f"{url}/v1/chat/completions", json=chat(stream=True)
            ) as response:
                seen[name] = (response.status, await response.text())
    assert seen["error_rate"][0] == 500
    status, text = seen["stream_error_rate"]
    assert status == 200
    assert '"error":{' in text
    assert 'finish_reason":"' not in text
    status, text = seen["truncate_rate"]
    assert status == 200
    assert "[DONE]" not in text
    assert text.count('"content":" ') == 1


async def test_a_share_of_errors_is_neither_none_nor_all():
    options = replace(FAST, ttft_seconds=0.0, misbehaviour=Misbehaviour(error_rate=0.3))
    async with serving(options) as (url, session):
        statuses = []
        for _ in range(100):
            async with session.post(f"{url}/v1/chat/completions", json=chat()) as response:
                statuses.append(response.status)
                await response.read()
    # Binomial(100, 0.3): 4 sigma is 18; the draws are seeded.
    assert 12 <= statuses.count(500) <= 48
