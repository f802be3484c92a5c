"""The text index follows the change feed; rebuild, verify."""

from __future__ import annotations

import os
import re
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeVar

from herma.errors import HermaError, StoreBusy, StoreError
from herma.index.types import (
    Found,
    IndexFiles,
    IndexMissing,
    IndexRow,
    IndexState,
    IndexTables,
    IndexUnusable,
    Sieve,
    Sought,
    Terms,
    VectorState,
)
from herma.text import Late
from herma.transcript.rows import ChangeFeed, FeedChange, Position, Searchable

if TYPE_CHECKING:
    from herma.index.vectors import Vectors


# ---------- index.background
#
# Indexing in the background of a process that goes on: one thread, started by the first write, woken by later ones.

QUIET = 0.2
"""Seconds without a write after which indexing begins."""
MOST_BEHIND = 5_000
"""Messages behind at which it begins without waiting."""
_RETRY = 0.1

Work = Callable[[Callable[[], bool]], None]


class Background:
    """Runs `work` after writes, and checks on request. A failure is kept for whoever asks, and ends nothing."""

    def __init__(
        self, work: Work, check: Work, clock: Callable[[], float] = time.monotonic, *, quiet: float = QUIET
    ) -> None:
        self._work, self._check = work, check
        self._clock = clock
        self._quiet = quiet
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._due: float | None = None
        self._behind = 0
        self._suspicious = False
        self._stopping = threading.Event()
        self.trouble = ""

    def written(self, messages: int) -> None:
        """Messages were written: index them when writing pauses."""
        with self._changed:
            self._behind += messages
            quiet = self._clock() + self._quiet
            self._due = quiet if self._behind < MOST_BEHIND else min(self._due or quiet, self._clock())
            self._start()

    def begin(self, *, check: bool = False) -> None:
        """There is something to do: begin at once."""
        with self._changed:
            self._due = self._clock()
            self._suspicious = self._suspicious or check
            self._start()

    def close(self, timeout: float) -> None:
        """Stop after the slice at hand."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _start(self) -> None:
        if self._thread is None and not self._stopping.is_set():
            self._thread = threading.Thread(target=self._run, name="herma-index", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _run(self) -> None:
        while not self._stopping.is_set():
            check = self._wait()
            if self._stopping.is_set():
                return
            try:
                self._work(self._stopping.is_set)
                if check:
                    self._check(self._stopping.is_set)
                self.trouble = ""
            except StoreBusy:
                self._stopping.wait(_RETRY)
                self.begin(check=check)
            except (HermaError, IndexUnusable) as error:
                self.trouble = str(error)

    def _wait(self) -> bool:
        """Until work is due. → whether a check was asked for."""
        with self._changed:
            while not self._stopping.is_set():
                left = None if self._due is None else self._due - self._clock()
                if left is not None and left <= 0:
                    break
                self._changed.wait(left)
            self._due, self._behind = None, 0
            check, self._suspicious = self._suspicious, False
            return check


# ---------- index.prepare
#
# How text becomes words: pure, linear, and the same for messages and for queries, so that the two
# always meet.
#
# The index itself folds case and diacritics and stems (FTS5: `porter unicode61`). What it cannot do
# is done here,
# before:
#
#     東京都庁             東京 京都 都庁 庁        scripts without spaces: pairs of characters, the last one
#     on its own
#     getCompressionTip    get Compression Tip     identifiers: their parts, in place
#                          + getcompressiontip     … and as one name, whichever way they were joined
#     C#  C++  .NET        c c net + csharp cplusplus dotnet
#
# Text and names are kept apart, so that a phrase is found whatever identifiers stand in it.

LONGEST_WORD = 128
"""Of a longer run of letters and digits only the beginning is kept: nobody types it, and it is not language."""
LONGEST_NAME = 48
MOST_TURNS = 3
"""A word that changes between letters and digits more often is a hash or a key: it stays whole."""

_PAIRED = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0edf"  # Thai, Lao
    "\u1000-\u109f\uaa60-\uaa7f\u1780-\u17d3\u17d7\u17dc\u17dd"  # Burmese, Khmer
    "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb"  # Korean
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"  # Japanese
    "\u3105-\u312f\u31a0-\u31bf\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese
)
_RUN = Late(f"[{_PAIRED}]+")
_RUN_AT_END = Late(f"[{_PAIRED}]+\\Z")
_UNSTORABLE = Late("[\x00\ud800-\udfff]")
_TOO_LONG = Late(rf"(\w{{{LONGEST_WORD}}})\w+")
_SEAM = re.compile(  # where an identifier can be taken apart; begins with a set of characters, which is searched fast
    r"[0-9A-Z_-](?:"
    r"(?<=[a-z][A-Z])|(?<=[A-Z])(?=[A-Z][a-z])"  # getTip, HTTPServer
    r"|(?<=[A-Za-z][0-9])|(?<=[0-9])(?=[A-Za-z])"  # python3, 3d
    r"|(?<=[A-Za-z0-9][_-])(?=[_-]*[A-Za-z0-9])"  # snake_case, kebab-case, 2026-03-05
    r")"
)
_IDENTIFIER = re.compile(r"[A-Za-z0-9]+(?:[_-]+[A-Za-z0-9]+)*")
_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_TURN = re.compile(r"(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])")
_JOINT = re.compile(r"[_-]+")
_PREPARE_SIGNED = Late(r"(?<![A-Za-z0-9_])(?:([A-Za-z])(#|\+\+)(?![#+])|(\.)net(?![A-Za-z0-9_]))", re.IGNORECASE)
_SIGNS = {"#": "sharp", "++": "plusplus"}


@dataclass(frozen=True, slots=True)
class Prepared:
    """Text as the index takes it, and the names of what was taken apart in it, each once, in order."""

    text: str
    names: tuple[str, ...] = ()


def prepare(text: str) -> Prepared:
    """What the index keeps of a message, and what it looks for in place of the words of a query."""
    text = clean(text)
    names = dict.fromkeys(_signed(text))
    done, pieces = 0, []
    seam = _SEAM.search(text)
    while seam:
        start = seam.start()
        while start > done and text[start - 1] in _LETTERS:
            start -= 1
        identifier = _IDENTIFIER.search(text, start)
        if identifier is None:
            break
        parts, name = _taken_apart(identifier[0])
        pieces += [text[done : identifier.start()], parts]
        if name:
            names[name] = None
        done = identifier.end()
        seam = _SEAM.search(text, done)
    return Prepared("".join([*pieces, text[done:]]), tuple(names))


def clean(text: str) -> str:
    """One way of writing for every character, nothing that cannot be stored, no endless words, pairs where needed."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _UNSTORABLE.sub(" ", text))
        text = _RUN.sub(lambda match: _pairs(match[0]), text)
    elif "\0" in text:
        text = text.replace("\0", " ")
    if len(text) > LONGEST_WORD and max(map(len, text.split()), default=0) > LONGEST_WORD:
        text = _TOO_LONG.sub(r"\1", text)
    return text


