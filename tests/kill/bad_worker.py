"""Two workflows that only tests deploy: a FaultExperiment that cannot replay a run of the good one,
and a crowd of observers.
"""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.observe import ObserveInput
    from activities.sweep import SweepInput, SweepResult
    from workflows import policies
    from workflows.fault_experiment import FaultExperiment
    from workflows.state import FaultExperimentResult


@workflow.defn(name="FaultExperiment", failure_exception_types=[ApplicationError])
class BadFaultExperiment(FaultExperiment):
    """The good one with one activity more at its beginning: every running run is wedged by it."""

    @workflow.init
    def __init__(self, raw: dict[str, Any]) -> None:
        super().__init__(raw)

    @workflow.run
    async def run(self, raw: dict[str, Any]) -> FaultExperimentResult:
        await workflow.execute_activity(
            "sweep", SweepInput(), result_type=SweepResult, **policies.READ
        )
        return await super().run(raw)


@workflow.defn(name="Crowd")
class Crowd:
    """Many observations at once on the queue of observations, until it is terminated."""

    @workflow.run
    async def run(self, given: list[ObserveInput]) -> None:
        limit = timedelta(minutes=20)
        observing = (
            workflow.execute_activity("observe", one, **policies.observe(limit)) for one in given
        )
        await asyncio.gather(*observing)
