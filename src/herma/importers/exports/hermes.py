"""Read the sessions of Hermes Agent: `state.db`, `hermes sessions export --format jsonl`, and older JSON files."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from herma.importers import base
from herma.types import Content, Reason

_JSON = "\0json:"
"""Prefix of content that is stored as JSON."""
_ROLES = ("user", "assistant", "tool", "system")


class Hermes(base.FormatReader):
    name = "hermes"
    title = "Hermes"
    grows = False
    patterns = ("state.db", "profiles/*/state.db", "sessions/session_*.json", "*.jsonl", "*.json")

    def places(self, machine: base.Machine) -> Iterable[Path]:
        if machine.platform == "win32":
            return (machine.folder("HERMES_HOME", "AppData", "Local", "hermes"),)
        return (machine.folder("HERMES_HOME", ".hermes"),)

    def files(self, place: Path) -> Iterator[Path]:
        home = (place / "state.db").exists()  # else a folder of exports
        for file in super().files(place):
            if not home or file.suffix != ".json" or file.name.startswith("session_"):
                yield file

    def recognises(self, file: Path, head: bytes) -> bool:
        if head.startswith(b"SQLite format 3"):
            return file.name == "state.db"
        if file.suffix == ".json":
            return b'"session_id"' in head and b'"messages"' in head and b'"session_start"' in head
        return any(("messages" in one and "source" in one) or "segments" in one for one in base.records_of(head))

    def read(self, file: Path, log: base.ReadLog) -> Iterator[base.Item]:
        if file.suffix == ".db":
            yield from _database(file, log)
        elif file.suffix == ".json":
            log.line = 1
            yield from _exported(base.mapping(log.json_file(file)), log)
        else:
            for record in log.json_lines(file):
                segments = [base.mapping(one) for one in base.items(record.get("segments"))]
                for one in segments or [record]:
                    yield from _exported(one, log)


# ── state.db ──


def _database(file: Path, log: base.ReadLog) -> Iterator[base.Item]:
    with log.database(file) as database:
        columns = {row["name"] for row in log.rows(database, "PRAGMA table_info(messages)")}
        if not {"session_id", "role", "content"} <= columns:
            log.meet_broken("a database of another program: it has no messages of Hermes")
            return
        sessions = {
            row["id"]: dict(row) for row in log.rows(database, "SELECT * FROM sessions ORDER BY started_at, id")
        }
        prompts = _prompts(database, log)
        for key, row in sessions.items():
            hashes = (value for name, value in row.items() if "prompt" in name and value in prompts)
            row["system_prompt"] = prompts.get(next(hashes, None)) or row.get("system_prompt")
            yield from _session(key, row, sessions.get(row.get("parent_session_id")))
            for message in log.rows(database, "SELECT * FROM messages WHERE session_id = ? ORDER BY id", key):
                log.line += 1
                yield from _message(key, dict(message), log)


def _prompts(database: sqlite3.Connection, log: base.ReadLog) -> dict[object, str]:
    """Return the prompts of versions that keep each one once, in a table of its own, by their hashes."""
    columns = {row["name"]: row["pk"] for row in log.rows(database, "PRAGMA table_info(system_prompts)")}
    if len(columns) < 2:
        return {}
    key = max(columns, key=columns.__getitem__)
    text = next((name for name in ("content", "prompt", "text", "system_prompt") if name in columns), [*columns][1])
    return {row[key]: base.string(row[text]) for row in log.rows(database, "SELECT * FROM system_prompts")}


def _session(key: str, row: Mapping[str, Any], parent: Mapping[str, Any] | None) -> Iterator[base.Item]:
    yield base.ImportedSession(
        key,
        title=base.string(row.get("title")),
        model=base.string(row.get("model")),
        folder=base.string(row.get("cwd")),
        branch=base.string(row.get("git_branch")),
        started=base.moment(base.first_of(row, "started_at", "session_start")),
        parent=base.string(row.get("parent_session_id")),
        reason=_reason(row, parent or {}),
        provider=base.string(row.get("billing_provider")),
        chat_type=base.string(row.get("chat_type")) or base.string(base.first_of(row, "source", "platform")),
        prompt=base.string(row.get("system_prompt")),
    )
    counted = base.usage_of(row)
    cost = base.first_of(row, "actual_cost_usd", "estimated_cost_usd")
    if isinstance(cost, int | float) and cost > 0:
        counted = replace(counted, cost_usd=float(cost))
    yield base.ImportedUsage(key, "usage", counted, total=True)


def _reason(row: Mapping[str, Any], parent: Mapping[str, Any]) -> Reason:
    """Return why a session followed its parent, as Hermes decides it itself."""
    config = row.get("model_config")
    try:
        config = base.mapping(json.loads(config) if isinstance(config, str) else config)
    except ValueError:
        config = {}
    if config.get("_delegate_from") or row.get("source") in ("tool", "subagent"):
        return "delegation"
    if config.get("_branched_from") or parent.get("end_reason") == "branched":
        return "branch"
    return "compression" if parent.get("end_reason") == "compression" else "resume"


# ── exports ──


def _exported(record: dict[str, Any], log: base.ReadLog) -> Iterator[base.Item]:
    key = base.string(base.first_of(record, "id", "session_id"))
    messages = record.get("messages")
    if not key or not isinstance(messages, list):
        log.meet_unknown("record " + ",".join(sorted(record))[:40])
        return
    yield from _session(key, record, None)
    for message in messages:
        yield from _message(key, base.mapping(message), log)


# ── messages ──


def _message(session: str, row: dict[str, Any], log: base.ReadLog) -> Iterator[base.Item]:
    role = base.string(row.get("role"))
    if role not in _ROLES:
        log.meet_unknown(f"role {role}")
        return
    content, at = _content(row.get("content"), log), base.moment(row.get("timestamp"))
    calls = row.get("tool_calls")
    if isinstance(calls, str):
        try:
            calls = json.loads(calls)
        except ValueError:
            log.meet_broken("tool calls that are not JSON")
    made = []
    for call in map(base.mapping, base.items(calls)):
        function = base.mapping(call.get("function"))
        made.append(base.tool_call(call.get("id"), function.get("name"), function.get("arguments")))
    same = base.digest(row.get("timestamp"), role, content, calls, row.get("tool_call_id"))
    keys = (f"row {row['id']}", same) if row.get("id") is not None else (same,)
    compacted = row.get("compacted") == 1
    yield base.ImportedMessage(
        session,
        keys,
        role,
        content,
        at,
        tuple(made),
        tool_call_id=base.string(row.get("tool_call_id")) or None,
        tool_name=base.string(row.get("tool_name")) or None,
        reasoning=base.string(base.first_of(row, "reasoning", "reasoning_content")) or None,
        finish_reason=base.string(row.get("finish_reason")) or None,
        compacted=compacted and row.get("active") == 0,
        rewound=row.get("active") == 0 and not compacted,
    )


def _content(value: object, log: base.ReadLog) -> Content:
    if isinstance(value, str) and value.startswith(_JSON):
        try:
            value = json.loads(value[len(_JSON) :])
        except ValueError:
            log.meet_broken("content that is not JSON")
    if isinstance(value, list):
        return [part if isinstance(part, dict) else {"type": "text", "text": str(part)} for part in value]
    return value if isinstance(value, str) or value is None else json.dumps(value, ensure_ascii=False)
