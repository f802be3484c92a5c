"""Read the sessions of Gemini CLI (`~/.gemini/tmp/<project>/chats/`), of Antigravity CLI, which followed it, and of
Qwen Code (`~/.qwen/projects/<folder>/chats/`), which was made from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from herma.importers import base

_REQUEST = re.compile(r"<USER_REQUEST>\s*(.*?)\s*</USER_REQUEST>", re.DOTALL)


class Gemini(base.FormatReader):
    name = "gemini"
    title = "Gemini CLI"
    expires_after = 30
    grows = False  # later lines of a file change earlier ones
    edits = True
    patterns = ("**/session-*.jsonl", "**/session-*.json", "*/chats/*/*.jsonl", "*.jsonl", "*.json")

    def places(self, machine: base.Machine) -> Iterable[Path]:
        yield machine.home / ".gemini" / "tmp"

    def files(self, place: Path) -> Iterator[Path]:
        return (file for file in super().files(place) if file.name != "logs.json")

    def recognises(self, file: Path, head: bytes) -> bool:
        if file.suffix == ".json":
            return b'"sessionId"' in head and b'"messages"' in head and b'"startTime"' in head
        return any("projectHash" in one or one.get("type") == "gemini" for one in base.records_of(head))

    def read(self, file: Path, log: base.ReadLog) -> Iterator[base.Item]:
        """Note where the newest text of each message stands, then read them in the order in which they were begun."""
        log.gathers = True
        about: dict[str, Any] = {}
        kept: dict[str, _Place] = {}
        whole = None if file.suffix == ".jsonl" else base.mapping(log.json_file(file))
        for record in log.json_lines(file) if whole is None else [whole]:
            change = base.mapping(record.get("$set"))
            if target := base.string(record.get("$rewindTo")):
                _take_back(kept, target)
            elif "id" in record and "type" in record:
                kept[base.string(record["id"]) or f"line {log.line}"] = _Place(log.begins, -1, log.line)
            elif change or "messages" in record or "sessionId" in record:
                about |= {name: value for name, value in (change or record).items() if name != "messages"}
                for number, one in enumerate(base.items((change or record).get("messages"))):
                    key = base.string(base.mapping(one).get("id")) or f"message {number}"
                    kept[key] = _Place(log.begins, number, log.line or number + 1)
            else:
                log.meet_unknown("record " + ",".join(sorted(record))[:40])
        session = base.string(about.get("sessionId")) or file.stem
        yield _described(file, session, about)
        yield from self._messages(session, kept, _records(file, kept, whole), log)

    def _messages(
        self, session: str, kept: dict[str, _Place], records: Iterator[dict[str, Any]], log: base.ReadLog
    ) -> Iterator[base.Item]:
        last, gone_back = "", False
        for (key, place), record in zip(kept.items(), records, strict=True):
            log.line = place.line
            for item in _message(session, key, record, place.rewound, log):
                if isinstance(item, base.ImportedMessage) and not place.rewound:
                    if gone_back and item.role == "user":
                        item.after, item.rewinds, gone_back = last, True, False
                    last = item.keys[0]
                yield item
            gone_back = gone_back or place.rewound


class _Place(NamedTuple):
    """The place of a message: its line, and its number in a list of messages there."""

    at: int
    number: int
    line: int
    rewound: bool = False


def _records(file: Path, kept: dict[str, _Place], whole: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield the messages at their places, one line in memory at a time."""
    with file.open("rb") as stream:
        record, read = whole or {}, 0 if whole else -1
        for place in kept.values():
            if place.at != read:
                stream.seek(read := place.at)
                record = base.parsed(stream.readline())
            listed = base.items((base.mapping(record.get("$set")) or record).get("messages"))
            yield record if place.number < 0 else base.mapping(listed[place.number])


def _take_back(kept: dict[str, _Place], target: str) -> None:
    """Mark a message, and all after it, as taken back."""
    found = False
    for key, place in kept.items():
        found = found or key == target
        kept[key] = place._replace(rewound=place.rewound or found)


