"""Export transcripts as JSON lines, Markdown or a web page; import JSON lines.

An export is a header, then each session followed by its messages; importing it gives the same back. What can be counted
again is left out (counts, previews, numbers of messages), so two exports of the same sessions are the same bytes. No
line holds a character that could steer a terminal.

An import checks the whole file first. Its rows are hidden, as deleted sessions, until one step makes all of it
visible. The rows of a killed import are purged by the next one, or when the grace period is over.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import lru_cache
from html import escape, unescape
from os import SEEK_END
from typing import Any, BinaryIO, NamedTuple, get_args

from herma.errors import StoreChanged, StoreError, UsageError
from herma.safety.secrets import find_secrets
from herma.transcript.log import Transcripts, renamed, sanitized
from herma.transcript.messages import LONGEST_ID, called, from_wire, is_number, preview_of, wire_name, words_of
from herma.types import Hidden, Message, Reason, Scope, SessionFilter, SessionInfo, SessionMetadata, Usage

FORMAT = "transcripts"
VERSION = 1
LONGEST_LINE = 50 * 1024 * 1024
"""Bytes of a line that an import reads at most."""
SLICE = 500
"""Messages that are read at a time."""
_EXPORT_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_OPTIONAL = ("content", "tool_call_id", "tool_name", "reasoning", "sent", "memory_version", "tokens", "finish_reason")


Conversation = tuple[SessionInfo, str | None, Iterable[Message]]
"""A session to be written, its system prompt, and its messages."""


def chosen(transcripts: Transcripts, session_ids: Sequence[str]) -> list[SessionInfo]:
    """Return the whole conversations that these sessions belong to, with everything that was delegated from them."""
    return list(transcripts.delete(session_ids, dry_run=True).sessions)


def everything(transcripts: Transcripts) -> list[SessionInfo]:
    """Return every session that is not deleted: archived ones and subagents too."""
    return sorted(transcripts._sessions.matching(SessionFilter()), key=lambda session: (session.started, session.id))


def conversations(transcripts: Transcripts, sessions: Sequence[SessionInfo]) -> Iterator[Conversation]:
    """Yield each session as it is to be written. A parent that is nowhere any more is not named, nor the profile if it
    is the home's own: imported sessions belong to the profile that they are imported to.
    """
    here = {session.id for session in sessions}
    for one in sessions:
        gone = one.parent is not None and one.parent not in here and transcripts.get(one.parent) is None
        profile = "" if one.scope.profile == transcripts.profile else one.scope.profile
        kept = replace(one, parent=None if gone else one.parent, scope=replace(one.scope, profile=profile))
        yield kept, transcripts.system_prompt(one.id), _messages_of(transcripts, one.id)


def _messages_of(transcripts: Transcripts, session_id: str) -> Iterator[Message]:
    """Yield every message in order, hidden ones too, a few at a time."""
    after: int | None = None
    while some := transcripts.messages(session_id, include_hidden=True, after=after, limit=SLICE):
        yield from some
        after = some[-1].id


def json_lines(conversations: Iterable[Conversation]) -> Iterator[str]:
    """Yield the lines of an export, each made when its turn comes."""
    yield _line({"type": "herma", "format": FORMAT, "version": VERSION})
    for session, system_prompt, messages in conversations:
        yield _session_line(session, system_prompt)
        yield from map(_message_line, messages)


def _session_line(session: SessionInfo, system_prompt: str | None) -> str:
    value: dict[str, Any] = {"type": "session", "id": session.id, "source": session.source}
    value |= {"started": session.started, "reason": session.reason}
    for name in ("parent", "title", "model", "ended", "end_reason"):
        if getattr(session, name) is not None:
            value[name] = getattr(session, name)
    value |= {name: text for name, text in asdict(session.scope).items() if text}
    value |= {name: text for name in SessionMetadata.__annotations__ if (text := getattr(session, name))}
    if session.archived:
        value["archived"] = True
    if session.usage != Usage():
        value["usage"] = asdict(session.usage)
    if system_prompt is not None:
        value["system_prompt"] = system_prompt
    return _line(value)


def _message_line(message: Message) -> str:
    value: dict[str, Any] = {"type": "message", "session": message.session_id}
    value |= {"role": message.role, "timestamp": message.timestamp}
    value |= {wire_name(name): given for name in _OPTIONAL if (given := getattr(message, name)) is not None}
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


# Credentials are replaced by a marker that names their kind, wherever they stand in a message: text, parts, arguments.

_TAIL = re.compile(r"[A-Za-z0-9_+/=-]*")
_KEY_END = re.compile(r"-----END [A-Z ]{0,40}-----")
_KEY_BODY = re.compile(r"(?:[A-Za-z0-9+/=:\s,-]|\\[nr])*")
_LONGEST_KEY = 64 * 1024
_LONGEST_NAME = 100
_SHORT = 80
_DEEPEST = 50
"""Levels of nested values that are looked into one by one."""
_OPENING = re.compile(r"\s{0,100}[\[{]")
_TEXTS = ("title", "source", "model", "end_reason", *SessionMetadata.__annotations__)
_FIELDS = ("content", "tool_calls", "tool_name", "reasoning", "sent", "extra")


class Redactor:
    """Replaces credentials. `found` counts them by kind."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()

    def conversation(self, one: Conversation) -> Conversation:
        """Return it without its preview too: a credential that is cut off there is no longer known as one."""
        session, prompt, messages = one
        changes: dict[str, Any] = {name: self.text(text) for name in _TEXTS if (text := getattr(session, name))}
        scope = replace(
            session.scope, **{name: self.text(text) for name, text in asdict(session.scope).items() if text}
        )
        session = replace(session, preview="", scope=scope, **changes)
        return session, self.text(prompt) if prompt else prompt, map(self.message, messages)

    def message(self, message: Message) -> Message:
        """Return the same message without credentials; the very same where there are none."""
        before = self.found.total()
        changes: dict[str, Any] = {}
        for name in _FIELDS:
            value = getattr(message, name)
            changes[name] = tuple(map(self.value, value)) if name == "tool_calls" else self.value(value)
        return replace(message, **changes) if self.found.total() > before else message

    def value(self, value: Any, name: str = "", depth: int = 0) -> Any:
        """Return anything JSON can hold. `name` is the field it stands in, which may say that it is a password."""
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
        """Return a value that is nested so deeply that only its text can be checked: as it is, or redacted."""
        before = self.found.total()
        text = self.text(json.dumps(value, ensure_ascii=False))
        return text if self.found.total() > before else value

    def text(self, text: str, name: str = "") -> str:
        before = f'{name[-_LONGEST_NAME:]}: "' if name else ""
        pieces: list[str] = []
        at = 0
        whole = f'{before}{text}"' if name else text
        for start, end, kind in _short_spans(whole) if len(whole) <= _SHORT else _spans(whole):
            start, end = max(start - len(before), 0), min(end - len(before), len(text))  # noqa: PLW2901
            if end <= at:
                continue
            self.found[kind] += 1
            pieces += [text[at : max(start, at)], f"[redacted: {kind}]"]
            at = end
        return "".join([*pieces, text[at:]])

    def _json_text(self, text: str, depth: int) -> str | None:
        """Redact JSON inside a string, as arguments of tools are. None if it is not JSON, or has no secret."""
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


