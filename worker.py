"""Compose a worker: settings → clients → adapters → activities → four Temporal workers.

The only file that knows everything. One process runs one worker for each task queue, so that each
kind of work has slots of its own; more load means more processes of this kind.
"""

import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Interceptor, Worker, WorkerDeploymentConfig

from activities.admit import Admission
from activities.conclude import Conclusion
from activities.errors import ErrorTranslation
from activities.inject import Injection
from activities.lease import Leases
from activities.liveness import TemporalRuns
from activities.observe import Observation
from activities.ports import AuditLog, GatewayControl, Holds, RecordSource, Runs
from activities.preflight import Preflight
from activities.remedy import Remedies
from activities.sweep import Sweeper
from audit.asynchronous import AsyncAuditStore
from audit.store import AuditStore
from settings import (
    UNKNOWN_ENGINE,
    AuditSettings,
    GatewaySettings,
    TemporalSettings,
    WorkerSettings,
)
from targets.gateway_fleet import connect
from workflows import queues
from workflows.fault_experiment import FaultExperiment
from workflows.lease_sweep import LeaseSweep
from workflows.remediation_run import RemediationRun

WORKFLOWS = [FaultExperiment, RemediationRun, LeaseSweep]

# How long a run waits for the worker that has it cached, before any other may take it. A query too:
# with the default of 10 s a run whose worker died looks silent until its lease is over.
# Source: Temporal server, history QueryWorkflow (uses this very time-out), measured by tests/kill.
STICKY = timedelta(seconds=3)

Activity = Callable[..., Any]

log = structlog.get_logger()


@dataclass(frozen=True)
class Ports:
    """Everything the activities need from the world."""

    gateway: GatewayControl
    source: RecordSource
    audit: AuditLog
    holds: Holds
    runs: Runs


def utc_now() -> datetime:
    """Return the time, aware, UTC."""
    return datetime.now(UTC)


class Crew:
    """The activities, composed from ports."""

    def __init__(self, ports: Ports, poll_seconds: float, engine: str = UNKNOWN_ENGINE) -> None:
        """Compose them; the engine stands in every record, unless nobody said what it is."""
        engine = "" if engine == UNKNOWN_ENGINE else engine
        now = utc_now
        sweeper = Sweeper(ports.gateway, ports.audit, ports.holds, ports.runs, now)
        leases = Leases(ports.gateway, ports.audit, ports.holds, ports.runs, now)
        remedies = Remedies(ports.gateway, ports.audit, now)
        admission = Admission(ports.gateway, ports.audit, ports.holds, sweeper, now, engine)
        conclusion = Conclusion(ports.audit, ports.holds, now, engine)
        preflight = Preflight(ports.gateway, ports.source, ports.audit, now)
        injection = Injection(ports.gateway, ports.audit, now)
        observation = Observation(ports.source, ports.audit, now, poll_seconds)
        self.main: list[Activity] = [
            admission.parse,
            admission.admit,
            preflight.preflight,
            leases.open_lease,
            injection.inject,
            remedies.plan,
            remedies.apply,
            conclusion.settle_hold,
            conclusion.conclude,
            sweeper.sweep,
        ]
        self.hold: list[Activity] = [leases.hold_fault]
        self.observe: list[Activity] = [observation.observe]
        self.undo: list[Activity] = [leases.withdraw, remedies.revert]


def build_workers(
    client: Client,
    crew: Crew,
    settings: WorkerSettings,
    interceptors: Sequence[Interceptor] = (),
) -> list[Worker]:
    """Return one worker a task queue."""
    deciding: dict[str, Any] = {
        "workflows": WORKFLOWS,
        "sticky_queue_schedule_to_start_timeout": STICKY,
    }
    watching: dict[str, Any] = {
        "max_concurrent_activities": settings.observers,
        "graceful_shutdown_timeout": timedelta(seconds=1),
    }
    shared: dict[str, Any] = {
        "interceptors": [ErrorTranslation(), *interceptors],
        # Heartbeats, and so cancels, are otherwise held back for most of the heartbeat time-out.
        "max_heartbeat_throttle_interval": timedelta(seconds=1),
        "graceful_shutdown_timeout": timedelta(seconds=settings.graceful_seconds),
        "deployment_config": _versioning(settings),
    }
    table: list[tuple[str, list[Activity], dict[str, Any]]] = [
        (queues.MAIN, crew.main, deciding),
        (queues.HOLD, crew.hold, watching),
        (queues.OBSERVE, crew.observe, watching),
        (queues.UNDO, crew.undo, {}),
    ]
    return [
        Worker(client, task_queue=queue, activities=activities, **{**shared, **own})
        for queue, activities, own in table
    ]


def _versioning(settings: WorkerSettings) -> WorkerDeploymentConfig | None:
    """Version only where a deployment is named: PINNED on an unversioned worker hangs."""
    if not settings.deployment_name:
        return None
    return WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(
            deployment_name=settings.deployment_name, build_id=settings.build_id
        ),
        use_worker_versioning=True,
        default_versioning_behavior=VersioningBehavior.PINNED,
    )


async def serve(stop: asyncio.Event) -> None:
    """Connect, compose, and work until `stop` is set."""
    temporal, worker = TemporalSettings(), WorkerSettings()
    gateway_settings = GatewaySettings()
    client = await Client.connect(
        temporal.address, namespace=temporal.namespace, data_converter=pydantic_data_converter
    )
    store = AuditStore(AuditSettings().url)
    store.upgrade()
    audit = AsyncAuditStore(store)
    gateway = connect(gateway_settings.urls(), gateway_settings.token())
    ports = Ports(
        gateway=gateway, source=gateway, audit=audit, holds=audit, runs=TemporalRuns(client)
    )
    crew = Crew(ports, worker.poll_seconds, worker.engine)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(gateway.aclose)
        for one in build_workers(client, crew, worker):
            await stack.enter_async_context(one)
        log.info("worker ready", temporal=temporal.address, gateway=gateway_settings.url)
        await stop.wait()
        log.info("worker stops, activities are handed over")


async def main() -> None:
    """Run until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    await serve(stop)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except (ValueError, OSError, RuntimeError) as refused:
        sys.stderr.write(f"burnproof worker: {refused}\n")
        sys.exit(3)
