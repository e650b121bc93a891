"""Mend a burning route: one remedy after another, each judged against a hold-out, kept or undone.

It works under the root run's hold and lease and frees neither: when it dies, its trial ends with
that lease. What it hands back is what it saw; whether the run passes is decided by the root.
"""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.observe import ObserveInput
    from activities.remedy import (
        ApplyRemedyInput,
        ApplyRemedyResult,
        PlanRemediationInput,
        RevertRemedyInput,
    )
    from canary.config import ObserveConfig
    from canary.report import ObserveReport, StopReason
    from remediation.actions import Action, fingerprint
    from remediation.plan import Plan, PlanInput
    from slo.verdict import Verdict
    from workflows import plans, policies
    from workflows.remediation_models import RemediationRunInput, RemediationRunResult, Trial
    from workflows.undo import UndoStack, protect

REVERT_WITHIN = timedelta(minutes=15)


@workflow.defn(name="RemediationRun", failure_exception_types=[ApplicationError])
class RemediationRun:
    """Try the policy's actions until the objective is met again.

    Holds: a breaker setting on the root run's lease, with a hold-out share.
    Undo: a trial that did not help, or was interrupted, is detached; a kept one ends with the
    lease. Messages: none; it is cancelled with its root.
    Ends with: `RemediationRunResult`.
    """

    @workflow.init
    def __init__(self, input: RemediationRunInput) -> None:
        """Start with nothing tried."""
        self._input = input
        self._undo = UndoStack()
        self._trials: list[Trial] = []
        self._tried: list[str] = []

    @workflow.run
    async def run(self, input: RemediationRunInput) -> RemediationRunResult:
        """Try, judge, keep or undo."""
        kept = False
        try:
            result = await self._mend()
            kept = result.effective
            return result
        except Exception as error:
            if isinstance(error, ApplicationError) or workflow.is_failure_exception(error):
                raise
            raise ApplicationError(f"bug in RemediationRun: {error!r}", type="Bug") from error
        finally:
            if not kept and await self._undo.unwind():
                raise ApplicationError("a remedy could not be taken back", type="UndoFailed")

    async def _mend(self) -> RemediationRunResult:
        while True:
            self._heed()
            plan = await self._plan()
            if not plan.actions:
                why = f"{plan.why}; a person has to look"
                return self._result(why, effective=False, escalated=True)
            applied, trial = await self._try(plan.actions[0])
            self._trials.append(trial)
            if trial.report.reason is StopReason.LEASE_LOST:
                return self._result(trial.why, effective=False, lease_lost=True)
            if trial.report.reason is StopReason.GUARD:
                return self._result(trial.why, effective=False)
            if trial.effective:
                return await self._prove_recovery(applied)
            await self._undo.run_now(trial.item_id)

    async def _plan(self) -> Plan:
        plan: Plan = await workflow.execute_local_activity(
            "plan_remediation",
            PlanRemediationInput(
                run_id=self._input.root_run_id,
                route=self._input.route,
                given=PlanInput(
                    policy=self._input.policy,
                    compliance=self._input.compliance,
                    requests=self._input.requests,
                    tried=tuple(self._tried),
                    replicas=self._input.replicas,
                ),
            ),
            result_type=Plan,
            **policies.DECIDE,
        )
        return plan

    async def _try(self, action: Action) -> tuple[ApplyRemedyResult, Trial]:
        self._heed()
        number = len(self._trials) + 1
        item_id = f"remedy-{number}"
        self._tried.append(fingerprint(action))
        self._undo.push(item_id, lambda: self._revert(item_id))
        applied: ApplyRemedyResult = await protect(
            workflow.execute_activity(
                "apply_remedy",
                ApplyRemedyInput(
                    run_id=self._input.root_run_id,
                    route=self._input.route,
                    lease_id=self._input.lease_id,
                    item_id=item_id,
                    trial=number,
                    action=action,
                    salt=f"{self._input.root_run_id}/{item_id}",
                ),
                result_type=ApplyRemedyResult,
                **policies.ACTUATE,
            )
        )
        report = await self._observe(
            item_id,
            plans.remedy_trial(self._input, action, applied.at),
        )
        effective = report.verdict is Verdict.FAIL and report.reason is StopReason.VERDICT
        return applied, Trial(
            item_id=item_id,
            action=action.action,
            effective=effective,
            kept=effective,
            why=("the hold-out is worse than the treated units: " if effective else "no proof: ")
            + report.why,
            report=report,
        )

    async def _prove_recovery(self, applied: ApplyRemedyResult) -> RemediationRunResult:
        last = self._trials[-1].report.ended_at or applied.at
        left = self._input.recover_within - (last - applied.at)
        if left <= 0:
            return self._result("the remedy helped, too late for the limit", effective=True)
        report = await self._observe(
            "met-again",
            plans.met_again(
                self._input.objectives,
                self._input.settle,
                applied.at,
                left,
                under_fault=(self._input.lease_id, self._input.guard),
            ),
        )
        met = report.reason is StopReason.SETTLED
        return self._result(
            report.why,
            effective=True,
            met_again=met,
            lease_lost=report.reason is StopReason.LEASE_LOST,
            recovery=report,
        )

    async def _observe(self, stream: str, config: ObserveConfig) -> ObserveReport:
        self._heed()
        report: ObserveReport = await workflow.execute_activity(
            "observe",
            ObserveInput(
                run_id=self._input.root_run_id,
                stream=stream,
                route=self._input.route,
                config=config,
            ),
            result_type=ObserveReport,
            **policies.observe(plans.limit(config)),
        )
        return report

    def _heed(self) -> None:
        """Stop here if somebody asked to: an act that ended well swallowed the cancel."""
        if workflow.cancellation_reason() is not None:
            raise asyncio.CancelledError

    async def _revert(self, item_id: str) -> None:
        await workflow.execute_activity(
            "revert_remedy",
            RevertRemedyInput(
                run_id=self._input.root_run_id,
                lease_id=self._input.lease_id,
                item_id=item_id,
                why="not proven to help",
            ),
            **policies.revert(REVERT_WITHIN),
        )

    def _result(self, why: str, **found: Any) -> RemediationRunResult:
        return RemediationRunResult(why=why, trials=tuple(self._trials), **found)
