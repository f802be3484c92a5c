"""Read the sessions of Kimi Code (`wire.jsonl`) and of the Kimi CLI before it (`context.jsonl`)."""

from __future__ import annotations

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
    ReadLog,
    call_id_of,
    digest,
    first_of,
    json_beside,
    mapping,
    messages_of,
    moment,
    parts_of,
    records_of,
    result_text,
    string,
    tool_call,
    usage_of,
)
from herma.importers.exports.messages import message_in

_SKIPPED = (
    "metadata", "tools.", "turn.", "llm.", "permission.", "usage.record", "plan_mode.", "full_compaction.",
    "plugin.", "runtime.", "token_counting.", "profile.", "context.apply_compaction", "swarm.", "mcp.", "goal.",
)  # fmt: skip
_LOOP = ("step.begin", "step.end", "step.retry", "step.cancelled")


class Kimi(FormatReader):
    name = "kimi"
    title = "Kimi Code"
    patterns = ("**/wire.jsonl", "**/context.jsonl", "*.jsonl")

    def places(self, machine: Machine) -> Iterable[Path]:
        return machine.folder("KIMI_CODE_HOME", ".kimi-code") / "sessions", machine.home / ".kimi" / "sessions"

    def files(self, place: Path) -> Iterator[Path]:
        return (file for file in super().files(place) if file.name != "session_index.jsonl")

    def recognises(self, file: Path, head: bytes) -> bool:
        del file
        return any("protocol_version" in one or one.get("role") == "_system_prompt" for one in records_of(head))

    def read(self, file: Path, log: ReadLog) -> Iterator[Item]:
        about = _described(file)
        yield about
        for record in log.json_lines(file):
            kind, at = string(record.get("type")), moment(record.get("time"))
            key = f"line {log.line}"
            if not kind and string(record.get("role")).startswith("_"):
                log.skip(record["role"])
            elif not kind and "role" in record:  # of the Kimi CLI
                yield from message_in(about.id, f"{log.line} {digest(record)}", record, log)
            elif kind == "context.append_message":
                message = mapping(record.get("message"))
                typed = mapping(message.get("origin")).get("kind") in (None, "user")
                said_by = "system" if message.get("role") == "user" and not typed else ""
                yield from message_in(about.id, key, message, log, at, said_by)
            elif kind == "context.append_loop_event":
                yield from _event(about.id, key, mapping(record.get("event")), at, log)
            elif kind == "config.update":
                model, folder = string(record.get("modelAlias")), string(record.get("cwd"))
                yield ImportedSession(about.id, model=model, folder=folder)
            elif kind.startswith(_SKIPPED):
                log.skip(kind)
            else:
                log.meet_unknown(kind)


def _described(file: Path) -> ImportedSession:
    """Return what the folder of a session says: `<session>/agents/<agent>/wire.jsonl`, with `<session>/state.json`."""
    if file.name not in ("wire.jsonl", "context.jsonl"):
        return ImportedSession(file.stem)
    if file.name == "context.jsonl":
        return ImportedSession(file.parent.name)
    agent, folder = file.parent.name, file.parents[2]
    state = json_beside(folder / "state.json")
    about = ImportedSession(folder.name, folder=string(state.get("workDir")))
    if agent == "main":
        about.title, about.started = string(state.get("title")), moment(state.get("createdAt"))
        return about
    above = mapping(mapping(state.get("agents")).get(agent)).get("parentAgentId")
    about.parent = folder.name if above in (None, "main") else f"{folder.name}-{above}"
    about.id, about.reason = f"{folder.name}-{agent}", "delegation"
    return about


def _event(session: str, key: str, event: dict[str, Any], at: float, log: ReadLog) -> Iterator[Item]:
    kind = string(event.get("type"))
    if kind == "content.part":
        yield from messages_of(session, key, "assistant", parts_of([event.get("part")], log), at)
    elif kind == "tool.call":
        call = tool_call(call_id_of(event), event.get("name"), first_of(event, "args", "arguments"))
        yield ImportedMessage(session, (key,), "assistant", None, at, (call,))
    elif kind == "tool.result":
        text = result_text(first_of(mapping(event.get("result")), "output", "error"))
        yield ImportedMessage(session, (key,), "tool", text, at, tool_call_id=call_id_of(event) or None)
    elif kind in _LOOP:
        log.skip(f"event {kind}")
        if usage := mapping(event.get("usage")):
            yield ImportedUsage(session, f"usage {key}", usage_of(usage))
    else:
        log.meet_unknown(f"event {kind}")
