import asyncio
import random
import time
from collections import Counter
from dataclasses import replace
from itertools import accumulate, islice, pairwise

import aiohttp
from aiohttp import web
from yarl import URL

from simulated_engine.options import EngineOptions, Misbehaviour
from tests.simulated_engine.running import FAST, metric, serving
from traffic.client import Client
from traffic.driver import Driver, Plan
from traffic.profiles import ChatProfile, arrival_gaps, parse_lengths
from traffic.records import Outcome

PATH = "/v1/chat/completions"


def profile(lengths="geometric:3", think=0.0):
    return ChatProfile("tiny-chat", 4, parse_lengths(lengths), think)


async def drive(url, session, plan, talk=None, timeout=10.0):
    records = []
    client = Client(session, URL(url + PATH), timeout)
    driver = Driver(plan, talk or profile(), client, records.append)
    tally = await driver.run()
    assert tally.requests == len(records)
    return driver, tally, records


class Recorder:
    """A server that notes what it got and answers as told."""

    def __init__(self, answer: bytes = b"", status: int = 200, cut: bool = False) -> None:
        self.answer, self.status, self.cut = answer, status, cut
        self.bodies: list[bytes] = []
        self.headers: list = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.read())
        self.headers.append(request.headers.copy())
        response = web.StreamResponse(
            status=self.status, headers={"content-type": "text/event-stream"}
        )
        await response.prepare(request)
        await response.write(self.answer)
        if self.cut:
            request.transport.abort()
        return response

    async def __aenter__(self) -> str:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.handle)
        self.runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self.runner.addresses[0][1]}"

    async def __aexit__(self, *_: object) -> None:
        await self.runner.cleanup()


async def test_records_are_complete_and_equal_what_the_engine_counted():
    async with serving() as (url, session):
        plan = Plan(seed=1, run_id="r", concurrency=4, max_requests=60)
        driver, tally, records = await drive(url, session, plan)
        served = await metric(session, url, "vllm:request_success_total")
        made = await metric(session, url, "vllm:generation_tokens_total")
    assert driver.stopped_by == "max_requests"
    assert tally.requests == 60
    assert served == tally.requests == tally.by_outcome["ok"]
    assert made == tally.tokens == 4 * tally.requests
    assert len({record.id for record in records}) == len(records)
    assert all(record.ttft is not None and record.ttft <= record.e2e for record in records)
    assert tally.simulated is True


async def test_open_loop_sends_by_the_poisson_process_and_waits_for_no_answer():
    count, rate = 40, 60.0
    plan = Plan(seed=4, run_id="r", rate=rate, max_requests=count, single=True, drain_seconds=0.0)
    async with serving(EngineOptions(ttft_seconds=60.0, slots=1)) as (url, session):
        begin = time.time()
        driver, tally, records = await drive(url, session, plan)
    assert driver.stopped_by == "max_requests"
    assert tally.by_outcome == {"client_abort": count}
    assert tally.units == len({record.unit for record in records}) == count
    planned = accumulate(islice(arrival_gaps(4, rate), count))
    delays = [
        record.started - begin - due
        for record, due in zip(sorted(records, key=lambda one: one.started), planned, strict=True)
    ]
    # Never early (a timer rounds to 1 ms), and what was clearly late is known to be late.
    assert min(delays) > -0.005
    assert sum(delay > 0.1 for delay in delays) <= tally.late_sends


async def test_requests_of_a_conversation_share_a_key_and_follow_each_other():
    stub = Recorder(
        b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    )
    async with stub as url, aiohttp.ClientSession() as session:
        plan = Plan(seed=1, run_id="r", rate=100.0, max_requests=40)
        _, tally, records = await drive(url, session, plan, profile("fixed:4"))
    keys = [headers["x-conversation-id"] for headers in stub.headers]
    assert Counter(keys) == Counter(record.unit for record in records)
    assert max(Counter(keys).values()) == 4
    by_unit: dict[str, list] = {}
    for record in records:
        by_unit.setdefault(record.unit, []).append(record)
    assert len(by_unit) == tally.units > 4
    for one in by_unit.values():
        starts = [record.started for record in one]
        assert starts == sorted(starts)
        for before, after in pairwise(one):
            assert after.started >= before.started + before.e2e - 0.001


async def test_the_history_grows_by_what_was_answered():
    stub = Recorder(
        b'data: {"choices":[{"delta":{"content":"yes"},"finish_reason":"stop"}]}\n\n'
        b"data: [DONE]\n\n"
    )
    async with stub as url, aiohttp.ClientSession() as session:
        plan = Plan(seed=1, run_id="r", concurrency=1, max_requests=3)
        await drive(url, session, plan, profile("fixed:3"))
    assert [body.count(b'"assistant","content":"yes"') for body in stub.bodies] == [0, 1, 2]


async def test_single_sends_no_conversation_key():
    stub = Recorder(b"data: [DONE]\n\n")
    async with stub as url, aiohttp.ClientSession() as session:
        plan = Plan(seed=1, run_id="r", concurrency=2, max_requests=10, single=True)
        await drive(url, session, plan)
    assert not any("x-conversation-id" in headers for headers in stub.headers)


