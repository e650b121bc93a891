"""One run under test: start it, wait for a moment in it, and look at everything it left.

Times of bounds come from the two ends that matter: the server's own event times (killed processes
are struck between two of them) and the gateway's admin log. Both clocks are this machine's.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.service import RPCError

from api import client as facade
from audit.replay import replay
from tests.kill.workers import ROOT, Json, until
from tests.kill.world import Lane
from workflows.endings import root_cause

OVER = frozenset({"close", "lapse", "drop"})
SLACK_SECONDS = 3.0
"""Added to a bound for a machine that is busy with other things; the figures are printed."""


class Run:
    """One experiment that was started on a lane."""

    def __init__(self, lane: Lane, workflow_id: str, run_id: str) -> None:
        self.lane = lane
        self.run_id = run_id
        self.handle: WorkflowHandle[Any, Any] = lane.client.get_workflow_handle(workflow_id)

    @classmethod
    async def start(cls, lane: Lane, document: Json) -> "Run":
        """Start an experiment."""
        started = await facade.start_experiment(lane.client, document)
        return cls(lane, started.workflow_id, started.run_id)

    # Moments

    async def in_phase(self, phase: str, seconds: float = 60.0) -> None:
        """Wait until the run says that it is in this phase."""

        async def seen() -> bool:
            try:
                return str((await facade.view(self.handle)).phase) == phase
            except RPCError:
                return False

        await until(seen, f"phase {phase}", seconds)

    async def fault_touches(self) -> None:
        """Wait until the fault has changed requests."""

        async def touched() -> bool:
            for lease in await self.lane.admin.open_leases():
                if lease["run_id"] == self.run_id:
                    return int(lease["items"].get("fault", {}).get("touched", 0)) > 0
            return False

        await until(touched, "a touched request")

    async def fault_is_off(self, seconds: float) -> float:
        """Wait until the lease is over; return the gateway's time of its end."""
        await until(lambda: self.off_at() is not None, "the end of the lease", seconds)
        at = self.off_at()
        assert at is not None
        return at

    def off_at(self) -> float | None:
        """Return when the gateway ended the lease, unix seconds."""
        ends = [act["at"] for act in self.acts() if act["act"] in OVER]
        return ends[0] if ends else None

    def acts(self) -> list[Json]:
        """Return what the gateway has written about this run."""
        return self.lane.acts(self.run_id)

    def injections(self) -> int:
        """Return how often the fault was put on."""
        return sum(act["act"] == "attach" and act["kind"] == "fault" for act in self.acts())

    # The end

    async def result(self, seconds: float = 120.0) -> Json:
        """Wait for the end; return outcome, exit code and reasons, however it ended."""
        try:
            async with asyncio.timeout(seconds):
                ended: Json = await self.handle.result()
                return ended
        except WorkflowFailureError as failed:
            cause = root_cause(failed.cause)
            details = getattr(cause, "details", ())
            return dict(details[0]) if details else {"outcome": repr(cause)}

    def kinds(self) -> list[str]:
        """Return the kinds of the run's events, in order."""
        return [event.kind for event in self.lane.store.events(self.run_id)]

    def freed(self) -> list[Json]:
        """Return the proofs by which this run's hold was freed."""
        store = self.lane.store
        events = [*store.events(self.run_id, "hold"), *self._system_events()]
        payloads = [event.payload for event in events]
        return [
            item
            for item in payloads
            if item["action"] == "released" and item["run_id"] == self.run_id
        ]

    def _system_events(self) -> list[Any]:
        if self.lane.store.run("system") is None:
            return []
        return list(self.lane.store.events("system", "hold"))

    async def left_clean(self, outcome: str, *, injected: int = 1, by: str = "run") -> None:
        """Check everything that must hold after any end."""
        lane, store = self.lane, self.lane.store
        open_leases = [one for one in await lane.admin.open_leases() if one["route"] == lane.name]
        assert open_leases == []
        route = next(one for one in await lane.admin.routes() if one["name"] == lane.name)
        assert route["split"] is None, route
        assert route["leases"] == []
        assert self.injections() == injected, self.acts()
        record = store.run(self.run_id)
        assert record is not None
        assert record.outcome == outcome, (record.outcome, self._why())
        hold = store.hold(lane.hold)
        assert hold is not None
        assert hold.state == "free", hold
        proofs = self.freed()
        assert len(proofs) == 1, proofs
        assert proofs[0]["proof"]["by"] == by, proofs
        assert store.verify_chain(self.run_id) == []
        assert replay(store, self.run_id) == []
        kinds = self.kinds()
        assert kinds.count("injected") <= injected
        if by == "run" and injected:
            assert kinds.index("injected") < kinds.index("withdrawn"), kinds
        if injected:
            assert kinds.index("inject_intended") >= 0
            off = self.off_at()
            assert off is not None
            # Freed only once the fault was seen to be off.
            assert hold.since.timestamp() >= off, (hold.since, off)

    def _why(self) -> object:
        return [
            event.payload.get("result", event.payload)
            for event in self.lane.store.events(self.run_id, "decision")
            if event.payload.get("function") == "outcome/1"
        ]


def command(lane: Lane, document: Json, *arguments: str) -> "Command":
    """Run `burnproof run` on a file with this document."""
    folder = Path(tempfile.mkdtemp(dir=lane.directory))
    file = folder / "experiment.yaml"
    file.write_text(yaml.safe_dump(document))
    return Command(lane, "run", str(file), *arguments)


class Command:
    """The real command line, as its own process."""

    def __init__(self, lane: Lane, *arguments: str) -> None:
        self.lane = lane
        self.output_file = Path(tempfile.mkstemp(suffix=".out", dir=lane.directory)[1])
        code = "from api.cli import main; main()"
        with self.output_file.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code, *arguments],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **lane.env, "COLUMNS": "200"},
                start_new_session=True,
            )
        lane.commands.append(self.process)

    def output(self) -> str:
        """Return what it has printed."""
        return self.output_file.read_text()

    async def says(self, words: str, seconds: float = 60.0) -> None:
        """Wait until it has printed these words."""

        def said() -> bool:
            found = words in self.output()
            assert found or self.process.poll() is None, self.output()
            return found

        await until(said, f"{words!r} printed", seconds)

    async def code(self, seconds: float = 120.0) -> int:
        """Wait for its end; return its exit code."""
        await until(lambda: self.process.poll() is not None, "the command's end", seconds)
        return int(self.process.returncode)

    async def run(self) -> Run:
        """Return the run that it started."""
        await self.says("workflow experiment/")
        words = next(line for line in self.output().splitlines() if "workflow " in line).split()
        return Run(self.lane, words[words.index("workflow") + 1], words[words.index("run") + 1])


def now() -> float:
    """Return unix seconds."""
    return time.time()


def at(moment: Any) -> float:
    """Return a protobuf time as unix seconds."""
    found: datetime = moment.ToDatetime(tzinfo=UTC)
    return found.timestamp()
