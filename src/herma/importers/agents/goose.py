"""Read the sessions of Goose: `sessions.db`, which took over the files of versions before 1.10."""

from __future__ import annotations

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
    parsed,
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
            for row in log.rows(database, "SELECT * FROM sessions ORDER BY created_at, id"):
                about = dict(row)
                if about.get("session_type") not in (None, "user"):
                    log.skip(f"session {about['session_type']}")
                    continue
                session = str(about.get("id"))
                yield from _described(session, about, log)
                said = "SELECT * FROM messages WHERE session_id = ? ORDER BY id"
                for message in map(dict, log.rows(database, said, about.get("id"))):
                    log.line += 1
                    key = string(message.get("message_id")) or f"row {message.get('id')}"
                    yield from _message(session, key, message, log)


def _described(session: str, about: dict[str, Any], log: ReadLog) -> Iterator[Item]:
    yield ImportedSession(
        session,
        title=string(first_of(about, "name", "description")),
        model=string(parsed(about.get("model_config_json") or "{}", log).get("model_name")),
        provider=string(about.get("provider_name")),
        folder=string(about.get("working_dir")),
        started=moment(about.get("created_at")),
    )
    used = {"input": about.get("accumulated_input_tokens"), "output": about.get("accumulated_output_tokens")}
    if any(used.values()):
        yield ImportedUsage(session, "usage", usage_of(used), total=True)


def _message(session: str, key: str, message: dict[str, Any], log: ReadLog) -> Iterator[Item]:
    role, at = string(message.get("role")), moment(message.get("created_timestamp"))
    if role not in ("user", "assistant", "system"):
        log.meet_unknown(f"role {role}")
        return
    content = parsed(f'{{"parts": {message.get("content_json")}}}', log).get("parts")
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
