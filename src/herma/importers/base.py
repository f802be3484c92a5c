"""Name what a reader of transcripts yields, and the class that a reader subclasses.

A reader turns one file of another program into a stream of sessions and messages. It keeps nothing, writes nothing,
and never fails on what it does not know: it reports it to the `ReadLog` and goes on.

    class MyAgent(FormatReader):
        name = "my-agent"
        title = "My Agent"

        def places(self, machine: Machine) -> Iterable[Path]:
            yield machine.home / ".my-agent" / "sessions"

        def read(self, file: Path, log: ReadLog) -> Iterator[Item]:
            for record in log.json_lines(file):
                yield ImportedMessage(record["session"], (record["id"],), "user", record["text"], moment(record["at"]))
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sqlite3
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple, TypeAlias

from herma.transcript.messages import LONGEST_ID
from herma.types import Content, Reason, Usage

MAX_LINE = 64 * 1024 * 1024
"""Bytes of one line, or of one value of a JSON array; a longer one is reported and left out."""
MAX_FILE = 4 * MAX_LINE
"""Bytes of a JSON file that is read whole."""
_COPIED = 64 * 1024 * 1024
"""Bytes of a database that is copied together with its log."""
_EXAMPLES = 5
_HALF = re.compile("[\ud800-\udfff]")


class ReadAgain(Exception):
    """Raised by a reader that began in the middle of a file and needs what stands before: it is read from its start."""


class Links(dict[str, str]):
    """The parent of each record; only the newest are kept, so that a long file takes no more memory."""

    limit = 100_000

    def __setitem__(self, key: str, value: str) -> None:
        super().__setitem__(key, value)
        if len(self) > 2 * self.limit:
            for oldest in list(self)[: self.limit]:
                del self[oldest]


@dataclass(slots=True)
class ImportedSession:
    """The facts of a file about a session. A later one for the same `id` completes or corrects the earlier."""

    id: str
    """The id in the other program."""
    title: str = ""
    model: str = ""
    folder: str = ""
    branch: str = ""
    started: float = 0.0
    parent: str = ""
    """The id of the session in the other program that this one follows, and why it follows."""
    reason: Reason = "new"
    generated: bool = False
    """True if a model made the title: then it does not replace one that a person gave."""
    provider: str = ""
    chat_type: str = ""
    prompt: str = ""
    """The system prompt, where the file has it."""


@dataclass(slots=True)
class ImportedMessage:
    """One message. `keys` are its ids in the other program; a message with a known key is not imported again."""

    session: str
    keys: tuple[str, ...]
    role: str
    content: Content = None
    at: float = 0.0
    tool_calls: tuple[dict[str, Any], ...] = ()
    tool_call_id: str | None = None
    tool_name: str | None = None
    reasoning: str | None = None
    finish_reason: str | None = None
    compacted: bool = False
    rewound: bool = False
    """Taken back in the other program: kept, but not shown or searched."""
    after: str = ""
    """The key of the message that this one answers. The later messages of the session are rewound: set it
    only on what a person typed, where the format can go back to an earlier message."""
    rewinds: bool = False
    """True if the person went back on purpose: then answers behind `after` are taken back too, not only prompts."""


@dataclass(slots=True)
class ImportedUsage:
    """The cost of a call. A call whose key is known is not counted again."""

    session: str
    key: str
    usage: Usage
    total: bool = False
    """True if this is what the whole session cost so far: it takes the place of what was counted before."""


Item: TypeAlias = ImportedSession | ImportedMessage | ImportedUsage


@dataclass(frozen=True)
class Machine:
    """The folders of this machine, from which `FormatReader.places` starts."""

    home: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    platform: str = sys.platform

    @classmethod
    def here(cls) -> Machine:
        return cls(Path.home(), dict(os.environ))

    def folder(self, variable: str, *default: str) -> Path:
        """Return the folder that an environment variable names, or the usual one below the home folder."""
        named = self.environment.get(variable, "")
        return Path(named).expanduser() if named else self.home.joinpath(*default)

    def data(self, *below: str) -> Path:
        """Return a folder below XDG's data folder."""
        return self.folder("XDG_DATA_HOME", ".local", "share").joinpath(*below)

    def application(self, *below: str) -> Path:
        """Return a folder below the one where desktop programs keep their settings."""
        if self.platform == "darwin":
            return self.home.joinpath("Library", "Application Support", *below)
        if self.platform == "win32":
            return self.folder("APPDATA", "AppData", "Roaming").joinpath(*below)
        return self.folder("XDG_CONFIG_HOME", ".config").joinpath(*below)


