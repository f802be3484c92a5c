"""Read the chats of Cursor: transcripts of its agent as JSON lines, and those of the editor in `state.vscdb`."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from herma.importers import base

_QUERY = re.compile(r"\s*<user_query>\s*(.*?)\s*</user_query>\s*", re.DOTALL)


class Cursor(base.FormatReader):
    name = "cursor"
    title = "Cursor"
    edits = True
    patterns = ("**/agent-transcripts/**/*.jsonl", "globalStorage/state.vscdb", "**/*.jsonl", "state.vscdb")

    def places(self, machine: base.Machine) -> Iterable[Path]:
        return machine.home / ".cursor" / "projects", machine.application("Cursor", "User")

    def files(self, place: Path) -> Iterator[Path]:
        for file in super().files(place):
            if "agent-transcripts" in file.parts or place.name != "projects":
                yield file

    def recognises(self, file: Path, head: bytes) -> bool:
        if file.suffix == ".vscdb":
            return True
        return any(one.get("role") in ("user", "assistant") and "content" in base.mapping(one.get("message"))
                   and "type" not in one for one in base.records_of(head))  # fmt: skip

    def read(self, file: Path, log: base.ReadLog) -> Iterator[base.Item]:
        yield from _database(file, log) if file.suffix == ".vscdb" else _lines(file, log)


# ── the agent's transcripts: no times, ids or results of tools ──


def _lines(file: Path, log: base.ReadLog) -> Iterator[base.Item]:
    about = base.ImportedSession(file.stem)
    if file.parent.name == "subagents":
        beside = [one.stem for one in file.parents[1].glob("*.jsonl")]
        folder = file.parents[1].name
        about.parent, about.reason = beside[0] if len(beside) == 1 else folder, "delegation"
    root = next((folder.parent for folder in file.parents if folder.name == "projects"), None)
    store = next(iter(root.glob(f"chats/*/{file.stem}/store.db")), None) if root else None
    if store:
        meta = _meta(store, log)
        about.title, about.model = base.string(meta.get("name")), base.string(meta.get("lastUsedModel"))
        about.started = base.moment(meta.get("createdAt"))
    yield about
    for record in log.json_lines(file):
        role = base.string(record.get("role"))
        if role in ("user", "assistant"):
            parts = base.parts_of(base.mapping(record.get("message")).get("content"), log)
            if role == "user" and (asked := _QUERY.fullmatch(parts.text)):
                parts = parts._replace(text=asked[1])
            yield from base.messages_of(file.stem, f"{log.line} {base.digest(parts)}", role, parts)
        elif "type" in record:
            log.skip(base.string(record["type"]))
        else:
            log.meet_unknown(role)


def _meta(store: Path, log: base.ReadLog) -> dict[str, Any]:
    """Return what the command line's own database says of a chat: hex-encoded JSON."""
    try:
        with log.database(store) as database:
            row = database.execute("SELECT value FROM meta WHERE key = '0'").fetchone()
            return base.mapping(json.loads(bytes.fromhex(row[0]))) if row else {}
    except (sqlite3.Error, ValueError, TypeError):
        return {}


# ── the editor's database ──


def _database(file: Path, log: base.ReadLog) -> Iterator[base.Item]:
    folders = _folders(file, log)
    with log.database(file) as database:
        tables = {row[0] for row in log.rows(database, "SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "cursorDiskKV" not in tables:
            log.skip("database without chats")
            return
        chats = "SELECT key, value FROM cursorDiskKV WHERE key >= 'composerData:' AND key < 'composerData;'"
        for row in log.rows(database, chats):
            log.line += 1
            chat = base.parsed(row["value"], log)
            session = base.string(chat.get("composerId")) or row["key"].partition(":")[2]
            about = base.ImportedSession(session, title=base.string(chat.get("name")), folder=folders.get(session, ""))
            about.started = base.moment(chat.get("createdAt"))
            about.model = base.string(base.mapping(chat.get("modelConfig")).get("modelName"))
            yield about
            for number, bubble in enumerate(_bubbles(database, session, chat, log)):
                yield from _bubble(session, number, bubble, log)


def _bubbles(
    database: sqlite3.Connection, session: str, chat: dict[str, Any], log: base.ReadLog
) -> Iterator[dict[str, Any]]:
    """Yield the messages of a chat: inside it, as older versions kept them, or in rows of their own."""
    yield from (base.mapping(one) for one in base.items(chat.get("conversation")))
    for header in base.items(chat.get("fullConversationHeadersOnly")):
        bubble = base.string(base.mapping(header).get("bubbleId"))
        key = f"bubbleId:{session}:{bubble}"
        row = next(log.rows(database, "SELECT value FROM cursorDiskKV WHERE key = ?", key), None)
        if row is None:
            log.meet_broken("message that the chat names, but the database does not have")
            continue
        yield {"bubbleId": bubble, "type": base.mapping(header).get("type"), **base.parsed(row["value"], log)}


def _bubble(session: str, number: int, bubble: dict[str, Any], log: base.ReadLog) -> Iterator[base.Item]:
    key = base.string(bubble.get("bubbleId")) or f"message {number}"
    timing = base.mapping(bubble.get("timingInfo"))
    at = base.moment(bubble.get("createdAt")) or base.moment(base.first_of(timing, "clientStartTime", "clientEndTime"))
    role = {1: "user", 2: "assistant"}.get(base.whole(bubble.get("type")), "")
    if not role:
        log.meet_unknown(f"message type {bubble.get('type')}")
        return
    tool = base.mapping(bubble.get("toolFormerData"))
    calls: tuple[dict[str, Any], ...] = ()
    if tool.get("name") or tool.get("tool"):
        given = base.first_of(tool, "rawArgs", "params")
        calls = (
            base.tool_call(
                base.string(tool.get("toolCallId")) or key, str(tool.get("name") or tool.get("tool")), given
            ),
        )
    thinking = bubble.get("thinking")
    thought = base.string(base.mapping(thinking).get("text")) or base.string(thinking)
    parts = base.Parts(base.string(bubble.get("text")), thought, calls)
    if any(parts[:3]):
        yield from base.messages_of(session, key, role, parts, at)
    else:
        log.skip("message without text")
    if calls and tool.get("result") is not None:
        result = base.result_text(tool["result"])
        yield base.ImportedMessage(session, (f"{key} 0",), "tool", result, at, tool_call_id=calls[0]["id"])
    tokens = base.mapping(bubble.get("tokenCount"))
    counted = {"input": tokens.get("inputTokens"), "output": tokens.get("outputTokens")}
    if any(counted.values()):
        yield base.ImportedUsage(session, f"usage {key}", base.usage_of(counted))


def _folders(file: Path, log: base.ReadLog) -> dict[str, str]:
    """Return the folder of each chat, from the databases of the workspaces."""
    found: dict[str, str] = {}
    for place in file.parents[1].glob("workspaceStorage/*/state.vscdb"):
        folder = unquote(urlparse(base.string(base.json_beside(place.with_name("workspace.json")).get("folder"))).path)
        try:
            with log.database(place) as database:
                sql = "SELECT value FROM ItemTable WHERE key = 'composer.composerData'"
                rows = database.execute(sql).fetchall()
        except sqlite3.Error:
            continue
        for row in rows:
            chats = base.items(base.parsed(row[0], log).get("allComposers"))
            found |= {base.string(base.mapping(chat).get("composerId")): folder for chat in chats}
    return found
