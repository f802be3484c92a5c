"""Export and import (exact)."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from html import escape
from os import SEEK_END
from typing import Any, BinaryIO, Protocol, get_args

from herma.errors import StoreChanged, StoreError, UsageError
from herma.safety.secrets import find_secrets
from herma.transcript.log import Transcripts, next_title, sanitized
from herma.transcript.messages import LONGEST_ID, MOST, called, from_wire, preview_of, words_of
from herma.types import Hidden, Message, Reason, Scope, SessionFilter, SessionInfo, Usage, Whereabouts

# ---------- transcript.export
#
# Transcripts as JSON lines: a header, then each session followed by its messages. Importing them gives the same back.
#
# What can be counted again is left out (counts, previews, numbers of messages), so two exports of the same sessions are
# the same bytes, wherever they were imported to in between. A line never holds a character that could steer a terminal.

FORMAT = "transcripts"
VERSION = 1
LONGEST_LINE = 50 * 1024 * 1024
"""Bytes of a line that an import reads at most."""
SLICE = 500
"""Messages that are read at a time."""
_EXPORT_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_OPTIONAL = ("content", "tool_call_id", "tool_name", "reasoning", "sent", "told", "tokens", "finish_reason")


@dataclass(frozen=True, slots=True)
class Told:
    """One session to be written somewhere. Its profile is named only if it is not the home's own: what is imported
    belongs to the profile that it is imported to.
    """

    session: SessionInfo
    system_prompt: str | None = None
    home_profile: str = ""


def chosen(transcripts: Transcripts, session_ids: Sequence[str]) -> list[SessionInfo]:
    """The whole conversations that these sessions belong to, with everything that was delegated from them."""
    return _in_order(transcripts.delete(session_ids, dry_run=True).sessions)


def everything(transcripts: Transcripts) -> list[SessionInfo]:
    """Every session that is not deleted: archived ones and subagents too."""
    return _in_order(transcripts._queries.matching(SessionFilter()))


def told(transcripts: Transcripts, sessions: Sequence[SessionInfo]) -> Iterator[Told]:
    """Each session as it is to be written. A parent that is nowhere any more is not named."""
    here = {session.id for session in sessions}
    for session in sessions:
        parent = session.parent
        gone = parent is not None and parent not in here and transcripts.get(parent) is None
        kept = replace(session, parent=None) if gone else session
        yield Told(kept, transcripts.system_prompt(session.id), transcripts._profile)


def messages_of(transcripts: Transcripts, session_id: str) -> Iterator[Message]:
    """Every message in order, hidden ones too, a few at a time."""
    after: int | None = None
    while some := transcripts.messages(session_id, include_hidden=True, after=after, limit=SLICE):
        yield from some
        after = some[-1].id


# ── lines ──


def header() -> str:
    return _line({"type": "herma", "format": FORMAT, "version": VERSION})


def session_line(one: Told) -> str:
    session = one.session
    value: dict[str, Any] = {
        "type": "session",
        "id": session.id,
        "source": session.source,
        "started": session.started,
        "reason": session.reason,
    }
    for name in ("parent", "title", "model", "ended", "end_reason"):
        if getattr(session, name) is not None:
            value[name] = getattr(session, name)
    if session.scope.profile != one.home_profile:
        value["profile"] = session.scope.profile
    value |= {name: at for name in ("project", "user", "chat") if (at := getattr(session.scope, name))}
    value |= {name: at for name in Whereabouts.__annotations__ if (at := getattr(session, name))}
    if session.archived:
        value["archived"] = True
    if session.usage != Usage():
        value["usage"] = asdict(session.usage)
    if one.system_prompt is not None:
        value["system_prompt"] = one.system_prompt
    return _line(value)


def message_line(message: Message) -> str:
    value: dict[str, Any] = {
        "type": "message",
        "session": message.session_id,
        "role": message.role,
        "timestamp": message.timestamp,
    }
    value |= {name: given for name in _OPTIONAL if (given := getattr(message, name)) is not None}
    if message.tool_calls:
        value["tool_calls"] = list(message.tool_calls)
    if message.hidden:
        value["hidden"] = message.hidden
    if message.extra:
        value["extra"] = dict(message.extra)
    return _line(value)


def _line(value: dict[str, Any]) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _EXPORT_UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


# ── inside ──


def _in_order(sessions: Iterable[SessionInfo]) -> list[SessionInfo]:
    return sorted(sessions, key=lambda session: (session.started, session.id))


# ---------- transcript.redact
#
# Credentials replaced by a marker that names their kind, wherever they stand in a message: text, parts, arguments.

_TAIL = re.compile(r"[A-Za-z0-9_+/=-]*")
_KEY_END = re.compile(r"-----END [A-Z ]{0,40}-----")
_KEY_BODY = re.compile(r"[A-Za-z0-9+/=:\s,-]*")
_LONGEST_KEY = 64 * 1024
_LONGEST_NAME = 100
_DEEPEST = 50
"""Levels of nested values that are looked into one by one."""
_OPENING = re.compile(r"\s{0,100}[\[{]")
_TEXTS = ("title", "source", "model", "end_reason", *Whereabouts.__annotations__)
_FIELDS = ("content", "tool_calls", "tool_name", "reasoning", "sent", "extra")


class Redactor:
    """Replaces credentials. `found` counts them by kind."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()

    def session(self, one: Told) -> Told:
        """Without its preview: a credential that is cut off there is no longer known as one."""
        changes: dict[str, Any] = {name: self.text(text) for name in _TEXTS if (text := getattr(one.session, name))}
        scope = one.session.scope
        scope = replace(scope, **{name: self.text(text) for name, text in asdict(scope).items() if text})
        prompt = self.text(one.system_prompt) if one.system_prompt else one.system_prompt
        return replace(one, session=replace(one.session, preview="", scope=scope, **changes), system_prompt=prompt)

    def message(self, message: Message) -> Message:
        """The same message without credentials; the very same where there are none."""
        before = self.found.total()
        changes: dict[str, Any] = {}
        for name in _FIELDS:
            value = getattr(message, name)
            changes[name] = tuple(map(self.value, value)) if name == "tool_calls" else self.value(value)
        return replace(message, **changes) if self.found.total() > before else message

    def value(self, value: Any, name: str = "", depth: int = 0) -> Any:
        """Anything JSON can hold. `name` is the field it stands in, which may say that it is a password."""
        if isinstance(value, str):
            return self._json_text(value, depth) or self.text(value, name)
        if depth > _DEEPEST and isinstance(value, dict | list):
            return self._as_text(value)
        if isinstance(value, dict):
            return {self.text(str(key)): self.value(inner, str(key), depth + 1) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.value(inner, name, depth + 1) for inner in value]
        return value

    def _as_text(self, value: Any) -> Any:
        """What is nested so deeply that only its text can be looked at: as it is, or that text without credentials."""
        before = self.found.total()
        text = self.text(json.dumps(value, ensure_ascii=False))
        return text if self.found.total() > before else value

    def text(self, text: str, name: str = "") -> str:
        before = f'{name[-_LONGEST_NAME:]}: "' if name else ""
        pieces: list[str] = []
        at = 0
        for start, end, kind in _spans(f'{before}{text}"' if name else text):
            start, end = max(start - len(before), 0), min(end - len(before), len(text))  # noqa: PLW2901
            if end <= at:
                continue
            self.found[kind] += 1
            pieces += [text[at : max(start, at)], f"[redacted: {kind}]"]
            at = end
        return "".join([*pieces, text[at:]])

    def _json_text(self, text: str, depth: int) -> str | None:
        """Arguments of tools are JSON inside a string: look into it. None when it is no JSON, or has nothing in it."""
        if not _OPENING.match(text) or depth > _DEEPEST:
            return None
        try:
            inside = json.loads(text)
        except (ValueError, RecursionError):
            return None
        before = self.found.copy()
        cleaned = self.value(inside, depth=depth + 1)
        if cleaned == inside:
            self.found = before
            return None
        return json.dumps(cleaned, ensure_ascii=False)


