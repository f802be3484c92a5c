"""Read the sessions of OpenClaw and Pi, which share a format: JSON lines, or the database of an OpenClaw agent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from herma.importers import base

FOLDERS = (".openclaw", ".clawdbot", ".moltbot")
_SKIPPED = {"thinking_level_change", "custom", "label", "compaction", "branch_summary", "session_info", "leaf"}
_HOUSEKEEPING = re.compile(r"\s*(Read HEARTBEAT\.md|HEARTBEAT_OK|NO_REPLY|Pre-compaction memory flush)")


class OpenClaw(base.FormatReader):
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

    def places(self, machine: base.Machine) -> Iterable[Path]:
        if named := machine.environment.get("OPENCLAW_STATE_DIR"):
            yield Path(named).expanduser()
        yield from (machine.home / name for name in FOLDERS)

    def recognises(self, file: Path, head: bytes) -> bool:
        if head.startswith(b"SQLite format 3"):
            return file.name == "openclaw-agent.sqlite"
        return any(one.get("type") == "session" and "version" in one for one in base.records_of(head))

    def read(self, file: Path, log: base.ReadLog) -> Iterator[base.Item]:
        if file.suffix == ".sqlite":
            yield from _database(file, log)
            return
        session = base.string(base.first_record(file).get("id")) or file.name.partition(".")[0]
        events = _Events(session, log, base.string(base.record_before(file, log.start).get("id")))
        for record in log.json_lines(file):
            yield from events.read(record)


class Pi(OpenClaw):
    name = "pi"
    title = "Pi"
    expires_after = 0
    patterns = ("**/*.jsonl",)

    def places(self, machine: base.Machine) -> Iterable[Path]:
        yield machine.home / ".pi" / "agent" / "sessions"

    def recognises(self, file: Path, head: bytes) -> bool:
        return ".pi" in file.parts and super().recognises(file, head)


class _Events:
    """The entries of one session. Each names its parent: a prompt that names an earlier one is another branch."""

    def __init__(self, session: str, log: base.ReadLog, begun: str = "") -> None:
        self._session, self._log, self._branches = session, log, base.Branches(log, begun)

    def read(self, record: dict[str, Any]) -> Iterator[base.Item]:
        kind, key = base.string(record.get("type")), base.string(record.get("id")) or f"line {self._log.line}"
        at, before = (
            base.moment(record.get("timestamp")),
            self._branches.follow(key, base.string(record.get("parentId"))),
        )
        if kind == "session":
            above = base.string(record.get("parentSession"))
            about = base.ImportedSession(self._session, folder=base.string(record.get("cwd")), started=at)
            if above:
                about.parent, about.reason = Path(above).stem if "/" in above else above, "branch"
            yield about
        elif kind == "model_change":
            model, provider = base.string(record.get("modelId")), base.string(record.get("provider"))
            yield base.ImportedSession(self._session, model=model, provider=provider)
        elif kind == "session_info":
            yield base.ImportedSession(self._session, title=base.string(record.get("name")))
        elif kind in ("message", "custom_message"):
            message = base.mapping(record.get("message")) or {"role": "system", "content": record.get("content")}
            for item in self._message(key, message, base.moment(message.get("timestamp")) or at):
                if isinstance(item, base.ImportedMessage):
                    self._branches.say(key, before, item)
                yield item
        elif kind in _SKIPPED:
            self._log.skip(kind)
        else:
            self._log.meet_unknown(kind)

    def _message(self, key: str, message: dict[str, Any], at: float) -> Iterator[base.Item]:
        role, log = base.string(message.get("role")), self._log
        parts = base.parts_of(message.get("content"), log)
        if role == "toolResult":
            name = base.string(message.get("toolName"))
            text = parts.text or base.result_text(message.get("details"))
            result = base.ToolResult(base.string(message.get("toolCallId")), name, text)
            yield from base.messages_of(self._session, key, "tool", base.Parts(results=(result,)), at)
        elif role == "bashExecution":
            said = f"$ {base.text_of(message.get('command'))}\n{base.text_of(message.get('output'))}"
            yield base.ImportedMessage(self._session, (key,), "tool", said, at, tool_name="bash")
        elif role in ("user", "assistant", "system"):
            if role == "user" and _HOUSEKEEPING.match(parts.text):
                role = "system"
            finish = base.string(message.get("stopReason"))
            yield from base.messages_of(self._session, key, role, parts, at, finish=finish)
        elif role in ("custom", "branchSummary", "compactionSummary"):
            log.skip(f"role {role}")
        else:
            log.meet_unknown(f"role {role}")
        usage = base.mapping(message.get("usage"))
        if usage:
            cost = base.mapping(usage.get("cost")).get("total")
            paid = float(cost) if isinstance(cost, int | float) and cost > 0 else 0.0
            yield base.ImportedUsage(self._session, f"usage {key}", replace(base.usage_of(usage), cost_usd=paid))


def _database(file: Path, log: base.ReadLog) -> Iterator[base.Item]:
    """Read the transcripts of an agent's database; its other tables hold credentials and are not read."""
    with log.database(file) as database:
        tables = {row[0] for row in log.rows(database, "SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "transcript_events" not in tables:
            log.meet_broken("a database of another version: it has no table transcript_events")
            return
        about: dict[str, dict[str, Any]] = {}
        if "session_windows" in tables:
            for row in log.rows(database, "SELECT * FROM session_windows"):
                about[base.string(row["session_id"])] = dict(row)
        if "session_nodes" in tables:
            for row in log.rows(database, "SELECT * FROM session_nodes"):
                node = dict(row)
                about.setdefault(base.string(node.get("current_session_id")), {})["name"] = node.get("display_name")
        events: _Events | None = None
        before = None
        for row in log.rows(database, "SELECT session_id, event_json FROM transcript_events ORDER BY session_id, seq"):
            log.line += 1
            session = base.string(row["session_id"])
            if session != before or events is None:
                before, events = session, _Events(session, log)
                yield _described(session, about.get(session, {}))
            try:
                record = json.loads(row["event_json"])
            except (ValueError, TypeError, RecursionError):
                log.meet_broken("not JSON")
                continue
            yield from events.read(base.mapping(record))


def _described(session: str, window: dict[str, Any]) -> base.ImportedSession:
    previous = base.string(window.get("previous_session_id"))
    described = base.ImportedSession(
        session,
        title=base.string(window.get("name")),
        model=base.string(window.get("model")),
        chat_type=base.string(window.get("chat_type")),
        provider=base.string(base.first_of(window, "model_provider", "provider")),
        started=base.moment(window.get("started_at")),
    )
    if previous:
        described.parent = previous
        described.reason = "compression" if window.get("reason") == "compaction" else "resume"
    return described
