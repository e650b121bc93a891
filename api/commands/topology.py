"""`topology`: where the time of requests goes, their ways, and prompts that begin the same."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from api.topology import Group, Topology
    from topology.stages import Part

LIVE = "live"
SPAN_FILES = (".json", ".jsonl")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(topology)


def topology(
    source: Annotated[
        str,
        typer.Argument(
            help="`live`, a run's id or its beginning, or a collector's file (.json, .jsonl)."
        ),
    ] = LIVE,
    seconds: Annotated[
        float, typer.Option(min=0.5, max=600.0, help="How long to watch, for `live`.")
    ] = 5.0,
    route: Annotated[str | None, typer.Option(help="Route to watch; default the first.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
) -> None:
    """Show stages, paths and prefix hot spots, each with what it rests on."""
    import asyncio

    from api import topology as reading
    from api.commands.records import resolve_run
    from api.consoles import make_console
    from api.context import load_context
    from api.live import SIMULATED

    context = load_context()
    path = Path(source)
    if source == LIVE:
        found = asyncio.run(reading.live(context.admin(), seconds, route))
    elif path.suffix in SPAN_FILES:
        found = reading.from_spans(path)
    else:
        store = context.trail()
        found = reading.stored(store, resolve_run(store, source))
    if as_json:
        document = {**reading.as_json(found), "is_simulated": context.is_simulated}
        typer.echo(json.dumps(document, indent=2))
        return
    console = make_console()
    show(console, found)
    if context.is_simulated:
        console.print(SIMULATED)


def show(console: "Console", found: "Topology") -> None:
    """Print everything for a person."""
    console.print(found.source)
    _show_stages(console, found)
    _show_paths(console, found)
    _show_hot_spots(console, found)
    for note in found.notes:
        console.print(f"note: {note}")


def _table(*heads: str) -> "Table":
    """Return a table whose figures are never cut; a narrow terminal wraps the line."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, no_wrap=True, min_width=len(head))
    return table


def _ms(seconds: float | None) -> str:
    return "?" if seconds is None else f"{seconds * 1e3:.1f}"


def _show_stages(console: "Console", found: "Topology") -> None:
    from topology.stages import Stage

    if not found.groups:
        console.print("no request with a first token was seen: nothing to take apart")
        return
    console.print("\nthe mean request, milliseconds (?: not known, its time is under unknown)")
    table = _table("replica", "n", "whole", *(stage.value for stage in Stage))
    for group in found.groups:
        cells = [_ms(part.seconds) for part in group.parts]
        table.add_row(group.name, str(group.requests), _ms(group.e2e_s), *cells)
    console.print(table)
    for line in _reasons(found.groups):
        console.print(line)


def _reasons(groups: "list[Group]") -> list[str]:
    """Say once what each stage rests on, by replica only where replicas differ."""
    lines = []
    for position, part in enumerate(groups[0].parts):
        said: dict[str, list[str]] = {}
        for group in groups:
            here: Part = group.parts[position]
            said.setdefault(here.rests_on, []).append(group.name)
        for text, names in said.items():
            where = "" if len(said) == 1 else f" ({', '.join(names)})"
            lines.append(f"  {part.stage.value}{where}: {text}")
    return lines


def _show_paths(console: "Console", found: "Topology") -> None:
    from topology.paths import slowest

    if not found.graph.edges:
        return
    count = f"{len(found.graph.nodes)} nodes, {len(found.graph.edges)} edges"
    console.print(f"\nwhere most time is spent on the way ({count}; --json has them all)")
    table = _table("step", "requests", "mean ms", "longest ms")
    for name, flow in slowest(found.graph):
        mean = flow.seconds / max(1, flow.requests)
        table.add_row(name, str(flow.requests), _ms(mean), _ms(flow.longest_s))
    console.print(table)


def _show_hot_spots(console: "Console", found: "Topology") -> None:
    if found.hot:
        console.print(f"\nprompts that begin the same, of {found.prompts} sampled")
        table = _table("prefix", "bytes", "requests", "share", "replicas", "reusable bytes")
        for each in found.hot:
            where = ", ".join(f"{name} {count}" for name, count in sorted(each.replicas.items()))
            size, share = str(each.size_bytes), f"{each.share:.0%}"
            table.add_row(
                *(each.prefix, size, str(each.requests), share, where, str(each.reusable_bytes))
            )
        console.print(table)
    elif found.prompts:
        console.print(f"\nno prompt begins as another did, of {found.prompts} sampled")
    elif found.sampled:
        console.print(f"\nno prompt of the {found.sampled} sampled requests fills a block")
    for name, use in found.caches.items():
        if use is None:
            console.print(f"prefix cache of {name}: the engine has no such metrics")
        else:
            console.print(
                f"prefix cache of {name}: {use.hits:.0f} of {use.queries:.0f} tokens were there "
                f"({use.hit_ratio:.0%})"
            )
