"""Read the sessions of Kimi Code (`wire.jsonl`) and of the Kimi CLI before it (`context.jsonl`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from herma.importers import base
from herma.importers.exports.messages import message_in

_SKIPPED = (
    "metadata", "tools.", "turn.", "llm.", "permission.", "usage.record", "plan_mode.", "full_compaction.",
    "plugin.", "runtime.", "token_counting.", "profile.", "context.apply_compaction", "swarm.", "mcp.", "goal.",
)  # fmt: skip
_LOOP = ("step.begin", "step.end", "step.retry", "step.cancelled")


class Kimi(base.FormatReader):
    name = "kimi"
    title = "Kimi Code"
    patterns = ("**/wire.jsonl", "**/context.jsonl", "*.jsonl")

    def places(self, machine: base.Machine) -> Iterable[Path]:
        return machine.folder("KIMI_CODE_HOME", ".kimi-code") / "sessions", machine.home / ".kimi" / "sessions"

    def files(self, place: Path) -> Iterator[Path]:
        return (file for file in super().files(place) if file.name != "session_index.jsonl")

    def recognises(self, file: Path, head: bytes) -> bool:
        del file
        return any("protocol_version" in one or one.get("role") == "_system_prompt" for one in base.records_of(head))

    def read(self, file: Path, log: base.ReadLog) -> Iterator[base.Item]:
        about = _described(file)
        yield about
        for record in log.json_lines(file):
            kind, at = base.string(record.get("type")), base.moment(record.get("time"))
            key = f"line {log.line}"
            if not kind and base.string(record.get("role")).startswith("_"):
                log.skip(record["role"])
            elif not kind and "role" in record:  # of the Kimi CLI
                yield from message_in(about.id, f"{log.line} {base.digest(record)}", record, log)
            elif kind == "context.append_message":
                message = base.mapping(record.get("message"))
                typed = base.mapping(message.get("origin")).get("kind") in (None, "user")
                said_by = "system" if message.get("role") == "user" and not typed else ""
                yield from message_in(about.id, key, message, log, at, said_by)
            elif kind == "context.append_loop_event":
                yield from _event(about.id, key, base.mapping(record.get("event")), at, log)
            elif kind == "config.update":
                model, folder = base.string(record.get("modelAlias")), base.string(record.get("cwd"))
                yield base.ImportedSession(about.id, model=model, folder=folder)
            elif kind.startswith(_SKIPPED):
                log.skip(kind)
            else:
                log.meet_unknown(kind)


def _described(file: Path) -> base.ImportedSession:
    """Return what the folder of a session says: `<session>/agents/<agent>/wire.jsonl`, with `<session>/state.json`."""
    if file.name not in ("wire.jsonl", "context.jsonl"):
        return base.ImportedSession(file.stem)
    if file.name == "context.jsonl":
        return base.ImportedSession(file.parent.name)
    agent, folder = file.parent.name, file.parents[2]
    state = base.json_beside(folder / "state.json")
    about = base.ImportedSession(folder.name, folder=base.string(state.get("workDir")))
    if agent == "main":
        about.title, about.started = base.string(state.get("title")), base.moment(state.get("createdAt"))
        return about
    above = base.mapping(base.mapping(state.get("agents")).get(agent)).get("parentAgentId")
    about.parent = folder.name if above in (None, "main") else f"{folder.name}-{above}"
    about.id, about.reason = f"{folder.name}-{agent}", "delegation"
    return about


def _event(session: str, key: str, event: dict[str, Any], at: float, log: base.ReadLog) -> Iterator[base.Item]:
    kind = base.string(event.get("type"))
    if kind == "content.part":
        yield from base.messages_of(session, key, "assistant", base.parts_of([event.get("part")], log), at)
    elif kind == "tool.call":
        call = base.tool_call(base.call_id_of(event), event.get("name"), base.first_of(event, "args", "arguments"))
        yield base.ImportedMessage(session, (key,), "assistant", None, at, (call,))
    elif kind == "tool.result":
        text = base.result_text(base.first_of(base.mapping(event.get("result")), "output", "error"))
        yield base.ImportedMessage(session, (key,), "tool", text, at, tool_call_id=base.call_id_of(event) or None)
    elif kind in _LOOP:
        log.skip(f"event {kind}")
        if usage := base.mapping(event.get("usage")):
            yield base.ImportedUsage(session, f"usage {key}", base.usage_of(usage))
    else:
        log.meet_unknown(f"event {kind}")