def sought(text: str) -> tuple[str, bool]:
    """`text` of a query, to be found also where more follows. → its words, and whether the last is only a beginning."""
    if text.isascii() and text[-1:].isalnum():
        return prepare(text).text.rstrip(), False
    text = unicodedata.normalize("NFKC", _UNSTORABLE.sub(" ", text))
    end = len(text)
    while end and unicodedata.category(text[end - 1])[0] not in "LMN":
        end -= 1
    text = text[:end]
    words = prepare(text).text.rstrip()
    if not (run := _RUN_AT_END.search(text)):
        return words, False
    if len(run[0]) == 1:
        return words, True
    return words[: -1 - len(run[0][-1])].rstrip(), False


def loosened(word: str) -> tuple[str, ...]:
    """What else to look for in place of a word that nothing divides though it may be a sentence: pairs of characters
    of the scripts without spaces, and what stands between them. Nothing for other words.
    """
    if word.isascii():
        return ()
    word = unicodedata.normalize("NFKC", _UNSTORABLE.sub(" ", word))
    found: dict[str, None] = {}
    end = 0
    for run in _RUN.finditer(word):
        found[word[end : run.start()]] = None
        found.update((word[i : i + 2], None) for i in range(run.start(), run.end() - 1))
        end = run.end()
    if not end:
        return ()
    found[word[end:]] = None
    return tuple(part for part in found if part not in ("", word))


