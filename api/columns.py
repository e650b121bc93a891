"""Columns of plain text in which what people copy is never cut off.

In a pipe nothing is cut or left out. On a terminal the columns on the right are cut short or left
out where the line would be too wide; the first ones stay whole, though the line be wider.
"""

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

GAP = "  "
LONGEST_ON_A_TERMINAL = 24
"""Cells of a column that may be cut. Source: ours: a login name and more."""


def lines(rows: Sequence[Sequence[str]], kept: int, width: int | None) -> list[str]:
    """Return the rows as aligned lines, the first row being the titles.

    Args:
        rows: cells; all rows have as many.
        kept: the first so many columns are never cut or left out.
        width: cells of the terminal; None: a pipe.
    """
    columns = [list(column) for column in zip(*rows, strict=True)]
    if width is not None:
        columns[kept:] = [[_short(cell) for cell in column] for column in columns[kept:]]
    widths = [max(cell_len(cell) for cell in column) for column in columns]
    while width is not None and len(widths) > kept and _total(widths) > width:
        widths.pop()
    return [
        GAP.join(
            cell + " " * (wide - cell_len(cell)) for cell, wide in zip(row, widths, strict=True)
        ).rstrip()
        for row in zip(*columns[: len(widths)], strict=True)
    ]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _short(cell: str) -> str:
    if cell_len(cell) <= LONGEST_ON_A_TERMINAL:
        return cell
    return set_cell_size(cell, LONGEST_ON_A_TERMINAL - 1) + "…"
