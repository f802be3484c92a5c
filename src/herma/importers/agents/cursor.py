"""Read the chats of Cursor: transcripts of its agent as JSON lines, and those of the editor in `state.vscdb`."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from herma.importers.base import (
    FormatReader,
    ImportedMessage,
    ImportedSession,
    ImportedUsage,
    Item,
    Machine,
    Parts,
    ReadLog,
    digest,
    first_of,
    items,
    json_beside,
    mapping,
    messages_of,
    moment,
    parsed,
    parts_of,
    records_of,
    result_text,
    string,
    tool_call,
    usage_of,
    whole,
)

_QUERY = re.compile(r"\s*<user_query>\s*(.*?)\s*</user_query>\s*", re.DOTALL)


class Cursor(FormatReader):
    name = "cursor"
    title = "Cursor"
    edits = True
    patterns = ("**/agent-transcripts/**/*.jsonl", "globalStorage/state.vscdb", "**/*.jsonl", "state.vscdb")

    def places(self, machine: Machine) -> Iterable[Path]:
        return machine.home / ".cursor" / "projects", machine.application("Cursor", "User")

    def files(self, place: Path) -> Iterator[Path]:
        for file in super().files(place):
            if "agent-transcripts" in file.parts or place.name != "projects":
                yield file

    def recognises(self, file: Path, head: bytes) -> bool:
        if file.suffix == ".vscdb":
            return True
        return any(one.get("role") in ("user", "assistant") and "content" in mapping(one.get("message"))
                   and "type" not in one for one in records_of(head))  # fmt: skip

    def read(self, file: Path, log: ReadLog) -> Iterator[Item]:
        yield from _database(file, log) if file.suffix == ".vscdb" else _lines(file, log)


# ── the agent's transcripts: no times, ids or results of tools ──


def _lines(file: Path, log: ReadLog) -> Iterator[Item]:
    about = ImportedSession(file.stem)
    if file.parent.name == "subagents":
        beside = [one.stem for one in file.parents[1].glob("*.jsonl")]
        folder = file.parents[1].name
        about.parent, about.reason = beside[0] if len(beside) == 1 else folder, "delegation"
    base = next((folder.parent for folder in file.parents if folder.name == "projects"), None)
    store = next(iter(base.glob(f"chats/*/{file.stem}/store.db")), None) if base else None
    if store:
        meta = _meta(store, log)
        about.title, about.model = string(meta.get("name")), string(meta.get("lastUsedModel"))
        about.started = moment(meta.get("createdAt"))
    yield about
    for record in log.json_lines(file):
        role = string(record.get("role"))
        if role in ("user", "assistant"):
            parts = parts_of(mapping(record.get("message")).get("content"), log)
            if role == "user" and (asked := _QUERY.fullmatch(parts.text)):
                parts = parts._replace(text=asked[1])
            yield from messages_of(file.stem, f"{log.line} {digest(parts)}", role, parts)
        elif "type" in record:
            log.skip(string(record["type"]))
        else:
            log.meet_unknown(role)


def _meta(store: Path, log: ReadLog) -> dict[str, Any]:
    """Return what the command line's own database says of a chat: hex-encoded JSON."""
    try:
        with log.database(store) as database:
            row = database.execute("SELECT value FROM meta WHERE key = '0'").fetchone()
            return mapping(json.loads(bytes.fromhex(row[0]))) if row else {}
    except (sqlite3.Error, ValueError, TypeError):
        return {}


# ── the editor's database ──


def _database(file: Path, log: ReadLog) -> Iterator[Item]:
    folders = _folders(file, log)
    with log.database(file) as database:
        tables = {row[0] for row in log.rows(database, "SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "cursorDiskKV" not in tables:
            log.skip("database without chats")
            return
        chats = "SELECT key, value FROM cursorDiskKV WHERE key >= 'composerData:' AND key < 'composerData;'"
        for row in log.rows(database, chats):
            log.line += 1
            chat = parsed(row["value"], log)
            session = string(chat.get("composerId")) or row["key"].partition(":")[2]
            about = ImportedSession(session, title=string(chat.get("name")), folder=folders.get(session, ""))
            about.started = moment(chat.get("createdAt"))
            about.model = string(mapping(chat.get("modelConfig")).get("modelName"))
            yield about
            for number, bubble in enumerate(_bubbles(database, session, chat, log)):
                yield from _bubble(session, number, bubble, log)


def _bubbles(
    database: sqlite3.Connection, session: str, chat: dict[str, Any], log: ReadLog
) -> Iterator[dict[str, Any]]:
    """Yield the messages of a chat: inside it, as older versions kept them, or in rows of their own."""
    yield from (mapping(one) for one in items(chat.get("conversation")))
    for header in items(chat.get("fullConversationHeadersOnly")):
        bubble = string(mapping(header).get("bubbleId"))
        key = f"bubbleId:{session}:{bubble}"
        row = next(log.rows(database, "SELECT value FROM cursorDiskKV WHERE key = ?", key), None)
        if row is None:
            log.meet_broken("message that the chat names, but the database does not have")
            continue
        yield {"bubbleId": bubble, "type": mapping(header).get("type"), **parsed(row["value"], log)}


def _bubble(session: str, number: int, bubble: dict[str, Any], log: ReadLog) -> Iterator[Item]:
    key = string(bubble.get("bubbleId")) or f"message {number}"
    timing = mapping(bubble.get("timingInfo"))
    at = moment(bubble.get("createdAt")) or moment(first_of(timing, "clientStartTime", "clientEndTime"))
    role = {1: "user", 2: "assistant"}.get(whole(bubble.get("type")), "")
    if not role:
        log.meet_unknown(f"message type {bubble.get('type')}")
        return
    tool = mapping(bubble.get("toolFormerData"))
    calls: tuple[dict[str, Any], ...] = ()
    if tool.get("name") or tool.get("tool"):
        given = first_of(tool, "rawArgs", "params")
        calls = (tool_call(string(tool.get("toolCallId")) or key, str(tool.get("name") or tool.get("tool")), given),)
    thinking = bubble.get("thinking")
    thought = string(mapping(thinking).get("text")) or string(thinking)
    parts = Parts(string(bubble.get("text")), thought, calls)
    if any(parts[:3]):
        yield from messages_of(session, key, role, parts, at)
    else:
        log.skip("message without text")
    if calls and tool.get("result") is not None:
        result = result_text(tool["result"])
        yield ImportedMessage(session, (f"{key} 0",), "tool", result, at, tool_call_id=calls[0]["id"])
    tokens = mapping(bubble.get("tokenCount"))
    counted = {"input": tokens.get("inputTokens"), "output": tokens.get("outputTokens")}
    if any(counted.values()):
        yield ImportedUsage(session, f"usage {key}", usage_of(counted))


def _folders(file: Path, log: ReadLog) -> dict[str, str]:
    """Return the folder of each chat, from the databases of the workspaces."""
    found: dict[str, str] = {}
    for place in file.parents[1].glob("workspaceStorage/*/state.vscdb"):
        folder = unquote(urlparse(string(json_beside(place.with_name("workspace.json")).get("folder"))).path)
        try:
            with log.database(place) as database:
                sql = "SELECT value FROM ItemTable WHERE key = 'composer.composerData'"
                rows = database.execute(sql).fetchall()
        except sqlite3.Error:
            continue
        for row in rows:
            chats = items(parsed(row[0], log).get("allComposers"))
            found |= {string(mapping(chat).get("composerId")): folder for chat in chats}
    return found
