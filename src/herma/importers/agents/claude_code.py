"""Read the sessions of Claude Code (`~/.claude/projects/<folder>/<session>.jsonl`, sub-agents below `<session>/`) and
of Factory Droid, whose messages have the same parts (`~/.factory/sessions/**/<id>.jsonl`, and its `stream-json` logs).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from herma.importers import base
from herma.importers.exports.messages import message_in
from herma.types import Content

_SKIPPED = {
    "attachment", "progress", "queue-operation", "file-history-snapshot", "permission-mode", "mode", "last-prompt",
    "agent-name", "pr-link", "frame-link", "worktree-state", "relocated", "bridge-session", "started", "result",
    "system",
}  # fmt: skip
_NOT_TYPED = (
    "<local-command-",
    "<bash-std",
    "<task-notification>",
    "Caveat: The messages below",
    "[Request interrupted",
)
_TITLES = {"summary": "summary", "ai-title": "aiTitle", "custom-title": "customTitle"}


class ClaudeCode(base.FormatReader):
    name = "claude-code"
    title = "Claude Code"
    expires_after = 30

    def places(self, machine: base.Machine) -> Iterable[Path]:
        yield machine.folder("CLAUDE_CONFIG_DIR", ".claude") / "projects"
        yield machine.application("Claude", "local-agent-mode-sessions")

    def files(self, place: Path) -> Iterator[Path]:
        return (file for file in super().files(place) if "tool-results" not in file.parts)

    def recognises(self, file: Path, head: bytes) -> bool:
        del file
        return any(
            "sessionId" in one
            and ("parentUuid" in one or "leafUuid" in one)
            and "parts" not in base.mapping(one.get("message"))
            for one in base.records_of(head)
        )

    def read(self, file: Path, log: base.ReadLog) -> Iterator[base.Item]:
        described: dict[str, tuple[str, str, str]] = {}  # what was said of each session
        parents = base.Links()  # of records that are not messages: the message that they follow
        newest = ("", "")  # the last message, and its session
        name, counted = file.stem, ""
        for record in log.json_lines(file):
            kind, uuid = base.string(record.get("type")), base.string(record.get("uuid"))
            session = _session(name, record)
            if title := base.string(record.get(_TITLES.get(kind, ""))):
                session = session or (newest[1] if newest[0] == record.get("leafUuid") else "")
                if session:
                    yield base.ImportedSession(session, title=title, generated=kind != "custom-title")
                else:
                    log.skip("title of another session")
            elif kind not in ("user", "assistant"):
                log.skip(kind) if kind in _SKIPPED else log.meet_unknown(kind)
                parent = base.string(record.get("parentUuid") or record.get("logicalParentUuid"))
                parents[uuid] = parents.get(parent, parent)
            elif not uuid or not base.mapping(record.get("message")):
                log.meet_broken("message without a uuid or a body")
            elif record.get("isCompactSummary"):
                log.skip("compaction summary")
                parents[uuid] = parents.get(parent := base.string(record.get("parentUuid")), parent)
            else:
                session = session or name
                facts = _facts(record, described.get(session, ("", "", "")))
                if described.get(session) != facts:
                    described[session] = facts
                    yield _described(file, session, facts, record)
                newest = (uuid, session)
                yield from (_answer if kind == "assistant" else _prompt)(record, session, parents, log)
                if usage := base.mapping(record["message"].get("usage")):  # it stands on each line of one answer
                    call = base.string(record["message"].get("id")) or base.string(record.get("requestId")) or uuid
                    if call != counted:
                        yield base.ImportedUsage(session, f"usage {call}", base.usage_of(usage))
                    counted = call


def _session(name: str, record: dict[str, Any]) -> str:
    """Return the id of a session; of a sub-agent, also one whose records stand between those of its session."""
    if name.startswith("agent-"):
        return name.removeprefix("agent-")
    session = base.string(record.get("agentId")) or base.string(record.get("sessionId"))
    aside = record.get("isSidechain") is True and not record.get("agentId")
    return f"{session or name}-sidechain" if aside else session


def _facts(record: dict[str, Any], before: tuple[str, str, str]) -> tuple[str, str, str]:
    """Return folder, branch and model as they are now: a record that does not say leaves them as they were."""
    model = base.string(base.mapping(record.get("message")).get("model"))
    said = base.string(record.get("cwd")), base.string(record.get("gitBranch")), "" if model == "<synthetic>" else model
    folder, branch, model = (new or old for new, old in zip(said, before, strict=True))
    return folder, branch, model


def _described(file: Path, session: str, facts: tuple[str, str, str], record: dict[str, Any]) -> base.ImportedSession:
    folder, branch, model = facts
    about = base.ImportedSession(session, folder=folder, branch=branch, model=model)
    about.started = base.moment(record.get("timestamp"))
    parent = file.parents[1].name if file.parent.name == "subagents" else base.string(record.get("sessionId"))
    if parent and parent != session:
        about.parent, about.reason = parent, "delegation"
    return about


def _answer(record: dict[str, Any], session: str, parents: base.Links, log: base.ReadLog) -> Iterator[base.Item]:
    message, uuid = record["message"], record["uuid"]
    parts = base.parts_of(message.get("content"), log)
    if any(parts):
        finish = base.string(message.get("stop_reason"))
        yield from base.messages_of(
            session, uuid, "assistant", parts, base.moment(record.get("timestamp")), finish=finish
        )
    else:
        log.skip("thinking without text")
        parents[uuid] = parents.get(parent := base.string(record.get("parentUuid")), parent)


def _prompt(record: dict[str, Any], session: str, parents: base.Links, log: base.ReadLog) -> Iterator[base.Item]:
    """Yield what a person typed, or the results of tools; images stay with the text."""
    message, uuid, at = record["message"], record["uuid"], base.moment(record.get("timestamp"))
    given = message.get("content")
    given = given if isinstance(given, list) else [{"type": "text", "text": base.text_of(given)}] if given else []
    results = [part for part in given if base.mapping(part).get("type") == "tool_result"]
    rest = [part if isinstance(part, dict) else {"type": "text", "text": base.text_of(part)} for part in given
            if part not in results]  # fmt: skip
    structured = record.get("toolUseResult")
    for number, result in enumerate(results):
        content = base.text_of(result.get("content")) or base.text_of(structured if len(results) == 1 else None)
        call = base.string(result.get("tool_use_id")) or None
        yield base.ImportedMessage(session, (f"{uuid} {number}",), "tool", content, at, tool_call_id=call)
    if rest:
        text = base.text_of(rest)
        said: Content = text if all(part.get("type") == "text" for part in rest) else rest
        role = "system" if record.get("isMeta") or text.lstrip().startswith(_NOT_TYPED) else "user"
        parent = base.string(record.get("parentUuid"))
        after = parents.get(parent, parent) if role == "user" and not results else ""
        yield base.ImportedMessage(session, (uuid,), role, said, at, after=after)
    elif "content" not in message:
        log.meet_unknown("message without content")
        if structured is not None:
            yield base.ImportedMessage(session, (uuid,), "tool", base.text_of(structured), at)


# ── Droid ──

_DROID_SKIPPED = {"todo_state", "compaction_state", "error", "system", "result"}


class Droid(base.FormatReader):
    name = "droid"
    title = "Droid"

    def places(self, machine: base.Machine) -> Iterable[Path]:
        return machine.home / ".factory" / "sessions", machine.home / ".factory" / "projects"

    def recognises(self, file: Path, head: bytes) -> bool:
        del file
        found = base.records_of(head)
        streamed = any(one.get("type") in ("tool_call", "completion") and "session_id" in one for one in found)
        return streamed or any(one.get("type") == "session_start" for one in found)

    def read(self, file: Path, log: base.ReadLog) -> Iterator[base.Item]:
        first = base.first_record(file)
        begun = first if first.get("type") == "session_start" else {}
        session = base.string(begun.get("id")) or base.string(first.get("session_id")) or file.stem
        for record in log.json_lines(file):
            kind, at = base.string(record.get("type")), base.moment(record.get("timestamp"))
            key = base.string(record.get("id")) or f"line {log.line}"
            if kind == "session_start":
                title = base.string(base.first_of(record, "sessionTitle", "title"))
                yield base.ImportedSession(session, title=title, folder=base.string(record.get("cwd")))
            elif kind == "message":
                yield from message_in(session, key, base.mapping(record.get("message")) or record, log, at)
            elif kind in ("tool_call", "tool_result"):
                yield from message_in(session, f"line {log.line}", record, log, at)
            elif kind == "completion":
                yield base.ImportedMessage(session, (key,), "assistant", base.text_of(record.get("finalText")), at)
            elif kind in _DROID_SKIPPED:
                log.skip(kind)
            else:
                log.meet_unknown(kind)