def _described(file: Path, session: str, about: dict[str, Any]) -> base.ImportedSession:
    described = base.ImportedSession(
        session, title=base.string(about.get("summary")), started=base.moment(about.get("startTime"))
    )
    if about.get("kind") == "subagent":
        described.parent, described.reason = file.parent.name, "delegation"
    chats = next((folder for folder in file.parents if folder.name == "chats"), None)
    if chats:
        projects = base.mapping(base.json_beside(chats.parents[2] / "projects.json").get("projects"))
        named = (path for path, slug in projects.items() if slug == chats.parent.name)
        described.folder = next(named, "") or _line(chats.parent / ".project_root")
    return described


def _line(file: Path) -> str:
    return file.read_text("utf-8", "replace").strip()[:4096] if file.is_file() else ""


def _message(session: str, key: str, record: dict[str, Any], rewound: bool, log: base.ReadLog) -> Iterator[base.Item]:
    kind, at = base.string(record.get("type")), base.moment(record.get("timestamp"))
    parts = base.parts_of(record.get("content"), log)
    if kind in ("info", "warning", "error"):
        log.skip(f"record {kind}")
    elif kind == "user":
        yield from base.messages_of(session, key, "user", parts, at, rewound=rewound)
    elif kind in ("gemini", "model", "assistant"):
        thoughts = [base.text_of(base.first_of(base.mapping(one), "description", "text", "subject")) for one in
                    base.items(record.get("thoughts"))]  # fmt: skip
        given = [base.mapping(call) for call in base.items(record.get("toolCalls"))]
        calls = tuple(base.tool_call(call.get("id"), call.get("name"), call.get("args")) for call in given)
        results = [result for call in given for result in base.parts_of(call.get("result") or [], log).results]
        yield base.ImportedSession(session, model=base.string(record.get("model")))
        whole = base.Parts(parts.text, "\n".join(filter(None, thoughts)), (*parts.calls, *calls))
        yield from base.messages_of(session, key, "assistant", whole, at, rewound=rewound)
        for number, result in enumerate(results):
            yield base.ImportedMessage(
                session, (f"{key} {number}",), "tool", result.text, at, tool_call_id=result.call or None,
                tool_name=result.name or None, rewound=rewound,
            )  # fmt: skip
        if tokens := base.mapping(record.get("tokens")):
            yield base.ImportedUsage(session, f"usage {key}", base.usage_of(tokens))
    else:
        log.meet_unknown(kind)


class Antigravity(base.FormatReader):
    """Steps of a session, one a line. Tool calls and their results have no ids: the results follow the calls."""

    name = "antigravity"
    title = "Antigravity"
    patterns = ("**/*.jsonl",)

    def places(self, machine: base.Machine) -> Iterable[Path]:
        return machine.home / ".gemini" / "antigravity" / "brain", machine.home / ".gemini" / "antigravity-cli"

    def recognises(self, file: Path, head: bytes) -> bool:
        del file
        return any("step_index" in one for one in base.records_of(head))

    def read(self, file: Path, log: base.ReadLog) -> Iterator[base.Item]:
        for record in log.json_lines(file):
            kind, source = base.string(record.get("type")), base.string(record.get("source"))
            text, at = base.text_of(record.get("content")), base.moment(record.get("created_at"))
            key = f"{log.line} {record.get('step_index')} {base.digest(kind, text)}"
            if kind == "USER_INPUT":
                asked = _REQUEST.search(text)
                yield base.ImportedMessage(file.stem, (key,), "user", asked[1] if asked else text, at)
            elif kind == "PLANNER_RESPONSE":
                given = [base.mapping(call) for call in base.items(record.get("tool_calls"))]
                calls = tuple(
                    base.tool_call(f"{key} {n}", call.get("name"), call.get("args")) for n, call in enumerate(given)
                )
                parts = base.Parts(text, base.string(record.get("thinking")), calls)
                yield from base.messages_of(file.stem, key, "assistant", parts, at)
            elif source == "SYSTEM" or not text:
                log.skip(kind or "step")
            elif kind:
                yield base.ImportedMessage(file.stem, (key,), "tool", text, at, tool_name=kind.lower())
            else:
                log.meet_unknown(kind)


