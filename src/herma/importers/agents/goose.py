"""Read the sessions of Goose: `sessions.db`, or the JSON lines of versions before 1.10."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from herma.importers.base import (
    FormatReader,
    ImportedSession,
    ImportedUsage,
    Item,
    Machine,
    Parts,
    ReadLog,
    ToolResult,
    first_of,
    first_record,
    items,
    mapping,
    messages_of,
    moment,
    parts_of,
    records_of,
    result_text,
    string,
    text_of,
    tool_call,
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
    patterns = ("sessions.db", "*.jsonl")

    def places(self, machine: Machine) -> Iterable[Path]:
        if machine.platform == "win32":
            return (machine.application("Block", "goose", "data", "sessions"),)
        return (machine.data("goose", "sessions"),)

    def recognises(self, file: Path, head: bytes) -> bool:
        if head.startswith(b"SQLite format 3"):
            return file.name == "sessions.db"
        return any("working_dir" in one for one in records_of(head))

    def read(self, file: Path, log: ReadLog) -> Iterator[Item]:
        yield from _database(file, log) if file.suffix == ".db" else _lines(file, log)


def _database(file: Path, log: ReadLog) -> Iterator[Item]:
    with log.database(file) as database:
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


def _lines(file: Path, log: ReadLog) -> Iterator[Item]:
    first = first_record(file)
    if "working_dir" in first:
        title, folder = string(first.get("description")), string(first["working_dir"])
        yield ImportedSession(file.stem, title=title, folder=folder)
    for record in log.json_lines(file):
        if "role" in record:
            key = f"{log.line} {string(record.get('id'))}"
            role, at = string(record["role"]), moment(record.get("created"))
            yield from _message(file.stem, key, role, record.get("content"), at, log)
        else:
            log.skip("header")


def _message(session: str, key: str, role: str, content: object, at: float, log: ReadLog) -> Iterator[Item]:
    if role not in ("user", "assistant", "system"):
        log.meet_unknown(f"role {role}")
        return
    said: list[str] = []
    parts = Parts()
    for part in map(mapping, items(content)):
        kind = string(part.get("type"))
        if kind == "toolRequest":
            call = mapping(mapping(part.get("toolCall")).get("value"))
            made = tool_call(part.get("id"), call.get("name"), call.get("arguments"))
            parts = parts._replace(calls=(*parts.calls, made))
        elif kind == "toolResponse":
            given = mapping(part.get("toolResult"))
            text = result_text(first_of(given, "value", "error"))
            parts = parts._replace(results=(*parts.results, ToolResult(string(part.get("id")), "", text)))
        elif kind in _SKIPPED:
            log.skip(f"part {kind}")
        else:
            one = parts_of([part], log)
            said.append(one.text)
            parts = parts._replace(thinking=parts.thinking + one.thinking)
    text = "\n".join(filter(None, said)) if isinstance(content, list) else text_of(content)
    if text or any(parts):
        yield from messages_of(session, key, role, parts._replace(text=text), at)
    else:
        log.skip("message without text")


def _json(value: object) -> Any:
    try:
        return json.loads(value) if isinstance(value, str | bytes) else None
    except (ValueError, RecursionError):
        return None
