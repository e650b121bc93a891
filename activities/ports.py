"""Say what the activities need from the world, and no more.

Ports are owned here, by their user, and are structural: an adapter does not import this file, and
mypy checks the fit where `worker.py` composes. Times are unix seconds of the gateway's clock unless
the type says `datetime`; every method may raise an error of `targets.errors`.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from audit.events import Event
from audit.records import Hold, RunRecord, StopState

Json = dict[str, Any]
Sleep = Callable[[float], Awaitable[None]]
Now = Callable[[], datetime]


class Answer(StrEnum):
    """What a run said when it was asked whether it lives."""

    ALIVE = "alive"
    SILENT = "silent"
    CLOSED = "closed"


class RecordSource(Protocol):
    """The journal of requests, of one gateway or of several as one.

    `cursors` are those of the page before (`Page.cursors`); one gateway has none.
    """

    async def journal(
        self,
        route: str,
        after: int | None = None,
        tail_seconds: float | None = None,
        lease_id: str | None = None,
        limit: int = 5000,
        cursors: Mapping[str, int] | None = None,
    ) -> Json: ...


class GatewayControl(RecordSource, Protocol):
    """The gateway's admin API, its journal included."""

    async def state(self) -> Json: ...
    async def routes(self) -> list[Json]: ...
    async def open_lease(self, lease_id: str, run_id: str, route: str, seconds: float) -> Json: ...
    async def renew_lease(self, lease_id: str, seconds: float) -> Json: ...
    async def open_leases(self) -> list[Json]: ...
    async def attach(self, lease_id: str, item_id: str, kind: str, spec: Json) -> Json: ...
    async def detach(self, lease_id: str, item_id: str) -> Json: ...
    async def close_lease(self, lease_id: str) -> Json: ...
    async def probe(self, model: str, replica: str, deadline_seconds: float) -> Json: ...


class AuditLog(Protocol):
    """The append-only record of runs, and the evidence they rest on."""

    async def open_run(
        self,
        run_id: str,
        workflow_id: str,
        name: str,
        kind: str,
        spec: Json,
        *,
        parent_run_id: str | None = None,
        requested_by: str,
        trigger: str,
        at: datetime,
        engine: str = "",
    ) -> Any: ...
    async def append(
        self, run_id: str, key: str, kind: str, payload: Json, at: datetime
    ) -> Any: ...
    async def events_since(self, kind: str, since: datetime) -> list[Event]: ...
    async def finish_run(self, run_id: str, outcome: str, exit_code: int, at: datetime) -> Any: ...
    async def run(self, run_id: str) -> RunRecord | None: ...
    async def put_segment(
        self, run_id: str, stream: str, index: int, pages: list[Json], at: datetime
    ) -> Any: ...
    async def load_segments(self, run_id: str, stream: str) -> list[list[Json]]: ...


class Holds(Protocol):
    """The durable row that says who may act on a target."""

    async def acquire_hold(
        self, target: str, run_id: str, seconds: float, now: datetime
    ) -> Any: ...
    async def renew_hold(self, target: str, run_id: str, seconds: float, now: datetime) -> bool: ...
    async def release_hold(
        self, target: str, run_id: str, proof: Json, now: datetime, *, by_sweep: bool = False
    ) -> Any: ...
    async def quarantine_hold(
        self, target: str, run_id: str, reason: str, now: datetime
    ) -> Any: ...
    async def list_holds(self) -> list[Hold]: ...
    async def stop_state(self) -> StopState: ...


class Runs(Protocol):
    """What Temporal knows of a run."""

    async def answers(self, workflow_id: str, run_id: str, seconds: float) -> Answer:
        """Ask the run's own code for a sign of life, waiting `seconds` at most."""
        ...

    async def is_open(self, workflow_id: str) -> bool:
        """Tell whether the run is still open. Raises when the server cannot be asked."""
        ...
