"""Read the sessions of OpenClaw and Pi, which share a format: JSON lines, or the database of an OpenClaw agent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from herma.importers.base import (
    Branches,
    FormatReader,
    ImportedMessage,
    ImportedSession,
    ImportedUsage,
    Item,
    Machine,
    Parts,
    ReadLog,
    ToolResult,
    first_of,
    first_record,
    mapping,
    messages_of,
    moment,
    parts_of,
    record_before,
    records_of,
    result_text,
    string,
    text_of,
    usage_of,
)

FOLDERS = (".openclaw", ".clawdbot", ".moltbot")
_SKIPPED = {"thinking_level_change", "custom", "label", "compaction", "branch_summary", "session_info", "leaf"}
_HOUSEKEEPING = re.compile(r"\s*(Read HEARTBEAT\.md|HEARTBEAT_OK|NO_REPLY|Pre-compaction memory flush)")


class OpenClaw(FormatReader):
    name = "openclaw"
    title = "OpenClaw"
    expires_after = 30
    patterns: ClassVar[tuple[str, ...]] = (
        "agents/*/agent/openclaw-agent.sqlite",
        "agents/*/sessions/*.jsonl",
        "agents/*/sessions/session-sqlite-import-archive/*.jsonl",
        "*.jsonl",
        "openclaw-agent.sqlite",
    )

    def places(self, machine: Machine) -> Iterable[Path]:
        if named := machine.environment.get("OPENCLAW_STATE_DIR"):
            yield Path(named).expanduser()
        yield from (machine.home / name for name in FOLDERS)

    def recognises(self, file: Path, head: bytes) -> bool:
        if head.startswith(b"SQLite format 3"):
            return file.name == "openclaw-agent.sqlite"
        return any(one.get("type") == "session" and "version" in one for one in records_of(head))

    def read(self, file: Path, log: ReadLog) -> Iterator[Item]:
        if file.suffix == ".sqlite":
            yield from _database(file, log)
            return
        session = string(first_record(file).get("id")) or file.name.partition(".")[0]
        events = _Events(session, log, string(record_before(file, log.start).get("id")))
        for record in log.json_lines(file):
            yield from events.read(record)


class Pi(OpenClaw):
    name = "pi"
    title = "Pi"
    expires_after = 0
    patterns = ("**/*.jsonl",)

    def places(self, machine: Machine) -> Iterable[Path]:
        yield machine.home / ".pi" / "agent" / "sessions"

    def recognises(self, file: Path, head: bytes) -> bool:
        return ".pi" in file.parts and super().recognises(file, head)


class _Events:
    """The entries of one session. Each names its parent: a prompt that names an earlier one is another branch."""

    def __init__(self, session: str, log: ReadLog, begun: str = "") -> None:
        self._session, self._log, self._branches = session, log, Branches(log, begun)

    def read(self, record: dict[str, Any]) -> Iterator[Item]:
        kind, key = string(record.get("type")), string(record.get("id")) or f"line {self._log.line}"
        at, before = moment(record.get("timestamp")), self._branches.follow(key, string(record.get("parentId")))
        if kind == "session":
            above = string(record.get("parentSession"))
            about = ImportedSession(self._session, folder=string(record.get("cwd")), started=at)
            if above:
                about.parent, about.reason = Path(above).stem if "/" in above else above, "branch"
            yield about
        elif kind == "model_change":
            model, provider = string(record.get("modelId")), string(record.get("provider"))
            yield ImportedSession(self._session, model=model, provider=provider)
        elif kind == "session_info":
            yield ImportedSession(self._session, title=string(record.get("name")))
        elif kind in ("message", "custom_message"):
            message = mapping(record.get("message")) or {"role": "system", "content": record.get("content")}
            for item in self._message(key, message, moment(message.get("timestamp")) or at):
                if isinstance(item, ImportedMessage):
                    self._branches.say(key, before, item)
                yield item
        elif kind in _SKIPPED:
            self._log.skip(kind)
        else:
            self._log.meet_unknown(kind)

    def _message(self, key: str, message: dict[str, Any], at: float) -> Iterator[Item]:
        role, log = string(message.get("role")), self._log
        parts = parts_of(message.get("content"), log)
        if role == "toolResult":
            name = string(message.get("toolName"))
            text = parts.text or result_text(message.get("details"))
            result = ToolResult(string(message.get("toolCallId")), name, text)
            yield from messages_of(self._session, key, "tool", Parts(results=(result,)), at)
        elif role == "bashExecution":
            said = f"$ {text_of(message.get('command'))}\n{text_of(message.get('output'))}"
            yield ImportedMessage(self._session, (key,), "tool", said, at, tool_name="bash")
        elif role in ("user", "assistant", "system"):
            if role == "user" and _HOUSEKEEPING.match(parts.text):
                role = "system"
            finish = string(message.get("stopReason"))
            yield from messages_of(self._session, key, role, parts, at, finish=finish)
        elif role in ("custom", "branchSummary", "compactionSummary"):
            log.skip(f"role {role}")
        else:
            log.meet_unknown(f"role {role}")
        usage = mapping(message.get("usage"))
        if usage:
            cost = mapping(usage.get("cost")).get("total")
            paid = float(cost) if isinstance(cost, int | float) and cost > 0 else 0.0
            yield ImportedUsage(self._session, f"usage {key}", replace(usage_of(usage), cost_usd=paid))


def _database(file: Path, log: ReadLog) -> Iterator[Item]:
    """Read the transcripts of an agent's database; its other tables hold credentials and are not looked at."""
    with log.database(file) as database:
        tables = {row[0] for row in log.rows(database, "SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "transcript_events" not in tables:
            log.meet_broken("a database of another version: it has no table transcript_events")
            return
        about: dict[str, dict[str, Any]] = {}
        if "session_windows" in tables:
            for row in log.rows(database, "SELECT * FROM session_windows"):
                about[string(row["session_id"])] = dict(row)
        if "session_nodes" in tables:
            for row in log.rows(database, "SELECT * FROM session_nodes"):
                node = dict(row)
                about.setdefault(string(node.get("current_session_id")), {})["name"] = node.get("display_name")
        events: _Events | None = None
        before = None
        for row in log.rows(database, "SELECT session_id, event_json FROM transcript_events ORDER BY session_id, seq"):
            log.line += 1
            session = string(row["session_id"])
            if session != before or events is None:
                before, events = session, _Events(session, log)
                yield _described(session, about.get(session, {}))
            try:
                record = json.loads(row["event_json"])
            except (ValueError, TypeError, RecursionError):
                log.meet_broken("not JSON")
                continue
            yield from events.read(mapping(record))


def _described(session: str, window: dict[str, Any]) -> ImportedSession:
    previous = string(window.get("previous_session_id"))
    told = ImportedSession(
        session,
        title=string(window.get("name")),
        model=string(window.get("model")),
        chat_type=string(window.get("chat_type")),
        provider=string(first_of(window, "model_provider", "provider")),
        started=moment(window.get("started_at")),
    )
    if previous:
        told.parent = previous
        told.reason = "compression" if window.get("reason") == "compaction" else "resume"
    return told