@lru_cache(maxsize=4096)
def _short_spans(text: str) -> list[tuple[int, int, str]]:
    """The same for short texts, which repeat: the keys of a large JSON message are checked once."""
    return list(_spans(text))


def _spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield where credentials stand, in order, each to its very end, which the scanner need not look for."""
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


# Reading an export, line by line. Whatever is wrong is one sentence that names the line and the field.


class _Field(NamedTuple):
    """The allowed values of a field of a line, in words for people, and whether the field is required."""

    fits: Callable[[Any], bool]
    words: str
    needed: bool = False


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not _SURROGATE.search(value)


def _is_name(value: object) -> bool:
    return _is_text(value) and bool(str(value).strip())


def _is_usage(value: object) -> bool:
    return isinstance(value, dict) and all(
        name in _COUNTS and is_number(given) and (name == "cost_usd" or not isinstance(given, float))
        for name, given in value.items()
    )


_SURROGATE = re.compile("[\ud800-\udfff]")
_SCOPE = ("profile", "project", "user", "chat")
_PLACES = (*_SCOPE, *SessionMetadata.__annotations__)
_COUNTS = tuple(item.name for item in fields(Usage))
_TEXT = _Field(_is_text, "whole Unicode text")
_NAME = _Field(_is_name, "text", needed=True)
_TIME = _Field(is_number, "seconds since 1970")
_SESSION = {
    "id": _Field(
        lambda one: _is_name(one) and len(one) <= LONGEST_ID and one.isprintable() and one.strip() == one,
        f"1 to {LONGEST_ID} printable characters",
        needed=True,
    ),
    "source": _NAME,
    "started": _TIME._replace(needed=True),
    "ended": _TIME,
    "reason": _Field(get_args(Reason).__contains__, f"one of {', '.join(get_args(Reason))}"),
    "archived": _Field(lambda one: isinstance(one, bool), "true or false"),
    "usage": _Field(_is_usage, f"an object with numbers for some of {', '.join(_COUNTS)}"),
    **dict.fromkeys(("parent", "model", "end_reason", "title", "system_prompt", *_PLACES), _TEXT),
}
_MESSAGE = {
    "session": _NAME,
    "role": _NAME,
    "timestamp": _TIME._replace(needed=True),
    "hidden": _Field(get_args(Hidden).__contains__, '"rewound" or "compacted"'),
    "extra": _Field(lambda one: isinstance(one, dict), "an object"),
    "tool_calls": _Field(
        lambda one: isinstance(one, list) and all(isinstance(call, dict) for call in one), "a list of objects"
    ),
    **dict.fromkeys(map(wire_name, _OPTIONAL), _Field(lambda _: True, "")),  # checked by `from_wire`
}
SESSION_FIELDS, MESSAGE_FIELDS = frozenset(_SESSION), frozenset(_MESSAGE)
_BOM = b"\xef\xbb\xbf"
_EXPORT = "`herma sessions export` writes such files."


class Parsed(NamedTuple):
    """A session in a file; whether it names a profile."""

    session: SessionInfo
    system_prompt: str | None = None
    has_profile: bool = False


class _Wrong(Exception):
    """An error in a line, in a few words that follow `line 7`."""


def read_lines(file: BinaryIO, name: str) -> Iterator[Parsed | Message]:
    """Yield every session and message of a file, from its beginning. `UsageError` for the first line that is wrong."""
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
    """Yield each line without its end, and whether it is the last one and has no end."""
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
    """Return the JSON object of a line; None for a blank one."""
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


def _fields(value: dict[str, Any], known: Mapping[str, _Field], kind: str) -> dict[str, Any]:
    """Return the fields of a line that say something, each checked."""
    for name in value:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            meant = f'; is "{near[0]}" meant?' if near else ""
            raise _Wrong(f'has a field "{name[:40]}", which a {kind} does not have{meant}')
    said = {name: given for name, given in value.items() if given is not None}
    for name, field in known.items():
        if (name in said or field.needed) and not field.fits(said.get(name)):
            raise _Wrong(f'has {_short(said.get(name))} in "{name}", not {field.words}')
    return said


def _session(value: dict[str, Any]) -> Parsed:
    said = _fields(value, _SESSION, "session")
    try:
        title = sanitized(said.pop("title", None))
    except UsageError as exc:
        raise _Wrong(f'has a "title" that is too long: {str(exc).rstrip(".").lower()}') from None
    prompt, usage = said.pop("system_prompt", None), said.pop("usage", None)
    scope = Scope(**{name: said.pop(name, "") for name in _SCOPE})
    times: dict[str, Any] = {name: float(said[name]) for name in ("started", "ended") if name in said}
    session = SessionInfo(**said | times, scope=scope, conversation="", title=title, usage=Usage(**(usage or {})))
    return Parsed(session, prompt, "profile" in value)


def _message(value: dict[str, Any]) -> Message:
    said = _fields(value, _MESSAGE, "message")
    said |= {"timestamp": float(said["timestamp"]), "tool_calls": tuple(said.get("tool_calls", ()))}
    if "told" in said:
        said["memory_version"] = said.pop("told")
    try:
        return from_wire(Message(session_id=said.pop("session"), **said))
    except ValueError as exc:
        raise _Wrong(str(exc)) from None


def _short(value: object) -> str:
    """Return a value in a few characters."""
    if value is None:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:39] + "…"


UNFINISHED = "unfinished import"
"""Why a session ended that an import has not made visible yet."""
_ATTEMPTS = 5
Progress = Callable[[int, int], None]


class Skipped(NamedTuple):
    """A session that was left out because its id is taken. `here` and `there`: its messages that are not hidden."""

    id: str
    here: int
    there: int
    deleted: bool = False


class Detached(NamedTuple):
    """A session that lost its parent, and why."""

    id: str
    parent: str
    why: str


class Renamed(NamedTuple):
    """A session whose title was taken."""

    id: str
    old: str
    new: str


class ImportReport:
    """The messages and sessions that an import added, or would add."""

    def __init__(self, file: str, *, dry_run: bool) -> None:
        self.file = file
        self.imported: list[str] = []
        self.messages = 0
        self.skipped: list[Skipped] = []
        self.detached: list[Detached] = []
        self.renamed: list[Renamed] = []
        self.dry_run = dry_run

    def as_json(self) -> dict[str, Any]:
        lists = {name: [one._asdict() for one in getattr(self, name)] for name in ("skipped", "detached", "renamed")}
        return {**vars(self), **lists}


New = dict[str, Parsed]
"""The sessions of a file that are new here, by id."""


class Importer:
    """Imports into one home."""

    def __init__(self, transcripts: Transcripts, *, clock: Callable[[], float] = time.time) -> None:
        self._transcripts = transcripts
        self._sessions = transcripts._sessions  # the rows beneath: an import keeps times and flags as they were
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

        `checking` is called with the bytes that were checked, `progress` with the messages that were written, and of
        how many. `UsageError` names the line and field that is wrong; nothing is written then.
        """
        report = ImportReport(name, dry_run=dry_run)
        new = self._plan(file, report, checking or _silent)
        if dry_run or not new:
            return report
        staged: list[str] = []
        try:
            self._stage(new, file, report, staged, progress or _silent)
            self._publish(new, report)
        except BaseException:
            with suppress(StoreError):  # the rest is hidden, and purged later
                for session_id in staged:
                    self._sessions.purge(session_id)
            raise
        return report

    def _plan(self, file: BinaryIO, report: ImportReport, checking: Progress) -> New:
        """Read the whole file. Return what would be imported; nothing is written."""
        parsed: New = {}
        counts: Counter[str] = Counter()
        shown: Counter[str] = Counter()
        size = file.seek(0, SEEK_END)
        for number, one in enumerate(read_lines(file, report.file)):
            if number % SLICE == 0:
                checking(file.tell(), size)
            if isinstance(one, Parsed):
                parsed[one.session.id] = one._replace(system_prompt=None)
            else:
                counts[one.session_id] += 1
                shown[one.session_id] += not one.hidden
        checking(size, size)
        for session in self._sessions.get(list(parsed), deleted=True).values():
            if session.deleted is None or session.end_reason != UNFINISHED:
                deleted = session.deleted is not None
                report.skipped.append(Skipped(session.id, session.message_count, shown[session.id], deleted))
        known = {skipped.id for skipped in report.skipped}
        new = {session_id: self._placed(one) for session_id, one in parsed.items() if session_id not in known}
        report.imported = list(new)
        report.messages = sum(counts[session_id] for session_id in new)
        self._detach(new, report)
        self._name(new, report)
        return new

    def _placed(self, one: Parsed) -> Parsed:
        """Imported now, no time in it later than that; in this home's profile, unless it came from another than its own
        home's."""
        session, now = one.session, self._clock()
        ended = None if session.ended is None else min(session.ended, now)
        session = replace(session, imported=now, started=min(session.started, now), ended=ended)
        if not one.has_profile:
            session = replace(session, scope=replace(session.scope, profile=self._transcripts.profile))
        return one._replace(session=session)

    def _detach(self, new: New, report: ImportReport) -> None:
        """Take away parents that are nowhere, or that lead back to the session itself."""
        here = self._sessions.get(sorted({one.session.parent for one in new.values() if one.session.parent}))
        lost: dict[str, str] = {}
        for session_id, one in new.items():
            if one.session.parent and one.session.parent not in new and one.session.parent not in here:
                lost[session_id] = "it is neither in the file nor here"
        lost |= dict.fromkeys(_in_circles(new), "it leads back to the session itself")
        for session_id, why in lost.items():
            one = new[session_id]
            new[session_id] = one._replace(session=replace(one.session, parent=None))
            report.detached.append(Detached(session_id, one.session.parent or "", why))

    def _name(self, new: New, report: ImportReport) -> None:
        """Give every session a title that is free here and in the file."""
        free = renamed((one.session for one in new.values()), self._transcripts.next_title)
        report.renamed = [
            Renamed(session_id, new[session_id].session.title or "", free[session_id]) for session_id in free
        ]

    def _stage(self, new: New, file: BinaryIO, report: ImportReport, staged: list[str], progress: Progress) -> None:
        """Write everything, hidden."""
        for session in self._sessions.get(list(new), deleted=True).values():
            self._sessions.purge(session.id)  # left by an import that was killed
        hidden = [
            replace(new[session_id].session, title=None, deleted=self._clock(), end_reason=UNFINISHED)
            for session_id in _parents_first(new)
        ]
        self._sessions.add(hidden, _prompts(read_lines(file, report.file), new))
        staged += new
        done = 0
        for some in _runs(read_lines(file, report.file), new):
            self._add(some)
            done += len(some)
            progress(done, report.messages)

    def _add(self, some: list[Message]) -> None:
        now = self._clock()
        some = [
            one
            if one.timestamp <= now  # it keeps the time that it named
            else replace(one, timestamp=now, extra={**one.extra, "imported_timestamp": one.timestamp})
            for one in some
        ]
        try:
            self._transcripts._rows.append(some[0].session_id, some, preview=preview_of(some), staged=True)
        except KeyError:
            raise UsageError(
                f"Session {some[0].session_id} vanished while it was being imported; nothing was imported.",
                hint="Is another import of the same file running? Wait for it, and try again.",
            ) from None

    def _publish(self, new: New, report: ImportReport) -> None:
        """Make everything visible at once. A title that was taken meanwhile gets another number."""
        for attempt in range(1, _ATTEMPTS + 1):
            names = {renamed.id: renamed.new for renamed in report.renamed}
            for session_id, one in new.items():
                title = names.get(session_id, one.session.title)
                self._sessions.update([session_id], {"title": title, "end_reason": one.session.end_reason})
            try:
                self._sessions.update(list(new), {"deleted": None})
            except StoreChanged:
                if attempt == _ATTEMPTS:
                    raise
                self._name(new, report)
            else:
                return