def _spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Where credentials stand, in order, each to its very end, which the scanner need not look for."""
    for finding in sorted(find_secrets(text), key=lambda finding: finding.span):
        start, end = finding.span
        kind = finding.why.removeprefix("looks like a real ").removeprefix("a ").removesuffix(" written out")
        if kind == "private key":
            last = _KEY_END.search(text, start, start + _LONGEST_KEY)
            yield start, last.end() if last else _through(_KEY_BODY, text, end), kind
        else:
            yield start, _through(_TAIL, text, end), kind


def _through(pattern: re.Pattern[str], text: str, at: int) -> int:
    more = pattern.match(text, at)
    return more.end() if more else at


# ---------- transcript.reading
#
# Reading an export, line by line. Whatever is wrong is one sentence that names the line and the field.

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


# ---------- transcript.importing
#
# Bringing exported transcripts in: the whole file is checked first, and becomes visible as a whole or not at all.
#
# What is written waits as deleted sessions until the last message is on disk; then one step makes all of it visible.
# What an import leaves behind when it is killed is purged by the next one, or when the grace period is over.

UNFINISHED = "unfinished import"
"""Why a session ended that an import has not made visible yet."""
IMPORTING_SLICE = 500
_ATTEMPTS = 5


class Progress(Protocol):
    def __call__(self, done: int, total: int | None = None) -> None: ...


@dataclass(frozen=True, slots=True)
class Skipped:
    """A session that was left out because its id is taken. `here` and `there`: its messages that are not hidden."""

    id: str
    here: int
    there: int
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Detached:
    """A session that lost its parent, and why."""

    id: str
    parent: str
    why: str


@dataclass(frozen=True, slots=True)
class Renamed:
    """A session whose title was taken."""

    id: str
    old: str
    new: str


@dataclass(slots=True)
class ImportReport:
    """What an import brought in, or would bring in."""

    file: str
    imported: list[str] = field(default_factory=list)
    messages: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    detached: list[Detached] = field(default_factory=list)
    renamed: list[Renamed] = field(default_factory=list)
    dry_run: bool = False


@dataclass(slots=True)
class _Plan:
    """What a file holds, as far as it is new."""

    new: dict[str, Parsed]
    total: int
    report: ImportReport


class Importer:
    """Imports into one home."""

    def __init__(self, transcripts: Transcripts, *, clock: Callable[[], float] = time.time) -> None:
        self._transcripts = transcripts
        self._sessions = transcripts._sessions  # the rows beneath: an import keeps times and flags as they were
        self._rows = transcripts._rows
        self._profile = transcripts._profile
        self._clock = clock

    def run(
        self,
        file: BinaryIO,
        name: str,
        *,
        dry_run: bool = False,
        checking: Progress | None = None,
        progress: Progress | None = None,
    ) -> ImportReport:
        """Import one open file, which is read more than once; `name` is what it is called in reports.

        `checking` is told how many bytes have been checked, `progress` how many messages are written. `UsageError`
        names the line and field that is wrong; nothing is written then.
        """
        plan = self._plan(file, name, checking or _silent)
        plan.report.dry_run = dry_run
        if dry_run or not plan.new:
            return plan.report
        staged: list[str] = []
        try:
            self._stage(plan, file, staged, progress or _silent)
            self._publish(plan)
        except BaseException:
            with suppress(StoreError):  # what stays is hidden, and purged later
                for session_id in staged:
                    self._sessions.purge(session_id)
            raise
        return plan.report

    # ── checking ──

    def _plan(self, file: BinaryIO, name: str, checking: Progress) -> _Plan:
        """Read the whole file; → what would be imported. Nothing is written."""
        parsed: dict[str, Parsed] = {}
        counts: dict[str, int] = {}
        shown: dict[str, int] = {}
        size = file.seek(0, SEEK_END)
        for number, one in enumerate(read_lines(file, name)):
            if number % IMPORTING_SLICE == 0:
                checking(file.tell(), size)
            if isinstance(one, Parsed):
                parsed[one.session.id] = replace(one, system_prompt=None)
                counts[one.session.id] = shown[one.session.id] = 0
            else:
                counts[one.session_id] += 1
                shown[one.session_id] += not one.hidden
        checking(size, size)
        report = ImportReport(name)
        there = self._sessions.get(list(parsed), deleted=True)
        for session in there.values():
            if session.deleted is None or session.end_reason != UNFINISHED:
                deleted = session.deleted is not None
                report.skipped.append(Skipped(session.id, session.message_count, shown[session.id], deleted))
        known = {skipped.id for skipped in report.skipped}
        new = {session_id: self._placed(one) for session_id, one in parsed.items() if session_id not in known}
        report.imported = list(new)
        report.messages = sum(counts[session_id] for session_id in new)
        plan = _Plan(new, report.messages, report)
        self._detach(plan)
        self._name(plan)
        return plan

    def _placed(self, one: Parsed) -> Parsed:
        """In this home's profile, unless it came from another than its own home's."""
        if one.has_profile:
            return one
        return replace(one, session=replace(one.session, scope=replace(one.session.scope, profile=self._profile)))

    def _detach(self, plan: _Plan) -> None:
        """Take away parents that are nowhere, or that lead back to the session itself."""
        wanted = {one.session.parent for one in plan.new.values() if one.session.parent} - plan.new.keys()
        here = self._sessions.get(sorted(wanted))
        lost: dict[str, str] = {}
        for session_id, one in plan.new.items():
            if one.session.parent and one.session.parent not in plan.new and one.session.parent not in here:
                lost[session_id] = "it is neither in the file nor here"
        lost |= dict.fromkeys(_in_circles(plan.new), "it leads back to the session itself")
        for session_id, why in lost.items():
            one = plan.new[session_id]
            plan.new[session_id] = replace(one, session=replace(one.session, parent=None))
            plan.report.detached.append(Detached(session_id, one.session.parent or "", why))

    def _name(self, plan: _Plan) -> None:
        """Give every session a title that is free here and in the file."""
        taken: dict[tuple[str, str], set[str]] = {}
        plan.report.renamed.clear()
        for session_id, one in plan.new.items():
            title, scope = one.session.title, one.session.scope
            if title is None:
                continue
            others = taken.setdefault((scope.profile, scope.user), set())
            free = self._transcripts.next_title(title, scope)
            while free in others:
                free = self._transcripts.next_title(next_title(free, others), scope)
            others.add(free)
            if free != title:
                plan.report.renamed.append(Renamed(session_id, title, free))

    # ── writing ──

    def _stage(self, plan: _Plan, file: BinaryIO, staged: list[str], progress: Progress) -> None:
        """Write everything, hidden."""
        for session in self._sessions.get(list(plan.new), deleted=True).values():
            self._sessions.purge(session.id)  # left by an import that was killed
        hidden = [
            replace(plan.new[session_id].session, title=None, deleted=self._clock(), end_reason=UNFINISHED)
            for session_id in _parents_first(plan.new)
        ]
        self._sessions.add(hidden, _prompts(file, plan))
        staged += plan.new
        done = 0
        for some in _runs(read_lines(file, plan.report.file), plan.new):
            self._add(some)
            done += len(some)
            progress(done, plan.total)

    def _add(self, some: list[Message]) -> None:
        try:
            self._rows.append(some[0].session_id, some, preview=preview_of(some), staged=True)
        except KeyError:
            raise UsageError(
                f"Session {some[0].session_id} vanished while it was being imported; nothing was imported.",
                hint="Is another import of the same file running? Wait for it, and try again.",
            ) from None

    def _publish(self, plan: _Plan) -> None:
        """Make everything visible at once. A title that was taken meanwhile gets another number."""
        for attempt in range(1, _ATTEMPTS + 1):
            names = {renamed.id: renamed.new for renamed in plan.report.renamed}
            for session_id, one in plan.new.items():
                title = names.get(session_id, one.session.title)
                self._sessions.update([session_id], {"title": title, "end_reason": one.session.end_reason})
            try:
                self._sessions.update(list(plan.new), {"deleted": None})
            except StoreChanged:
                if attempt == _ATTEMPTS:
                    raise
                self._name(plan)
            else:
                return


def _prompts(file: BinaryIO, plan: _Plan) -> dict[str, str]:
    """The system prompt of each new session; most are the same text, which is kept once."""
    texts: dict[str, str] = {}
    found: dict[str, str] = {}
    for one in read_lines(file, plan.report.file):
        if isinstance(one, Parsed) and one.system_prompt is not None and one.session.id in plan.new:
            found[one.session.id] = texts.setdefault(one.system_prompt, one.system_prompt)
    return found


def _runs(lines: Iterator[Parsed | Message], new: dict[str, Parsed]) -> Iterator[list[Message]]:
    """Messages of new sessions, in slices of one session each."""
    some: list[Message] = []
    for message in lines:
        if isinstance(message, Parsed) or message.session_id not in new:
            continue
        if some and (some[0].session_id != message.session_id or len(some) >= IMPORTING_SLICE):
            yield some
            some = []
        some.append(message)
    if some:
        yield some


def _in_circles(new: dict[str, Parsed]) -> Iterator[str]:
    """One session of each circle of parents."""
    settled: set[str] = set()
    for session_id in new:
        trail: dict[str, None] = {}
        at: str | None = session_id
        while at is not None and at in new and at not in settled and at not in trail:
            trail[at] = None
            at = new[at].session.parent
        if at is not None and at in trail:
            yield at
        settled.update(trail)


def _parents_first(new: dict[str, Parsed]) -> Iterator[str]:
    """A session joins its parent's conversation only if the parent is there before it."""
    given: set[str] = set()
    for session_id in new:
        chain: list[str] = []
        at: str | None = session_id
        while at is not None and at in new and at not in given:
            chain.append(at)
            given.add(at)
            at = new[at].session.parent
        yield from reversed(chain)


