"""Fork real workers from one process that has imported everything, so that a start takes a moment.

Each line on stdin asks for one worker: `{"log": file, "env": {...}, "gate": {...} | null, "bad":
bool}`; the answer is its pid. What runs is the product's own `worker.main`; a gate adds an
interceptor that stops one activity just before or just after its work and says so, so that a test
can strike exactly there. `bad` is the nondeterministic deploy of `bad_worker`.

Nothing of Temporal's runtime is started before the fork. Children end with the nursery.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
import traceback
from functools import partial
from pathlib import Path
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor
from temporalio.worker._worker import load_default_build_id

import worker
from audit.store import AuditStore
from tests.kill.bad_worker import BadFaultExperiment, Crowd
from traffic.parent import die_with_parent

REACHED = "gate reached"


class Gate(Interceptor):
    """Stops one activity once, before or after its work, until a file appears."""

    def __init__(self, activity_type: str, stream: str, when: str, release: Path) -> None:
        self._wanted = (activity_type, stream)
        self._when = when
        self._release = release
        self._used = False

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        gate = self

        class Stop(ActivityInboundInterceptor):
            async def execute_activity(self, input: ExecuteActivityInput) -> Any:
                if not gate.is_meant(input):
                    return await self.next.execute_activity(input)
                if gate._when == "before":
                    await gate.wait()
                result = await self.next.execute_activity(input)
                if gate._when == "after":
                    await gate.wait()
                return result

        return Stop(next)

    def is_meant(self, input: ExecuteActivityInput) -> bool:
        stream = getattr(input.args[0], "stream", "") if input.args else ""
        if self._used or (activity.info().activity_type, stream) != self._wanted:
            return False
        self._used = True
        return True

    async def wait(self) -> None:
        sys.stdout.write(f"{REACHED}\n")
        sys.stdout.flush()
        while not self._release.exists():
            await asyncio.sleep(0.02)


def become_worker(order: dict[str, Any]) -> None:
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(order["env"])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    die_with_parent(lambda: os._exit(9))
    gate = order["gate"]
    if gate is not None:
        release = Path(order["log"] + ".release")
        stop = Gate(gate["activity"], gate["stream"], gate["when"], release)
        worker.build_workers = partial(worker.build_workers, interceptors=[stop])
    if order["bad"]:
        worker.WORKFLOWS[0] = BadFaultExperiment
    worker.WORKFLOWS.append(Crowd)
    asyncio.run(worker.main())


def load_what_a_start_loads() -> None:
    """Do what every start does alike: import the migrations, and sum up all code for its name."""
    with tempfile.TemporaryDirectory() as directory:
        AuditStore(f"sqlite:///{directory}/audit.db").upgrade()
    load_default_build_id()


def main() -> None:
    die_with_parent(lambda: os._exit(9))
    load_what_a_start_loads()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel collects our children
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            sys.stdin.close()
            code = 1
            try:
                become_worker(json.loads(line))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                sys.stdout.flush()
                os._exit(code)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
