"""How things reach the terminal. Text may come from anywhere, so nothing in it may steer the terminal.

People get tables, lines and bars; programs get JSON. Colours and bars are for terminals only.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, Protocol, TextIO

from herma.wording.plain import json_text, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

__all__ = ["Report", "colours", "progress", "visible", "write", "write_json", "write_table"]
_LINES_EVERY = 2.0  # seconds between progress lines when the total is unknown


class Report(Protocol):
    """How work says how far it is; `done` is absolute."""

    def __call__(self, done: int, total: int | None = None) -> None: ...


def colours(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def write(text: str, stream: TextIO | None = None) -> None:
    """One line of text, made safe, to stdout unless told otherwise."""
    (stream or sys.stdout).write(visible(text) + "\n")


def write_json(value: object) -> None:
    sys.stdout.write(json_text(value) + "\n")


# ── tables ──────────────────────────────────────────────────────────────────────────────────────────────────────


def write_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Rows under their headings: as wide as the terminal and folded, or one plain line per row elsewhere."""
    cells = [[_cell(value) for value in row] for row in rows]
    if sys.stdout.isatty():
        _rich_table(columns, cells)
        return
    from rich.cells import cell_len

    lines = [list(columns), *cells]
    widths = [max(cell_len(line[at]) for line in lines) for at in range(len(columns))]
    for line in lines:
        padded = (text + " " * (width - cell_len(text)) for text, width in zip(line, widths, strict=True))
        sys.stdout.write("  ".join(padded).rstrip() + "\n")


def _cell(value: object) -> str:
    return visible(str(value)).replace("\t", " ").replace("\n", "⏎ ")


def _rich_table(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for at, name in enumerate(columns):
        table.add_column(Text(name), overflow="fold", no_wrap=at == 0)
    for row in cells:
        table.add_row(*(Text(text) for text in row))
    _console(sys.stdout).print(table)


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    system: Literal["auto"] | None = "auto" if colours(stream) else None
    return Console(file=stream, markup=False, emoji=False, highlight=False, color_system=system)


# ── progress ────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def progress(label: str, total: int | None = None) -> Iterator[Report]:
    """A bar on a terminal, a line now and then elsewhere; both on stderr, so that stdout stays clean."""
    if sys.stderr.isatty():
        with _bar(visible(label), total) as report:
            yield report
    else:
        lines = _Lines(label, total)
        yield lines
        lines.finish()


@contextmanager
def _bar(label: str, total: int | None) -> Iterator[Report]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=_console(sys.stderr)) as bar:
        task = bar.add_task(label, total=total)

        def report(done: int, total: int | None = None) -> None:
            bar.update(task, completed=done, total=total)

        yield report


class _Lines:
    """Progress as lines: at every tenth of a known total, every two seconds of an unknown one, and at the end."""

    def __init__(self, label: str, total: int | None) -> None:
        self._label, self._total = label, total
        self._done, self._tenth, self._said, self._at = 0, 0, -1, time.monotonic()

    def __call__(self, done: int, total: int | None = None) -> None:
        self._done, self._total = done, total if total is not None else self._total
        if self._total:
            tenth = done * 10 // self._total
            due = tenth > self._tenth
            self._tenth = max(tenth, self._tenth)
        else:
            due = time.monotonic() - self._at >= _LINES_EVERY
        if due:
            self._say()

    def finish(self) -> None:
        if self._said != self._done:
            self._say()

    def _say(self) -> None:
        self._said, self._at = self._done, time.monotonic()
        of = f" of {self._total}" if self._total is not None else ""
        write(f"{self._label}: {self._done}{of}", sys.stderr)
