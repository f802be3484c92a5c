"""Reading an export, line by line. Whatever is wrong is one sentence that names the line and the field."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, BinaryIO, get_args

from herma.errors import UsageError
from herma.transcript.export import FORMAT, LONGEST_LINE, VERSION
from herma.transcript.given import LONGEST_ID
from herma.transcript.titles import sanitized
from herma.transcript.wire import MOST, from_wire
from herma.types import Hidden, Message, Reason, Scope, SessionInfo, Usage, Whereabouts

SESSION_FIELDS = frozenset(
    (
        *("id", "source", "started", "reason", "parent", "title", "model", "ended", "end_reason"),
        *("profile", "project", "user", "chat", "archived", "usage", "system_prompt"),
        *Whereabouts.__annotations__,
    )
)
MESSAGE_FIELDS = frozenset(
    (
        *("session", "role", "timestamp", "content", "tool_calls", "tool_call_id", "tool_name", "reasoning"),
        *("sent", "told", "tokens", "finish_reason", "hidden", "extra"),
    )
)
_BOM = b"\xef\xbb\xbf"
_EXPORT = "`herma sessions export` writes such files."


@dataclass(frozen=True, slots=True)
class Parsed:
    """A session as a file tells of it."""

    session: SessionInfo
    system_prompt: str | None = None
    has_profile: bool = False


class _Wrong(Exception):
    """What is wrong with a line, in a few words that go on after `line 7`."""


def read_lines(file: BinaryIO, name: str) -> Iterator[Parsed | Message]:
    """Every session and message of a file, from its beginning. `UsageError` for the first line that is wrong."""
    file.seek(0)
    seen: dict[str, int] = {}
    begun = False
    for number, (raw, last) in enumerate(_raw_lines(file, name), 1):
        try:
            value = _object(raw, last)
            if value is None:
                continue
            if not begun:
                _check_header(value)
            begun = True
            match value.pop("type", None):
                case "herma":
                    _check_header({**value, "type": "herma"})
                case "session":
                    one = _session(value)
                    if one.session.id in seen:
                        raise _Wrong(f"has session {one.session.id!r} again; line {seen[one.session.id]} has it too")
                    seen[one.session.id] = number
                    yield one
                case "message":
                    message = _message(value)
                    if message.session_id not in seen:
                        raise _Wrong(f"belongs to session {message.session_id!r}, which no line before it has")
                    yield message
                case other:
                    raise _Wrong(f'has the type {_short(other)} in "type", not "session" or "message"')
        except _Wrong as exc:
            raise UsageError(f"{name}: line {number:,} {exc}.", hint="Nothing of this file was imported.") from None
    if not begun:
        raise UsageError(f"{name} is empty.", hint=_EXPORT)


def _raw_lines(file: BinaryIO, name: str) -> Iterator[tuple[bytes, bool]]:
    """Each line without its end, and whether it is the last one and has no end."""
    number = 0
    while raw := file.readline(LONGEST_LINE + 2):
        number += 1
        if len(raw.rstrip(b"\r\n")) > LONGEST_LINE:
            raise UsageError(
                f"{name}: line {number:,} is longer than {LONGEST_LINE // 1024 // 1024} MB.",
                hint="Nothing of this file was imported. " + _EXPORT,
            )
        yield raw.removeprefix(_BOM) if number == 1 else raw, not raw.endswith(b"\n")


def _object(raw: bytes, last: bool) -> dict[str, Any] | None:
    """The JSON object of a line; None for a blank one."""
    if not raw.strip():
        return None
    try:
        text = raw.decode()
    except UnicodeDecodeError as exc:
        raise _Wrong(f"is not text: byte {exc.start + 1:,} is not UTF-8") from None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as exc:
        if "\0" in text:
            raise _Wrong("is not text") from None
        if last and text.lstrip().startswith("{"):
            raise _Wrong("ends in the middle; the file may have been cut off") from None
        where = f" (column {exc.colno:,}: {exc.msg})" if isinstance(exc, json.JSONDecodeError) else ""
        raise _Wrong(f"is not JSON{where}") from None
    if not isinstance(value, dict):
        raise _Wrong(f"is {_short(value)}, not an object")
    return value


def _check_header(value: Mapping[str, Any]) -> None:
    if value.get("type") != "herma":
        raise _Wrong('is not the first line of an export, which says {"type":"herma",…}. ' + _EXPORT.rstrip("."))
    if value.get("format") != FORMAT:
        raise _Wrong(f'has {_short(value.get("format"))} in "format", not "{FORMAT}"')
    version = value.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise _Wrong(f'has {_short(version)} in "version", not a number')
    if version > VERSION:
        raise _Wrong(f"was written by a newer version of Herma (format {version}; this one reads {VERSION})")


# ── sessions ──


def _session(value: dict[str, Any]) -> Parsed:
    _known(value, SESSION_FIELDS, "session")
    session_id = _text(value, "id", needed=True) or ""
    if len(session_id) > LONGEST_ID or not session_id.isprintable() or session_id.strip() != session_id:
        raise _Wrong(f'has {_short(session_id)} in "id": 1 to {LONGEST_ID} printable characters are needed')
    reason = value.get("reason", "new")
    if reason not in get_args(Reason):
        raise _Wrong(f'has {_short(reason)} in "reason", not one of {", ".join(get_args(Reason))}')
    archived = value.get("archived", False)
    if not isinstance(archived, bool):
        raise _Wrong(f'has {_short(archived)} in "archived", not true or false')
    scope = Scope(**{name: _text(value, name) or "" for name in ("profile", "project", "user", "chat")})
    session = SessionInfo(
        id=session_id,
        source=_text(value, "source", needed=True) or "",
        scope=scope,
        started=_number(value, "started", needed=True) or 0.0,
        conversation="",
        title=_title(value),
        model=_text(value, "model"),
        parent=_text(value, "parent"),
        reason=reason,
        ended=_number(value, "ended"),
        end_reason=_text(value, "end_reason"),
        archived=archived,
        usage=_usage(value.get("usage")),
        **_whereabouts(value),
    )
    return Parsed(session, _text(value, "system_prompt"), "profile" in value)


def _whereabouts(value: dict[str, Any]) -> Whereabouts:
    return Whereabouts(
        provider=_text(value, "provider") or "",
        chat_type=_text(value, "chat_type") or "",
        folder=_text(value, "folder") or "",
        branch=_text(value, "branch") or "",
    )


def _title(value: dict[str, Any]) -> str | None:
    try:
        return sanitized(_text(value, "title"))
    except UsageError as exc:
        raise _Wrong(f'has a "title" that is too long: {str(exc).rstrip(".").lower()}') from None


def _usage(value: object) -> Usage:
    if value is None:
        return Usage()
    names = {item.name for item in fields(Usage)}
    if not isinstance(value, dict) or not set(value) <= names:
        raise _Wrong(f'has {_short(value)} in "usage", not an object with {", ".join(sorted(names))}')
    for name, given in value.items():
        kind = int | float if name == "cost_usd" else int
        if not isinstance(given, kind) or isinstance(given, bool) or not -MOST <= given <= MOST:
            raise _Wrong(f'has {_short(given)} in "usage.{name}", not a number')
    return Usage(**value)


# ── messages ──


def _message(value: dict[str, Any]) -> Message:
    _known(value, MESSAGE_FIELDS, "message")
    hidden = value.pop("hidden", "")
    if hidden not in get_args(Hidden):
        raise _Wrong(f'has {_short(hidden)} in "hidden", not "rewound" or "compacted"')
    extra = value.pop("extra", {})
    if not isinstance(extra, dict):
        raise _Wrong(f'has {_short(extra)} in "extra", not an object')
    calls = value.pop("tool_calls", [])
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise _Wrong(f'has {_short(calls)} in "tool_calls", not a list of objects')
    session_id = _text(value, "session", needed=True) or ""
    timestamp = _number(value, "timestamp", needed=True)
    given = {name: item for name, item in value.items() if name not in ("session", "timestamp")}
    if not isinstance(given.get("role"), str):
        raise _Wrong(f'has {_short(given.get("role"))} in "role", not text')
    message = Message(
        session_id=session_id, timestamp=timestamp or 0.0, hidden=hidden, extra=extra, tool_calls=tuple(calls), **given
    )
    try:
        return from_wire(message)
    except ValueError as exc:
        raise _Wrong(str(exc)) from None


# ── fields ──


def _known(value: dict[str, Any], names: frozenset[str], kind: str) -> None:
    for name in value:
        if name not in names:
            near = get_close_matches(name, names, n=1)
            meant = f'; is "{near[0]}" meant?' if near else ""
            raise _Wrong(f'has a field "{name[:40]}", which a {kind} does not have{meant}')


def _text(value: dict[str, Any], name: str, *, needed: bool = False) -> str | None:
    given = value.get(name)
    if given is None and not needed:
        return None
    if not isinstance(given, str) or (needed and not given.strip()):
        raise _Wrong(f'has {_short(given)} in "{name}", not text')
    try:
        given.encode()
    except UnicodeEncodeError:
        raise _Wrong(f'has half a character in "{name}"') from None
    return given


def _number(value: dict[str, Any], name: str, *, needed: bool = False) -> float | None:
    given = value.get(name)
    if given is None and not needed:
        return None
    if not isinstance(given, int | float) or isinstance(given, bool) or not -MOST <= given <= MOST:
        raise _Wrong(f'has {_short(given)} in "{name}", not seconds since 1970')
    return float(given)


def _short(value: object) -> str:
    """A value in a few characters."""
    if value is None:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:39] + "…"