def _silent(done: int, total: int | None = None) -> None:
    """No progress wanted."""


# ---------- transcript.pages
#
# Transcripts for people to keep: Markdown, and one web page that needs nothing else (no scripts, no requests).

Conversation = tuple[Told, Iterable[Message]]
_PAGES_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_TICKS = re.compile("`{3,}")
_TOOLS = ("tool", "function")

_STYLE = """
:root { color-scheme: light dark; }
body { font: 1rem/1.55 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
header { margin: 3rem 0 1.5rem; border-bottom: 1px solid #8886; }
header p, time, summary, .note { opacity: .7; font-size: .85rem; }
article { margin: 1.2rem 0; padding: .1rem 0 .1rem 1rem; border-left: .25rem solid #8886; }
article.user { border-color: #3b7dd8; }
article.assistant { border-color: #2f9e63; }
article.hidden { opacity: .6; }
h1 { font-size: 1.5rem; margin: 0; }
h2 { font-size: .95rem; margin: 0 0 .3rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .3rem 0; font: inherit; }
.tool pre, details pre { font: .85rem/1.45 ui-monospace, monospace; background: #8881; padding: .6rem; }
""".strip()


# ── Markdown ──


def markdown(conversations: Iterable[Conversation]) -> Iterator[str]:
    """The pieces of a Markdown file, in order; nothing is read before its turn."""
    for number, (one, messages) in enumerate(conversations):
        if number:
            yield "\n---\n\n"
        yield f"# {_plain(_name(one.session))}\n\n{_plain(' · '.join(_facts(one.session)))}\n"
        for message in messages:
            yield _markdown_message(message)