def _prompts(lines: Iterable[Parsed | Message], new: New) -> dict[str, str]:
    """Return the system prompt of each new session; most are the same text, which is kept once."""
    texts: dict[str, str] = {}
    found: dict[str, str] = {}
    for one in lines:
        if isinstance(one, Parsed) and one.system_prompt is not None and one.session.id in new:
            found[one.session.id] = texts.setdefault(one.system_prompt, one.system_prompt)
    return found


def _runs(lines: Iterator[Parsed | Message], new: New) -> Iterator[list[Message]]:
    """Yield messages of new sessions, in slices of one session each."""
    some: list[Message] = []
    for message in lines:
        if isinstance(message, Parsed) or message.session_id not in new:
            continue
        if some and (some[0].session_id != message.session_id or len(some) >= SLICE):
            yield some
            some = []
        some.append(message)
    if some:
        yield some


def _in_circles(new: New) -> Iterator[str]:
    """Yield one session of each circle of parents."""
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


def _parents_first(new: New) -> Iterator[str]:
    """Yield parents before their children, so that a session can join its parent's conversation."""
    given: set[str] = set()
    for session_id in new:
        chain: list[str] = []
        at: str | None = session_id
        while at is not None and at in new and at not in given:
            chain.append(at)
            given.add(at)
            at = new[at].session.parent
        yield from reversed(chain)