async def test_strange_bytes_arrive_as_they_were_given():
    body = b'{"messages":[{"role":"user","content":"a\\ud83d b\xff\x00"}]}  \n'
    stub = Recorder(b"data: [DONE]\n\n")
    async with stub as url, aiohttp.ClientSession() as session:
        plan = Plan(seed=1, run_id="r", concurrency=1, max_requests=1, body=body)
        await drive(url, session, plan)
    assert stub.bodies == [body]


async def test_every_way_to_fail_has_its_own_outcome():
    word = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
    error = b'data: {"error":{"message":"boom"}}\n\ndata: [DONE]\n\n'
    stubs = {
        Outcome.HTTP_ERROR: Recorder(b"no", status=503),
        Outcome.STREAM_ERROR: Recorder(word + error),
        Outcome.TRUNCATED: Recorder(word),
        Outcome.TRANSPORT: Recorder(word, cut=True),
    }
    for outcome, stub in stubs.items():
        async with stub as url, aiohttp.ClientSession() as session:
            plan = Plan(seed=1, run_id="r", concurrency=1, max_requests=1)
            _, tally, records = await drive(url, session, plan)
        assert [record.outcome for record in records] == [outcome]
        assert records[0].status == stub.status
    assert tally.by_outcome == {"transport": 1}


async def test_an_error_in_a_stream_earns_no_token():
    word = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
    async with Recorder(word + b'data: {"error":{"code":500}}\n\n') as url:
        async with aiohttp.ClientSession() as session:
            plan = Plan(seed=1, run_id="r", concurrency=1, max_requests=1)
            _, tally, _ = await drive(url, session, plan)
    assert tally.tokens == 0


async def test_an_answer_that_is_not_streamed_is_read_too():
    body = b'{"messages":[{"role":"user","content":"hi"}],"max_tokens":5}'
    async with serving() as (url, session):
        plan = Plan(seed=1, run_id="r", concurrency=1, max_requests=1, body=body)
        _, tally, records = await drive(url, session, plan)
    assert tally.by_outcome == {"ok": 1}
    assert tally.tokens == 5
    assert tally.simulated is True
    assert records[0].ttft is not None


async def test_a_hanging_engine_gives_timeouts_without_a_first_token():
    options = replace(FAST, misbehaviour=Misbehaviour(hang_completions=True))
    async with serving(options) as (url, session):
        plan = Plan(seed=1, run_id="r", concurrency=3, max_requests=3)
        _, tally, records = await drive(url, session, plan, timeout=0.2)
    assert {record.outcome for record in records} == {Outcome.TIMEOUT}
    assert all(record.ttft is None and record.status == 0 for record in records)
    assert tally.simulated is None


async def test_a_dead_target_gives_transport_errors_and_is_not_hammered():
    async with aiohttp.ClientSession() as session:
        plan = Plan(seed=1, run_id="r", concurrency=1, duration_seconds=0.5)
        _, tally, _ = await drive("http://127.0.0.1:9", session, plan, profile("fixed:1"))
    assert set(tally.by_outcome) == {"transport"}
    assert 1 <= tally.requests <= 11


async def test_a_stop_cuts_what_is_in_flight_and_still_records_it():
    options = EngineOptions(ttft_seconds=60.0)
    async with serving(options) as (url, session):
        records = []
        plan = Plan(seed=1, run_id="r", concurrency=5)
        driver = Driver(plan, profile(), Client(session, URL(url + PATH), 60.0), records.append)
        running = asyncio.create_task(driver.run())
        while await metric(session, url, "vllm:num_requests_running") < 5:
            await asyncio.sleep(0.01)
        driver.stop("signal", 0.1)
        async with asyncio.timeout(3):
            tally = await running
    assert tally.by_outcome == {"client_abort": 5}
    assert len(records) == 5
    assert driver.stopped_by == "signal"


async def test_what_is_in_flight_at_the_planned_end_may_finish():
    options = EngineOptions(ttft_seconds=0.3, itl_seconds=0.0)
    async with serving(options) as (url, session):
        plan = Plan(seed=1, run_id="r", concurrency=5, duration_seconds=0.1)
        _, tally, _ = await drive(url, session, plan)
    assert tally.by_outcome == {"ok": 5}


async def test_a_crowd_too_large_is_skipped_and_counted():
    options = EngineOptions(ttft_seconds=60.0)
    async with serving(options) as (url, session):
        plan = Plan(
            seed=1, run_id="r", rate=300.0, duration_seconds=0.4, max_open=10, drain_seconds=0.0
        )
        _, tally, _ = await drive(url, session, plan, profile("fixed:1"))
    assert tally.requests == 10
    assert tally.skipped > 50


def test_words_do_not_depend_on_timing():
    talks = [profile().conversation("u", random.Random(9)) for _ in range(2)]
    assert talks[0] == talks[1]