def _markdown_message(message: Message) -> str:
    pieces = [f"\n## {_plain(_who(message))} · {moment(message.timestamp)}\n"]
    text = _plain(words_of(message.content)).strip("\n")
    if text.strip():
        pieces.append(_fenced(text) if message.role in _TOOLS else f"\n{text}\n")
    for name, arguments in (called(call, indent=2) for call in message.tool_calls):
        pieces.append(f"\nCalls `{_plain(name)}`:\n{_fenced(_plain(arguments))}")
    return "".join(pieces)


def _fenced(text: str) -> str:
    """A code block whose fence is longer than any inside it."""
    fence = "`" * max([3, *(len(run) + 1 for run in _TICKS.findall(text))])
    return f"\n{fence}\n{text}\n{fence}\n"


# ── the web page ──


def web_page(conversations: Iterable[Conversation], title: str) -> Iterator[str]:
    """The pieces of the page, in order; nothing is read before its turn."""
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{_html(title)}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>\n"
    )
    for one, messages in conversations:
        facts = _html(" · ".join(_facts(one.session)))
        yield f'<header><h1 dir="auto">{_html(_name(one.session))}</h1><p>{facts}</p></header>\n'
        for message in messages:
            yield _article(message)
    yield "</body>\n</html>\n"


def _article(message: Message) -> str:
    role = "tool" if message.role in _TOOLS else message.role
    kind = f"{role} hidden" if message.hidden else role
    heading = f"<h2>{_html(_who(message))} <time>{moment(message.timestamp)}</time></h2>"
    pieces = [f'<article class="{_html(kind)}">{heading}\n']
    if message.reasoning:
        pieces.append(_folded("thinking", message.reasoning))
    text = words_of(message.content).strip("\n")
    if text.strip():
        body = f'<pre dir="auto">{_html(text)}</pre>\n'
        long = role == "tool" and len(text) > 1_000
        pieces.append(f"<details><summary>{len(text):,} characters</summary>{body}</details>\n" if long else body)
    pieces += [
        _folded(f"calls {name}", arguments)
        for name, arguments in (called(call, indent=2) for call in message.tool_calls)
    ]
    return "".join([*pieces, "</article>\n"])


