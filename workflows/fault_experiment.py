"""One experiment, from admission to record: the loop that everything else serves.

The body may end in any way at any moment (a verdict, a refusal, a cancel, an abort, a bug); the
ending is always the same: undo everything, settle the hold by proof, decide, record. So the body
is a task of its own that writes what it finds into `Facts`, and the ending reads only those.
"""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError, FailureError, is_cancelled_exception
from temporalio.workflow import ParentClosePolicy

with workflow.unsafe.imports_passed_through():
    from activities.admit import AdmitInput, AdmitResult, ParsedExperiment, ParseExperimentInput
    from activities.conclude import ConcludeInput, SettleHoldInput, SettleHoldResult
    from activities.inject import InjectResult
    from activities.lease import (
        HoldFaultInput,
        HoldFaultResult,
        OpenLeaseInput,
        OpenLeaseResult,
        RemovalProof,
        WithdrawInput,
    )
    from activities.names import lease_of
    from activities.observe import ObserveInput
    from activities.preflight import PreflightInput, PreflightResult
    from canary.config import ObserveConfig
    from canary.report import ObserveReport, StopReason
    from faults.outcome import OutcomeReport
    from workflows import details, endings, ids, plans, policies
    from workflows.messages import Conversation
    from workflows.remediation_models import RemediationRunInput, RemediationRunResult
    from workflows.search_attributes import KIND, PHASE, TARGET, TRIGGER, VERDICT
    from workflows.state import ApproveInput, Facts, FaultExperimentResult, Phase
    from workflows.undo import UndoStack, protect

WITHDRAW = "withdraw"


