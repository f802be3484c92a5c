"""Print to the terminal: wrapped text, tables, progress, and values put into words.

Text may come from anywhere, so nothing in it may steer the terminal. Colours, bars and column limits are for terminals
only; a pipe gets everything, plain.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

from herma.cli.encode import json_text
from herma.text import count as count  # noqa: PLC0414  exported for every command
from herma.text import size as size  # noqa: PLC0414

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console

    from herma.doctor.checks import Diagnosis
    from herma.types import SessionInfo

# Control characters (escape sequences begin with one) except tab and line feed, bidirectional overrides, which
# reorder what is read, line separators, and lone surrogates, which cannot be encoded at all.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_LINES_EVERY = 2.0  # seconds between progress lines when the total is unknown
_COMMAND = re.compile(r"`[^`]*`|(?<=: )herma .*")
_LEAST = 24
"""Cells that the last column of a table gets before other columns are left out."""


def visible(text: str) -> str:
    """Return the text with control characters spelt out, so that they cannot act."""
    return _UNSAFE.sub(lambda match: _spelt(match[0]), text)


def _spelt(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def colours(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def write(text: str, stream: TextIO | None = None) -> None:
    """Write one line of text, made safe, to stdout or another stream."""
    (stream or sys.stdout).write(visible(text) + "\n")


def write_json(value: object) -> None:
    sys.stdout.write(json_text(value) + "\n")


def line_width(stream: TextIO | None = None) -> int | None:
    """Return how many cells a line may have: those of the terminal, or $COLUMNS; None in a pipe."""
    if (stream or sys.stdout).isatty() or os.environ.get("COLUMNS", "").isdigit():
        return max(20, shutil.get_terminal_size().columns)
    return None


def write_wrapped(text: str, *, indent: int | None = None) -> None:
    """Write text, wrapped at words to the width of the terminal.

    Following lines are indented as the first, or by `indent`. Commands to paste are never broken.
    """
    width = line_width()
    for line in visible(text).split("\n"):
        for part in [line] if width is None else wrap(line, width, indent):
            sys.stdout.write(part + "\n")


def wrap(line: str, width: int, indent: int | None = None) -> list[str]:
    """Return a line in pieces of at most so many cells, broken at blanks; a single word may be longer if it is a
    command or an address, and is broken anywhere otherwise."""
    from rich.cells import cell_len, chop_cells

    if cell_len(line) <= width:
        return [line]
    margin = " " * (len(line) - len(line.lstrip()) if indent is None else indent)
    guarded = _COMMAND.sub(lambda match: match[0].replace(" ", "\0"), line)
    lines = [guarded[: len(guarded) - len(guarded.lstrip(" "))]]
    for word in re.split(r"(?<=\S) ", guarded.lstrip(" ")):
        blank = "" if lines[-1] == margin or not lines[-1].strip() else " "
        if cell_len(lines[-1] + blank + word) <= width:
            lines[-1] += blank + word
            continue
        room = max(8, width - len(margin))
        breakable = cell_len(word) > room and "\0" not in word and "/" not in word
        if not lines[-1].strip():
            lines.pop()
        lines += [margin + piece for piece in (chop_cells(word, room) if breakable else [word])]
    return [piece.replace("\0", " ").rstrip() for piece in lines]


# ── tables ──────────────────────────────────────────────────────────────────────────────────────────────────────


def write_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, drop: Sequence[str] = (), cut: bool = False
) -> None:
    """Write rows under their headings.

    A narrow terminal gets fewer columns: those in `drop` go first, in that order, then others from the right; the first
    and the last stay. The last column wraps at words, or is cut to one line. A pipe gets every column whole.
    """
    from rich.cells import cell_len, set_cell_size

    shown = [list(columns), *([_cell(value) for value in row] for row in rows)]
    kept = _fitting(shown, drop, line_width())
    shown = [[row[at] for at in kept] for row in shown]
    widths = [max(cell_len(row[at]) for row in shown) for at in range(len(kept))]
    margin = sum(widths[:-1]) + 2 * (len(widths) - 1)
    total = line_width()
    for number, row in enumerate(shown):
        start = "".join(
            text + " " * (width - cell_len(text) + 2) for text, width in zip(row[:-1], widths, strict=False)
        )
        room = max(8, total - margin) if total is not None else None
        if room is None or cell_len(row[-1]) <= room:
            pieces = [row[-1]]
        else:
            pieces = [set_cell_size(row[-1], room - 1).rstrip() + "…"] if cut else wrap(row[-1], room, 0)
        bold = number == 0 and colours(sys.stdout)
        for at, piece in enumerate(pieces):
            line = ((start if at == 0 else " " * margin) + piece).rstrip()
            sys.stdout.write(f"\x1b[1m{line}\x1b[0m\n" if bold else f"{line}\n")


def _fitting(rows: Sequence[Sequence[str]], drop: Sequence[str], width: int | None) -> list[int]:
    """Return the numbers of the columns that fit beside each other."""
    from rich.cells import cell_len

    kept = list(range(len(rows[0])))
    if width is None or not kept:
        return kept
    widths = [max(cell_len(row[at]) for row in rows) for at in kept]
    first = [at for name in drop for at in kept[:-1] if rows[0][at] == name]
    order = [*first, *(at for at in reversed(kept[1:-1]) if at not in first)]
    for at in order:
        last = min(widths[-1], max(_LEAST, width // 3))
        if sum(widths[one] + 2 for one in kept[:-1]) + last <= width:
            break
        kept.remove(at)
    return kept


def _cell(value: object) -> str:
    return visible(str(value)).replace("\t", " ").replace("\n", " ⏎ ")


def console(stream: TextIO) -> Console:
    """Return a console of rich that interprets no markup."""
    from rich.console import Console

    system: Literal["auto"] | None = "auto" if colours(stream) else None
    return Console(file=stream, markup=False, emoji=False, highlight=False, color_system=system)


# ── progress ────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def progress(label: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """Show progress on stderr: a bar on a terminal, a line now and then elsewhere.

    The block calls the result with the absolute count, and the total if it becomes known.
    """
    if sys.stderr.isatty():
        with _bar(visible(label), total) as report:
            yield report
    else:
        lines = _Lines(label, total)
        yield lines
        lines.finish()


@contextmanager
def _bar(label: str, total: int | None) -> Iterator[Callable[..., None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console(sys.stderr)) as bar:
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


# ── values in words ─────────────────────────────────────────────────────────────────────────────────────────────


def when(at: float | None) -> str:
    """Return the local time to the minute; `-` for none, seconds for a time that no calendar has."""
    if at is None:
        return "-"
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
    except (ValueError, OverflowError, OSError):
        return f"{at:.0f}"


def short_when(at: float | None) -> str:
    """Return a shorter time: month and minute of this year, else the date."""
    whole = when(at)
    return whole[5:] if whole[:4] == time.strftime("%Y") else whole[:10]


def one_line(text: str, width: int) -> str:
    """Return the beginning of a text on one line."""
    line = " ".join(text[: width * 4].split())
    return line if len(line) <= width and len(text) <= width * 4 else line[: width - 1].rstrip() + "…"


def name_of(session: SessionInfo, width: int = 72) -> str:
    """Return the title of a conversation, or its beginning."""
    if session.title:
        return session.title
    return one_line(session.preview, width) if session.preview else "(empty)" if not session.message_count else "-"


def marked_name(session: SessionInfo) -> str:
    """Return the name, with marks for archived and branched sessions in front."""
    marks = "[archived] " if session.archived else ""
    return f"{marks}{'[branch] ' if session.reason == 'branch' else ''}{name_of(session)}"


def databases(home: Path) -> dict[str, int]:
    """Return the size of each database on disk, with its log."""
    return {name: _on_disk(home / name) for name in ("herma.db", "index.db")}


def _on_disk(path: Path) -> int:
    total = 0
    for part in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-journal")):
        try:
            total += part.stat().st_size
        except OSError:
            continue
    return total


def percent(used: int, limit: int) -> int:
    return used * 100 // limit if limit else 100


def verdict(diagnosis: Diagnosis) -> str:
    """Return the diagnosis in a sentence."""
    problems, warnings = len(diagnosis.of("problem")), len(diagnosis.of("warning"))
    if problems:
        return f"{count(problems, 'problem')}, {count(warnings, 'warning')}."
    return f"OK, with {count(warnings, 'warning')}." if warnings else "Everything works."