def _folded(title: str, text: str) -> str:
    return f'<details><summary>{_html(title)}</summary><pre dir="auto">{_html(text)}</pre></details>\n'


# ── what both show ──


def moment(at: float) -> str:
    """A time for people, the same on every machine; seconds where no calendar has it."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return f"{at:.0f}"


def _name(session: SessionInfo) -> str:
    return session.title or session.preview or session.id


def _facts(session: SessionInfo) -> list[str]:
    project = f"project {session.scope.project}" if session.scope.project else ""
    goes_on = f"{session.reason} of {session.parent}" if session.parent else ""
    facts = [session.id, session.source, moment(session.started), session.model or "", project, goes_on]
    return [fact for fact in facts if fact]


def _who(message: Message) -> str:
    who = f"{message.role}: {message.tool_name}" if message.tool_name and message.role in _TOOLS else message.role
    return f"{who} ({message.hidden})" if message.hidden else who


def _html(text: str) -> str:
    return escape(_plain(text))


def _plain(text: str) -> str:
    """The text with control characters spelt out: some cannot stand in a page, all could steer a terminal."""
    spelt = text.replace("\r\n", "\n")
    return _PAGES_UNSAFE.sub(
        lambda match: f"\\x{ord(match[0]):02x}" if match[0] < "\u0100" else f"\\u{ord(match[0]):04x}", spelt
    )
