"""Find transcripts of other programs on this machine, import them, and take an import back.

    imports = Imports(h)
    imports.discover()                              # what is here, by program
    report = imports.run("claude-code")             # all of it
    report = imports.run("codex", path, since=…, dry_run=True)
    imports.undo(report.batch)

A file is read once, in bounded memory. Every few thousand messages are one transaction, which also notes how far the
file was read: after a crash the next import goes on there.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from herma.errors import HermaError, UsageError
from herma.importers.agents.claude_code import ClaudeCode, Droid
from herma.importers.agents.codex import Codex
from herma.importers.agents.copilot import Copilot
from herma.importers.agents.cursor import Cursor
from herma.importers.agents.gemini import Antigravity, Gemini, Qwen
from herma.importers.agents.goose import Goose
from herma.importers.agents.kimi import Kimi
from herma.importers.agents.opencode import OpenCode
from herma.importers.base import (
    FormatReader,
    ImportedMessage,
    ImportedSession,
    ImportedUsage,
    Machine,
    ReadAgain,
    ReadLog,
    digest,
    mended,
    reachable,
    stored_id,
    typed,
)
from herma.importers.exports.assistants import ChatGPT, ClaudeAi
from herma.importers.exports.hermes import Hermes
from herma.importers.exports.messages import Markdown, Messages
from herma.importers.exports.openclaw import OpenClaw, Pi
from herma.importers.rows import FileState, ImportBatch, ImportRows, NewMessage, Step, Written, key_of, undo_import
from herma.models.telemetry import COUNT, STORE, traced
from herma.session import cleaned
from herma.transcript.log import LONGEST, sanitized
from herma.transcript.messages import text_of
from herma.transcript.transfer import Redactor
from herma.types import Message, Scope, SessionInfo

if TYPE_CHECKING:
    from herma.app import Herma

READERS: tuple[type[FormatReader], ...] = (
    Qwen, ClaudeCode, Codex, Gemini, Antigravity, Cursor, OpenCode, Copilot, Goose, Kimi, Droid, Pi, OpenClaw, Hermes,
    ChatGPT, ClaudeAi, Messages, Markdown,
)  # fmt: skip
"""In the order in which they are asked whether they know a file: the most liberal ones last."""
STEP = 4_000
"""Messages of one transaction."""
_SETTLED = 2.0
"""Seconds after an import until its episodes are made, so that imports one after the other make them once."""
_MARK = 4_096
"""Bytes before a position by which a file is known to be the same, grown."""
_SAMPLE = 4 << 20
"""Bytes of each program's transcripts that are read to tell how many messages there are."""


class Found(NamedTuple):
    """The transcripts of one program on this machine."""

    source: str
    title: str
    places: tuple[Path, ...]
    files: int
    bytes: int
    oldest: float
    newest: float
    expires_after: float
    expiring: int
    """Files that the program itself deletes within a week."""
    fresh: int
    """Files that are new, or changed since they were imported."""
    sessions: int
    messages: int
    estimated: bool
    """True if sessions and messages are extrapolated from a part of the files."""


@dataclass
class FileReport:
    """A part of a file that could not be used."""

    path: str
    unknown: dict[str, int] = field(default_factory=dict)
    broken: dict[str, int] = field(default_factory=dict)
    lines: dict[str, list[int]] = field(default_factory=dict)


@dataclass
class ImportResult:
    """The result of an import. `known` messages were here before; `deleted` sessions a person had deleted here."""

    source: str
    batch: int = 0
    """Its number in the log; 0 where nothing was added."""
    files: int = 0
    unchanged: int = 0
    sessions: int = 0
    messages: int = 0
    known: int = 0
    deleted: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    problems: list[FileReport] = field(default_factory=list)
    dry_run: bool = False


def readers() -> dict[str, FormatReader]:
    """Return every reader by name: Herma's own, and those of installed packages."""
    found = {reader.name: reader() for reader in READERS}
    for entry in entry_points(group="herma.importers"):
        reader = entry.load()()
        if not isinstance(reader, FormatReader) or not reader.name:
            raise UsageError(f"The importer {entry.name!r} of an installed package is not a named FormatReader.")
        found.setdefault(reader.name, reader)
    return found


class _Stopped(Exception):
    """The home is being closed; the other episodes are made after the next import, or by `herma episodes rebuild`."""