@workflow.defn(name="FaultExperiment", failure_exception_types=[ApplicationError])
class FaultExperiment(Conversation):
    """Break one thing on purpose, judge it, mend it, prove it, record it.

    Holds: the target's hold row, and one lease at the gateway with the split, the fault and any
    trial
        remedy on it.
    Undo: `withdraw` closes the lease and proves it; the hold is freed by that proof or quarantined.
    Messages: `abort` and `approve` (updates, and signals of the same names); queries `view`,
    `alive`. Ends with: `FaultExperimentResult`; fails with `InvalidExperiment`, `NotRun` or
    `UndoFailed`.
    """

    @workflow.init
    def __init__(self, raw: dict[str, Any]) -> None:
        """Know nothing but the document."""
        self._facts = Facts()
        self._undo = UndoStack()
        self._body: asyncio.Task[None] | None = None
        self._holder: asyncio.Task[None] | None = None
        self._approval: ApproveInput | None = None
        self._phase = Phase.PARSING
        self._since = workflow.now()
        self._notes: list[str] = []
        self._outcome = ""
        metadata = raw.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        self._name = str(name or "unnamed")[:100]
        self._run_id = ids.run_id(self._name, workflow.info().run_id)
        self._lease_id = lease_of(self._run_id)

    @workflow.run
    async def run(self, raw: dict[str, Any]) -> FaultExperimentResult:
        """Run the body, then end in order whatever became of it."""
        self._body = asyncio.create_task(self._experiment(raw))
        try:
            await self._body
        except asyncio.CancelledError:
            self._facts.cancelled = True
        except Exception as error:
            endings.note_failure(self._facts, error)
            # An act that failed after its cancel was asked for swallowed that cancel.
            self._facts.cancelled |= workflow.cancellation_reason() is not None
            if not isinstance(error, FailureError):
                workflow.logger.exception("bug in the body of FaultExperiment")
        failed = await self._undo.unwind()
        try:
            result = await protect(self._end(tuple(failed)))
        except FailureError as error:
            kind = "UndoFailed" if failed else "NotRecorded"
            why = endings.root_message(error)
            raise ApplicationError(f"the end is not on the trail: {why}", type=kind) from error
        await protect(workflow.wait_condition(workflow.all_handlers_finished))
        if failed:
            raise ApplicationError(
                f"clean-up not proven: {', '.join(failed)}; the target is quarantined",
                type="UndoFailed",
            )
        if self._facts.failure_kind:
            raise ApplicationError(
                self._facts.failure, result, type=self._facts.failure_kind, non_retryable=True
            )
        stopped = self._facts.cancelled and self._facts.abort is None
        if stopped and result.outcome == "INCONCLUSIVE":
            raise asyncio.CancelledError
        return result

    async def _experiment(self, raw: dict[str, Any]) -> None:
        """Walk the ten steps; leave early where nothing more can be learnt."""
        facts = self._facts
        parsed = facts.parsed = await self._parse(raw)
        admitted = facts.admitted = await self._admit(parsed)
        if parsed.spec.approval.required:
            await self._wait_for_approval(parsed)
        facts.preflight = await self._preflight(parsed, admitted)
        self._proceed(Phase.STEADY_STATE)
        facts.steady = await self._observe(
            "steady", plans.steady(parsed), parsed.spec.steady_state.window
        )
        if facts.steady.reason is not StopReason.SETTLED:
            return
        await self._open_lease(parsed, admitted)
        facts.compare = await self._break(parsed, admitted)
        if facts.compare.reason is StopReason.TRIGGER:
            self._proceed(Phase.REMEDIATING)
            facts.remedy = await self._remediate(parsed, admitted)
        self._proceed(Phase.WITHDRAWING)
        if not await self._undo.run_now(WITHDRAW):
            return
        await self._recover(parsed)

    async def _parse(self, raw: dict[str, Any]) -> ParsedExperiment:
        parsed: ParsedExperiment = await workflow.execute_local_activity(
            "parse_experiment",
            ParseExperimentInput(raw=raw),
            result_type=ParsedExperiment,
            **policies.DECIDE,
        )
        return parsed

    async def _admit(self, parsed: ParsedExperiment) -> AdmitResult:
        self._proceed(Phase.ADMITTING)
        self._facts.admission_tried = True
        admitted: AdmitResult = await protect(
            workflow.execute_activity(
                "admit",
                AdmitInput(
                    run_id=self._run_id, workflow_id=workflow.info().workflow_id, parsed=parsed
                ),
                result_type=AdmitResult,
                **policies.ACTUATE,
            )
        )
        self._notes.append(f"target {admitted.route}: {admitted.choice}")
        workflow.upsert_search_attributes(
            [
                TARGET.value_set(admitted.route),
                KIND.value_set(parsed.spec.fault.template),
                TRIGGER.value_set(parsed.spec.metadata.trigger or "ui"),
            ]
        )
        return admitted

    async def _wait_for_approval(self, parsed: ParsedExperiment) -> None:
        self._proceed(Phase.WAITING_FOR_APPROVAL)
        wait = timedelta(seconds=parsed.spec.approval.within)
        try:
            await workflow.wait_condition(lambda: self._approval is not None, timeout=wait)
        except TimeoutError:
            self._hear("approval_expired", ApproveInput(), "nobody approved in time")
            raise ApplicationError(
                "nobody approved in time", type="NotApproved", non_retryable=True
            ) from None
        assert self._approval is not None
        self._notes.append(f"approved by {self._approval.by} (claimed)")

    async def _preflight(self, parsed: ParsedExperiment, admitted: AdmitResult) -> PreflightResult:
        self._proceed(Phase.PREFLIGHT)
        found: PreflightResult = await protect(
            workflow.execute_activity(
                "preflight",
                PreflightInput(
                    run_id=self._run_id,
                    spec=parsed.spec,
                    route=admitted.route,
                    model=admitted.model,
                    control=admitted.control,
                    chaos=admitted.chaos,
                    approvals=tuple(self._facts.approvals),
                ),
                result_type=PreflightResult,
                **policies.READ,
            )
        )
        return found

    async def _open_lease(self, parsed: ParsedExperiment, admitted: AdmitResult) -> None:
        self._proceed(Phase.INJECTING)
        within = timedelta(seconds=parsed.spec.lease.withdraw_within)
        seconds = parsed.spec.lease.seconds
        self._facts.lease_pushed = True
        self._undo.push(WITHDRAW, lambda: self._withdraw(admitted, within))
        await protect(
            workflow.execute_activity(
                "open_lease",
                OpenLeaseInput(
                    run_id=self._run_id,
                    lease_id=self._lease_id,
                    route=admitted.route,
                    seconds=seconds,
                ),
                result_type=OpenLeaseResult,
                **policies.ACTUATE,
            )
        )
        self._facts.lease_held = True
        self._holder = asyncio.create_task(self._hold(parsed, admitted, seconds))

    async def _break(self, parsed: ParsedExperiment, admitted: AdmitResult) -> ObserveReport:
        """Inject at each share of the ramp; return the first report that ends it, or the last."""
        stages = plans.stages(parsed)
        for stage, share in enumerate(stages):
            self._heed()
            injected: InjectResult = await protect(
                workflow.execute_activity(
                    "inject",
                    plans.injection(parsed, admitted, self._run_id, self._lease_id, stage),
                    result_type=InjectResult,
                    **policies.ACTUATE,
                )
            )
            self._proceed(Phase.OBSERVING)
            if stage == len(stages) - 1:
                break
            self._notes.append(f"ramp: share {share:g}")
            watch = plans.ramp(parsed, self._lease_id, injected.at)
            report = await self._observe(f"ramp-{stage + 1}", watch)
            if report.reason is not StopReason.LIMIT_TIME:
                return report
        comparison = plans.comparison(parsed, self._lease_id, injected.at)
        return await self._observe("compare", comparison)

    async def _hold(self, parsed: ParsedExperiment, admitted: AdmitResult, seconds: float) -> None:
        """Keep the lease alive. How it ends is a note: what matters is the lease at the gateway."""
        try:
            ended: HoldFaultResult = await workflow.execute_activity(
                "hold_fault",
                HoldFaultInput(
                    run_id=self._run_id,
                    lease_id=self._lease_id,
                    hold=admitted.hold,
                    seconds=seconds,
                    renew_seconds=min(5.0, seconds / 4),
                ),
                result_type=HoldFaultResult,
                **policies.hold(plans.hold_limit(parsed)),
            )
            self._notes.append(f"lease no longer renewed: {ended.ended}")
        except FailureError as error:
            if not is_cancelled_exception(error):
                self._notes.append(f"holding failed: {endings.root_message(error)}")

    async def _withdraw(self, admitted: AdmitResult, within: timedelta) -> None:
        if self._holder is not None:
            self._holder.cancel()
        self._facts.proof = await workflow.execute_activity(
            "withdraw",
            WithdrawInput(
                run_id=self._run_id,
                lease_id=self._lease_id,
                route=admitted.route,
                model=admitted.model,
                replicas=admitted.control + admitted.chaos,
            ),
            result_type=RemovalProof,
            **policies.revert(within),
        )

    async def _observe(
        self, stream: str, config: ObserveConfig, tail_seconds: float = 5.0
    ) -> ObserveReport:
        assert self._facts.admitted is not None
        report: ObserveReport = await workflow.execute_activity(
            "observe",
            ObserveInput(
                run_id=self._run_id,
                stream=stream,
                route=self._facts.admitted.route,
                config=config,
                tail_seconds=tail_seconds,
            ),
            result_type=ObserveReport,
            **policies.observe(plans.limit(config)),
        )
        self._notes.append(f"{stream}: {report.why}")
        return report

    async def _remediate(
        self, parsed: ParsedExperiment, admitted: AdmitResult
    ) -> RemediationRunResult:
        remediation, compare = parsed.spec.remediation, self._facts.compare
        assert remediation is not None and parsed.policy is not None
        assert compare is not None and compare.trigger is not None
        result: RemediationRunResult = await workflow.execute_child_workflow(
            "RemediationRun",
            RemediationRunInput(
                root_run_id=self._run_id,
                lease_id=self._lease_id,
                route=admitted.route,
                objectives=parsed.objectives,
                policy=parsed.policy,
                compliance=compare.trigger.compliance,
                requests=compare.trigger.total,
                recover_within=remediation.recover_within,
                settle=plans.settle_rule(parsed),
                guard=plans.guard(parsed),
                replicas=plans.replica_facts(admitted, self._facts.preflight),
            ),
            id=ids.remediation(self._run_id),
            parent_close_policy=ParentClosePolicy.REQUEST_CANCEL,
            result_type=RemediationRunResult,
        )
        return result

    async def _recover(self, parsed: ParsedExperiment) -> None:
        proof = self._facts.proof
        assert proof is not None
        self._proceed(Phase.RECOVERING)
        config = plans.met_again(
            parsed.objectives,
            plans.settle_rule(parsed),
            proof.at,
            parsed.spec.recovery.within,
        )
        self._facts.recovery = await self._observe("recovery", config)

    async def _end(self, failed: tuple[str, ...]) -> FaultExperimentResult:
        """Settle the hold by proof, decide, record. Runs to its end whatever cancels come."""
        self._enter(Phase.RECORDING)
        facts = self._facts
        if facts.parsed is None or not facts.admission_tried:
            return FaultExperimentResult(
                run_id=self._run_id, outcome="CONFIGURATION", exit_code=3, reasons=(facts.failure,)
            )
        await workflow.execute_activity(
            "settle_hold",
            SettleHoldInput(
                run_id=self._run_id,
                proof=facts.proof,
                failed=failed,
                nothing_injected=not facts.lease_pushed,
            ),
            result_type=SettleHoldResult,
            **policies.RECORD,
        )
        report: OutcomeReport = await workflow.execute_activity(
            "conclude",
            ConcludeInput(
                run_id=self._run_id,
                workflow_id=workflow.info().workflow_id,
                parsed=facts.parsed,
                decision=endings.outcome_input(facts, failed),
                approvals=tuple(facts.approvals),
            ),
            result_type=OutcomeReport,
            **policies.RECORD,
        )
        self._outcome = report.outcome
        workflow.upsert_search_attributes([VERDICT.value_set(report.outcome)])
        self._enter(Phase.DONE)
        return FaultExperimentResult(
            run_id=self._run_id,
            outcome=report.outcome,
            exit_code=report.exit_code,
            reasons=report.reasons,
        )

    def _proceed(self, phase: Phase) -> None:
        """Go on to the next step, unless somebody asked to stop."""
        self._heed()
        self._enter(phase)

    def _heed(self) -> None:
        """Stop here if somebody asked to.

        An activity that ends well although its cancel was asked for swallows that cancel, so the
        body looks again before each step, and before each act.
        """
        if self._facts.abort is not None or workflow.cancellation_reason() is not None:
            raise asyncio.CancelledError

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        self._since = workflow.now()
        workflow.upsert_search_attributes([PHASE.value_set(phase)])
        workflow.set_current_details(details.render(self.view()))
