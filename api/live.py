"""Draw a run for a person: live picture, plain lines for logs, plan and result. Renders only.

A picture never says more than the run does: figures come from the run's view and from the last
heartbeat of its observation, and a simulated engine is named in every output.
"""

from typing import Any

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from activities.admit import ParsedExperiment
from api.plain import plain
from audit.report import SIMULATED_ENGINE
from audit.tested import verdict_words
from canary.report import ObserveReport
from faults.blast_radius import AdmitReport
from faults.resolve import ResolvedArms, ResolvedTarget
from workflows.state import FaultExperimentResult, FaultExperimentView

COLOURS = {
    "PASS": "green",
    "FAIL": "red",
    "INCONCLUSIVE": "yellow",
    "NOT_INJECTED": "magenta",
    "CONFIGURATION": "magenta",
    "CLEANUP_FAILED": "bold red",
}
SIMULATED = "SIMULATED engine: this says nothing about a real one"


def figures_text(figures: dict[str, Any]) -> str:
    """Return the heartbeat's figures as one line."""
    parts = []
    for key, value in figures.items():
        if isinstance(value, float):
            parts.append(f"{key} {value:.4g}")
        elif isinstance(value, dict):
            inner = ", ".join(f"{k} {_number(v)}" for k, v in value.items())
            parts.append(f"{key} ({inner})")
        elif value is not None:
            parts.append(f"{key} {value}")
    return " · ".join(parts)


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def report_text(report: ObserveReport) -> str:
    """Return one phase as one line."""
    words = verdict_words(report.mode, report.verdict, report.reason)
    parts = [f"{words} ({report.reason})", report.why]
    parts += [
        f"{slo.objective}: {slo.bad} bad of {slo.total}, burn {slo.burn:.3g} "
        f"[{slo.burn_low:.3g}, {slo.burn_high:.3g}]"
        for slo in report.slo
        if slo.burn is not None and slo.burn_low is not None and slo.burn_high is not None
    ]
    if report.effect is not None:
        parts.append(f"effect {report.effect.touched} of {report.effect.exposed} exposed")
    return " · ".join(parts)


class Picture:
    """One run over time; remembers what it has already said in plain lines."""

    def __init__(self, is_simulated: bool) -> None:
        """Start with nothing said."""
        self._is_simulated = is_simulated
        self._said: set[str] = set()
        self._beats = 0

    def render(self, view: FaultExperimentView, figures: dict[str, Any]) -> RenderableType:
        """Return the live picture."""
        table = Table.grid(padding=(0, 2))
        table.add_row("phase", Text(view.phase, style="bold cyan"), f"since {view.since[11:19]}")
        table.add_row("target", view.route or "-", "")
        for name, report in view.reports.items():
            verdict = Text(
                verdict_words(report.mode, report.verdict, report.reason),
                style="" if report.mode == "remedy" else COLOURS[report.verdict],
            )
            table.add_row(name, verdict, Text(plain(report.why)))
        if figures:
            table.add_row("now", Text(figures_text(figures)), "")
        parts: list[RenderableType] = [table]
        if "withdrawn" in view.receipts:
            parts.append(Text("fault withdrawn, receipt proven", style="green"))
        title = f"{view.name} · {view.run_id}"
        footer = SIMULATED if self._is_simulated else None
        return Panel(Group(*parts), title=title, subtitle=footer)

    def lines(self, view: FaultExperimentView, figures: dict[str, Any]) -> list[str]:
        """Return what is new since the last call, as plain lines."""
        fresh = []
        if self._is_simulated:
            fresh.append(SIMULATED)
        fresh.append(f"{view.since[11:19]} {view.phase}")
        fresh += [f"  {name}: {report_text(report)}" for name, report in view.reports.items()]
        if "withdrawn" in view.receipts:
            proof = view.receipts["withdrawn"]
            fresh.append(f"  withdrawn: lease {proof['lease_state']}, probes {proof['probes']}")
        fresh = [line for line in fresh if line not in self._said]
        self._said.update(fresh)
        self._beats += 1
        if figures and self._beats % 10 == 0:
            fresh.append(f"  {figures_text(figures)}")
        return fresh


def print_result(console: Console, result: FaultExperimentResult, is_simulated: bool) -> None:
    """Print how a run ended."""
    colour = COLOURS.get(result.outcome, "white")
    outcome = Text(result.outcome, style=colour)
    console.print(outcome.append(f" (exit {result.exit_code})", style="default"))
    for reason in result.reasons:  # they quote names that anybody chose: no markup, no escapes
        console.print(f"  {plain(reason)}", highlight=False, soft_wrap=True, markup=False)
    if is_simulated:
        console.print(f"  {SIMULATED}", style="yellow")
    if result.run_id:
        more = f"  burnproof show {result.run_id}   burnproof replay {result.run_id}"
        console.print(more, highlight=False, soft_wrap=True, markup=False)


def plan_lines(  # one argument for each thing the plan shows
    parsed: ParsedExperiment,
    chosen: ResolvedTarget,
    arms: ResolvedArms,
    report: AdmitReport,
    rate: float,
    engine: str,
) -> list[str]:
    """Return the plan of a run as lines."""
    spec, expected = parsed.spec, report.plan
    told = "SIMULATED" if engine == SIMULATED_ENGINE else engine
    lines = [
        f"{spec.metadata.name}: {spec.fault.template} for at most {spec.fault.duration:g} s",
        f"target   route {chosen.route} ({chosen.why}), engine {told}",
        f"touches  chaos {', '.join(arms.chaos)} with share {spec.arms.chaos.share:g} of units; "
        f"control {', '.join(arms.control)}",
        f"traffic  {rate:.3g} requests/s" if rate else "traffic  none seen",
    ]
    if expected.seconds is not None:
        lines.append(
            f"expected {expected.total_units} units to PASS, about {expected.seconds:.0f} s "
            f"(limited by {expected.limited_by}); watched at most {expected.limit_seconds:.0f} s"
        )
    for objective in parsed.objectives:
        budget = float(objective.budget_ratio)
        lines.append(
            f"guard    {objective.name}: aborts above burn {spec.guard.abort_burn_rate:g} "
            f"= {spec.guard.abort_burn_rate * budget:.3g} bad, or "
            f"{spec.guard.budget_share:g} of the budget"
        )
    lines.append(f"lease    {spec.lease.seconds:g} s: the fault ends by itself that soon")
    if engine == SIMULATED_ENGINE:
        lines.append(f"engine   {SIMULATED}")
    lines += [f"problem  {item.path}: {item.message}" for item in report.problems]
    lines += [f"warning  {item.path}: {item.message}" for item in report.warnings]
    return lines
