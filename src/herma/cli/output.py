"""How things reach the terminal. Text may come from anywhere, so nothing in it may steer the terminal.

People get tables, lines and bars; programs get JSON. Colours and bars are for terminals only.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
import time
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal, Protocol, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

# Control characters (escape sequences begin with one) except tab and line feed, bidirectional overrides, which
# reorder what is read, line separators, and lone surrogates, which cannot be encoded at all.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_LINES_EVERY = 2.0  # seconds between progress lines when the total is unknown


class Report(Protocol):
    """How work says how far it is; `done` is absolute."""

    def __call__(self, done: int, total: int | None = None) -> None: ...


def visible(text: str) -> str:
    """The text with control characters spelt out, so that they cannot act."""
    return _UNSAFE.sub(lambda match: _spelt(match[0]), text)


def _spelt(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def colours(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def write(text: str, stream: TextIO | None = None) -> None:
    """One line of text, made safe, to stdout unless told otherwise."""
    (stream or sys.stdout).write(visible(text) + "\n")


def write_json(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=2, default=_plain)
    sys.stdout.write(_UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n")


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, AbstractSet):
        return sorted(value)
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no place in JSON")


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
