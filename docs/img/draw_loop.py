"""Draw `docs/img/loop.svg`, the picture on the first screen of the README.

    python docs/img/draw_loop.py

Standard library only; a test draws it again and compares, so the picture is changed here.
"""

from pathlib import Path

WIDTH, HEIGHT = 980, 452
INK, SOFT, PAPER = "#1f2933", "#5f6c7b", "#ffffff"
BLUE, RED, GREEN, GREY = "#2f6fb2", "#c0392b", "#2e8b57", "#8595a6"
FONT = "DejaVu Sans, Segoe UI, Helvetica, Arial, sans-serif"

STEPS = (
    ("1 admit", "target, hold, limits", BLUE),
    ("2 steady state", "SLOs met, probes answered", BLUE),
    ("3 inject", "under a lease, receipt", RED),
    ("4 judge", "control against chaos", RED),
    ("5 remediate", "treated against hold-out", RED),
    ("6 withdraw", "proven in the path", GREEN),
    ("7 recover", "SLOs met again", GREEN),
    ("8 record", "and replay, bit for bit", GREEN),
)


def text(x: float, y: float, words: str, size: int = 13, colour: str = INK, **more: str) -> str:
    """Return one line of text."""
    extra = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in more.items())
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{colour}"{extra}>{words}</text>'


def box(x: float, y: float, width: float, height: float, colour: str, fill: str = PAPER) -> str:
    """Return one box with round corners."""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8" '
        f'fill="{fill}" stroke="{colour}" stroke-width="1.6"/>'
    )


def arrow(path: str, colour: str = GREY, dashed: bool = False) -> str:
    """Return a line with a head at its end."""
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.8"{dash} '
        f'marker-end="url(#head)"/>'
    )


def steps() -> list[str]:
    """Return the row of steps, and the way back from the last to the first."""
    width, gap, left, top, height = 108, 11, 20, 66, 62
    parts = []
    for index, (name, what, colour) in enumerate(STEPS):
        x = left + index * (width + gap)
        parts.append(box(x, top, width, height, colour))
        middle = x + width / 2
        parts.append(
            text(middle, top + 24, name, 12, colour, text_anchor="middle", font_weight="bold")
        )
        head, _, tail = _halves(what)
        parts.append(text(middle, top + 41, head, 10, SOFT, text_anchor="middle"))
        parts.append(text(middle, top + 54, tail, 10, SOFT, text_anchor="middle"))
        if index:
            parts.append(
                arrow(f"M{x - gap:g} {top + height / 2:g} L{x - 2:g} {top + height / 2:g}")
            )
    last = left + (len(STEPS) - 1) * (width + gap) + width / 2
    parts.append(arrow(f"M{last:g} {top} V50 H{left + width / 2:g} V{top - 2}", GREY, dashed=True))
    return parts


def _halves(words: str) -> tuple[str, str, str]:
    """Split a phrase into two lines of about the same length."""
    cuts = [i for i, letter in enumerate(words) if letter == " "]
    cut = min(cuts, key=lambda i: abs(i - len(words) / 2))
    return words[:cut], " ", words[cut + 1 :]


def path_of_a_request() -> list[str]:
    """Return traffic, gateway and replicas, and what watches them."""
    parts = [
        box(20, 292, 118, 60, GREY),
        text(79, 318, "traffic", 14, text_anchor="middle", font_weight="bold"),
        text(79, 337, "users, or our driver", 10, SOFT, text_anchor="middle"),
        arrow("M138 322 H246"),
        box(248, 252, 268, 140, BLUE, "#f3f8fd"),
        text(382, 275, "gateway", 14, BLUE, text_anchor="middle", font_weight="bold"),
        text(382, 297, "split into arms · breaker · faults", 12, text_anchor="middle"),
        text(382, 317, "one record for each request", 12, text_anchor="middle"),
        text(382, 345, "A fault is held by a lease of 20 s:", 11, RED, text_anchor="middle"),
        text(382, 361, "when everything else is dead,", 11, RED, text_anchor="middle"),
        text(382, 377, "the gateway ends it by itself.", 11, RED, text_anchor="middle"),
        arrow("M516 298 H630", GREEN),
        arrow("M516 350 H630", RED),
        text(573, 290, "control arm", 11, GREEN, text_anchor="middle"),
        text(573, 342, "chaos arm", 11, RED, text_anchor="middle"),
        box(632, 276, 130, 40, GREEN),
        text(697, 301, "vLLM a", 14, text_anchor="middle"),
        box(632, 330, 130, 40, RED),
        text(697, 355, "vLLM b", 14, text_anchor="middle"),
        box(812, 252, 148, 140, GREY, "#f7f8fa"),
        text(886, 275, "audit trail", 14, text_anchor="middle", font_weight="bold"),
        text(886, 299, "decisions with all", 11, SOFT, text_anchor="middle"),
        text(886, 315, "their inputs", 11, SOFT, text_anchor="middle"),
        text(886, 337, "evidence segments", 11, SOFT, text_anchor="middle"),
        text(886, 353, "receipts", 11, SOFT, text_anchor="middle"),
        text(886, 375, "hash chain per run", 11, SOFT, text_anchor="middle"),
    ]
    return parts


def worker() -> list[str]:
    """Return the bar between the steps and the path of a request."""
    return [
        box(20, 168, 940, 44, INK, "#f7f8fa"),
        text(
            490,
            195,
            "Temporal runs the steps; workers act: <tspan font-weight='bold'>fault, lease, undo"
            "</tspan> through the gateway's admin API, <tspan font-weight='bold'>records</tspan> "
            "back",
            13,
            text_anchor="middle",
        ),
        arrow("M490 128 V166"),
        arrow("M350 212 V250", RED),
        text(342, 235, "leases, faults, breaker", 11, RED, text_anchor="end"),
        arrow("M414 252 V214", BLUE),
        text(422, 235, "records, once or twice a second", 11, BLUE),
        arrow("M886 212 V250"),
    ]


def draw() -> str:
    """Return the picture."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="{FONT}" role="img" '
        'aria-label="The loop: admit, steady state, inject, judge, remediate, withdraw, recover, '
        'record; below it the path of a request through the gateway">',
        '<defs><marker id="head" viewBox="0 0 10 10" refX="8.5" refY="5" markerWidth="6.5" '
        'markerHeight="6.5" orient="auto-start-reverse">'
        f'<path d="M0 0 L10 5 L0 10 z" fill="{SOFT}"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{PAPER}"/>',
        text(
            20,
            30,
            "One experiment: break it on purpose, judge it, mend it, prove it",
            16,
            INK,
            font_weight="bold",
        ),
        *steps(),
        *worker(),
        *path_of_a_request(),
        text(
            20,
            432,
            "blue: before anything is broken · red: while the fault holds · green: once it is "
            "gone; withdraw and record come whatever happened before",
            12,
            SOFT,
        ),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("loop.svg").write_text(draw(), encoding="utf-8")
