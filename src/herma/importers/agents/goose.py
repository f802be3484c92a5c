"""Read the sessions of Goose: `sessions.db`, which took over the files of versions before 1.10."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from herma.importers import base

_SKIPPED = {
    "image", "redactedThinking", "systemNotification", "toolConfirmationRequest", "frontendToolRequest",
    "contextLengthExceeded", "summarizationRequested", "actionRequired",
}  # fmt: skip


class Goose(base.FormatReader):
    name = "goose"
    title = "Goose"
    edits = True
    patterns = ("sessions.db",)

    def places(self, machine: base.Machine) -> Iterable[Path]:
        if machine.platform == "win32":
            return (machine.application("Block", "goose", "data", "sessions"),)
        return (machine.data("goose", "sessions"),)

    def recognises(self, file: Path, head: bytes) -> bool:
        return file.name == "sessions.db" and head.startswith(b"SQLite format 3")

    def read(self, file: Path, log: base.ReadLog) -> Iterator[base.Item]:
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
                    key = base.string(message.get("message_id")) or f"row {message.get('id')}"
                    yield from _message(session, key, message, log)


def _described(session: str, about: dict[str, Any], log: base.ReadLog) -> Iterator[base.Item]:
    yield base.ImportedSession(
        session,
        title=base.string(base.first_of(about, "name", "description")),
        model=base.string(base.parsed(about.get("model_config_json") or "{}", log).get("model_name")),
        provider=base.string(about.get("provider_name")),
        folder=base.string(about.get("working_dir")),
        started=base.moment(about.get("created_at")),
    )
    used = {"input": about.get("accumulated_input_tokens"), "output": about.get("accumulated_output_tokens")}
    if any(used.values()):
        yield base.ImportedUsage(session, "usage", base.usage_of(used), total=True)


def _message(session: str, key: str, message: dict[str, Any], log: base.ReadLog) -> Iterator[base.Item]:
    role, at = base.string(message.get("role")), base.moment(message.get("created_timestamp"))
    if role not in ("user", "assistant", "system"):
        log.meet_unknown(f"role {role}")
        return
    content = base.parsed(f'{{"parts": {message.get("content_json")}}}', log).get("parts")
    usual: list[Any] = []
    for part in map(base.mapping, base.items(content)):
        kind = base.string(part.get("type"))
        if kind == "toolRequest":
            call = base.mapping(base.mapping(part.get("toolCall")).get("value"))
            usual.append({"type": "tool_use", "id": part.get("id"), **call})
        elif kind == "toolResponse":
            given = base.mapping(part.get("toolResult"))
            result = base.result_text(base.first_of(given, "value", "error"))
            usual.append({"type": "tool_result", "id": part.get("id"), "content": result})
        elif kind in _SKIPPED:
            log.skip(f"part {kind}")
        else:
            usual.append(part)
    if any(parts := base.parts_of(usual, log)):
        yield from base.messages_of(session, key, role, parts, at)
    else:
        log.skip("message without text")