class Imports:
    """Import into one opened Herma."""

    def __init__(self, app: Herma, machine: Machine | None = None, *more: FormatReader) -> None:
        """`more` are readers beside Herma's own and those of installed packages."""
        self._app = app
        self._rows = ImportRows(app.db)
        self._machine = machine or Machine.here()
        self._readers = readers() | {reader.name: reader for reader in more}
        self._episodes = app.worker.lane("episodes of imports")
        self._mixed: set[Path] = set()
        """Folders whose files belong each to the reader that knows it."""

    def places(self, source: str) -> list[Path]:
        """Return where a program keeps its transcripts on this machine, whether they are there or not."""
        return list(self._readers[source].places(self._machine))

    def files(self, source: str, path: Path | None = None) -> list[Path]:
        """Return the transcripts of a program: those in its usual places, or those at `path`."""
        reader = self._readers[source]
        places = [path] if path else self.places(source)
        found = [file for place in places if reachable(place) for file in reader.files(place)]
        if path not in self._mixed or path is None:
            return found
        known = sorted(filter(Path.is_file, path.rglob("*")), key=lambda file: (len(file.parts), file))
        known = [file for file in known if self._reader_of(file) == source]
        listed = [file for file in found if file in set(known)]
        return [*listed, *(file for file in known if file not in listed and (reader.grows or not listed))]

    def discover(self) -> list[Found]:
        """Return what is on this machine, by program; reads sizes and times of files, and a few megabytes of each."""
        found = []
        for reader in self._readers.values():
            places = tuple(place for place in reader.places(self._machine) if reachable(place))
            files = [file for place in places for file in reader.files(place)]
            if not files:
                continue
            found.append(self._found(reader, places, files))
        return found

    def _found(self, reader: FormatReader, places: tuple[Path, ...], files: Sequence[Path]) -> Found:
        stamps = [_stamp(file) for file in files]
        times = [modified / 1e9 for _, modified in stamps]
        limit = self._app.clock() - (reader.expires_after - 7) * 86_400 if reader.expires_after else 0.0
        known = [self._rows.file(_name(file), reader.name) for file in files]
        fresh = sum(state is None or state[:2] != stamp for state, stamp in zip(known, stamps, strict=True))
        size = sum(size for size, _ in stamps)
        sessions, messages, read = _sampled(reader, files)
        part = read / size if 0 < read < size else 1.0
        return Found(
            reader.name, reader.title, places, len(files), size, min(times), max(times), reader.expires_after,
            sum(time < limit for time in times), fresh, round(sessions / part), round(messages / part), part < 1.0,
        )  # fmt: skip

    def recognise(self, path: Path) -> list[str]:
        """Return the names of the readers for a file, or for the files of a folder; `UsageError` if none knows them."""
        found = Counter(map(self._reader_of, [path] if path.is_file() else filter(Path.is_file, path.rglob("*"))))
        found.pop("", None)
        if not found:
            if path.is_file() and not path.stat().st_size:
                raise UsageError(f"{path} is empty.", hint="Is it the right file?")
            raise UsageError(
                f"{path} is not in a format that Herma imports, or is damaged.",
                hint="Name the source if you know it. Sources: " + ", ".join(sorted(self._readers)),
            )
        if path.is_dir():
            self._mixed.add(path)
        return [name for name, _ in found.most_common()]

    def _reader_of(self, file: Path) -> str:
        """Return the name of the reader that knows a file; nothing if none does."""
        try:
            with file.open("rb") as stream:
                head = stream.read(65_536)
        except OSError:
            return ""
        return next((name for name, reader in self._readers.items() if reader.recognises(file, head)), "")

    @traced("import", lambda *_, **__: {STORE: "transcripts"}, lambda result: {COUNT: result.messages})
    def run(
        self,
        source: str,
        path: Path | None = None,
        *,
        since: float = 0.0,
        dry_run: bool = False,
        redact: bool = False,
        batch: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> ImportResult:
        """Import the transcripts of a program: those in its usual places, or those at `path`.

        `since`: only messages from this time on. `redact`: with credentials taken out. `batch`: the number of a batch
        that this belongs to, so that it is undone with it. `progress` is called with the bytes read, and all bytes.
        """
        reader = self._readers.get(source)
        if reader is None:
            raise UsageError(f"Unknown source {source!r}. Sources: " + ", ".join(sorted(self._readers)))
        files = self.files(source, path)
        if not files:
            places = [path] if path else self.places(source)
            raise UsageError(
                f"No transcripts of {reader.title} were found.",
                hint="Looked in: " + ", ".join(map(str, places)) if places else "Name the file or folder.",
                code="not_found",
            )
        report, redactor = ImportResult(reader.name, dry_run=dry_run), Redactor() if redact else None
        run = _Run(self._app, self._rows, reader, since, redactor, progress, report, self._app.clock())
        if dry_run:
            return run.all(files, 0)
        with nullcontext(batch) if batch is not None else self.batch(source) as number:
            result = run.all(files, number)
        if result.messages:
            self._episodes.submit("episodes", self._make_episodes, after=_SETTLED, replacing=True)
        return result

    def _make_episodes(self, cancel: threading.Event) -> None:
        """Make the episodes of conversations that have none, or continued since."""

        def report(_done: int, _total: int) -> None:
            if cancel.is_set():
                raise _Stopped

        with suppress(_Stopped):
            self._app.episodes.rebuild(progress=report)

    def make_episodes(self, progress: Callable[[int, int], None]) -> None:
        """Make the episodes that the background has not made yet, in the caller's time."""
        self._episodes.cancel("")
        self._episodes.wait(_SETTLED)
        self._app.episodes.rebuild(progress=progress)

    @contextmanager
    def batch(self, name: str) -> Iterator[int]:
        """Begin a batch: imports with its number are one change of the log, and one undo."""
        number = self._rows.begin(self._app.clock(), name)
        try:
            yield number
        finally:
            self._rows.forget_empty(number)

    def batches(self, limit: int = 50) -> list[ImportBatch]:
        """Return the newest imports."""
        return self._rows.batches(limit)

    def undo(self, batch: int) -> int:
        """Hide what an import added. → how many sessions. They can be brought back as long as deleted ones can."""
        return undo_import(self._app, batch)


def _sampled(reader: FormatReader, files: Sequence[Path]) -> tuple[int, int, int]:
    """Return how many sessions and messages the newest files hold, and how many bytes these have, up to a limit."""
    sessions: set[str] = set()
    messages = read = 0
    for file in reversed(files):
        log, before = ReadLog(), len(sessions)
        with suppress(Exception):  # the import reports it
            for item in reader.read(file, log):
                sessions.add(item.session if not isinstance(item, ImportedSession) else item.id)
                messages += isinstance(item, ImportedMessage)
                if messages > 20_000 or log.offset > 4 * _SAMPLE:
                    break
        size = _stamp(file)[0]
        read += min(size, log.offset) if 0 < log.offset < size else size
        if read > _SAMPLE or (messages > 20_000 and len(sessions) > before):
            break
    return len(sessions), messages, read


@dataclass
class _Run:
    """One import: the step that is being filled, and what was said of each session so far."""

    _app: Herma
    _rows: ImportRows
    _reader: FormatReader
    _since: float
    _redactor: Redactor | None
    _progress: Callable[[int, int], None] | None
    _report: ImportResult
    _now: float
    _created: set[str] = field(default_factory=set)
    _passed: set[str] = field(default_factory=set)
    _skipped: Counter[str] = field(default_factory=Counter)
    _bytes: int = 0
    _step: Step = field(default_factory=Step)
    _facts: dict[str, ImportedSession] = field(default_factory=dict)
    _ids: dict[str, str] = field(default_factory=dict)

    def all(self, files: Sequence[Path], batch: int) -> ImportResult:
        report = self._report
        report.batch = batch
        self._total = sum(_stamp(file)[0] for file in files)
        for file in files:
            self._file(file)
        self._write()
        self._app.index.written(report.messages)
        if not report.messages and not self._created:
            report.batch = 0
        report.sessions, report.deleted = len(self._created), len(self._passed)
        report.skipped = dict(self._skipped)
        return report

    def _advance(self, count: int) -> None:
        self._bytes += count
        if self._progress:
            self._progress(self._bytes, self._total)

    # ── one file ──

    def _file(self, file: Path) -> None:
        size, modified = _stamp(file)
        before = self._rows.file(_name(file), self._reader.name)
        if before and before[:2] == (size, modified):
            self._report.unchanged += 1
        if (before and before[:2] == (size, modified)) or (self._since and modified / 1e9 < self._since):
            self._advance(size)
            return
        begun = self._bytes
        log = ReadLog(*self._begin(file, before), progress=self._advance)
        self._report.files += 1
        self._calls: dict[str, str] = {}  # the names of tools that were called, by call
        self._recalled: set[str] = set()  # sessions whose calls before the place where the file goes on are known
        self._described: set[str] = set()  # sessions of which only facts were read, and those that said something
        self._spoken: set[str] = set()
        self._goes_on, self._last, self._modified = log.start > 0, 0.0, modified / 1e9
        for item in self._items(file, log):
            log.taken += 1
            self._take(item)
            if self._step.count >= STEP:
                self._write()
        self._advance(begun + size - self._bytes)
        if not self._since and not log.failed:  # else a later import reads it again
            again = log.open_end or self._described  # facts about a session that has no message yet
            position, lines = (0, 0) if again else (log.offset, log.line)
            state = FileState(size, modified, position, lines, _mark(file, position))
            self._step.files.append((_name(file), self._reader.name, state))
        self._skipped.update(log.skipped)
        if log.unknown or log.broken:
            problem = FileReport(_name(file), dict(log.unknown), dict(log.broken), log.examples)
            self._report.problems.append(problem)

    def _items(self, file: Path, log: ReadLog) -> Iterator[object]:
        """Yield what a reader yields; where it fails, report the place and go on with the next file."""
        try:
            try:
                yield from self._reader.read(file, log)
            except ReadAgain:
                log.begin_again()
                yield from self._reader.read(file, log)
        except HermaError:
            raise
        except Exception as exc:  # noqa: BLE001 (a reader meets files of any shape, and may be a plugin)
            log.failed = True
            log.meet_broken(f"cannot be read: {type(exc).__name__}: {exc}"[:200])

    def _begin(self, file: Path, before: FileState | None) -> tuple[int, int]:
        """Return where to begin to read: behind what was imported, if the file only grew."""
        may_go_on = before and self._reader.grows and before.position and file.suffix != ".zst"
        if not before or not may_go_on or _mark(file, before.position) != before.mark:
            return 0, 0
        self._advance(before.position)
        return before.position, before.lines

    # ── one item ──

    def _take(self, item: object) -> None:
        if isinstance(item, ImportedSession):
            self._describe(item)
        elif isinstance(item, ImportedMessage):
            self._message(item)
        elif isinstance(item, ImportedUsage):
            session = self._session(item.session)
            if item.total:
                self._step.totals[session] = item.usage
            else:
                self._step.usage.setdefault(session, []).append((key_of(item.key), item.usage))
        else:
            raise TypeError(f"The reader {self._reader.name!r} yielded {type(item).__name__}.")

    def _describe(self, item: ImportedSession) -> None:
        known = self._facts.setdefault(item.id, ImportedSession(item.id))
        for name in ("model", "folder", "branch", "provider", "chat_type", "prompt"):
            if value := getattr(item, name):
                setattr(known, name, mended(value))
        known.started = known.started or item.started
        if item.title and (known.generated or not item.generated or not known.title):
            known.title, known.generated = item.title, item.generated
        if item.parent:
            known.parent, known.reason = item.parent, item.reason
        session = self._id(item.id)
        if session not in self._spoken:
            self._described.add(session)
        self._step.facts[session] = known

    def _session(self, client_id: str) -> str:
        session = self._id(client_id)
        facts = self._facts.get(client_id)
        if facts is None:
            facts = self._facts[client_id] = ImportedSession(client_id)
        facts.started = facts.started or self._last
        self._step.facts[session] = facts
        self._spoken.add(session)
        self._described.discard(session)
        return session

    def _name_of(self, call: str, session: str) -> str | None:
        """Return the name of the tool that was called, also if an earlier import read the call."""
        if call not in self._calls and self._goes_on and session not in self._recalled:
            self._recalled.add(session)
            self._calls = self._rows.calls(session) | self._calls
        return self._calls.pop(call, None)

    def _info(self, session: str, facts: ImportedSession) -> SessionInfo:
        started = min(facts.started or self._now, self._now)
        return SessionInfo(
            id=session,
            source=self._reader.name,
            scope=Scope(self._app.settings.profile),
            started=started,
            conversation="",
            title=_title(facts.title),
            model=facts.model or None,
            parent=self._id(facts.parent) if facts.parent else None,
            reason=facts.reason if facts.parent else "new",
            last_active=started,
            provider=facts.provider,
            chat_type=facts.chat_type,
            folder=facts.folder,
            branch=facts.branch,
            imported=self._now,
        )

    def _id(self, client_id: str) -> str:
        if (known := self._ids.get(client_id)) is None:
            known = self._ids[client_id] = stored_id(self._reader.name, client_id)
        return known

    def _message(self, item: ImportedMessage) -> None:
        facts = self._facts.get(item.session)
        at = min(item.at or self._last or (facts.started if facts else 0.0) or self._modified, self._now)
        self._last = at
        if at < self._since:
            return
        content = cleaned(item.content) if item.role in ("user", "system") else item.content
        if item.role == "user" and isinstance(content, str):
            content = typed(content)
        if content != item.content and not text_of(content).strip():
            self._skipped["text of the client's own"] += 1
            return
        session = self._session(item.session)
        for call in item.tool_calls:
            self._calls[call["id"]] = call["function"]["name"]
        if len(self._calls) > 10_000:
            self._calls.clear()
        message = Message(
            role=item.role,
            content=content,
            timestamp=at,
            tool_calls=item.tool_calls,
            tool_call_id=item.tool_call_id,
            tool_name=item.tool_name or (self._name_of(item.tool_call_id, session) if item.tool_call_id else None),
            reasoning=item.reasoning,
            finish_reason=item.finish_reason,
            hidden="rewound" if item.rewound else "compacted" if item.compacted else "",
        )
        if self._redactor:
            message = self._redactor.message(message)
        keys = [key_of(key) for key in item.keys]
        after = key_of(item.after) if item.after else None
        edition = None
        if self._reader.edits:
            edition = key_of(f"{item.keys[0]} {digest(item.role, item.content, item.tool_calls, item.reasoning)}")
        new = NewMessage(message, keys, after, item.rewinds, edition)
        self._step.messages.setdefault(session, []).append(new)
        self._step.count += 1

    # ── writing ──

    def _write(self) -> None:
        step, self._step = self._step, Step()
        if not step.facts and not step.files:
            return
        report = self._report
        sessions = [self._info(session, facts) for session, facts in step.facts.items()]
        try:
            written = self._written(step, sessions)
        except UnicodeEncodeError:
            step.messages = {session: list(map(_mended, given)) for session, given in step.messages.items()}
            written = self._written(step, sessions)
        self._created.update(written.sessions)
        self._passed.update(written.deleted)
        report.messages += written.messages
        report.known += written.known

    def _written(self, step: Step, sessions: Sequence[SessionInfo]) -> Written:
        if self._report.dry_run:
            return self._rows.plan(step, sessions)
        return self._rows.write(step, sessions, self._report.batch)


def _mended(new: NewMessage) -> NewMessage:
    names = ("content", "tool_calls", "tool_call_id", "tool_name", "reasoning", "finish_reason")
    return new._replace(message=replace(new.message, **{name: mended(getattr(new.message, name)) for name in names}))


def _name(file: Path) -> str:
    """Return the path of a file as text, also one that is not UTF-8."""
    return os.fsencode(file).decode("utf-8", "backslashreplace")


def _stamp(file: Path) -> tuple[int, int]:
    """Return size and time of a file, of a SQLite file together with its log; zeros if it is gone."""
    try:
        stat = file.stat()
    except OSError:
        return 0, 0
    with suppress(OSError):
        log = file.with_name(file.name + "-wal").stat()
        return stat.st_size + log.st_size, max(stat.st_mtime_ns, log.st_mtime_ns)
    return stat.st_size, stat.st_mtime_ns


def _title(text: str) -> str | None:
    """Return a title as sessions have it; a longer one is cut."""
    text = " ".join(text.split())
    return sanitized(text if len(text) <= LONGEST else text[: LONGEST - 1] + "…")


def _mark(file: Path, position: int) -> bytes:
    """Return a hash of what stands before a position of a file; nothing if it is gone."""
    try:
        with file.open("rb") as stream:
            stream.seek(max(0, position - _MARK))
            return blake2b(stream.read(min(position, _MARK)), digest_size=16).digest()
    except OSError:
        return b""
