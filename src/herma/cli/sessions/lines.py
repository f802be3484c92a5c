"""One line per row, whatever the terminal is wide: the last column is cut to what is left, nothing is folded."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence

from herma.cli import output
from herma.cli.frame import Context

_LEAST = 12
"""Cells that the last column gets on the narrowest terminal."""


def write_lines(context: Context, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Rows under their headings. Elsewhere than on a terminal nothing is cut."""
    if context.json:
        return
    if not sys.stdout.isatty():
        context.table(columns, rows)
        return
    from rich.cells import cell_len

    cells = [list(columns), *([_flat(value) for value in row] for row in rows)]
    widths = [max(cell_len(row[at]) for row in cells) for at in range(len(columns) - 1)]
    room = max(_LEAST, shutil.get_terminal_size().columns - sum(widths) - 2 * len(widths) - 1)
    for number, row in enumerate(cells):
        padded = [text + " " * (width - cell_len(text)) for text, width in zip(row, widths, strict=False)]
        line = "  ".join([*padded, cut(row[-1], room)]).rstrip()
        bold = number == 0 and output.colours(sys.stdout)
        sys.stdout.write(f"\x1b[1m{line}\x1b[0m\n" if bold else f"{line}\n")


def write_fields(context: Context, fields: Iterable[tuple[str, str]], width: int) -> None:
    """A line for each field that says something, its name in a column of this width."""
    for name, text in fields:
        if text:
            context.line(f"{name:{width}}{text}")


def cut(text: str, room: int) -> str:
    """As much of a text as fits into so many cells; some characters take two."""
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= room else set_cell_size(text, room - 1).rstrip() + "…"


def _flat(value: object) -> str:
    return output.visible(str(value)).replace("\t", " ").replace("\n", " ")
