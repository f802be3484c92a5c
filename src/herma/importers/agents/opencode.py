"""Read the sessions of OpenCode: `opencode.db`, or the JSON files of versions before 1.2."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from herma.importers import base

_SKIPPED = {"step-start", "step-finish", "snapshot", "patch", "retry", "compaction", "file", "agent", "subtask"}


class OpenCode(base.FormatReader):
    name = "opencode"
    title = "OpenCode"
    grows = False
    edits = True
    patterns = ("opencode*.db", "**/session/*/*.json")

    def places(self, machine: base.Machine) -> Iterable[Path]:
        yield machine.data("opencode")

    def recognises(self, file: Path, head: bytes) -> bool:
        if head.startswith(b"SQLite format 3"):
            return file.name.startswith("opencode")
        return file.suffix == ".json" and file.parents[1].name == "session" and b'"id"' in head

    def read(self, file: Path, log: base.ReadLog) -> Iterator[base.Item]:
        yield from _database(file, log) if file.suffix == ".db" else _files(file, log)


def _database(file: Path, log: base.ReadLog) -> Iterator[base.Item]:
    with log.database(file) as database:
        for row in log.rows(database, "SELECT * FROM session ORDER BY time_created, id"):
            about = dict(row)
            session = base.string(about.get("id"))
            yield _described(session, about)
            parts: dict[str, list[dict[str, Any]]] = {}
            kept = "SELECT id, message_id, data FROM part WHERE session_id = ? ORDER BY message_id, id"
            for part in log.rows(database, kept, session):
                parts.setdefault(part["message_id"], []).append({**base.parsed(part["data"], log), "id": part["id"]})
            said = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
            for message in log.rows(database, said, session):
                log.line += 1
                given = {**base.parsed(message["data"], log), "id": message["id"]}
                yield from _message(session, given, parts.pop(message["id"], []), log)
            for left in parts:
                log.meet_broken(f"parts without their message {left}"[:80])


def _files(file: Path, log: base.ReadLog) -> Iterator[base.Item]:
    storage, about = file.parents[2], base.json_beside(file)
    session = base.string(about.get("id")) or file.stem
    yield _described(session, about)
    for place in sorted((storage / "message" / session).glob("*.json")):
        log.line += 1
        message = base.mapping(log.json_file(place, counted=False))
        if not message:
            continue
        parts = [
            {"id": part.stem, **base.mapping(log.json_file(part, counted=False))}
            for part in sorted((storage / "part" / base.string(message.get("id"))).glob("*.json"))
        ]
        yield from _message(session, message, parts, log)


def _described(session: str, about: dict[str, Any]) -> base.ImportedSession:
    parent = base.string(base.first_of(about, "parent_id", "parentID"))
    described = base.ImportedSession(
        session,
        title=base.string(about.get("title")),
        folder=base.string(about.get("directory")),
        started=base.moment(about.get("time_created")) or base.moment(base.mapping(about.get("time")).get("created")),
    )
    if parent:
        described.parent, described.reason = parent, "delegation"
    return described


def _message(
    session: str, message: dict[str, Any], parts: list[dict[str, Any]], log: base.ReadLog
) -> Iterator[base.Item]:
    key, role = base.string(message.get("id")), base.string(message.get("role"))
    model = base.mapping(message.get("model"))
    at = base.moment(base.mapping(message.get("time")).get("created"))
    name = base.string(message.get("modelID") or model.get("modelID"))
    provider = base.string(message.get("providerID") or model.get("providerID"))
    if role == "assistant":
        yield base.ImportedSession(session, model=name, provider=provider)
    if role not in ("user", "assistant"):
        log.meet_unknown(f"role {role}")
        return
    if role == "assistant" and message.get("summary") is True:
        log.skip("compaction summary")
        return
    said: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    results: list[base.ImportedMessage] = []
    for part in parts:
        kind = base.string(part.get("type"))
        if kind in _SKIPPED or part.get("synthetic") or part.get("ignored"):
            log.skip(f"part {kind}" if kind in _SKIPPED else "synthetic text")
        elif kind == "tool":
            state = base.mapping(part.get("state"))
            call = base.string(part.get("callID")) or base.string(part.get("id"))
            calls.append(base.tool_call(call, part.get("tool"), state.get("input")))
            output, when = (
                base.first_of(state, "output", "error"),
                base.moment(base.mapping(state.get("time")).get("end")) or at,
            )
            if output is not None:
                one = base.ImportedMessage(session, (f"{key} {call}",), "tool", base.result_text(output), when)
                one.tool_call_id = call
                results.append(one)
        else:
            said.append(part)
    content = base.parts_of(said, log)._replace(calls=tuple(calls))
    if any(content):
        yield from base.messages_of(session, key, role, content, at, finish=base.string(message.get("finish")))
    else:
        log.skip("message without text")
    yield from results
    tokens = base.mapping(message.get("tokens"))
    if tokens and key:
        cache = base.mapping(tokens.get("cache"))
        counted = {**tokens, "cacheRead": base.whole(cache.get("read")), "cacheWrite": base.whole(cache.get("write"))}
        yield base.ImportedUsage(session, f"usage {key}", base.usage_of(counted))
