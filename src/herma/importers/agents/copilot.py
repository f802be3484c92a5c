"""Read the sessions of GitHub Copilot CLI: `~/.copilot/session-state/<id>/events.jsonl`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from herma.importers import base

_SKIPPED = (
    "session.", "hook.", "subagent.", "assistant.turn_", "assistant.intent", "assistant.usage", "abort",
    "tool.execution_start", "tool.execution_progress", "tool.user_requested", "system.notification", "skill.",
    "permission.", "pending_messages.",
)  # fmt: skip


class Copilot(base.FormatReader):
    name = "copilot"
    title = "Copilot CLI"
    patterns = ("**/events.jsonl", "*.jsonl")

    def places(self, machine: base.Machine) -> Iterable[Path]:
        yield machine.folder("COPILOT_HOME", ".copilot") / "session-state"

    def recognises(self, file: Path, head: bytes) -> bool:
        del file
        return any(
            "data" in one and base.string(one.get("type")).startswith(("session.", "user.m"))
            for one in base.records_of(head)
        )

    def read(self, file: Path, log: base.ReadLog) -> Iterator[base.Item]:
        started = base.mapping(base.first_record(file).get("data"))
        session = base.string(started.get("sessionId")) or (
            file.parent.name if file.name == "events.jsonl" else file.stem
        )
        yield base.ImportedSession(session, title=_name(file.with_name("workspace.yaml")))
        for record in log.json_lines(file):
            kind, data = base.string(record.get("type")), base.mapping(record.get("data"))
            key = f"{base.string(record.get('id'))} {base.digest(kind, data)}"
            at = base.moment(record.get("timestamp"))
            if kind in ("session.start", "session.resume", "session.model_change"):
                yield _described(session, data)
            elif kind in ("user.message", "system.message", "assistant.message", "assistant.reasoning"):
                yield from _message(session, key, kind, data, at)
            elif kind == "tool.execution_complete":
                result = base.mapping(data.get("result"))
                text = base.result_text(
                    base.first_of(result, "content", "detailedContent") or data.get("error") or result
                )
                call = base.call_id_of(data) or None
                yield base.ImportedMessage(session, (key,), "tool", text, at, tool_call_id=call)
            elif kind.startswith(_SKIPPED):
                log.skip(kind)
            else:
                log.meet_unknown(kind)


def _message(session: str, key: str, kind: str, data: dict[str, Any], at: float) -> Iterator[base.Item]:
    text = base.text_of(data.get("content"))
    if kind == "assistant.reasoning":
        yield base.ImportedMessage(session, (key,), "assistant", None, at, reasoning=text)
        return
    given = [base.mapping(one) for one in base.items(data.get("toolRequests"))]
    calls = tuple(base.tool_call(base.call_id_of(one), one.get("name"), one.get("arguments")) for one in given)
    role = kind.partition(".")[0]
    yield from base.messages_of(session, key, role, base.Parts(text, base.string(data.get("reasoningText")), calls), at)
    if role == "assistant" and data.get("outputTokens"):
        yield base.ImportedUsage(session, f"usage {key}", base.usage_of({"output": data["outputTokens"]}))


def _described(session: str, data: dict[str, Any]) -> base.ImportedSession:
    place = base.mapping(data.get("context"))
    return base.ImportedSession(
        session,
        model=base.string(base.first_of(data, "selectedModel", "newModel")),
        folder=base.string(place.get("cwd")),
        branch=base.string(place.get("branch")),
        started=base.moment(data.get("startTime")),
    )


def _name(file: Path) -> str:
    """Return the name or summary of a session, as its `workspace.yaml` has it in one line."""
    lines = file.read_text("utf-8", "replace").splitlines() if file.is_file() else []
    named = dict(line.split(": ", 1) for line in lines if ": " in line and not line.startswith((" ", "#")))
    return (named.get("name") or named.get("summary") or "").strip().strip("\"'")