def _silent(_done: int, _total: int) -> None:
    pass


# Transcripts for people to read: Markdown, and one web page that needs nothing else (no scripts, no requests).

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


# The text of a message keeps its Markdown. Nothing in it is active where the file is shown: no HTML, no `javascript:`.
# A fence counts at the start of a line only, where every reader of Markdown agrees that it opens or ends a block.

_FENCE = re.compile(r"(`{3,}|~{3,})([^\n]*)")
_INNER_FENCE = re.compile(r"(?<![`~])(`{3,}|~{3,})")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_TARGET = re.compile(r"\](?=[(:]\s{0,20}(\S{1,200}))")
_SCHEME = re.compile(r"[\W_]{0,20}([a-z][a-z0-9+.-]{0,40}):", re.IGNORECASE)
_BACKSLASH = re.compile(r"\\(?=[!-/:-@\[-`{-~])")
_HARMLESS = ("http", "https", "mailto")


def _inert(text: str) -> str:
    """Neutralise HTML and links that run something, except in blocks of code, which end with the text."""
    lines: list[str] = []
    fence = ""
    prose: list[str] = []

    def settle() -> None:
        if prose:
            lines.append(_inert_prose("\n".join(prose)))
            prose.clear()

    for line in text.split("\n"):
        opened = _FENCE.match(line)
        if fence:
            lines.append(line)
            closing = line.lstrip(" ") if len(line) - len(line.lstrip(" ")) < 4 else ""
            if closing.startswith(fence) and not closing.strip(fence[0] + " \t"):
                fence = ""
        elif opened and not (opened[1][0] == "`" and "`" in opened[2]):
            settle()
            lines.append(line)
            fence = opened[1]
        else:
            prose.append(line)
    settle()
    return "\n".join([*lines, fence] if fence else lines)


