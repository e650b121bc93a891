"""Ask before breaking anything whether this experiment can teach something.

Every replica must give one token within a deadline (health alone proves nothing: an engine can be
dead and answer 200), the journal must show that very probe (so the measuring path works), and the
traffic seen gives the expected duration. What is found is a report; refusing is done here only for
what makes a verdict impossible.
"""

import asyncio
from typing import Annotated

from pydantic import BaseModel, Field, FiniteFloat
from temporalio import activity

from activities.approvals import ApprovalEvent, record_approvals
from activities.errors import fatal
from activities.ports import AuditLog, GatewayControl, Now, RecordSource, Sleep
from audit.events import decision
from faults.blast_radius import AdmitInput, AdmitReport, admit
from faults.experiment import ExperimentSpec
from faults.feasibility import ExpectedPlan
from slo.records import Page

RATE_WINDOW_SECONDS = 30.0
TOO_LITTLE = "TooLittleTraffic"
"""Nothing is wrong with the document, but its guard could not fire here: nothing is broken."""
PROBE_SEEN_SECONDS = 3.0


class PreflightInput(BaseModel, frozen=True):
    """What is about to be broken."""

    run_id: str
    spec: ExperimentSpec
    route: str
    model: str
    control: tuple[str, ...]
    chaos: tuple[str, ...]
    approvals: Annotated[tuple[ApprovalEvent, ...], Field(exclude_if=lambda told: not told)] = ()
    """What was heard while the run waited for consent, oldest first."""

    @property
    def replicas(self) -> tuple[str, ...]:
        """Return every replica."""
        return self.control + self.chaos


class PreflightResult(BaseModel, frozen=True):
    """What was found."""

    probe_seconds: dict[str, FiniteFloat]
    requests_per_second: FiniteFloat
    expected: ExpectedPlan
    breaker_threshold_ratio: FiniteFloat


class Preflight:
    """Check feasibility."""

    def __init__(
        self,
        gateway: GatewayControl,
        source: RecordSource,
        audit: AuditLog,
        now: Now,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Take the ports."""
        self._gateway = gateway
        self._source = source
        self._audit = audit
        self._now = now
        self._sleep = sleep

    @activity.defn(name="preflight")
    async def preflight(self, input: PreflightInput) -> PreflightResult:
        """Probe every replica and measure the traffic.

        Raises:
            ApplicationError: `NotAdmitted`, `TooLittleTraffic` (the guard would stay blind),
                `TargetHung` (a replica gives no token in time), `NotMeasurable` (the probe is not
                in the journal); all never retried. Target errors otherwise.
        """
        await record_approvals(self._audit, input.run_id, input.approvals, self._now)
        began = float((await self._gateway.state())["now"])
        probes = await self._probe_all(input)
        await self._see_probes(input, began)
        rate = await self._rate(input.route)
        routes = await self._gateway.routes()
        route = next(found for found in routes if found["name"] == input.route)
        report = await self._admit(input, rate)
        result = PreflightResult(
            probe_seconds=probes,
            requests_per_second=rate,
            expected=report.plan,
            breaker_threshold_ratio=float(route["breaker"]["threshold_ratio"]),
        )
        await self._audit.append(
            input.run_id, "preflight", "preflight", result.model_dump(mode="json"), self._now()
        )
        return result

    async def _admit(self, input: PreflightInput, rate: float) -> AdmitReport:
        """Admit once more, now that the traffic is known: a guard that stays blind is refused."""
        asked = AdmitInput(spec=input.spec, control=input.control, chaos=input.chaos, rate=rate)
        report = admit(asked)
        payload = decision("admit/1", asked, report)
        key = "decision:admit-with-traffic"
        await self._audit.append(input.run_id, key, "decision", payload, self._now())
        if not report.admitted:
            found = "; ".join(f"{item.path}: {item.message}" for item in report.problems)
            raise fatal("NotAdmitted", found)
        blind = [item for item in report.warnings if item.code == "guard_blind"]
        if blind:
            raise fatal(TOO_LITTLE, f"{blind[0].path}: {blind[0].message}")
        return report

    async def _probe_all(self, input: PreflightInput) -> dict[str, float]:
        seconds = {}
        deadline = input.spec.steady_state.deadline
        for replica in input.replicas:
            seen = await self._gateway.probe(input.model, replica, deadline)
            if seen["status"] != 200:
                raise fatal(
                    "TargetHung",
                    f"replica {replica} gave no token before any fault: "
                    f"{seen['error'] or seen['status']}",
                )
            seconds[replica] = float(seen["seconds"])
        return seconds

    async def _see_probes(self, input: PreflightInput, began: float) -> None:
        waited = 0.0
        while True:
            page = Page.from_json(await self._source.journal(input.route, tail_seconds=30.0))
            seen = {r.replica for r in page.records if r.probe and r.accepted >= began - 1}
            missing = [name for name in input.replicas if name not in seen]
            if not missing:
                return
            if waited >= PROBE_SEEN_SECONDS:
                raise fatal(
                    "NotMeasurable",
                    f"the probe of replica {missing[0]} is not in the gateway's journal: nothing "
                    "measured there can be trusted",
                )
            await self._sleep(0.1)
            waited += 0.1

    async def _rate(self, route: str) -> float:
        page = Page.from_json(await self._source.journal(route, tail_seconds=RATE_WINDOW_SECONDS))
        real = [r for r in page.records if not r.probe]
        if not real:
            return 0.0
        span = max(page.now - min(r.at for r in real), 1.0)
        return len(real) / span
