import asyncio
import contextlib
import os
import signal
import sys

import aiohttp
import pytest

from tests.simulated_engine.running import ROOT, chat, engine_process

CHAT = "/v1/chat/completions"


async def test_a_hanging_engine_is_healthy_and_never_answers():
    async with engine_process("--hang-completions") as (url, _), aiohttp.ClientSession() as session:
        call = asyncio.create_task(session.post(url + CHAT, json=chat(stream=True)))
        for path in ("/health", "/v1/models", "/version", "/metrics"):
            async with session.get(url + path) as response:
                assert response.status == 200
        while True:
            async with session.get(f"{url}/metrics") as response:
                if 'vllm:num_requests_waiting{engine="0",model_name="tiny-chat"} 1.0' in (
                    await response.text()
                ):
                    break
        done, _ = await asyncio.wait([call], timeout=0.3)
        assert not done
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)


async def test_empty_metrics_are_200_with_no_byte():
    async with engine_process("--empty-metrics") as (url, _), aiohttp.ClientSession() as session:
        async with session.post(url + CHAT, json=chat()) as response:
            assert response.status == 200
        async with session.get(f"{url}/metrics") as response:
            assert (response.status, await response.read()) == (200, b"")


async def test_sigterm_ends_it_at_once_even_with_an_answer_under_way():
    async with engine_process("--ttft-ms", "60000") as (url, process):
        async with aiohttp.ClientSession() as session:
            call = asyncio.create_task(session.post(url + CHAT, json=chat()))
            while True:
                async with session.get(f"{url}/metrics") as response:
                    if "vllm:num_requests_running{" in (text := await response.text()) and (
                        'num_requests_running{engine="0",model_name="tiny-chat"} 1.0' in text
                    ):
                        break
            process.terminate()
            async with asyncio.timeout(5):
                assert await process.wait() == 0
            with pytest.raises(aiohttp.ClientError):
                await call


async def test_it_dies_with_its_parent():
    # A shell starts the engine and is killed without a chance to clean up.
    script = f"{sys.executable} -m simulated_engine --port 0 --die-with-parent & wait"
    shell = await asyncio.create_subprocess_exec(
        "sh", "-c", script, stdout=asyncio.subprocess.PIPE, cwd=ROOT, start_new_session=True
    )
    assert shell.stdout is not None
    try:
        assert b"listening" in await shell.stdout.readline()
        shell.kill()
        # The engine holds the pipe's other end: it reads as closed once the engine is gone.
        async with asyncio.timeout(5):
            assert await shell.stdout.read() == b""
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        await shell.wait()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["--kv-tokens", "10"], "cannot hold one request", id="cache too small"),
        pytest.param(["--error-rate", "2"], "must lie in [0, 1]", id="a rate above 1"),
        pytest.param(["--slots", "0"], "at least 1", id="no slots"),
        pytest.param(["--nope"], "unrecognized", id="an unknown option"),
    ],
)
async def test_impossible_options_end_with_3_and_a_reason(arguments, words):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "simulated_engine", *arguments),
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    _, errors = await process.communicate()
    assert process.returncode == 3
    assert words in errors.decode()
