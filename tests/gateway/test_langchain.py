"""A real LangChain client: its run ids are on our spans and records (A6). Runs the page's code."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from gateway import span_content
from slo.records import RequestRecord
from tests.gateway.collector import Collector
from tests.gateway.harness import Gate
from tests.simulated_engine.running import serving

PAGE = Path(__file__).resolve().parents[2] / "docs" / "langchain.md"

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """Run the page's code as a user would; return what it defines."""
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    return names


@asynccontextmanager
async def traced_gate(folder: Path) -> AsyncIterator[tuple[Gate, Collector]]:
    async with Collector() as collector, serving() as (url, _):
        tracing = {"sample_ratio": 1.0, "endpoint": collector.endpoint}
        async with Gate(folder, {"a": url}, tracing=tracing) as gate:
            yield gate, collector


@asynccontextmanager
async def client(page: dict[str, Any], gate: Gate) -> AsyncIterator[Any]:
    """Give the page's model; close its connections, which a user's process does by ending."""
    chat = page["chat_model"](gate.url + "/v1", "tiny-chat")
    try:
        yield chat
    finally:
        chat.http_client.close()
        await chat.http_async_client.aclose()


def run_ids(records: list[RequestRecord]) -> list[str]:
    return [record.client_run_id for record in records]


async def test_the_run_id_of_a_stream_is_on_its_span_and_record_and_chunks_are_counted(
    tmp_path: Path, page: dict[str, Any]
):
    run = uuid4()
    async with traced_gate(tmp_path) as (gate, collector), client(page, gate) as chat:

        def stream() -> list[Any]:
            return list(chat.stream("Say something.", config={"run_id": run}, max_tokens=6))

        chunks = await asyncio.to_thread(stream)
        (record,) = await gate.wait_records(1)
        (span,) = await collector.wait(1)
    assert record.client_run_id == span.attributes["burnproof.client_run_id"] == str(run)
    assert UUID(record.client_run_id).int.bit_length() > 64
    assert span.span_id not in record.client_run_id.replace("-", "")
    events = [more for name, _, more in span.events if name == span_content.CHUNK]
    assert [each["burnproof.chunk.index"] for each in events] == list(range(len(events)))
    with_text = [chunk for chunk in chunks if chunk.content]
    assert sum(each["burnproof.chunk.has_content"] for each in events) == len(with_text) == 6
    assert record.tokens == 6


async def test_calls_side_by_side_and_asynchronous_ones_have_each_its_own_run(
    tmp_path: Path, page: dict[str, Any]
):
    runs = [uuid4() for _ in range(4)]
    async with traced_gate(tmp_path) as (gate, _), client(page, gate) as chat:

        async def ask(run: UUID) -> None:
            async for _ in chat.astream("Say.", config={"run_id": run}, max_tokens=3):
                pass

        await asyncio.gather(*map(ask, runs[:2]))
        await chat.ainvoke("Say.", config={"run_id": runs[2]}, max_tokens=3)
        await asyncio.to_thread(chat.invoke, "Say.", config={"run_id": runs[3]}, max_tokens=3)
        records = await gate.wait_records(4)
    assert sorted(run_ids(records)) == sorted(map(str, runs))


async def test_a_run_that_langchain_names_itself_is_the_one_in_the_record(
    tmp_path: Path, page: dict[str, Any]
):
    async with traced_gate(tmp_path) as (gate, _), client(page, gate) as chat:
        answer = await chat.ainvoke("Say.", max_tokens=2)
        (record,) = await gate.wait_records(1)
    assert answer.id is not None
    assert record.client_run_id
    assert record.outcome.value == "ok"