def _pairs(run: str) -> str:
    return " " + " ".join([run[i : i + 2] for i in range(len(run))]) + " "


def _signed(text: str) -> Iterator[str]:
    """The names of `C#`, `C++` and `.NET`."""
    if "#" in text or "++" in text or ".n" in text or ".N" in text:
        for match in _PREPARE_SIGNED.finditer(text):
            letter, sign, dot = match.groups()
            yield "dotnet" if dot else letter.lower() + _SIGNS[sign]


@lru_cache(maxsize=16_384)
def _taken_apart(word: str) -> tuple[str, str]:
    """The parts of one identifier with spaces between, and its name: the same parts squeezed together."""
    parts = [piece for part in _JOINT.split(word) for piece in _pieces(part)]
    name = _JOINT.sub("", word).lower()
    return " ".join(parts), name if len(parts) > 1 and len(name) <= LONGEST_NAME else ""


def _pieces(part: str) -> list[str]:
    turns = _TURN.split(part)
    return [piece for turn in turns for piece in _CAMEL.split(turn)] if len(turns) <= MOST_TURNS else [part]


# ---------- index.follow
#
# Following the change feed into the stored index in slices; and building the index anew beside the old one.

Progress = Callable[[int, int], None]
"""Called with how many messages are done, and of how many."""
Stop = Callable[[], bool]

SLICE = 0.005
"""How long anything is held in the background."""
BATCH = 256
"""Messages at a time where somebody waits for them."""
_LOOK_AGAIN = 0.02
_PAUSE = 0.002
"""How long everything is let go of between slices, for others who wait."""


def never() -> bool:
    return False


def silent(done: int, total: int) -> None:
    """No progress wanted."""