class Qwen(base.FormatReader):
    """One record a line, each with its parent; equal ids are pieces of one message."""

    name = "qwen"
    title = "Qwen Code"

    def places(self, machine: base.Machine) -> Iterable[Path]:
        home = machine.folder("QWEN_HOME", ".qwen")
        yield home / "projects"
        yield home / "tmp"
        if runtime := machine.environment.get("QWEN_RUNTIME_DIR"):
            yield Path(runtime).expanduser() / "projects"

    def recognises(self, file: Path, head: bytes) -> bool:
        del file
        return any("parentUuid" in one and "parts" in base.mapping(one.get("message")) for one in base.records_of(head))

    def read(self, file: Path, log: base.ReadLog) -> Iterator[base.Item]:
        branches = base.Branches(log, base.string(base.record_before(file, log.start).get("uuid")))
        known = ("", "", "")
        for record in log.json_lines(file):
            at, session = base.moment(record.get("timestamp")), base.string(record.get("sessionId")) or file.stem
            uuid = base.string(record.get("uuid"))
            facts = (
                base.string(record.get("cwd")),
                base.string(record.get("gitBranch")),
                base.string(record.get("model")),
            )
            facts = tuple(new or old for new, old in zip(facts, known, strict=True))  # type: ignore[assignment]
            if facts != known:
                known = facts
                folder, branch, model = facts
                yield base.ImportedSession(session, folder=folder, branch=branch, model=model, started=at)
            before = branches.follow(uuid, base.string(record.get("parentUuid")))
            if record.get("type") == "system":
                log.open_end = log.open_end or record.get("subtype") == "rewind"
                yield from _remark(session, record, log)
                continue
            key = f"{uuid} {base.digest(record.get('message'))}"
            for item in _qwen_message(session, key, record, at, log):
                if isinstance(item, base.ImportedMessage):
                    branches.say(uuid, before, item)
                    if item.role == "user":
                        item.rewinds, log.open_end = log.open_end, False
                yield item


def _remark(session: str, record: dict[str, Any], log: base.ReadLog) -> Iterator[base.ImportedSession]:
    payload, subtype = base.mapping(record.get("systemPayload")), base.string(record.get("subtype"))
    if subtype == "custom_title":
        yield base.ImportedSession(session, title=base.string(payload.get("customTitle")))
    elif subtype == "parent_session":
        yield base.ImportedSession(session, parent=base.string(payload.get("parentSessionId")), reason="branch")
    else:
        log.skip(f"system {subtype}")


def _qwen_message(session: str, key: str, record: dict[str, Any], at: float, log: base.ReadLog) -> Iterator[base.Item]:
    kind, payload = base.string(record.get("type")), base.mapping(record.get("systemPayload"))
    if kind not in ("user", "assistant", "tool_result"):
        log.meet_unknown(kind)
        return
    parts = base.parts_of(base.mapping(record.get("message")).get("parts"), log)
    if kind == "user" and payload.get("hookContext") and base.string(payload.get("displayText")):
        parts = parts._replace(text=base.string(payload["displayText"]))
    if kind == "tool_result" and not parts.results:
        log.skip("empty tool result")
        return
    injected = kind == "user" and record.get("subtype") in ("notification", "cron")
    role = "system" if injected else {"tool_result": "tool"}.get(kind, kind)
    yield from base.messages_of(session, key, role, parts, at)
    if usage := base.mapping(record.get("usageMetadata")):
        yield base.ImportedUsage(session, f"usage {key}", base.usage_of(usage))
