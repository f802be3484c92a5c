"""Read the sessions of Goose: `sessions.db`, which took over the files of versions before 1.10."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from herma.importers.base import (
    FormatReader,
    ImportedSession,
    ImportedUsage,
    Item,
    Machine,
    ReadLog,
    first_of,
    items,
    mapping,
    messages_of,
    moment,
    parts_of,
    result_text,
    string,
    usage_of,
)

_SKIPPED = {
    "image", "redactedThinking", "systemNotification", "toolConfirmationRequest", "frontendToolRequest",
    "contextLengthExceeded", "summarizationRequested", "actionRequired",
}  # fmt: skip


class Goose(FormatReader):
    name = "goose"
    title = "Goose"
    edits = True
    patterns = ("sessions.db",)

    def places(self, machine: Machine) -> Iterable[Path]:
        if machine.platform == "win32":
            return (machine.application("Block", "goose", "data", "sessions"),)
        return (machine.data("goose", "sessions"),)

    def recognises(self, file: Path, head: bytes) -> bool:
        return file.name == "sessions.db" and head.startswith(b"SQLite format 3")

    def read(self, file: Path, log: ReadLog) -> Iterator[Item]:
        with log.database(file) as database:
            yield from _sessions(database, log)


def _sessions(database: sqlite3.Connection, log: ReadLog) -> Iterator[Item]:
    for row in log.rows(database, "SELECT * FROM sessions ORDER BY created_at, id"):
        about = dict(row)
        session = str(about.get("id"))
        if about.get("session_type") not in (None, "user"):
            log.skip(f"session {about['session_type']}")
            continue
        config = mapping(_json(about.get("model_config_json")))
        yield ImportedSession(
            session,
            title=string(first_of(about, "name", "description")),
            model=string(config.get("model_name")),
            provider=string(about.get("provider_name")),
            folder=string(about.get("working_dir")),
            started=moment(about.get("created_at")),
        )
        used = {"input": "accumulated_input_tokens", "output": "accumulated_output_tokens"}
        if any(about.get(name) for name in used.values()):
            counted = {kind: about.get(name) for kind, name in used.items()}
            yield ImportedUsage(session, "usage", usage_of(counted), total=True)
        said = "SELECT * FROM messages WHERE session_id = ? ORDER BY id"
        for message in log.rows(database, said, about.get("id")):
            log.line += 1
            one = dict(message)
            content = _json(one.get("content_json"))
            if content is None:
                log.meet_broken("not JSON")
            key = string(one.get("message_id")) or f"row {one.get('id')}"
            at = moment(one.get("created_timestamp"))
            yield from _message(session, key, string(one.get("role")), content, at, log)


def _message(session: str, key: str, role: str, content: object, at: float, log: ReadLog) -> Iterator[Item]:
    if role not in ("user", "assistant", "system"):
        log.meet_unknown(f"role {role}")
        return
    usual: list[Any] = []
    for part in map(mapping, items(content)):
        kind = string(part.get("type"))
        if kind == "toolRequest":
            call = mapping(mapping(part.get("toolCall")).get("value"))
            usual.append({"type": "tool_use", "id": part.get("id"), **call})
        elif kind == "toolResponse":
            given = mapping(part.get("toolResult"))
            result = result_text(first_of(given, "value", "error"))
            usual.append({"type": "tool_result", "id": part.get("id"), "content": result})
        elif kind in _SKIPPED:
            log.skip(f"part {kind}")
        else:
            usual.append(part)
    if any(parts := parts_of(usual, log)):
        yield from messages_of(session, key, role, parts, at)
    else:
        log.skip("message without text")


def _json(value: object) -> Any:
    try:
        return json.loads(value) if isinstance(value, str | bytes) else None
    except (ValueError, RecursionError):
        return None
