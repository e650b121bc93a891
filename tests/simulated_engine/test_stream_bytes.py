import json
import re

import pytest

from tests.simulated_engine.running import chat, serving

ROLE = (
    'data: {"id":"ID","object":"chat.completion.chunk","created":0,"model":"tiny-chat",'
    '"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,'
    '"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null,'
    '"system_fingerprint":"SIMULATED"}\n\n'
)
HEAD = 'data: {"id":"ID","object":"chat.completion.chunk","created":0,"model":"tiny-chat",'


def masked(body: bytes) -> str:
    text = re.sub(r'"id":"(chatcmpl|cmpl)-[0-9a-f]{16}"', '"id":"ID"', body.decode())
    return re.sub(r'"created":\d+', '"created":0', text)


def token(word: str) -> str:
    choice = f'{{"index":0,"delta":{{"content":"{word}"}},"logprobs":null,"finish_reason":null'
    return HEAD + f'"choices":[{choice},"token_ids":null}}]}}\n\n'


async def test_a_stream_is_byte_for_byte_what_a_client_of_vllm_expects():
    async with serving() as (url, session):
        body = chat(stream=True, max_tokens=2, stream_options={"include_usage": True})
        async with session.post(f"{url}/v1/chat/completions", json=body) as response:
            assert response.status == 200
            assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert response.headers["server"] == "burnproof-simulated-engine"
            text = masked(await response.read())
        async with session.post(f"{url}/v1/chat/completions", json=chat(max_tokens=2)) as response:
            whole = await response.json()
    first, second = whole["choices"][0]["message"]["content"].split(" ")
    last = token(" " + second).replace(
        '"finish_reason":null', '"finish_reason":"length","stop_reason":null'
    )
    usage = (
        HEAD + '"choices":[],"usage":{"prompt_tokens":6,"total_tokens":8,"completion_tokens":2},'
        '"system_fingerprint":"SIMULATED"}\n\n'
    )
    assert text == ROLE + token(first) + last + usage + "data: [DONE]\n\n"


async def test_without_asking_there_is_no_usage_chunk():
    async with serving() as (url, session):
        async with session.post(f"{url}/v1/chat/completions", json=chat(stream=True)) as response:
            text = (await response.read()).decode()
    assert '"usage"' not in text
    assert text.endswith("data: [DONE]\n\n")


async def test_a_plain_completion_streams_text_and_no_role():
    async with serving() as (url, session):
        body = {"prompt": "once", "stream": True, "max_tokens": 3}
        async with session.post(f"{url}/v1/completions", json=body) as response:
            lines = (await response.text()).split("\n\n")
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    assert lines[-2:] == ["data: [DONE]", ""]
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, "length"]
    assert all(chunk["choices"][0]["text"] for chunk in chunks)


async def test_a_whole_answer_carries_usage_and_says_it_is_simulated():
    async with serving() as (url, session):
        async with session.post(f"{url}/v1/chat/completions", json=chat()) as response:
            body = await response.json()
    assert body["object"] == "chat.completion"
    assert body["model"] == "tiny-chat"
    assert body["system_fingerprint"] == "SIMULATED"
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 4
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + 4


async def test_the_answer_depends_on_the_prompt_alone():
    async def answer(text):
        async with serving() as (url, session):
            body = chat(text, max_tokens=200)
            async with session.post(f"{url}/v1/chat/completions", json=body) as response:
                return (await response.json())["choices"][0]

    once, again, other = await answer("hello"), await answer("hello"), await answer("bye")
    assert once == again
    assert once["message"]["content"] != other["message"]["content"]
    assert once["finish_reason"] == "stop"


@pytest.mark.parametrize("path", ["/health", "/ping"])
async def test_health_is_200_without_a_body(path):
    async with serving() as (url, session):
        async with session.get(url + path) as response:
            assert (response.status, await response.read()) == (200, b"")


async def test_the_version_is_the_imitated_one():
    async with serving() as (url, session):
        async with session.get(f"{url}/version") as response:
            assert await response.json() == {"version": "0.32.0"}
