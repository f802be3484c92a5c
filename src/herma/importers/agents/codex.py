"""Read the sessions of Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl`, also compressed and archived ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from herma.importers.base import (
    FormatReader,
    ImportedMessage,
    ImportedSession,
    ImportedUsage,
    Item,
    Machine,
    ReadAgain,
    ReadLog,
    digest,
    first_of,
    first_record,
    mapping,
    moment,
    records_of,
    string,
    text_of,
    usage_of,
    whole,
)
from herma.importers.exports.messages import message_in, messages_in

_SKIPPED = {
    "world_state", "inter_agent_communication", "inter_agent_communication_metadata", "security_risk_score",
    "compacted",
}  # fmt: skip
_REPEATED = re.compile(
    r".*_(begin|end|started|complete|completed|applied|update|updated|request|response|mode|activity|aborted|compacted"
    r"|diff|notice|event|error)|(user|agent)_message|agent_reasoning(_raw_content)?|view_image_tool_call|error|warning"
    r"|guardian_assessment|thread_rolled_back|codex/event/raw_item|account/rateLimits/updated"
)
"""Events of the interface. What they tell of the conversation is in `response_item` too."""
_NOT_TYPED = ("<environment_context>", "<user_instructions>", "<INSTRUCTIONS>", "# AGENTS.md instructions",
              "<turn_aborted>", "<permissions", "<skill", "<collaboration_mode", "<model_switch>")  # fmt: skip


class Codex(FormatReader):
    name = "codex"
    title = "Codex"
    patterns = ("**/rollout-*.jsonl", "**/rollout-*.jsonl.zst", "*.jsonl")

    def places(self, machine: Machine) -> Iterable[Path]:
        home = machine.folder("CODEX_HOME", ".codex")
        return home / "sessions", home / "archived_sessions"

    def recognises(self, file: Path, head: bytes) -> bool:
        found = records_of(head)
        flat = file.name.startswith("rollout-") and any("role" in one for one in found)
        return flat or any(one.get("type") == "session_meta" and "payload" in one for one in found)

    def read(self, file: Path, log: ReadLog) -> Iterator[Item]:
        first = first_record(file)
        about = mapping(first.get("payload"))
        session = string(about.get("id")) or file.name.partition(".")[0].partition("_")[0][-36:]
        if "role" in first:  # the first versions
            yield from messages_in(ImportedSession(session), log.json_lines(file), log)
            return
        if mapping(about.get("source")).get("subagent") in ("compact", "memory_consolidation"):
            log.skip("internal session")
            return
        yield from _named(file, session)
        copied = [] if log.start else _copied(file, _parent(about))  # what a fork repeats of it
        turns: list[str] = []  # the message before each prompt
        last = back_to = ""
        for record in log.json_lines(file):
            payload, at = mapping(record.get("payload")), moment(record.get("timestamp"))
            kind = string(record.get("type"))
            if kind == "session_meta" and string(payload.get("id")) in ("", session):
                yield _described(session, payload, at)
            elif kind == "session_meta":  # a fork repeats what it was made of
                log.skip("session_meta of another session")
            elif copied and kind == "response_item" and copied[-1] == digest(payload):
                log.skip("copy of what the session was forked from")
                copied.pop()
            elif copied and payload.get("type") == "token_count":
                log.skip("event token_count")
            elif kind == "turn_context":
                yield ImportedSession(session, model=string(payload.get("model")), folder=string(payload.get("cwd")))
            elif kind == "event_msg":
                if payload.get("type") == "thread_rolled_back":
                    count = whole(payload.get("num_turns"))
                    if log.start and count >= len(turns):
                        raise ReadAgain
                    back_to, log.open_end = turns[-count] if 0 < count <= len(turns) else "", True
                yield from _event(session, payload, log)
            elif kind == "response_item":
                copied = []
                key = f"{log.line} {digest(record.get('timestamp'), payload)}"
                for item in _items(session, key, payload, at, log):
                    if isinstance(item, ImportedMessage):
                        if item.role == "user":
                            item.after, item.rewinds, back_to, log.open_end = back_to, True, "", False
                            turns.append(last)
                        last = item.keys[0]
                    yield item
            elif kind in _SKIPPED:
                log.skip(kind)
            else:
                log.meet_unknown(kind)


def _named(file: Path, session: str) -> Iterator[ImportedSession]:
    """Yield the name that a person gave a session; the newest of the index wins."""
    index = next((folder / "session_index.jsonl" for folder in file.parents if folder.name.endswith("sessions")), None)
    place = index.parent.parent / index.name if index else None
    if place and place.is_file():
        with place.open("rb") as stream:
            names = [one for one in records_of(stream.read(1 << 24)) if one.get("id") == session]
        if names:
            yield ImportedSession(session, title=string(names[-1].get("thread_name")))


def _copied(file: Path, parent: str) -> list[str]:
    """Return hashes of what the parent of a fork holds, the newest first: a fork begins with a copy of it.

    Where the file of the parent is gone, the copy is all there is.
    """
    root = next((folder.parent for folder in file.parents if folder.name.endswith("sessions")), file.parent)
    found = root.rglob(f"rollout-*{parent}*.jsonl*") if parent else iter(())
    above = next((one for one in found if one != file), None)
    records = ReadLog().json_lines(above) if above else ()
    return [digest(one.get("payload")) for one in records if one.get("type") == "response_item"][::-1]


def _parent(meta: dict[str, Any]) -> str:
    spawned = mapping(mapping(mapping(meta.get("source")).get("subagent")).get("thread_spawn"))
    return string(first_of({**meta, **spawned}, "parent_thread_id", "forked_from_id"))


def _described(session: str, meta: dict[str, Any], at: float) -> ImportedSession:
    about = ImportedSession(session, folder=string(meta.get("cwd")), provider=string(meta.get("model_provider")))
    about.branch = string(mapping(meta.get("git")).get("branch"))
    about.started = moment(meta.get("timestamp")) or at
    if (parent := _parent(meta)) not in ("", session):
        about.parent, about.reason = parent, "branch" if parent == meta.get("forked_from_id") else "delegation"
    return about


def _event(session: str, payload: dict[str, Any], log: ReadLog) -> Iterator[Item]:
    kind = string(payload.get("type"))
    if kind == "token_count":
        info = mapping(payload.get("info"))
        if last := mapping(info.get("last_token_usage")):
            yield ImportedUsage(session, f"usage {digest(info.get('total_token_usage'))}", usage_of(last))
        else:
            log.skip("event token_count")
    elif kind == "turn.completed":
        if usage := mapping(payload.get("usage")):
            yield ImportedUsage(session, f"usage {log.line}", usage_of(usage))
        else:
            log.skip("event turn.completed")
    elif kind == "thread_name_updated":
        yield ImportedSession(session, title=string(payload.get("thread_name")))
    elif _REPEATED.fullmatch(kind):
        log.skip(f"event {kind}")
    else:
        log.meet_unknown(f"event {kind}")


def _items(session: str, key: str, item: dict[str, Any], at: float, log: ReadLog) -> Iterator[Item]:
    kind, said_by = string(item.get("type")), ""
    if kind in ("ghost_snapshot", "compaction", "compaction_summary"):
        log.skip(kind)
    elif kind in ("message", "agent_message", "reasoning") or kind.endswith(("_call", "_output")):
        typed = text_of(item.get("content")).lstrip()
        if kind == "agent_message" or (item.get("role") == "user" and typed.startswith(_NOT_TYPED)):
            said_by = "system"
        yield from message_in(session, key, item, log, at, said_by)
    else:
        log.meet_unknown(f"item {kind}")
        if text := text_of(first_of(item, "text", "content")):
            yield ImportedMessage(session, (key,), "system", text, at)
