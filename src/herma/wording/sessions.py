"""How sessions are put into words for people, and into JSON for programs."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from herma.transcript.wire import to_wire
from herma.types import Message, SessionInfo, TranscriptStats

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
