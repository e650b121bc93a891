"""Let a run begin, or say in one sentence why not: parse, choose the target, take the hold.

Parsing is a local activity, so that a typo ends the run at once with a readable message. Admission
is one activity because its parts must not be separated by a crash: whoever holds the hold has also
been checked against it. The hard part is the dead owner: a hold outlives its run, so before
refusing, the sweep is asked to prove the target clean and free it.
"""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, FiniteFloat
from temporalio import activity

from activities.errors import fatal
from activities.ports import AuditLog, GatewayControl, Holds, Now
from activities.sweep import Sweeper
from audit.errors import HoldRefused
from audit.events import decision
from faults.blast_radius import AdmitInput as BlastInput
from faults.blast_radius import AdmitReport, admit
from faults.experiment import ExperimentSpec
from faults.parse import objectives, parse_experiment
from faults.resolve import RouteFacts, resolve_arms, resolve_target
from remediation.policy import RemediationPolicy, read_policy
from slo.errors import SpecError, SpecErrors
from slo.objective import Objective
from targets.refs import RouteRef


class ParseExperimentInput(BaseModel, frozen=True):
    """One raw document, as a person typed it."""

    raw: dict[str, Any]


class ParsedExperiment(BaseModel, frozen=True):
    """The document, strictly read."""

    spec: ExperimentSpec
    objectives: tuple[Objective, ...]
    policy: RemediationPolicy | None = None


class AdmitInput(BaseModel, frozen=True):
    """A run that asks to begin."""

    run_id: str
    workflow_id: str
    parsed: ParsedExperiment


class AdmitResult(BaseModel, frozen=True):
    """What the run may act on."""

    route: str
    hold: str
    control: tuple[str, ...]
    chaos: tuple[str, ...]
    model: str
    choice: str
    report: AdmitReport


def parse_documents(raw: object) -> ParsedExperiment:
    """Read an experiment with everything inlined in it.

    Raises:
        SpecErrors: one or more problems, each with path and fix.
    """
    spec = parse_experiment(raw)
    policy = None
    if spec.remediation is not None:
        try:
            policy = read_policy(spec.remediation.policy)
        except SpecErrors as problems:
            inside = [error.under("remediation.policy") for error in problems.errors]
            raise SpecErrors(inside) from problems
    return ParsedExperiment(spec=spec, objectives=objectives(spec), policy=policy)


def route_facts(route: dict[str, Any]) -> RouteFacts:
    """Read the gateway's view of a route."""
    recent = route.get("recent") or {}
    total = int(recent.get("total", 0))
    return RouteFacts(
        name=route["name"],
        labels=route.get("labels") or {},
        replicas=tuple(replica["name"] for replica in route.get("replicas", [])),
        risk=int(recent.get("bad", 0)) / total if total else None,
    )


async def open_record(
    audit: AuditLog,
    run_id: str,
    workflow_id: str,
    parsed: ParsedExperiment,
    at: datetime,
    engine: str,
) -> None:
    """Open the run's record; a repeat changes nothing. An empty engine is one that nobody named."""
    metadata = parsed.spec.metadata
    await audit.open_run(
        run_id,
        workflow_id,
        metadata.name,
        "FaultExperiment",
        parsed.model_dump(mode="json"),
        requested_by=metadata.requested_by or "unknown",
        trigger=metadata.trigger or "ui",
        at=at,
        engine=engine,
    )


class Admission:
    """Parse and admit."""

    def __init__(
        self,
        gateway: GatewayControl,
        audit: AuditLog,
        holds: Holds,
        sweeper: Sweeper,
        now: Now,
        engine: str = "",
    ) -> None:
        """Take the ports, and the engine that stands in each record."""
        self._gateway = gateway
        self._audit = audit
        self._holds = holds
        self._sweeper = sweeper
        self._now = now
        self._engine = engine

    @activity.defn(name="parse_experiment")
    async def parse(self, input: ParseExperimentInput) -> ParsedExperiment:
        """Read the document strictly.

        Raises:
            ApplicationError: `InvalidExperiment`, never retried, one line a problem.
        """
        try:
            return parse_documents(input.raw)
        except SpecErrors as problems:
            raise fatal("InvalidExperiment", str(problems)) from problems

    @activity.defn(name="admit")
    async def admit(self, input: AdmitInput) -> AdmitResult:
        """Choose the target, check the blast radius, take the hold, open the run's record.

        Raises:
            ApplicationError: `Stopped`, `NotAdmitted`, `TargetBusy`, `Quarantined` (never retried),
                or a retryable target error.
        """
        spec = input.parsed.spec
        now, engine = self._now(), self._engine
        await open_record(self._audit, input.run_id, input.workflow_id, input.parsed, now, engine)
        stop = await self._holds.stop_state()
        if stop.stopped:
            raise fatal(
                "Stopped", f"a global stop is in force ({stop.reason}); `burnproof release`"
            )
        routes = await self._gateway.routes()
        state = await self._gateway.state()
        if state.get("stopped"):
            raise fatal("Stopped", "a global stop is in force at the gateway; `burnproof release`")
        try:
            chosen = resolve_target(spec.target, [route_facts(route) for route in routes])
            arms = resolve_arms(spec.arms.chaos.replicas, chosen.replicas)
        except SpecError as problem:
            raise fatal("NotAdmitted", str(problem)) from problem
        asked = BlastInput(spec=spec, control=arms.control, chaos=arms.chaos)
        report = admit(asked)
        await self._record_decision(input.run_id, asked, report)
        if not report.admitted:
            found = "; ".join(f"{item.path}: {item.message}" for item in report.problems)
            raise fatal("NotAdmitted", found)
        hold = RouteRef(name=chosen.route).key
        models = next(route for route in routes if route["name"] == chosen.route).get("models")
        await self._take_hold(hold, input.run_id, spec.lease.seconds)
        result = AdmitResult(
            route=chosen.route,
            hold=hold,
            control=arms.control,
            chaos=arms.chaos,
            model=str((models or [""])[0]),
            choice=chosen.why,
            report=report,
        )
        payload = result.model_dump(mode="json")
        await self._audit.append(input.run_id, "admitted", "admitted", payload, self._now())
        return result

    async def _record_decision(self, run_id: str, asked: BlastInput, said: AdmitReport) -> None:
        payload = decision("admit/1", asked, said)
        await self._audit.append(run_id, "decision:admit", "decision", payload, self._now())

    async def _take_hold(self, hold: str, run_id: str, seconds: FiniteFloat) -> None:
        for attempt in ("as it is", "after a sweep"):
            try:
                await self._holds.acquire_hold(hold, run_id, seconds, self._now())
                return
            except HoldRefused as refused:
                if refused.hold.state == "quarantined":
                    raise fatal(
                        "Quarantined",
                        f"{hold} is quarantined since run {refused.hold.run_id} could not "
                        f"prove its clean-up ({refused.hold.reason}): check it, then "
                        "`burnproof holds clear`",
                    ) from refused
                if attempt == "after a sweep" or not await self._sweeper.free(refused.hold):
                    raise fatal(
                        "TargetBusy",
                        f"{hold} is busy: run {refused.hold.run_id} holds it; follow or abort it",
                    ) from refused