class Branches:
    """Remember the predecessor of each record, for formats in which a prompt that follows an earlier message begins
    another branch.

    A reader that goes on in the middle of a file names the record before: `begun`.
    """

    _UNREAD, _BEGUN = "\0unread", "\0begun"

    def __init__(self, log: ReadLog, begun: str = "") -> None:
        self._log, self._begun, self._links = log, begun, Links()
        self._last = ""

    def follow(self, record: str, parent: str) -> str:
        """Note a record, and return the key of the message that it follows."""
        unread = self._BEGUN if parent == self._begun else self._UNREAD
        before = self._links.get(parent, unread if self._log.start and parent else self._last)
        self._links[record] = before
        return before

    def say(self, record: str, before: str, message: ImportedMessage) -> None:
        """Note a message of a record, and where it begins a branch."""
        if message.role == "user":
            if before == self._UNREAD or (before == self._BEGUN and self._last):
                raise ReadAgain
            message.after = before if before not in (self._last, self._BEGUN) else ""
        self._links[record] = self._last = message.keys[0]


class ReadLog:
    """The lines that a reader could not use, and how far it has read."""

    def __init__(self, start: int = 0, lines: int = 0, progress: Callable[[int], None] = lambda _: None) -> None:
        self.start = start
        """First byte to read; the bytes before were imported earlier."""
        self.offset = start
        """The end of the last complete line that was read, and where that line begins."""
        self.begins = start
        self.line = lines
        self.skipped: Counter[str] = Counter()
        """Record types that carry no part of the conversation."""
        self.unknown: Counter[str] = Counter()
        """Record types that this reader does not know."""
        self.broken: Counter[str] = Counter()
        self.examples: dict[str, list[int]] = {}
        """Line numbers of the first few of each kind."""
        self.failed = False
        """True if the reader stopped before the end of the file."""
        self.open_end = False
        """True if what comes next depends on what was read: the next import begins at the start of the file again."""
        self.taken = 0
        """Items that were taken from the reader, and records that it reported. A record of which nothing came counts as
        skipped: nothing is dropped silently."""
        self.gathers = False
        """True if the reader reads records first and yields their messages later."""
        self._progress = progress

    def begin_again(self) -> None:
        """Read from the start of the file; the counts begin again at zero."""
        self.start = self.offset = self.line = 0
        for counted in (self.skipped, self.unknown, self.broken, self.examples):
            counted.clear()

    def skip(self, kind: str) -> None:
        """Count a record that is known not to be part of the conversation."""
        self.skipped[kind] += 1
        self.taken += 1

    def meet_unknown(self, kind: object) -> None:
        """Count a record of an unknown type."""
        name = str(kind)[:60] or "(none)"
        self.unknown[name] += 1
        self.taken += 1
        self._example(f"unknown {name}")

    def meet_broken(self, why: str) -> None:
        """Count a line or record that cannot be read."""
        self.broken[why] += 1
        self.taken += 1
        self._example(why)

    def _example(self, kind: str) -> None:
        lines = self.examples.setdefault(kind, [])
        if len(lines) < _EXAMPLES:
            lines.append(self.line)

    def json_lines(self, file: Path) -> Iterator[dict[str, Any]]:
        """Yield the objects of a file of JSON lines, also of one that is compressed as `.zst`.

        The last line may be half written: it is left for the next time. Memory is bounded by one line.
        """
        with opened(file) as stream:
            if self.start:
                stream.seek(self.start)
            for raw in _lines(stream):
                if not raw.endswith(b"\n") and not _complete(raw):
                    if raw.strip():
                        self.line += 1
                        self.meet_broken("half-written last line")
                    return
                self.line += 1
                self.begins, self.offset = self.offset, self.offset + len(raw)
                self._progress(len(raw))
                for record in self._objects(raw):
                    taken = self.taken
                    yield record
                    if self.taken == taken and not self.gathers:
                        self.skip(f"{record.get('type') or 'record'} without content"[:60])

    def _objects(self, raw: bytes) -> Iterator[dict[str, Any]]:
        if len(raw) >= MAX_LINE:
            self.meet_broken("line over 64 MB")
            return
        if not raw.strip():
            return
        try:
            values = [json.loads(raw.decode())]  # of bytes, json would look for the encoding each time
        except RecursionError:
            self.meet_broken("nested too deep")
            return
        except ValueError:
            values = _glued(raw)
        for value in values:
            if isinstance(value, dict):
                yield value
            else:
                self.meet_broken("not an object" if value is not _BROKEN else "not JSON")

    def json_file(self, file: Path, *, counted: bool = True) -> Any:
        """Return the JSON of a whole file; None, reported, where it is none."""
        try:
            if file.stat().st_size > MAX_FILE:
                self.meet_broken("file over 256 MB")
                return None
            data = file.read_bytes()
            if counted:
                self._progress(len(data))
            return json.loads(data)
        except (OSError, ValueError, RecursionError):
            self.meet_broken("not JSON")
            return None

    def json_array(self, stream: IO[bytes]) -> Iterator[Any]:
        """Yield the values of a JSON array, or the only value of a file; memory is bounded by one value.

        `line` counts values.
        """
        reader = io.TextIOWrapper(stream, "utf-8-sig", "replace")
        decoder, text, step = json.JSONDecoder(), "", 1 << 18
        opened = listed = False
        while more := reader.read(step):
            self._progress(len(more))
            text += more
            at = 0
            while (at := _start(text, at)) < len(text):
                if not opened:
                    opened = True
                    if listed := text[at] == "[":
                        at += 1
                        continue
                if text[at] == "]":
                    return
                try:
                    value, at = decoder.raw_decode(text, at)
                except RecursionError:
                    self.meet_broken("nested too deep")
                    return
                except ValueError:
                    break
                self.line += 1
                yield value
            step = 1 << 18 if at else min(step * 2, 1 << 26)  # a long value is not parsed again and again
            text = text[at:]
            if len(text) > MAX_LINE:
                self.line += 1
                self.meet_broken("value over 64 MB")
                return
        if text.strip() or listed:
            self.line += 1
            self.meet_broken("not JSON" if text.strip() else "cut off")

    @contextmanager
    def database(self, file: Path) -> Iterator[sqlite3.Connection]:
        """Open a SQLite file of another program for reading, so that nothing beside it is created or changed.

        The newest rows may be in its log: a small one is copied with the log, a large one is read as it lies while the
        program has it open.
        """
        log, shared = (file.with_name(f"{file.name}-{end}") for end in ("wal", "shm"))
        with tempfile.TemporaryDirectory(prefix="herma-") as folder, ExitStack() as stack:
            connection = None
            if log.exists() and shared.exists() and file.stat().st_size > _COPIED:
                connection = stack.enter_context(_connected(file, "?mode=ro"))
                try:
                    connection.execute("SELECT 1 FROM sqlite_master").fetchone()
                except sqlite3.OperationalError:  # no program has it open, and the log would have to be applied
                    connection = None
            if connection is None and log.exists():
                copy = Path(folder) / "copy.db"
                shutil.copyfile(log, copy.with_name("copy.db-wal"))
                shutil.copyfile(file, copy)
                connection = stack.enter_context(_connected(copy, ""))
            elif connection is None:
                with file.open("rb") as stream:
                    wal = stream.read(20)[18:19] == b"\x02"
                connection = stack.enter_context(_connected(file, "?immutable=1" if wal else "?mode=ro"))
            yield connection
        self._progress(file.stat().st_size)

    def rows(self, connection: sqlite3.Connection, sql: str, *bindings: object) -> Iterator[sqlite3.Row]:
        """Yield the rows of a query; a damaged database ends it and is reported."""
        try:
            yield from connection.execute(sql, bindings)
        except sqlite3.Error as exc:
            self.failed = True
            self.meet_broken(f"database: {exc}")