def _inert_prose(text: str) -> str:
    text = _INNER_FENCE.sub(lambda match: "\\" + "\\".join(match[1]), text)
    return _TARGET.sub(_unless_active, _TAG.sub("&lt;", text))


def _unless_active(match: re.Match[str]) -> str:
    target = "".join(char for char in _BACKSLASH.sub("", unescape(match[1])) if char > " ")
    scheme = _SCHEME.match(target)
    return "]\\" if scheme and scheme[1].lower() not in _HARMLESS else "]"


def _one_line(text: str) -> str:
    return _inert_prose(" ".join(_plain(text).split()))


def markdown(conversations: Iterable[Conversation]) -> Iterator[str]:
    """Yield the pieces of a Markdown file, in order; nothing is read before its turn."""
    for number, (session, _, messages) in enumerate(conversations):
        if number:
            yield "\n---\n\n"
        yield f"# {_one_line(_name(session))}\n\n{_one_line(' · '.join(_facts(session)))}\n"
        for message in messages:
            yield _markdown_message(message)


def _markdown_message(message: Message) -> str:
    pieces = [f"\n## {_one_line(_who(message))} · {moment(message.timestamp)}\n"]
    text = _plain(words_of(message.content)).strip("\n")
    if text.strip():
        pieces.append(_fenced(text) if message.role in _TOOLS else f"\n{_inert(text)}\n")
    for name, arguments in (called(call, indent=2) for call in message.tool_calls):
        called_by = " ".join(_plain(name).replace("`", "'").split())
        pieces.append(f"\nCalls `{called_by}`:\n{_fenced(_plain(arguments))}")
    return "".join(pieces)


def _fenced(text: str) -> str:
    """Return a code block whose fence is longer than any inside it."""
    fence = "`" * max([3, *(len(run) + 1 for run in _TICKS.findall(text))])
    return f"\n{fence}\n{text}\n{fence}\n"


def web_page(conversations: Iterable[Conversation], title: str) -> Iterator[str]:
    """Yield the pieces of the page, in order; nothing is read before its turn."""
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{_html(title)}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>\n"
    )
    for session, _, messages in conversations:
        facts = _html(" · ".join(_facts(session)))
        yield f'<header><h1 dir="auto">{_html(_name(session))}</h1><p>{facts}</p></header>\n'
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


def moment(at: float) -> str:
    """Return a time for people, the same on every machine; seconds where no calendar has it."""
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
    """Return the text with control characters spelt out: some cannot stand in a page, all could steer a terminal."""
    spelt = text.replace("\r\n", "\n")
    return _PAGES_UNSAFE.sub(
        lambda match: f"\\x{ord(match[0]):02x}" if match[0] < "\u0100" else f"\\u{ord(match[0]):04x}", spelt
    )
