"""Tables, progress, values → lines and JSON (one encoder for CLI and dashboard)."""

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
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, Protocol, TextIO

from herma.transcript.messages import to_wire
from herma.types import Message, Scope, SessionInfo, StoreStatus, TranscriptStats

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from herma.doctor.checks import Diagnosis


# ---------- wording.plain
#
# Text and JSON that cannot steer where they are shown. Loaded at every start, so it loads nothing itself.

# Control characters (escape sequences begin with one) except tab and line feed, bidirectional overrides, which
# reorder what is read, line separators, and lone surrogates, which cannot be encoded at all.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """The text with control characters spelt out, so that they cannot act."""
    return _UNSAFE.sub(lambda match: _spelt(match[0]), text)


def _spelt(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def json_text(value: object) -> str:
    """A value as JSON, with dataclasses, paths, sets and mappings in it, and nothing that could act."""
    text = json.dumps(value, ensure_ascii=False, indent=2, default=_plain)
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


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


# ---------- cli.output
#
# How things reach the terminal. Text may come from anywhere, so nothing in it may steer the terminal.
#
# People get tables, lines and bars; programs get JSON. Colours and bars are for terminals only.

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


# ---------- wording.sessions
#
# How sessions are put into words for people, and into JSON for programs.

Json = dict[str, Any]


def count(number: int, one: str, many: str = "") -> str:
    """`1 session`, `2 sessions`, `2 entries`."""
    if not many:
        many = f"{one[:-1]}ies" if one.endswith("ry") else f"{one}s"
    return f"{number:,} {one if number == 1 else many}"


def size(number: float) -> str:
    """Bytes as people say them: `640 bytes`, `12.4 MB`."""
    if number < 1000:
        return count(int(number), "byte")
    for unit in ("kB", "MB", "GB"):
        number /= 1000
        if number < 1000:
            return f"{number:.1f} {unit}"
    return f"{number / 1000:.1f} TB"


def when(at: float | None) -> str:
    """Local time to the minute; `-` where there is none, seconds where no calendar has it."""
    if at is None:
        return "-"
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
    except (ValueError, OverflowError, OSError):
        return f"{at:.0f}"


def short_when(at: float | None) -> str:
    """The same in less room: without the year where it is this year's, without the time where it is not."""
    whole = when(at)
    return whole[5:] if whole[:4] == time.strftime("%Y") else whole[:10]


def iso(at: float | None) -> str | None:
    if at is None:
        return None
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return None


def one_line(text: str, width: int) -> str:
    """The beginning of a text on one line."""
    line = " ".join(text[: width * 4].split())
    return line if len(line) <= width and len(text) <= width * 4 else line[: width - 1].rstrip() + "…"


def name_of(session: SessionInfo, width: int = 72) -> str:
    """What people know a conversation by: its title, or how it begins."""
    if session.title:
        return session.title
    return one_line(session.preview, width) if session.preview else "(empty)" if not session.message_count else "-"


def marked_name(session: SessionInfo) -> str:
    """The same with what is special about it in front."""
    marks = "[archived] " if session.archived else ""
    return f"{marks}{'[branch] ' if session.reason == 'branch' else ''}{name_of(session)}"


# ── JSON ──


def session_json(session: SessionInfo) -> Json:
    return {
        "id": session.id,
        "title": session.title,
        "source": session.source,
        "project": session.scope.project or None,
        "user": session.scope.user or None,
        "chat": session.scope.chat or None,
        "chat_type": session.chat_type or None,
        "model": session.model,
        "provider": session.provider or None,
        "folder": session.folder or None,
        "branch": session.branch or None,
        "started": iso(session.started),
        "last_active": iso(session.last_active),
        "ended": iso(session.ended),
        "end_reason": session.end_reason,
        "conversation": session.conversation,
        "parent": session.parent,
        "reason": session.reason,
        "archived": session.archived,
        "deleted": iso(session.deleted),
        "messages": session.message_count,
        "tool_calls": session.tool_call_count,
        "usage": asdict(session.usage),
        "preview": session.preview,
    }


def message_json(message: Message) -> Json:
    """Everything that is kept of a message, under the names that models use."""
    kept = to_wire(message, kept=True)
    return {
        "id": message.id,
        "session": message.session_id,
        **kept,
        "timestamp": iso(message.timestamp),
        "hidden": message.hidden or None,
    }


def stats_json(total: TranscriptStats) -> Json:
    return {
        "sessions": total.sessions,
        "conversations": total.conversations,
        "messages": total.messages,
        "hidden_messages": total.hidden_messages,
        "archived_sessions": total.archived_sessions,
        "deleted_sessions": total.deleted_sessions,
        "first": iso(total.first),
        "last": iso(total.last),
        "usage": asdict(total.usage),
        "sources": {name: {"sessions": n, "messages": m} for name, (n, m) in total.sources.items()},
        "payloads": {"count": total.payloads, "stored": total.payload_bytes, "text": total.payload_text_bytes},
    }


# ── files ──


def databases(home: Path) -> dict[str, int]:
    """What the databases take on disk, each with the files that belong to it."""
    return {name: _on_disk(home / name) for name in ("herma.db", "index.db")}


def _on_disk(path: Path) -> int:
    total = 0
    for part in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-journal")):
        try:
            total += part.stat().st_size
        except OSError:
            continue
    return total


# ---------- wording.memory
#
# Curated memory at a glance, as JSON: `herma memory status --json` and the dashboard.


def percent(used: int, limit: int) -> int:
    return used * 100 // limit if limit else 100


def scope_json(scope: Scope) -> Json:
    return {"project": scope.project or None, "user": scope.user or None}


def status_json(status: StoreStatus, *, enabled: bool) -> Json:
    return {
        "target": status.target,
        **scope_json(status.scope),
        "path": status.path,
        "enabled": enabled,
        "entry_count": status.entry_count,
        "used": status.used,
        "limit": status.limit,
        "percent": percent(status.used, status.limit),
        "changes": status.changes,
        "pending": status.pending,
        "flagged": status.findings,
        "trouble": status.trouble,
    }


# ---------- wording.health
#
# What a doctor found, in one line and as JSON: `herma doctor` and the dashboard.


def verdict(diagnosis: Diagnosis) -> str:
    """`Healthy; 1 warning.`"""
    problems, warnings = len(diagnosis.of("problem")), len(diagnosis.of("warning"))
    if problems:
        return f"{count(problems, 'problem')}, {count(warnings, 'warning')}."
    return f"Healthy; {count(warnings, 'warning')}." if warnings else "Healthy."


def diagnosis_json(diagnosis: Diagnosis) -> Json:
    return {
        "ok": diagnosis.healthy,
        "healthy": diagnosis.healthy,
        "home": diagnosis.home,
        "checks": [asdict(check) for check in diagnosis.checks],
        "guests": [
            {"name": one.name, "failures": one.times, "last": iso(one.at), "at": one.what, "why": one.why}
            for one in diagnosis.guests
        ],
    }
