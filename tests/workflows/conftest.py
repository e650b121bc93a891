"""A time-skipping server for each scenario, and a whole crew over a SIMULATED gateway."""

import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.client import Client, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Interceptor

from activities.liveness import TemporalRuns
from audit.asynchronous import AsyncAuditStore
from audit.store import AuditStore
from settings import WorkerSettings
from targets.simulated import SimulatedGateway
from tests.binaries import test_server_binary
from tests.faults.documents import slo
from worker import Crew, Ports, build_workers
from workflows import queues
from workflows.search_attributes import ALL


def experiment(**changes: Any) -> dict[str, Any]:
    """A complete document whose fault the SIMULATED gateway can play."""
    document: dict[str, Any] = {
        "apiVersion": "burnproof/v1",
        "kind": "Experiment",
        "metadata": {"name": "scenario"},
        "target": {"route": "chat"},
        "slos": [slo(0.985)],
        "hypothesis": "withstands",
        "arms": {"chaos": {"share": 0.5}, "unit": "request"},
        "fault": {"template": "null", "duration": "5m"},
        "judge": {"metrics": ["errors", "slo_bad"]},
        "steady_state": {"window": "15s", "min_requests": 50},
        "recovery": {"within": "60s", "window": "20s", "min_requests": 100},
    }
    document.update(changes)
    return document


def errors(probability: float) -> dict[str, Any]:
    """A fault that answers a share of the chaos replica's requests with 503."""
    return {
        "template": "gateway/error",
        "parameters": {"status": 503, "probability": probability},
        "duration": "5m",
    }


POLICY: dict[str, Any] = {
    "apiVersion": "burnproof/v1",
    "kind": "RemediationPolicy",
    "metadata": {"name": "chat"},
    "when": {"compliance_below": 0.985, "window": "60s", "min_requests": 1000},
    "actions": [
        {
            "action": "breaker/tighten",
            "threshold": 0.01,
            "holdout": 0.2,
            "verify": {"alpha": 0.01, "within": "3m"},
        }
    ],
    "limits": {"max_trials": 1},
}


def mended(**changes: Any) -> dict[str, Any]:
    """The document of the main story: it breaks, the breaker is tightened, it is met again."""
    document = experiment(
        hypothesis="recovers",
        fault=errors(0.04),
        remediation={"policy": POLICY, "under_fault": True, "recover_within": "3m"},
    )
    document.update(changes)
    return document


class World:
    """A server, a crew, a SIMULATED gateway, an audit store: one scenario's world."""

    def __init__(self, client: Client, gateway: SimulatedGateway, store: AuditStore) -> None:
        self.client = client
        self.gateway = gateway
        self.store = store

    async def start(self, document: dict[str, Any]) -> WorkflowHandle[Any, Any]:
        return await self.client.start_workflow(
            "FaultExperiment", document, id=f"fx-{uuid.uuid4().hex}", task_queue=queues.MAIN
        )

    def run_id(self) -> str:
        rows = [row for row in self.store.history() if row.kind == "FaultExperiment"]
        assert len(rows) == 1, rows
        return rows[0].run_id

    def kinds(self) -> list[str]:
        return [event.kind for event in self.store.events(self.run_id())]


@asynccontextmanager
async def open_server() -> AsyncIterator[WorkflowEnvironment]:
    """Start a time-skipping server that knows our search attributes."""
    environment = await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=test_server_binary(), data_converter=pydantic_data_converter
    )
    async with environment:
        kind = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
        await environment.client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(
                namespace=environment.client.namespace,
                search_attributes={key.name: kind for key in ALL},
            )
        )
        yield environment


@pytest.fixture
async def time_skipping() -> AsyncIterator[WorkflowEnvironment]:
    async with open_server() as environment:
        yield environment


@asynccontextmanager
async def open_world(
    environment: WorkflowEnvironment, folder: Path, *interceptors: Interceptor
) -> AsyncIterator[World]:
    """Bring up a crew over a SIMULATED gateway and an audit store in `folder`."""
    gateway = SimulatedGateway()
    store = AuditStore(f"sqlite:///{folder / 'audit.db'}")
    store.upgrade()
    audit = AsyncAuditStore(store)
    client = environment.client
    ports = Ports(
        gateway=gateway, source=gateway, audit=audit, holds=audit, runs=TemporalRuns(client)
    )
    settings = WorkerSettings(poll_seconds=0.005, graceful_seconds=0.5, engine="simulated")
    crew = Crew(ports, settings.poll_seconds, settings.engine)
    async with AsyncExitStack() as stack:
        for one in build_workers(client, crew, settings, interceptors):
            await stack.enter_async_context(one)
        yield World(client, gateway, store)
    store.close()


@pytest.fixture
async def world(time_skipping: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[World]:
    async with open_world(time_skipping, tmp_path) as found:
        yield found
