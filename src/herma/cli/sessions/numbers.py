"""`herma sessions stats`: how much there is, where it came from, and what it takes on disk."""

from __future__ import annotations

import json

import click

from herma.cli.sessions.desk import Desk, sessions, with_sessions
from herma.cli.sessions.lines import write_lines
from herma.cli.sessions.wording import Json, count, name_of, size, when
from herma.transcript.wire import text_of
from herma.types import Message, SessionFilter, SessionInfo, TranscriptStats
from herma.wording.sessions import databases, stats_json

_LARGEST = 5


@sessions.command(short_help="How much there is, and what it takes on disk")
@click.option("--quick", is_flag=True, help="Do not read every message to measure the text.")
@with_sessions
def stats(desk: Desk, quick: bool) -> None:
    """Count sessions and messages, and compare the files with the text that is in them.

    \b
    Examples:
      herma sessions stats
      herma sessions stats --quick --json
    """
    total = desk.transcripts.stats()
    files = databases(desk.h.home)
    lines = [] if quick else desk.transcripts.list(SessionFilter(), limit=2**31)
    texts = _measured(desk, lines, total.messages)
    largest = sorted(lines, key=lambda one: texts[one.id], reverse=True)[:_LARGEST]
    if desk.context.json:
        desk.context.print_json(_as_json(total, files, texts, largest, quick=quick))
        return
    _counts(desk, total)
    if total.sessions:
        rows = [(source, f"{n:,}", f"{m:,}") for source, (n, m) in sorted(total.sources.items(), key=_by_messages)]
        desk.context.line()
        desk.context.table(["source", "sessions", "messages"], rows)
    _sizes(desk, files, None if quick else sum(texts.values()))
    if largest:
        desk.context.line()
        listed = [(one.id, size(texts[one.id]), f"{one.message_count:,}", name_of(one)) for one in largest]
        write_lines(desk.context, ["largest", "text", "messages", "title or first words"], listed)


def _measured(desk: Desk, lines: list[SessionInfo], total: int) -> dict[str, int]:
    """Bytes of text of each conversation: what was said, tool calls and results, reasoning."""
    found: dict[str, int] = {}
    done = 0
    if not lines:
        return found
    with desk.progress("Measuring messages", total) as report:
        for line in lines:
            found[line.id] = 0
            for member in desk.transcripts.conversation(line.id):
                after: int | None = None
                while some := desk.transcripts.messages(member.id, include_hidden=True, after=after, limit=500):
                    found[line.id] += sum(map(_text_bytes, some))
                    after = some[-1].id
                    done += len(some)
                    report(min(done, total), total)
    return found


def _text_bytes(message: Message) -> int:
    calls = json.dumps(message.tool_calls, ensure_ascii=False) if message.tool_calls else ""
    content = message.content
    said = text_of(content) if not isinstance(content, list) else json.dumps(content, ensure_ascii=False)
    return len(said.encode()) + len(calls.encode()) + len((message.reasoning or "").encode())


def _by_messages(item: tuple[str, tuple[int, int]]) -> tuple[int, str]:
    return -item[1][1], item[0]


def _counts(desk: Desk, total: TranscriptStats) -> None:
    desk.context.line(
        f"{count(total.conversations, 'conversation')}, {count(total.sessions, 'session')}, "
        f"{count(total.messages, 'message')}"
        + (f", {when(total.first)} to {when(total.last)}" if total.first is not None else "")
    )
    usage, deleted = total.usage, len(desk.deleted())
    waiting = total.deleted_sessions - deleted
    special = [
        f"{count(total.archived_sessions, 'session')} archived" if total.archived_sessions else "",
        f"{count(deleted, 'session')} deleted" if deleted else "",
        f"{count(waiting, 'session')} waiting to be purged" if waiting > 0 else "",
        f"{count(total.hidden_messages, 'message')} hidden" if total.hidden_messages else "",
        f"{usage.input + usage.output:,} tokens" if usage.input + usage.output else "",
        f"${usage.cost_usd:,.2f}" if usage.cost_usd else "",
    ]
    if any(special):
        desk.context.line(" · ".join(part for part in special if part))


def _sizes(desk: Desk, files: dict[str, int], text: int | None) -> None:
    desk.context.line()
    if text is not None:
        desk.context.line(f"text      {size(text)}")
    for name, taken in files.items():
        if taken:
            times = f"  {taken / text:.1f} × the text" if text else ""
            desk.context.line(f"{name:<9} {size(taken)}{times}")
    if not files["index.db"]:
        desk.context.line("index.db  not there; the next search builds it")


def _as_json(
    total: TranscriptStats, files: dict[str, int], texts: dict[str, int], largest: list[SessionInfo], *, quick: bool
) -> Json:
    return {
        "ok": True,
        **stats_json(total),
        "text_bytes": None if quick else sum(texts.values()),
        "files": files,
        "largest": [{"id": one.id, "title": one.title, "text_bytes": texts[one.id]} for one in largest],
    }
