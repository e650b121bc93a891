"""Write a run's live details as Markdown for the Temporal UI. Pure; evidence is elsewhere."""

from canary.report import ObserveReport
from workflows.state import FaultExperimentView


def render(view: FaultExperimentView) -> str:
    """Return a short Markdown text: phase, what is known, what to do."""
    lines = [f"**{view.name}** · run `{view.run_id}` · phase **{view.phase}** since {view.since}"]
    if view.outcome:
        lines.append(f"Outcome: **{view.outcome}**")
    if view.route:
        lines.append(f"Target: route `{view.route}`")
    lines += [_line(name, report) for name, report in view.reports.items()]
    lines += [f"- {note}" for note in view.notes[-5:]]
    if not view.outcome:
        lines.append(
            "To stop it: send the update `abort`. Do not terminate: nothing is undone then."
        )
    return "\n\n".join(lines)


def _line(name: str, report: ObserveReport) -> str:
    figures = [f"{report.counted} requests"]
    figures += [
        f"{slo.objective} {slo.compliance:.4f} (burn {slo.burn:.2f})"
        for slo in report.slo
        if slo.compliance is not None and slo.burn is not None
    ]
    return f"- **{name}**: {report.verdict} by {report.reason}: {'; '.join(figures)}"