class Follower:
    """The only writer of the stored index in this process. Whoever calls `step` or `advance` holds the files."""

    def __init__(self, files: IndexFiles, feed: ChangeFeed) -> None:
        self._files = files
        self._feed = feed
        self._part: tuple[IndexTables | None, int, int] = (None, 0, 0)
        self.rebuilding = False
        self._built = 0

    def state(self) -> IndexState:
        """The index in use; without a position when there is none that could be continued."""
        try:
            return self._files.current().state()
        except IndexUnusable:
            return IndexState()

    def position(self, end: Position) -> Position | None:
        """Where the index in use stands in this feed; None when it has to be built (anew)."""
        try:
            reached = self._files.current().position()
        except IndexUnusable:
            return None
        known = reached is not None and (reached.store_id, reached.epoch) == (end.store_id, end.epoch)
        return reached if known and reached is not None and reached.seq <= end.seq else None

    def lag(self, at_most: int) -> int:
        """How many messages came or went since; exact up to `at_most`."""
        end = self._feed.position()
        reached = self.position(end)
        if end.seq == 0 or (reached is not None and reached.seq == end.seq):
            return 0
        if reached is None:
            return max(1, self._feed.message_count())
        missing = 0
        for change in self._feed.since(reached.seq, at_most + 1):
            missing += max(1, len(change.message_ids))
        if missing > at_most:
            missing = max(missing, self._feed.message_count() - self.state().messages)
        return missing

    def newest_missing(self, limit: int) -> Sequence[int]:
        """The newest messages that are not indexed, newest first."""
        end = self._feed.position()
        reached = self.position(end)
        after = max(reached.seq if reached else 0, end.seq - limit)
        found: dict[int, None] = {}
        for change in self._feed.since(after, limit + 1):
            for message in change.message_ids[-limit:]:
                found.pop(message, None)
                if change.kind == "append":
                    found[message] = None
        return list(reversed(found))[:limit]

    # ── following ──

    def catch_up(self, wait: float, stop: Stop = never) -> None:
        """Index everything that is new, in the caller's time, or let somebody else do it who is already at it.
        `StoreBusy` when that takes longer than `wait`.
        """
        end, deadline = self._feed.position(), time.monotonic() + wait
        while (reached := self.position(end)) is None or reached.seq < end.seq:
            if end.seq == 0 or stop():
                return
            try:
                with self._files.hold(_LOOK_AGAIN):
                    self._turn(BATCH, upkeep=False)
            except StoreBusy:
                if time.monotonic() > deadline:
                    raise

    def in_slices(self, stop: Stop) -> None:
        """Index everything that is new and do the upkeep, holding nothing for longer than a slice.

        The two take turns: upkeep that is put off piles up.
        """
        batch, more, upkeep = 16, True, True
        while more and not stop() and self._feed.position().seq:
            upkeep = not upkeep
            with self._files.hold(0):
                started = time.monotonic()
                more = self._turn(batch, upkeep=upkeep)
                took = time.monotonic() - started
            if not upkeep:
                batch = max(4, batch // 2) if took > SLICE else min(BATCH, batch * 2) if took < SLICE / 2 else batch
            time.sleep(_PAUSE)

    def rebuild(self, wait: float, progress: Progress = silent, stop: Stop = never, *, anew: bool = True) -> None:
        """Build the index beside the one in use and put it in its place; goes on where a stopped attempt left off."""
        self.rebuilding = True
        try:
            with self._files.hold(wait):
                self._files.building(anew=anew)
            total, finished = self._feed.message_count(), False
            while not finished and not stop():
                with self._files.hold(wait):
                    finished = self._build(BATCH)
                progress(total if finished else min(total, self._built), total)
                time.sleep(_PAUSE)
        finally:
            self.rebuilding = False

    def rows(self, message_ids: Sequence[int]) -> Sequence[IndexRow]:
        """These messages as the index keeps them."""
        return [_row(message) for message in self._feed.searchable(message_ids)]

    def _turn(self, batch: int, *, upkeep: bool) -> bool:
        """One step towards an index that has everything. → whether there is more to do."""
        end = self._feed.position()
        reached = self.position(end)
        if reached is None:
            self._build(batch)
            return True
        try:
            if reached.seq < end.seq and not upkeep:
                self._step(self._files.current(), reached, batch)
                return True
            return self._tidy(self._files.current()) or reached.seq < end.seq
        except IndexUnusable:
            self._files.drop(building=False)
            return True

    def _step(self, tables: IndexTables, reached: Position, batch: int) -> Position:
        """Index about `batch` messages. A larger change is indexed in parts, and is passed when its last part is."""
        wanted: dict[int, bool] = {}
        seq = reached.seq
        for change in self._feed.since(seq, batch):
            done = self._begun(tables, change)
            ids = change.message_ids[done : done + batch - len(wanted)]
            wanted.update(dict.fromkeys(ids, change.kind == "append"))
            if done + len(ids) < len(change.message_ids):
                self._part = (tables, change.seq, done + len(ids))
                break
            seq = change.seq
        rows = self.rows([message for message, here in wanted.items() if here])
        gone = [message for message, here in wanted.items() if not here]
        reached = Position(reached.store_id, reached.epoch, seq)
        tables.put(rows, gone, reached)
        return reached

    def _begun(self, tables: IndexTables, change: FeedChange) -> int:
        """How much of a large change is indexed already, by us or by somebody who was interrupted."""
        if self._part[0] is tables and self._part[1] == change.seq:
            return self._part[2]
        ids, done = change.message_ids, 0
        while change.kind == "append" and len(ids) > done + BATCH:
            if len(tables.digests(ids[done : done + BATCH])) < BATCH:
                break
            done += BATCH
        return done

    def _tidy(self, tables: IndexTables) -> bool:
        deadline = time.monotonic() + SLICE / 2
        while tables.tidy():
            if time.monotonic() > deadline:
                return True
        return False

    # ── building ──

    def _build(self, batch: int) -> bool:
        """One step towards the new index. → whether it is in its place."""
        try:
            finished = self._fill(self._files.building(anew=False), batch)
        except IndexUnusable:
            self._files.building(anew=True)
            return False
        if finished:
            self._files.publish()
        return finished

    def _fill(self, tables: IndexTables, batch: int) -> bool:
        """→ whether the new index has everything."""
        end, state = self._feed.position(), tables.state()
        reached = state.position or Position(end.store_id, end.epoch, 0)
        if (reached.store_id, reached.epoch) != (end.store_id, end.epoch) or reached.seq > end.seq:
            tables, reached = self._files.building(anew=True), Position(end.store_id, end.epoch, 0)
        if reached.seq < end.seq:
            reached = self._step(tables, reached, batch)
        elif state.position is None:
            tables.put((), (), reached)
        self._built = state.messages
        return not self._tidy(tables) and reached.seq == end.seq


def _row(message: Searchable) -> IndexRow:
    prepared = prepare(message.text)
    digest = blake2b(message.text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return IndexRow(message.id, prepared.text, " ".join(prepared.names), int.from_bytes(digest, "big", signed=True))


# ---------- index.sieve
#
# `Terms` → what the stored index is asked: every alternative prepared as messages were.

_SIEVE_SIGNED = re.compile(r"^[A-Za-z](?:#|\+\+)|^\.net", re.IGNORECASE)


def sieve(terms: Terms) -> Sieve:
    """Prepare a query. Alternatives without a letter or digit fall away."""
    return Sieve(
        any_of=tuple(dict.fromkeys(_loosened(terms.any_of, terms.prefix))),
        all_of=tuple(tuple(_exact(one, terms.prefix) for one in group) for group in terms.all_of),
        none_of=tuple(_exact(one, terms.prefix) for one in terms.none_of),
    )


def _loosened(alternatives: Iterable[Sequence[str]], begun: frozenset[str]) -> Iterable[Sought]:
    """Each alternative, and the parts of a word that nothing divides."""
    for words in alternatives:
        yield _exact(words, begun)
        if len(words) == 1:
            for part in loosened(words[0]):
                yield _exact((part,), begun)


def _exact(words: Sequence[str], begun: frozenset[str]) -> Sought:
    text, open_end = sought(" ".join(words))
    names = prepare(words[0]).names if len(words) == 1 else ()
    prefix = open_end or (bool(words) and words[-1] in begun)
    if len(names) == 1 and _SIEVE_SIGNED.search(words[0]):
        return Sought(names[0])  # C# is not every c
    return Sought(text, names[0] if len(names) == 1 else "", prefix)


# ---------- index.sync
#
# The text index over all transcripts: follows the change feed, answers searches, and builds itself anew when it must.
#
# Nothing here can lose a message: whatever happens to the stored index, it is derived again from the transcript.

Answer = TypeVar("Answer")

SEARCH_INDEXES = 2_000
"""Messages that a search indexes itself before it answers."""
SEARCH_WAITS = 0.4
"""Seconds after which it answers with what there is, whether it or somebody else is indexing."""
SUSPICION_PAUSE = 60.0
_WAIT = 60.0
_CLOSE = 2.0


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """The index at a glance. `trouble` is why it cannot be brought up to date, or empty; vectors have their own."""

    messages: int
    lag: int
    size: int
    position: Position | None
    rebuilding: bool
    trouble: str = ""
    vectors: VectorState = field(default_factory=VectorState)
    built: int = 0
    """While it is built (anew): how many messages the one that takes its place has."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What a check found (nothing: empty), and whether the index was built anew because of it."""

    trouble: str
    rebuilt: bool


class Index:
    """Implements `TextIndex`."""

    def __init__(
        self,
        files: IndexFiles,
        feed: ChangeFeed,
        *,
        clock: Callable[[], float] = time.monotonic,
        alive: Callable[[], None] = lambda: None,
        vectors: Vectors | None = None,
    ) -> None:
        self.vectors = vectors
        self._files = files
        self._feed = feed
        self._clock = clock
        self._alive = alive
        self._process = os.getpid()
        self._follower = Follower(files, feed)
        self._background = Background(self._follower.in_slices, self._glance)
        self._suspected: float | None = None
        self._trouble = ""

    # ── for searches ──

    def find(self, terms: Terms, limit: int) -> Found:
        """The best `limit` messages for these terms among what is indexed."""
        self._alive()
        wanted = sieve(terms)
        found = self._asking(lambda: self._files.current().find(wanted, limit))
        if found is None:
            notes = (self._why_none(),) if self._feed.position().seq else ()
            return Found((), 0, exhausted=not notes, notes=notes)
        if self._trouble:
            return replace(found, notes=(*found.notes, f"The index cannot be brought up to date: {self._trouble}"))
        return found

    def _why_none(self) -> str:
        if trouble := self._trouble or self._background.trouble:
            return f"There is no index, and none can be built: {trouble}"
        built = self._files.built()
        far = f": {built:,} of {self._feed.message_count():,} messages so far" if built else ""
        return f"The index is being built{far}."

    def vocabulary(self, parts: Sequence[str], beginnings: Sequence[str] = (), limit: int = 20) -> Sequence[str]:
        """Words (stems) with one of `parts` in them or one of `beginnings` at the front, commonest first; only the
        newest part of the index is looked at.
        """
        self._alive()
        inside, first = (
            [part for raw in given if (part := clean(raw).strip().lower())] for given in (parts, beginnings)
        )
        if not inside and not first:
            return ()
        return self._asking(lambda: self._files.current().vocabulary(inside, first, limit)) or ()

    def catch_up(self, at_most: int = SEARCH_INDEXES) -> int:
        """Index what is new if that is at most so many messages. → how many messages are still missing."""
        self._alive()
        lag = self._follower.lag(at_most)
        if lag == 0:
            return 0
        if self.vectors is not None:
            self.vectors.catch_up()
        if lag <= at_most:
            deadline = self._clock() + SEARCH_WAITS
            self._try_catching_up(SEARCH_WAITS, stop=lambda: self._clock() > deadline)
            lag = self._follower.lag(at_most)
        if lag:
            self._background.begin()
        return lag

    def missing(self, limit: int = 500) -> Sequence[int]:
        """The newest messages that are not indexed yet, newest first."""
        self._alive()
        return self._follower.newest_missing(limit)

    def suspect(self) -> None:
        """Something found does not look right: have the index checked in the background, at most once a minute."""
        now = self._clock()
        if self._suspected is None or now - self._suspected >= SUSPICION_PAUSE:
            self._suspected = now
            self._background.begin(check=True)

    # ── for writers and for people ──

    def written(self, messages: int = 1) -> None:
        """Messages were committed: they are indexed in the background when writing pauses."""
        self._alive()
        self._background.written(messages)
        if self.vectors is not None:
            self.vectors.written(messages)

    def wait(self, timeout: float | None = None, progress: Progress = silent, *, embedding: bool = True) -> bool:
        """Until everything is indexed and (with `embedding`) embedded; `progress` tells of the latter, which is what
        takes long. → False when time was up first, or the index cannot be written, or the embedder fails.
        """
        self._alive()
        deadline = self._clock() + (_WAIT * 60 if timeout is None else timeout)
        while self._follower.lag(SEARCH_INDEXES) and (left := deadline - self._clock()) > 0:
            self._try_catching_up(min(left, 1.0), stop=lambda: self._clock() > deadline)
            if self._trouble:
                break
        if self._follower.lag(SEARCH_INDEXES):
            return False
        if self.vectors is None or not embedding:
            return True
        return self.vectors.wait(None if timeout is None else deadline - self._clock(), progress)

    def rebuild(self, progress: Progress = silent, embedding: Progress | None = silent) -> None:
        """Build the index from the transcript, in the caller's time. Searches go on with the old one. Then every
        vector is compared with its text, and made again where they differ; None: vectors are left as they are.
        """
        self._alive()
        self._follower.rebuild(_WAIT, progress)
        if self.vectors is not None and embedding is not None:
            self.vectors.rebuild(embedding)

    def verify(self) -> Verified:
        """Compare the index with the transcript, message by message; build it anew if they differ."""
        self._alive()
        return self._check(thorough=True)

    def status(self) -> IndexStatus:
        self._alive()
        state, lag = self._follower.state(), self._follower.lag(SEARCH_INDEXES)
        building = lag > 0 and self._follower.position(self._feed.position()) is None
        trouble = (self._files.obstacle() or self._trouble or self._background.trouble) if lag else ""
        building = building or self._follower.rebuilding
        vectors = self.vectors.state() if self.vectors is not None else VectorState()
        built = self._files.built()
        return IndexStatus(state.messages, lag, state.size, state.position, building, trouble, vectors, built)

    def drop(self) -> None:
        """Delete the stored index. The next search builds a new one."""
        self._alive()
        with self._files.hold(_WAIT):
            self._files.drop()
        if self.vectors is not None:
            self.vectors.drop()

    def close(self) -> None:
        """Stop indexing after the slice at hand, and let go of the files."""
        if self._process == os.getpid():  # a forked child has neither the thread nor the right to the files
            self._background.close(_CLOSE)
            if self.vectors is not None:
                self.vectors.close()
            self._files.close()

    def _asking(self, question: Callable[[], Answer]) -> Answer | None:
        """Ask the stored index. One that cannot answer is built anew, at once when that is quick."""
        for attempt in self._again, self._discard, self._again:
            try:
                return question()
            except (IndexUnusable, StoreBusy) as error:
                if not attempt(question, error):
                    break
        return None

    def _again(self, _: Callable[[], object], __: Exception) -> bool:
        """Perhaps the file was replaced at this very moment."""
        self._files.close(building=False)
        return True

    def _discard(self, question: Callable[[], object], failed: Exception) -> bool:
        """Delete an index that really cannot answer, and build another. → whether there is one now."""
        try:
            if not isinstance(failed, IndexMissing):  # or whoever builds one would be waited for
                with self._files.hold(SEARCH_WAITS):
                    try:
                        question()
                    except IndexUnusable:
                        self._files.drop(building=False)  # or no build would ever end while somebody searches
        except StoreBusy:
            return False
        except StoreError as error:
            self._trouble = str(error)
            return False
        return self.catch_up() == 0

    def _try_catching_up(self, wait: float, stop: Callable[[], bool] = lambda: False) -> None:
        try:
            self._follower.catch_up(wait, stop)
            self._trouble = ""
        except StoreBusy:
            pass
        except (IndexUnusable, StoreError) as error:
            self._trouble = str(error)

    def _check(self, *, thorough: bool) -> Verified:
        try:
            trouble = self._difference(thorough=thorough)
            if trouble and self._follower.lag(0):  # perhaps only the transcript changed meanwhile
                self._try_catching_up(_WAIT)
                with self._files.hold(_WAIT):
                    trouble = self._difference(thorough=thorough)
        except IndexUnusable as error:
            trouble = str(error)
        if trouble:
            self._follower.rebuild(_WAIT)
        return Verified(trouble, rebuilt=bool(trouble))

    def _difference(self, *, thorough: bool) -> str:
        trouble = self._files.current().check(self._follower.rows, thorough=thorough)
        if not trouble and self._follower.lag(0) == 0 and self._follower.state().messages != self._feed.message_count():
            return "counts differ"
        return trouble

    def _glance(self, stop: Callable[[], bool]) -> None:
        """A check that is over in a moment, for suspicions: most of them only mean that there was nothing to find."""
        if not stop() and self._follower.position(self._feed.position()) is not None:
            self._check(thorough=False)
