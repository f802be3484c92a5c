"""Read the sessions of Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl`, also compressed and archived ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from herma.importers import base
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
"""Events of the interface. `response_item` has the conversation, too."""
_NOT_TYPED = ("<environment_context>", "<user_instructions>", "<INSTRUCTIONS>", "# AGENTS.md instructions",
              "<turn_aborted>", "<permissions", "<skill", "<collaboration_mode", "<model_switch>")  # fmt: skip


class Codex(base.FormatReader):
    name = "codex"
    title = "Codex"
    patterns = ("**/rollout-*.jsonl", "**/rollout-*.jsonl.zst", "*.jsonl")

    def places(self, machine: base.Machine) -> Iterable[Path]:
        home = machine.folder("CODEX_HOME", ".codex")
        return home / "sessions", home / "archived_sessions"

    def recognises(self, file: Path, head: bytes) -> bool:
        found = base.records_of(head)
        flat = file.name.startswith("rollout-") and any("role" in one for one in found)
        return flat or any(one.get("type") == "session_meta" and "payload" in one for one in found)

    def read(self, file: Path, log: base.ReadLog) -> Iterator[base.Item]:
        first = base.first_record(file)
        about = base.mapping(first.get("payload"))
        session = base.string(about.get("id")) or file.name.partition(".")[0].partition("_")[0][-36:]
        if "role" in first:  # the first versions
            yield from messages_in(base.ImportedSession(session), log.json_lines(file), log)
            return
        if base.mapping(about.get("source")).get("subagent") in ("compact", "memory_consolidation"):
            log.skip("internal session")
            return
        yield from _named(file, session)
        copied = [] if log.start else _copied(file, _parent(about), base.moment(first.get("timestamp")))
        turns: list[str] = []  # the message before each prompt
        last = back_to = ""
        for record in log.json_lines(file):
            payload, at = base.mapping(record.get("payload")), base.moment(record.get("timestamp"))
            kind = base.string(record.get("type"))
            if kind == "session_meta" and base.string(payload.get("id")) in ("", session):
                yield _described(session, payload, at)
            elif kind == "session_meta":  # a fork repeats what it was made of
                log.skip("session_meta of another session")
            elif copied and kind == "response_item" and copied[-1] == base.digest(payload):
                log.skip("copy of what the session was forked from")
                copied.pop()
            elif copied and payload.get("type") == "token_count":
                log.skip("event token_count")
            elif kind == "turn_context":
                yield base.ImportedSession(
                    session, model=base.string(payload.get("model")), folder=base.string(payload.get("cwd"))
                )
            elif kind == "event_msg":
                if payload.get("type") == "thread_rolled_back":
                    count = base.whole(payload.get("num_turns"))
                    if log.start and count >= len(turns):
                        raise base.ReadAgain
                    back_to, log.open_end = turns[-count] if 0 < count <= len(turns) else "", True
                yield from _event(session, payload, log)
            elif kind == "response_item":
                copied = []
                key = f"{log.line} {base.digest(record.get('timestamp'), payload)}"
                for item in _items(session, key, payload, at, log):
                    if isinstance(item, base.ImportedMessage):
                        if item.role == "user":
                            item.after, item.rewinds, back_to, log.open_end = back_to, True, "", False
                            turns.append(last)
                        last = item.keys[0]
                    yield item
            elif kind in _SKIPPED:
                log.skip(kind)
            else:
                log.meet_unknown(kind)


def _named(file: Path, session: str) -> Iterator[base.ImportedSession]:
    """Yield the name that a person gave a session; the newest of the index wins."""
    index = next((folder / "session_index.jsonl" for folder in file.parents if folder.name.endswith("sessions")), None)
    place = index.parent.parent / index.name if index else None
    if place and place.is_file():
        with place.open("rb") as stream:
            names = [one for one in base.records_of(stream.read(1 << 24)) if one.get("id") == session]
        if names:
            yield base.ImportedSession(session, title=base.string(names[-1].get("thread_name")))


def _copied(file: Path, parent: str, begun: float) -> list[str]:
    """Return hashes of what the parent of a fork held when the fork began with a copy of it, the newest first.

    Where the file of the parent is gone, the copy is all there is.
    """
    kept = ("sessions", "archived_sessions")
    root = next((folder for folder in file.parents if folder.name in kept), file.parent)
    places = dict.fromkeys((root, *(root.with_name(name) for name in kept if root.name in kept)))
    found = (one for place in places if parent for one in place.rglob("rollout-*.jsonl*"))
    above = next((one for one in found if parent in one.name and one != file), None)
    records = base.ReadLog().json_lines(above) if above else ()
    said = (one for one in records if one.get("type") == "response_item")
    return [base.digest(one.get("payload")) for one in said if base.moment(one.get("timestamp")) <= begun][::-1]


def _parent(meta: dict[str, Any]) -> str:
    spawned = base.mapping(base.mapping(base.mapping(meta.get("source")).get("subagent")).get("thread_spawn"))
    return base.string(base.first_of({**meta, **spawned}, "parent_thread_id", "forked_from_id"))


def _described(session: str, meta: dict[str, Any], at: float) -> base.ImportedSession:
    about = base.ImportedSession(
        session, folder=base.string(meta.get("cwd")), provider=base.string(meta.get("model_provider"))
    )
    about.branch = base.string(base.mapping(meta.get("git")).get("branch"))
    about.started = base.moment(meta.get("timestamp")) or at
    if (parent := _parent(meta)) not in ("", session):
        about.parent, about.reason = parent, "branch" if parent == meta.get("forked_from_id") else "delegation"
    return about


def _event(session: str, payload: dict[str, Any], log: base.ReadLog) -> Iterator[base.Item]:
    kind = base.string(payload.get("type"))
    if kind == "token_count":
        info = base.mapping(payload.get("info"))
        if last := base.mapping(info.get("last_token_usage")):
            yield base.ImportedUsage(
                session, f"usage {base.digest(info.get('total_token_usage'))}", base.usage_of(last)
            )
        else:
            log.skip("event token_count")
    elif kind == "turn.completed":
        if usage := base.mapping(payload.get("usage")):
            yield base.ImportedUsage(session, f"usage {log.line}", base.usage_of(usage))
        else:
            log.skip("event turn.completed")
    elif kind == "thread_name_updated":
        yield base.ImportedSession(session, title=base.string(payload.get("thread_name")))
    elif _REPEATED.fullmatch(kind):
        log.skip(f"event {kind}")
    else:
        log.meet_unknown(f"event {kind}")


def _items(session: str, key: str, item: dict[str, Any], at: float, log: base.ReadLog) -> Iterator[base.Item]:
    kind, said_by = base.string(item.get("type")), ""
    if kind in ("ghost_snapshot", "compaction", "compaction_summary"):
        log.skip(kind)
    elif kind in ("message", "agent_message", "reasoning") or kind.endswith(("_call", "_output")):
        typed = base.text_of(item.get("content")).lstrip()
        if kind == "agent_message" or (item.get("role") == "user" and typed.startswith(_NOT_TYPED)):
            said_by = "system"
        yield from message_in(session, key, item, log, at, said_by)
    else:
        log.meet_unknown(f"item {kind}")
        if text := base.text_of(base.first_of(item, "text", "content")):
            yield base.ImportedMessage(session, (key,), "system", text, at)
