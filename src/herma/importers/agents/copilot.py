"""Read the sessions of GitHub Copilot CLI: `~/.copilot/session-state/<id>/events.jsonl`."""

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
    Parts,
    ReadLog,
    call_id_of,
    digest,
    first_of,
    first_record,
    items,
    mapping,
    messages_of,
    moment,
    records_of,
    result_text,
    string,
    text_of,
    tool_call,
    usage_of,
)

_SKIPPED = (
    "session.", "hook.", "subagent.", "assistant.turn_", "assistant.intent", "assistant.usage", "abort",
    "tool.execution_start", "tool.execution_progress", "tool.user_requested", "system.notification", "skill.",
    "permission.", "pending_messages.",
)  # fmt: skip


class Copilot(FormatReader):
    name = "copilot"
    title = "Copilot CLI"
    patterns = ("**/events.jsonl", "*.jsonl")

    def places(self, machine: Machine) -> Iterable[Path]:
        yield machine.folder("COPILOT_HOME", ".copilot") / "session-state"

    def recognises(self, file: Path, head: bytes) -> bool:
        del file
        return any(
            "data" in one and string(one.get("type")).startswith(("session.", "user.m")) for one in records_of(head)
        )

    def read(self, file: Path, log: ReadLog) -> Iterator[Item]:
        started = mapping(first_record(file).get("data"))
        session = string(started.get("sessionId")) or (file.parent.name if file.name == "events.jsonl" else file.stem)
        yield ImportedSession(session, title=_name(file.with_name("workspace.yaml")))
        for record in log.json_lines(file):
            kind, data = string(record.get("type")), mapping(record.get("data"))
            key = f"{string(record.get('id'))} {digest(kind, data)}"
            at = moment(record.get("timestamp"))
            if kind in ("session.start", "session.resume", "session.model_change"):
                yield _described(session, data)
            elif kind in ("user.message", "system.message", "assistant.message", "assistant.reasoning"):
                yield from _message(session, key, kind, data, at)
            elif kind == "tool.execution_complete":
                result = mapping(data.get("result"))
                text = result_text(first_of(result, "content", "detailedContent") or data.get("error") or result)
                call = call_id_of(data) or None
                yield ImportedMessage(session, (key,), "tool", text, at, tool_call_id=call)
            elif kind.startswith(_SKIPPED):
                log.skip(kind)
            else:
                log.meet_unknown(kind)


def _message(session: str, key: str, kind: str, data: dict[str, Any], at: float) -> Iterator[Item]:
    text = text_of(data.get("content"))
    if kind == "assistant.reasoning":
        yield ImportedMessage(session, (key,), "assistant", None, at, reasoning=text)
        return
    given = [mapping(one) for one in items(data.get("toolRequests"))]
    calls = tuple(tool_call(call_id_of(one), one.get("name"), one.get("arguments")) for one in given)
    role = kind.partition(".")[0]
    yield from messages_of(session, key, role, Parts(text, string(data.get("reasoningText")), calls), at)
    if role == "assistant" and data.get("outputTokens"):
        yield ImportedUsage(session, f"usage {key}", usage_of({"output": data["outputTokens"]}))


def _described(session: str, data: dict[str, Any]) -> ImportedSession:
    place = mapping(data.get("context"))
    return ImportedSession(
        session,
        model=string(first_of(data, "selectedModel", "newModel")),
        folder=string(place.get("cwd")),
        branch=string(place.get("branch")),
        started=moment(data.get("startTime")),
    )


def _name(file: Path) -> str:
    """Return the name or summary of a session, as its `workspace.yaml` has it in one line."""
    lines = file.read_text("utf-8", "replace").splitlines() if file.is_file() else []
    named = dict(line.split(": ", 1) for line in lines if ": " in line and not line.startswith((" ", "#")))
    return (named.get("name") or named.get("summary") or "").strip().strip("\"'")
