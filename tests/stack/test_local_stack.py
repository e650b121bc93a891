"""The stack as other tests use it: broken on purpose, whole or in part, two at once."""

import asyncio
import signal
from pathlib import Path

import httpx
import pytest

from api.stack.errors import ProcessFailed, StackBusy, StackError
from api.stack.options import EngineKind, StackOptions, TrafficKind
from api.stack.state import load_state
from api.stack.supervisor import LocalStack
from tests.stack.helpers import is_alive, nothing_left

pytestmark = [pytest.mark.kill, pytest.mark.timeout(300)]


def options(directory: Path, **more: object) -> StackOptions:
    given: dict[str, object] = {
        "engine": EngineKind.SIMULATED,
        "traffic": TrafficKind.NONE,
        "ui": False,
        **more,
    }
    return StackOptions(directory=directory, **given)  # type: ignore[arg-type]


async def ask(url: str) -> int:
    body = {"model": "tiny-chat", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    async with httpx.AsyncClient(trust_env=False, timeout=20) as http:
        return (await http.post(f"{url}/v1/chat/completions", json=body)).status_code


async def embed(url: str) -> tuple[int, str]:
    body = {"model": "tiny-embed", "input": "hi"}
    async with httpx.AsyncClient(trust_env=False, timeout=20) as http:
        answer = await http.post(f"{url}/v1/embeddings", json=body)
    return answer.status_code, answer.json().get("model", "")


async def test_two_stacks_live_side_by_side_and_either_can_be_broken_and_mended(
    tmp_path: Path,
) -> None:
    crashing = LocalStack(options(tmp_path / "one", replicas=2, embeddings=True))
    manual = LocalStack(
        options(
            tmp_path / "two",
            replicas=1,
            restart=False,
            env={"worker": {"BURNPROOF_WORKER_POLL_SECONDS": "0.1"}, "*": {"STACK_TEST": "1"}},
        )
    )
    async with crashing, manual:
        one, two = crashing.state, manual.state
        assert not set(one.ports.values()) & set(two.ports.values())
        assert set(one.replicas) == {"a", "b"}
        assert await ask(one.gateway_url) == await ask(two.gateway_url) == 200
        assert await embed(one.gateway_url) == (200, "tiny-embed")
        assert (await embed(two.gateway_url))[0] == 404, "nobody asked for that engine there"
        assert (one.embeddings_url != "", two.embeddings_url) == (True, "")
        environ = Path(f"/proc/{two.process('worker').pid}/environ").read_bytes().split(b"\0")
        assert {b"BURNPROOF_WORKER_POLL_SECONDS=0.1", b"STACK_TEST=1"} <= set(environ)
        await _everything_that_crashes_comes_back(crashing)
        await _what_is_killed_stays_down_until_started(manual)
        assert await ask(one.gateway_url) == await ask(two.gateway_url) == 200
        one, two = crashing.state, manual.state
    for state in (one, two):
        assert nothing_left(state)
        assert load_state(state.directory) is None


async def _everything_that_crashes_comes_back(stack: LocalStack) -> None:
    before = stack.state
    victims = ["worker", "temporal", "gateway", "engine-b"]
    await stack.kill(victims)
    for name in victims:
        pid = before.process(name).pid
        assert pid is not None
        assert not is_alive(pid)
    for name in victims:
        await stack.wait_ready(name)
    after = stack.state
    assert after.ports == before.ports
    for name in victims:
        assert after.process(name).pid != before.process(name).pid
        assert after.process(name).restarts >= 1
    assert after.process("engine-a").restarts == 0
    events = stack.events_log.read_text()
    assert "worker exited: was killed by SIGKILL" in events
    assert "gateway note: it came back without any fault; leases dropped: none" in events


async def _what_is_killed_stays_down_until_started(stack: LocalStack) -> None:
    await stack.kill("engine-a")
    assert await ask(stack.state.gateway_url) >= 500
    with pytest.raises(ProcessFailed, match="engine-a is down"):
        await stack.wait_ready("engine-a")
    assert stack.state.process("engine-a").state == "down"
    assert stack.state.process("engine-a").pid is None
    await stack.start("engine-a")
    assert await ask(stack.state.gateway_url) == 200
    worker = stack.state.process("worker").pid
    await stack.kill("worker", signal.SIGTERM)
    await stack.restart("worker")
    assert stack.state.process("worker").pid != worker
    with pytest.raises(StackError, match="no process is called 'wroker'"):
        await stack.kill("wroker")


async def test_a_stack_that_is_cancelled_while_it_starts_leaves_nothing_and_can_start_again(
    tmp_path: Path,
) -> None:
    stack = LocalStack(options(tmp_path, replicas=1))
    starting = asyncio.create_task(stack.up())
    while not (stack.is_owner and (tmp_path / "state.json").exists()):
        await asyncio.sleep(0.01)
    state = stack.state
    with pytest.raises(StackBusy, match="already runs from"):
        await LocalStack(options(tmp_path)).up()
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await stack.down()
    await stack.down()
    assert nothing_left(state)
    assert not stack.is_owner
