"""Turn frozen values into JSON, for the command line and for HTTP.

`encode(value)` makes a dictionary of a dataclass or a NamedTuple: times become ISO 8601 in UTC, a scope becomes
`project` and `user`, an author becomes `who`, `origin`, `session` and `message`; paths, enums and tuples become plain
JSON values. A command says only what differs:

    encode(fact, omit=["rank"])
    encode(session, rename={"message_count": "messages"}, preview=None)
"""

from __future__ import annotations

import dataclasses
import enum
import json
import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from herma.transcript.messages import to_wire
from herma.types import Author, Blocked, Remove, Replace, Scope

if TYPE_CHECKING:
    from herma.doctor.checks import Diagnosis
    from herma.types import (
        Change,
        Entry,
        Finding,
        MemoryOp,
        MemoryOutcome,
        Message,
        Pending,
        SessionInfo,
        StoreStatus,
        TranscriptStats,
    )

Json = dict[str, Any]

# Control characters that JSON leaves as they are, bidirectional overrides, which reorder what is read, line separators,
# and lone surrogates, which cannot be encoded at all.
_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_TIMES = frozenset(
    {"active_before", "archived", "archived_at", "at", "before", "begun", "changed", "confirmed", "created", "deleted"}
    | {"ended", "expires", "first", "forgotten", "imported", "last", "last_active", "last_patched", "last_run"}
    | {"last_used", "last_viewed", "retry_at", "seen", "started", "timestamp", "until", "updated", "valid_from"}
)
"""Names of fields that hold seconds since 1970."""


def json_text(value: object) -> str:
    """Return a value as JSON text in which nothing can steer a terminal."""
    text = json.dumps(value, ensure_ascii=False, indent=2, default=_plain)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def encode(value: Any, *, rename: Mapping[str, str] | None = None, omit: Iterable[str] = (), **more: object) -> Json:
    """Return a dataclass or a NamedTuple as a dictionary; `more` adds or replaces keys."""
    left_out = frozenset(omit)
    result: Json = {}
    names = value._fields if hasattr(value, "_fields") else [field.name for field in dataclasses.fields(value)]
    for name in names:
        if name in left_out or name.startswith("_"):
            continue
        held = getattr(value, name)
        if isinstance(held, Scope):
            result |= scope_json(held)
        elif isinstance(held, Author):
            result |= {key: getattr(held, key) for key in ("who", "origin", "session", "message")}
        else:
            result[(rename or {}).get(name, name)] = _json(held, name)
    return result | more


def _json(value: Any, name: str = "") -> Any:
    """Return a value, and everything in it, as JSON values."""
    if isinstance(value, float) and name in _TIMES:
        return iso(value)
    if isinstance(value, enum.Enum):
        return value.value
    if hasattr(value, "_fields") or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return encode(value)
    if isinstance(value, Mapping):
        return {str(_json(key)): _json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    if isinstance(value, AbstractSet):
        return sorted(_json(item) for item in value)
    return str(value) if isinstance(value, PurePath) else value


def _plain(value: object) -> object:
    """Return what `json` cannot write itself."""
    made = _json(value)
    if made is value:
        raise TypeError(f"{type(value).__name__} has no place in JSON")
    return made


def iso(at: float | None) -> str | None:
    """Return a time as ISO 8601 in UTC, or None where no calendar has it."""
    if at is None:
        return None
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return None


# ── values that several commands and pages show ──────────────────────────────────────────────────────────────────


def scope_json(scope: Scope) -> Json:
    return {"project": scope.project or None, "user": scope.user or None}


def session_json(session: SessionInfo) -> Json:
    optional = {name: getattr(session, name) or None for name in ("chat_type", "provider", "folder", "branch")}
    return encode(
        session,
        rename={"message_count": "messages", "tool_call_count": "tool_calls"},
        omit=["imported"],
        chat=session.scope.chat or None,
        **optional,
    )


def message_json(message: Message) -> Json:
    """Return everything that is stored of a message, under the names that model APIs use."""
    kept = to_wire(message, kept=True)
    return {
        "id": message.id,
        "session": message.session_id,
        **kept,
        "timestamp": iso(message.timestamp),
        "hidden": message.hidden or None,
    }


def stats_json(total: TranscriptStats) -> Json:
    return {
        **encode(total, omit=["sources", "payloads", "payload_bytes", "payload_text_bytes"]),
        "sources": {name: {"sessions": n, "messages": m} for name, (n, m) in total.sources.items()},
        "payloads": {"count": total.payloads, "stored": total.payload_bytes, "text": total.payload_text_bytes},
    }


def status_json(status: StoreStatus, *, enabled: bool) -> Json:
    """Return one memory file at a glance."""
    percent = status.used * 100 // status.limit if status.limit else 100
    return encode(status, rename={"findings": "flagged"}, enabled=enabled, percent=percent)


def diagnosis_json(diagnosis: Diagnosis) -> Json:
    return {
        "ok": diagnosis.healthy,
        "healthy": diagnosis.healthy,
        "home": diagnosis.home,
        "checks": [encode(check) for check in diagnosis.checks],
        "failures": [
            {"name": one.name, "failures": one.times, "last": iso(one.at), "at": one.what, "why": one.why}
            for one in diagnosis.failures
        ],
    }


# Curated memory.


def _finding_json(finding: Finding, text: str) -> Json:
    start, end = finding.span
    return encode(finding, omit=["span"], start=start, end=end, text=text[start:end])


def entry_json(number: int, entry: Entry) -> Json:
    findings = [_finding_json(finding, entry.text) for finding in entry.findings]
    size, withheld = len(entry.text), not entry.trusted
    return encode(entry, omit=["by"], number=number, size=size, withheld=withheld, findings=findings)


def change_json(change: Change) -> Json:
    return encode(change, rename={"id": "change"}, omit=["before", "after"])


def operation_json(op: MemoryOp) -> Json:
    omit = ["reworded"] if isinstance(op, Replace) else ["kept"] if isinstance(op, Remove) and not op.kept else []
    return encode(op, omit=omit, action=type(op).__name__.lower())


def pending_json(pending: Pending) -> Json:
    return encode(
        pending, omit=["operations", "decision"], operations=[operation_json(op) for op in pending.operations]
    )


def outcome_json(outcome: MemoryOutcome, text: str = "") -> Json:
    """Return an outcome with everything it carries. `text` is what the findings point into."""
    value = encode(outcome, ok=outcome.ok, outcome=type(outcome).__name__)
    if isinstance(outcome, Blocked):
        value["findings"] = [_finding_json(finding, text) for finding in outcome.findings]
    return value
