import asyncio
import json
import sys

import pytest

from tests.simulated_engine.running import ROOT, engine_process


async def start(*arguments):
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "traffic", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )


async def test_a_signal_ends_it_with_a_summary_that_equals_its_records(tmp_path):
    out = tmp_path / "client.jsonl"
    async with engine_process("--ttft-ms", "20", "--itl-ms", "1") as (url, _):
        driver = await start("--url", url, "--rate", "60", "--out", str(out), "--max-tokens", "4")
        assert driver.stdout is not None
        opening = json.loads(await driver.stdout.readline())
        while not out.exists() or out.read_text().count("\n") < 20:
            await asyncio.sleep(0.02)
        driver.terminate()
        async with asyncio.timeout(5):
            output, errors = await driver.communicate()
    summary = json.loads(output)
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert (driver.returncode, errors) == (0, b"")
    assert opening["target"] == summary["target"] == f"{url}/v1/chat/completions"
    assert (summary["event"], summary["stopped_by"]) == ("summary", "signal")
    assert summary["engine"] == "SIMULATED"
    assert summary["requests"] == len(records) == sum(summary["by_outcome"].values()) >= 20
    assert summary["tokens"] == sum(record["tokens"] for record in records)
    assert set(records[0]) == {
        *("id", "unit", "started", "ttft", "max_gap", "e2e", "status", "outcome", "tokens")
    }


async def test_it_stops_by_itself_at_its_limit():
    async with engine_process("--ttft-ms", "1") as (url, _):
        driver = await start("--url", url, "--concurrency", "2", "--max-requests", "10")
        async with asyncio.timeout(20):
            output, _ = await driver.communicate()
    summary = json.loads(output.splitlines()[-1])
    assert driver.returncode == 0
    assert summary["stopped_by"] == "max_requests"
    assert summary["requests"] == 10


async def test_it_dies_with_its_parent_and_still_says_its_summary():
    async with engine_process("--ttft-ms", "1") as (url, _):
        script = f"{sys.executable} -m traffic --url {url} --rate 20 --die-with-parent & wait"
        shell = await asyncio.create_subprocess_exec(
            *("sh", "-c", script), stdout=asyncio.subprocess.PIPE, cwd=ROOT
        )
        assert shell.stdout is not None
        assert b"driving" in await shell.stdout.readline()
        shell.kill()
        # The driver holds the pipe's other end: reading to its end means that the driver is gone.
        async with asyncio.timeout(10):
            summary = json.loads(await shell.stdout.read())
        await shell.wait()
    assert summary["stopped_by"] == "signal"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["--url", "http://192.0.2.1", "--rate", "1"], "--allow-remote", id="remote"),
        pytest.param(["--url", "http://127.0.0.1:9"], "required", id="no load"),
        pytest.param(["--url", "http://127.0.0.1:9", "--rate", "0"], "above 0", id="rate 0"),
        pytest.param(
            ["--url", "http://127.0.0.1:9", "--rate", "1", "--conversations", "x"],
            "geometric:MEAN",
            id="unknown lengths",
        ),
    ],
)
async def test_what_must_not_be_driven_ends_with_3_and_sends_nothing(arguments, words):
    driver = await start(*arguments)
    output, errors = await driver.communicate()
    assert driver.returncode == 3
    assert output == b""
    assert words in errors.decode()
