"""The typed façade over Temporal: start, follow, abort, approve, and set the server up.

Everything outside the workers talks to workflows through here, so that names, queues and search
attributes are said once. It reads no audit database and renders nothing.
"""

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
)
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError

from activities.sweep import SweepInput
from api.errors import NotReachable
from settings import TemporalSettings
from workflows import ids, queues
from workflows.search_attributes import ALL
from workflows.state import AbortInput, ApproveInput, FaultExperimentView, MessageResult

# Source: ours, 2026-12: a lease is 20 s, so a minute is three leases.
SWEEP_EVERY = timedelta(seconds=60)


@dataclass(frozen=True)
class Started:
    """A run that was started."""

    workflow_id: str
    temporal_run_id: str
    run_id: str


async def connect(settings: TemporalSettings) -> Client:
    """Connect to the server.

    Raises:
        NotReachable: with the address and the command that starts a local one.
    """
    try:
        return await asyncio.wait_for(
            Client.connect(
                settings.address,
                namespace=settings.namespace,
                data_converter=pydantic_data_converter,
            ),
            timeout=10,
        )
    except (RuntimeError, RPCError, TimeoutError) as refused:
        raise NotReachable(
            f"no Temporal server at {settings.address} (namespace {settings.namespace}): "
            "start a local stack with `burnproof up`, or set BURNPROOF_TEMPORAL_ADDRESS"
        ) from refused


async def ensure_search_attributes(client: Client) -> None:
    """Register our search attributes where they are missing."""
    listed = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=client.namespace)
    )
    missing = [key.name for key in ALL if key.name not in listed.custom_attributes]
    if missing:
        kind = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
        await client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(
                namespace=client.namespace, search_attributes=dict.fromkeys(missing, kind)
            )
        )


async def ensure_sweep(client: Client) -> None:
    """Put the sweep on its schedule: never two at once, never a backlog."""
    try:
        await client.create_schedule(
            ids.SWEEP_SCHEDULE,
            Schedule(
                action=ScheduleActionStartWorkflow(
                    "LeaseSweep",
                    SweepInput(),
                    id=ids.SWEEP_WORKFLOW,
                    task_queue=queues.MAIN,
                ),
                spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=SWEEP_EVERY)]),
                policy=SchedulePolicy(
                    overlap=ScheduleOverlapPolicy.SKIP, catchup_window=timedelta(minutes=1)
                ),
            ),
        )
    except ScheduleAlreadyRunningError:
        return


async def start_experiment(client: Client, document: Mapping[str, Any]) -> Started:
    """Start a FaultExperiment with a document that has everything inlined."""
    name = str(document.get("metadata", {}).get("name", "unnamed"))
    handle = await client.start_workflow(
        "FaultExperiment",
        dict(document),
        id=ids.experiment(name, uuid.uuid4().hex[:8]),
        task_queue=queues.MAIN,
        static_summary=f"{name}: {document.get('fault', {}).get('template', '?')}",
    )
    run = handle.first_execution_run_id or ""
    return Started(workflow_id=handle.id, temporal_run_id=run, run_id=ids.run_id(name, run))


async def view(handle: WorkflowHandle[Any, Any]) -> FaultExperimentView:
    """Ask a run what it shows a watcher."""
    found: FaultExperimentView = await handle.query(
        "view", result_type=FaultExperimentView, rpc_timeout=timedelta(seconds=5)
    )
    return found


async def heartbeat(handle: WorkflowHandle[Any, Any]) -> dict[str, Any]:
    """Return the last figures of the running observation, or nothing."""
    described = await handle.describe(rpc_timeout=timedelta(seconds=5))
    for pending in described.raw_description.pending_activities:
        if pending.activity_type.name != "observe" or not pending.HasField("heartbeat_details"):
            continue
        figures = await pydantic_data_converter.decode(pending.heartbeat_details.payloads)
        if figures and isinstance(figures[0], dict):
            return figures[0]
    return {}


async def abort(client: Client, workflow_id: str, by: str, reason: str) -> MessageResult:
    """Send the update `abort`; a run that has no worker gets the signal, which waits for one."""
    handle = client.get_workflow_handle(workflow_id)
    command = AbortInput(by=by, reason=reason)
    try:
        answered: MessageResult = await handle.execute_update(
            "abort",
            command,
            id=f"abort-{uuid.uuid4().hex}",
            result_type=MessageResult,
            rpc_timeout=timedelta(seconds=10),
        )
        return answered
    except (RPCError, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError):
        await handle.signal("abort", command)
        return MessageResult(accepted=True, message="abort is on its way")


async def approve(client: Client, workflow_id: str, by: str, note: str) -> MessageResult:
    """Send the update `approve`."""
    handle = client.get_workflow_handle(workflow_id)
    answered: MessageResult = await handle.execute_update(
        "approve", ApproveInput(by=by, note=note), result_type=MessageResult
    )
    return answered


async def open_experiments(client: Client) -> list[str]:
    """Return the workflow ids of the experiments that are running."""
    query = 'WorkflowType = "FaultExperiment" AND ExecutionStatus = "Running"'
    return [found.id async for found in client.list_workflows(query)]


async def is_running(handle: WorkflowHandle[Any, Any]) -> bool:
    """Tell whether a run is still open."""
    described = await handle.describe(rpc_timeout=timedelta(seconds=5))
    return described.status is WorkflowExecutionStatus.RUNNING
