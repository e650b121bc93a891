"""One process under its keeper: back after a crash, not for ever, and never without its cause."""

import asyncio
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from api.stack import reaper
from api.stack.blueprint import Policy, ProcessSpec
from api.stack.errors import ProcessFailed
from api.stack.events import Event, EventKind, EventLog
from api.stack.guarded import Guarded
from api.stack.member import Member
from api.stack.readiness import says

pytestmark = pytest.mark.kill

RUNS = "import time; print('here', flush=True); time.sleep(60)"
NEVER_READY = "import time; time.sleep(60)"

Make = Callable[..., Member]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[Member] = []
    tag = f"test-{uuid.uuid4().hex}"

    def member(code: str, policy: Policy | None = None, listener: object = None) -> Member:
        spec = ProcessSpec(
            name="thing",
            argv=(sys.executable, "-c", code),
            environment={},
            log=tmp_path / "thing.log",
            policy=policy or Policy(ready_seconds=20, grace_seconds=1),
        )

        async def check(process: Guarded) -> None:
            await says(process, "here")

        log = EventLog(tmp_path / "events.log", listener)  # type: ignore[arg-type]
        made.append(Member(spec, tag, check, log, lambda: None))
        return made[-1]

    yield member
    for one in made:
        await one.stop()
    assert not reaper.tagged_pids(tag)


async def test_a_process_that_ends_before_it_is_ready_is_named_with_its_last_words(
    make: Make, tmp_path: Path
) -> None:
    member = make("import sys; sys.exit('no such model: tiny-cat')")
    with pytest.raises(ProcessFailed) as failed:
        await member.start()
    text = str(failed.value)
    assert text.startswith("thing exited with 1 before it was ready")
    assert "    no such model: tiny-cat" in text
    assert str(tmp_path / "thing.log") in text
    assert member.status == "failed"


async def test_a_process_that_is_not_ready_in_time_is_ended(make: Make) -> None:
    member = make(NEVER_READY, Policy(ready_seconds=1, grace_seconds=1))
    with pytest.raises(ProcessFailed, match="was not ready within 1 s; it wrote nothing"):
        await member.start()
    assert member.process is not None
    assert member.process.exited.is_set()


async def test_a_process_is_restarted_as_often_as_allowed_and_then_given_up(make: Make) -> None:
    events: list[Event] = []
    gave_up = asyncio.Event()

    def listen(event: Event) -> None:
        events.append(event)
        if event.kind is EventKind.GAVE_UP:
            gave_up.set()

    member = make(RUNS, Policy(ready_seconds=20, grace_seconds=1, max_restarts=2), listen)
    await member.start()
    for _ in range(3):
        await member.wait_ready()
        await member.kill(signal.SIGKILL)
    await asyncio.wait_for(gave_up.wait(), 20)
    assert (member.status, member.restarts) == ("failed", 2)
    assert [e.kind for e in events].count(EventKind.STARTING) == 3
    with pytest.raises(ProcessFailed, match="is down"):
        await member.wait_ready()


async def test_crash_after_crash_the_pause_doubles(make: Make) -> None:
    pauses: list[str] = []
    third = asyncio.Event()

    def listen(event: Event) -> None:
        if event.kind is EventKind.RESTARTING:
            pauses.append(event.text)
            if len(pauses) == 3:
                third.set()

    member = make(RUNS, listener=listen)
    await member.start()
    for _ in range(3):
        await member.wait_ready()
        await member.kill(signal.SIGKILL)
    await asyncio.wait_for(third.wait(), 20)
    assert [text.split(" (")[0] for text in pauses] == ["in 0.25 s", "in 0.5 s", "in 1 s"]


async def test_a_stopped_process_is_ended_also_when_it_is_frozen_and_starts_again(
    make: Make,
) -> None:
    member = make(RUNS)
    await member.start()
    first = member.snapshot().pid
    await member.kill(signal.SIGSTOP)
    await member.stop()
    assert (member.status, member.snapshot().pid) == ("stopped", None)
    await member.start()
    assert member.snapshot().pid not in {None, first}


async def test_a_listener_that_fails_is_dropped_and_the_log_goes_on(tmp_path: Path) -> None:
    def closed_terminal(_event: Event) -> None:
        raise OSError(5, "Input/output error")

    log = EventLog(tmp_path / "events.log", closed_terminal)
    log.say("stack", EventKind.NOTE, "first")
    log.say("stack", EventKind.NOTE, "second")
    lines = (tmp_path / "events.log").read_text().splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == ["stack note: first", "stack note: second"]