@contextmanager
def _connected(file: Path, options: str) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(file.absolute().as_uri() + options, uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        yield connection


_BROKEN = object()


def reachable(place: Path) -> bool:
    """Return whether a file or folder is there and this user may look at it."""
    try:
        return place.exists()
    except OSError:
        return False


def first_record(file: Path) -> dict[str, Any]:
    """Return the first object of a file of JSON lines, which a reader needs again when it begins further down."""
    with opened(file) as stream:
        found = records_of(stream.readline(MAX_LINE) + b"\n")
    return found[0] if found else {}


def record_before(file: Path, position: int) -> dict[str, Any]:
    """Return the object in the line of a file that ends at a position: the last one that was read earlier."""
    if not position:
        return {}
    with file.open("rb") as stream:
        stream.seek(max(0, position - MAX_LINE // 64))
        lines = stream.read(min(position, MAX_LINE // 64)).rstrip().rsplit(b"\n", 1)
    return next((one for one in reversed(_glued(lines[-1])) if isinstance(one, dict)), {})


def json_beside(file: Path) -> dict[str, Any]:
    """Return the object in a small JSON file that belongs to a transcript; an empty one where it is not there."""
    try:
        with file.open("rb") as stream:
            return parsed(stream.read(MAX_LINE))
    except OSError:
        return {}


def parsed(value: object, log: ReadLog | None = None) -> dict[str, Any]:
    """Return the object in a text of JSON; an empty one, reported to the log, where it is none."""
    try:
        return mapping(json.loads(value if isinstance(value, str | bytes) else ""))
    except (ValueError, RecursionError):
        if log:
            log.meet_broken("not JSON")
        return {}


def zip_has(file: Path, member: str, text: bytes) -> bool:
    """Return whether a zip archive has a member of this name that begins with text like this."""
    try:
        return any(text in stream.read(1 << 20) for stream in members(file, member))
    except (OSError, RuntimeError, zipfile.BadZipFile):
        return False


def members(file: Path, name: str, log: ReadLog | None = None) -> Iterator[IO[bytes]]:
    """Yield the file itself, or of a zip archive each member whose name is like this; the log counts the others."""
    if not zipfile.is_zipfile(file):
        with file.open("rb") as stream:
            yield stream
        return
    with zipfile.ZipFile(file) as archive:
        names = sorted(one for one in archive.namelist() if not one.endswith("/"))
        chosen = [one for one in names if fnmatchcase(one.rpartition("/")[2], name)]
        for other in names if log else ():
            if log and other not in chosen:
                log.skip(f"file {other.rpartition('/')[2]}"[:60])
        for one in chosen:
            with archive.open(one) as stream:
                yield stream


def digest(*values: object) -> str:
    """Return a short hash of what a message says, for formats whose ids are not unique."""
    return blake2b(json.dumps(values, default=str).encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def records_of(head: bytes) -> list[dict[str, Any]]:
    """Return the objects in the first whole lines of a file, for `recognises`."""
    lines = head.split(b"\n")
    lines = lines[: min(50, len(lines) - (len(lines) > 1))]
    return [value for line in lines if line.strip() for value in _glued(line) if isinstance(value, dict)]


def _start(text: str, at: int) -> int:
    """Return where the next value of an array, or its end, begins."""
    while at < len(text) and text[at] in " \t\r\n,":
        at += 1
    return at


def _glued(raw: bytes) -> list[Any]:
    """Several objects in one line, as some programs write them after a crash; `_BROKEN` for what is no JSON."""
    text = raw.decode("utf-8", "replace").strip().lstrip("\ufeff")
    decoder, at = json.JSONDecoder(), 0
    found: list[Any] = []
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return [*found, _BROKEN]
        found.append(value)
        while at < len(text) and text[at].isspace():
            at += 1
    return found


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Lines of at most `MAX_LINE` bytes; the rest of a longer one is passed over."""
    while raw := stream.readline(MAX_LINE):
        if len(raw) >= MAX_LINE and not raw.endswith(b"\n"):
            while (rest := stream.readline(MAX_LINE)) and not rest.endswith(b"\n"):
                pass
            raw = raw[:-1] + b"\n"  # the caller reports it by its length
        yield raw


def _complete(raw: bytes) -> bool:
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return True


@contextmanager
def opened(file: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading, decompressed if its name ends in `.zst`."""
    if file.suffix != ".zst":
        with file.open("rb", buffering=1 << 20) as stream:
            yield stream
        return
    import zstandard

    with file.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True) as reader:
        yield io.BufferedReader(reader, 1 << 20)


class FormatReader:
    """Read the transcripts of one program. Subclass it; everything but `read` has a default."""

    name: ClassVar[str] = ""
    """The source of what is imported: `herma import NAME`, and `source:NAME` in searches."""
    title: ClassVar[str] = ""
    patterns: ClassVar[tuple[str, ...]] = ("**/*.jsonl",)
    """Patterns of the files that hold transcripts."""
    expires_after: ClassVar[float] = 0
    """Days after which the program deletes its own transcripts; 0: it does not."""
    grows: ClassVar[bool] = True
    """True if files only grow at their end, so that a later import may begin where the last one stopped."""

    edits: ClassVar[bool] = False
    """True if the program rewrites a message under the same key, as while an answer is being written."""

    def places(self, machine: Machine) -> Iterable[Path]:
        """Return where the program keeps its transcripts on this machine."""
        del machine
        return ()

    def files(self, place: Path) -> Iterator[Path]:
        """Yield the transcripts below a folder, or the file itself, parents before their sub-agents."""
        if place.is_file():
            yield place
        else:
            found = {
                file for pattern in self.patterns for file in place.glob(pattern) if reachable(file) and file.is_file()
            }
            yield from sorted(found, key=lambda file: (len(file.parts), file))

    def recognises(self, file: Path, head: bytes) -> bool:
        """Return whether a file, of which these are the first bytes, is one of this program's."""
        del file, head
        return False

    def read(self, file: Path, log: ReadLog) -> Iterator[Item]:
        """Yield what a file holds, in order."""
        raise NotImplementedError


# ── values ──


def stored_id(source: str, client_id: str) -> str:
    """Return the id that a session of another program has here."""
    clean = "".join(char if char.isprintable() and not char.isspace() else "-" for char in client_id)
    named = f"{source}-{clean or 'unnamed'}"
    if len(named) > LONGEST_ID:
        named = f"{named[: LONGEST_ID - 17]}-{blake2b(named.encode(), digest_size=8).hexdigest()}"
    return named


def moment(value: object) -> float:
    """Return a time as seconds since 1970: from ISO 8601, seconds or milliseconds; 0 where it is none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value) / 1000 if abs(value) > 1e11 else float(value)
        return seconds if 0 < seconds < 4e9 else 0.0
    if not isinstance(value, str):
        return 0.0
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        return 0.0
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def text_of(value: object) -> str:
    """Return the text of a string, of parts with a `text`, or of anything else as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, list):
        return "\n".join(filter(None, map(text_of, value)))
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        return str(value["text"])
    if isinstance(value, dict) and value.get("type") in _MEDIA:
        return f"[{value['type']}]"
    return json.dumps(value, ensure_ascii=False)


class Parts(NamedTuple):
    """The content of the parts of one message."""

    text: str = ""
    thinking: str = ""
    calls: tuple[dict[str, Any], ...] = ()
    results: tuple[ToolResult, ...] = ()


_CLIENTS_OWN = re.compile(
    r"\s*<(session_context|hook_context|system-reminder|qwen:user-prompt-submit-context)>.*?</\1>\s*"
    r"|\s*&lt;(memory-context)&gt;.*?&lt;/\2&gt;\s*",
    re.DOTALL,
)


def typed(text: str) -> str:
    """Return what a person typed: a user's message without what clients add in frames, recalled memory among it."""
    said, frames = _CLIENTS_OWN.subn("\n", text) if "<" in text or "&lt;" in text else (text, 0)
    return said.strip() if frames else text


class ToolResult(NamedTuple):
    call: str
    name: str
    text: str


_TEXT = ("text", "input_text", "output_text", "inputText", "markdown")
_THOUGHT = ("thinking", "redacted_thinking", "redactedThinking", "reasoning", "think", "thought", "summary_text")
_CALL = ("tool_use", "server_tool_use", "toolCall", "tool_call", "tool-call", "function_call", "functionCall")
_RESULT = ("tool_result", "toolResult", "tool-result", "function_response", "functionResponse")
_MEDIA = ("image", "image_url", "input_image", "input_audio", "audio", "video", "document", "file", "fallback",
          "encrypted_content", "inlineData", "fileData")  # fmt: skip


def parts_of(content: object, log: ReadLog) -> Parts:
    """Divide a message into text, thinking, calls and results, in whatever of the usual shapes its parts are.

    Media are counted as skipped; the text of an unknown part is kept, and its type reported.
    """
    said: list[str] = []
    thought: list[str] = []
    calls: list[dict[str, Any]] = []
    results: list[ToolResult] = []
    for part in content if isinstance(content, list) else [content]:
        if not isinstance(part, dict):
            said.append(text_of(part))
            continue
        kind = string(part.get("type")) or next(filter(part.__contains__, (*_CALL, *_RESULT, *_MEDIA)), "text")
        inner = mapping(part.get(kind)) or part
        if kind == "text" and part.get("thought") is True:
            kind = "thought"
        if kind in _TEXT:
            said.append(text_of(part.get("text", part.get("content", part.get("value")))))
        elif kind in _THOUGHT:
            thought.append(string(part.get("thinking") or part.get("text") or part.get("think")))
        elif kind in _CALL:
            name = first_of(inner, "name", "toolName", "tool")
            calls.append(tool_call(call_id_of(inner), name, first_of(inner, "input", "arguments", "args")))
        elif kind in _RESULT:
            text = result_text(first_of(inner, "content", "output", "result", "response", "value"))
            results.append(ToolResult(call_id_of(inner), string(first_of(inner, "name", "toolName")), text))
        elif kind in _MEDIA:
            log.skip(f"part {kind}")
        else:
            log.meet_unknown(f"part {kind}")
            said.append(text_of(first_of(part, "text", "content")))
    return Parts("\n".join(filter(None, said)), "\n".join(filter(None, thought)), tuple(calls), tuple(results))


def messages_of(
    session: str,
    key: str,
    role: str,
    parts: Parts,
    at: float = 0.0,
    *,
    rewound: bool = False,
    finish: str | None = None,
) -> Iterator[ImportedMessage]:
    """Yield the results of tools in a message, and the message itself if it says, thinks or calls anything."""
    for number, result in enumerate(parts.results):
        yield ImportedMessage(
            session, (f"{key} {number}",), "tool", result.text, at, tool_call_id=result.call or None,
            tool_name=result.name or None, rewound=rewound,
        )  # fmt: skip
    if parts.text or parts.thinking or parts.calls or not parts.results:
        yield ImportedMessage(
            session, (key,), role, parts.text or None, at, parts.calls, reasoning=parts.thinking or None,
            finish_reason=finish or None, rewound=rewound,
        )  # fmt: skip


def result_text(value: object) -> str:
    """Return the output of a tool: its text, where that is all there is, or the whole as JSON."""
    if isinstance(value, dict):
        named = first_of(value, "output", "content", "text", "stdout")
        if named is not None and len(value) - ("isError" in value) - ("is_error" in value) == 1:
            return text_of(named)
    return text_of(value)


def first_of(value: Mapping[str, Any], *names: str) -> Any:
    """Return the first of these fields that is there and not null."""
    return next((value[name] for name in names if value.get(name) is not None), None)


def call_id_of(value: Mapping[str, Any]) -> str:
    """Return the id of a tool call, under any of its names."""
    return string(first_of(value, "toolCallId", "tool_use_id", "tool_call_id", "call_id", "callID", "callId", "id"))


def usage_of(given: Mapping[str, Any]) -> Usage:
    """Return tokens counted under any of the names that programs use. Cached tokens are not input a second time."""
    cached = whole(first_of(given, "cache_read_input_tokens", "cacheRead", "inputCacheRead", "cached_input_tokens",
                            "cached", "cachedContentTokenCount", "cache_read_tokens"))  # fmt: skip
    read = whole(first_of(given, "input_tokens", "input", "inputOther", "promptTokenCount", "prompt_tokens"))
    if any(name in given for name in ("cached_input_tokens", "cached", "cachedContentTokenCount")):
        read = max(0, read - cached)  # there the input includes them
    return Usage(
        input=read,
        output=whole(first_of(given, "output_tokens", "output", "candidatesTokenCount", "completion_tokens")),
        cache_read=cached,
        cache_write=whole(first_of(given, "cache_creation_input_tokens", "cacheWrite", "inputCacheCreation",
                                   "cache_write_input_tokens", "cache_write_tokens")),
        reasoning=whole(first_of(given, "reasoning_output_tokens", "reasoning", "thoughts", "thoughtsTokenCount",
                                 "reasoning_tokens")),
    )  # fmt: skip


def tool_call(call_id: object, name: object, arguments: object) -> dict[str, Any]:
    """Return a tool call in the form in which Herma keeps it."""
    written = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return {"id": string(call_id), "type": "function", "function": {"name": string(name), "arguments": written}}


def string(value: object) -> str:
    """Return a value if it is text, else nothing."""
    return value if isinstance(value, str) else ""


def whole(value: object) -> int:
    """Return a count if it is one, else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 53 else 0


def mended(value: Any) -> Any:
    """Return a value without halves of characters, which stand where a program cut a text; no database takes them."""
    if isinstance(value, str):
        return value if value.isascii() else _HALF.sub("\ufffd", value)
    if isinstance(value, dict):
        return {mended(key): mended(one) for key, one in value.items()}
    return type(value)(map(mended, value)) if type(value) in (list, tuple) else value


def mapping(value: object) -> dict[str, Any]:
    """Return a value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """Return a value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []
