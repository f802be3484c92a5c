"""Keep the text index in step with the transcripts: prepare text, follow the change feed, rebuild, answer searches.

Nothing here can lose a message: the stored index is derived from the transcript, and is derived again when needed.
"""

from __future__ import annotations

import os
import re
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from herma.errors import StoreBusy, StoreError, checked
from herma.index import IndexAnswer, IndexMissing, IndexQuery, IndexUnusable, VectorState
from herma.index.file import IndexFiles, IndexRow, IndexState, IndexTables
from herma.index.postgres import ServerIndex, ServerTables
from herma.index.postings import PreparedQuery, PreparedTerm
from herma.index.vectors import IndexWorker, Progress, Stop, Vectors, never, silent
from herma.text import LazyPattern
from herma.transcript.rows import ChangeFeed, FeedChange, Position, Searchable

if TYPE_CHECKING:
    from herma.app import Herma
    from herma.store.postgres import PostgresDatabase


# ── text → words: pure, linear, and the same for messages and for queries ──
#
# The index folds case and diacritics and stems (FTS5: `porter unicode61`). The rest is done here:
#
#     東京都庁             東京 京都 都庁 庁        scripts without spaces: pairs of characters, the last one alone
#     getCompressionTip    get Compression Tip     identifiers: their parts, in place
#                          + getcompressiontip     … and as one name, however they are joined
#     C#  C++  .NET        c c net + csharp cplusplus dotnet
#
# Text and names are kept apart, so that a phrase is found even if it contains identifiers.

LONGEST_WORD = 128
"""A longer run of letters and digits is cut: people do not type it, and it is not language."""
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
_RUN = LazyPattern(f"[{_PAIRED}]+")
_RUN_AT_END = LazyPattern(f"[{_PAIRED}]+\\Z")
_UNSTORABLE = LazyPattern("[\x00\ud800-\udfff]")
_TOO_LONG = LazyPattern(rf"(\w{{{LONGEST_WORD}}})\w+")
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
_SIGNED = LazyPattern(r"(?<![A-Za-z0-9_])(?:([A-Za-z])(#|\+\+)(?![#+])|(\.)net(?![A-Za-z0-9_]))", re.IGNORECASE)
_SIGNS = {"#": "sharp", "++": "plusplus"}


class Prepared(NamedTuple):
    """Text as the index takes it, and the names of the identifiers in it, each once, in order."""

    text: str
    names: tuple[str, ...]


def prepare(text: str) -> Prepared:
    """Prepare the text of a message, or of a query."""
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
    """Normalize characters, drop what cannot be stored, cut endless words, and make pairs in scripts without spaces."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _UNSTORABLE.sub(" ", text))
        text = _RUN.sub(lambda match: _pairs(match[0]), text)
    elif "\0" in text:
        text = text.replace("\0", " ")
    if len(text) > LONGEST_WORD and max(map(len, text.split()), default=0) > LONGEST_WORD:
        text = _TOO_LONG.sub(r"\1", text)
    return text


def sought(text: str) -> tuple[str, bool]:
    """Prepare text of a query that may be followed by more. → its words, and whether the last is only a beginning."""
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
    """Return the parts to look for in a word of a script without spaces, which may be a sentence: its pairs of
    characters, and what stands between them. () for other words.
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
    """Yield the names of `C#`, `C++` and `.NET`."""
    if "#" in text or "++" in text or ".n" in text or ".N" in text:
        for match in _SIGNED.finditer(text):
            letter, sign, dot = match.groups()
            yield "dotnet" if dot else letter.lower() + _SIGNS[sign]


@lru_cache(maxsize=16_384)
def _taken_apart(word: str) -> tuple[str, str]:
    """Return the parts of an identifier with spaces between them, and its name: the parts joined."""
    parts = [piece for part in _JOINT.split(word) for piece in _pieces(part)]
    name = _JOINT.sub("", word).lower()
    return " ".join(parts), name if len(parts) > 1 and len(name) <= LONGEST_NAME else ""


def _pieces(part: str) -> list[str]:
    turns = _TURN.split(part)
    return [piece for turn in turns for piece in _CAMEL.split(turn)] if len(turns) <= MOST_TURNS else [part]


# ── following the change feed in slices, and building a new index beside the old one ──

SLICE = 0.005
"""Seconds for which the background holds the lock."""
MOST_INDEXED = 4_000_000
"""Characters of one message that are indexed; the rest of a longer one is stored, but not found by its words."""
BATCH = 256
"""Messages at a time while a caller waits for them."""
_LOOK_AGAIN = 0.02
_PAUSE = 0.002
"""Seconds for which the lock is free between slices."""


class Follower:
    """Write the stored index. There is one in a process, and it works while it holds the lock of the files."""

    def __init__(self, files: IndexFiles | ServerIndex, feed: ChangeFeed) -> None:
        self._files = files
        self._feed = feed
        self._part: tuple[IndexTables | ServerTables | None, int, int] = (None, 0, 0)
        self.rebuilding = False
        self._built = 0

    def state(self) -> IndexState:
        """Return the state of the index in use; without a position if there is none to continue."""
        try:
            return self._files.current().state()
        except IndexUnusable:
            return IndexState()

    def position(self, end: Position) -> Position | None:
        """Return the position of the index in use; None if it has to be built."""
        try:
            reached = self._files.current().position()
        except IndexUnusable:
            return None
        known = reached is not None and (reached.store_id, reached.epoch) == (end.store_id, end.epoch)
        return reached if known and reached is not None and reached.seq <= end.seq else None

    def lag(self, at_most: int) -> int:
        """Return how many messages came or went since; exact up to `at_most`."""
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
        """Return the newest messages that are not indexed, newest first."""
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

    def catch_up(self, wait: float, stop: Stop = never) -> None:
        """Index everything that is new in the caller's time, or wait for another process that does it.

        `StoreBusy` if that takes longer than `wait`.
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
        """Index everything that is new and do the upkeep, in turns, holding the lock for one slice at a time."""
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

    def rebuild(self, wait: float, progress: Progress = silent) -> None:
        """Build an index beside the one in use and put it in its place."""
        self.rebuilding = True
        try:
            with self._files.hold(wait):
                self._files.building(fresh=True)
            total, finished = self._feed.message_count(), False
            while not finished:
                with self._files.hold(wait):
                    finished = self._build(BATCH)
                progress(total if finished else min(total, self._built), total)
                time.sleep(_PAUSE)
        finally:
            self.rebuilding = False

    def rows(self, message_ids: Sequence[int]) -> Sequence[IndexRow]:
        """Return these messages as the index stores them."""
        return [_row(message) for message in self._feed.searchable(message_ids)]

    def _turn(self, batch: int, *, upkeep: bool) -> bool:
        """Do one step. → whether there is more to do."""
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

    def _step(self, tables: IndexTables | ServerTables, reached: Position, batch: int) -> Position:
        """Index about `batch` messages. A larger change is indexed in parts; the position moves after the last one."""
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

    def _begun(self, tables: IndexTables | ServerTables, change: FeedChange) -> int:
        """Return how many messages of a large change are indexed already, here or by a process that was interrupted."""
        if self._part[0] is tables and self._part[1] == change.seq:
            return self._part[2]
        ids, done = change.message_ids, 0
        while change.kind == "append" and len(ids) > done + BATCH:
            if len(tables.digests(ids[done : done + BATCH])) < BATCH:
                break
            done += BATCH
        return done

    def _tidy(self, tables: IndexTables | ServerTables) -> bool:
        deadline = time.monotonic() + SLICE / 2
        while tables.tidy():
            if time.monotonic() > deadline:
                return True
        return False

    def _build(self, batch: int) -> bool:
        """Do one step towards a new index. → whether it is in its place."""
        try:
            finished = self._fill(self._files.building(fresh=False), batch)
        except IndexUnusable:
            self._files.building(fresh=True)
            return False
        if finished:
            self._files.publish()
        return finished

    def _fill(self, tables: IndexTables | ServerTables, batch: int) -> bool:
        """Add messages to the new index. → whether it has all."""
        end, state = self._feed.position(), tables.state()
        reached = state.position or Position(end.store_id, end.epoch, 0)
        if (reached.store_id, reached.epoch) != (end.store_id, end.epoch) or reached.seq > end.seq:
            tables, reached = self._files.building(fresh=True), Position(end.store_id, end.epoch, 0)
        if reached.seq < end.seq:
            reached = self._step(tables, reached, batch)
        elif state.position is None:
            tables.put((), (), reached)
        self._built = state.messages
        return not self._tidy(tables) and reached.seq == end.seq


def _row(message: Searchable) -> IndexRow:
    prepared = prepare(message.text[:MOST_INDEXED])
    digest = blake2b(message.text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return IndexRow(message.id, prepared.text, " ".join(prepared.names), int.from_bytes(digest, "big", signed=True))


# ── `IndexQuery` → `PreparedQuery` ──

_PARTS, _WHOLE = 32, 128
"""Parts of a phrase that are compared, and of all runs of Chinese, Japanese or Korean that are looked for as a whole
beside their pairs: FTS5 compares each part with every place of the part before it.
"""
_SIGNED_WORD = re.compile(r"^[A-Za-z](?:#|\+\+)|^\.net", re.IGNORECASE)


def prepare_query(terms: IndexQuery) -> PreparedQuery:
    """Prepare every alternative as messages are. Those without a letter or digit fall away."""
    return PreparedQuery(
        any_of=tuple(dict.fromkeys(_loosened(terms.any_of, terms.prefix))),
        all_of=tuple(tuple(_exact(one, terms.prefix) for one in group) for group in terms.all_of),
        none_of=tuple(_exact(one, terms.prefix) for one in terms.none_of),
    )


def _loosened(alternatives: Iterable[Sequence[str]], begun: frozenset[str]) -> Iterable[PreparedTerm]:
    """Yield each alternative, and the parts of a word without spaces."""
    room = _WHOLE
    for words in alternatives:
        parts = loosened(words[0]) if len(words) == 1 else ()
        room -= min(len(words[0]), _PARTS) if parts else 0
        if room >= 0 or not parts:
            yield _exact(words, begun)
        for part in parts:
            yield _exact((part,), begun)


def _exact(words: Sequence[str], begun: frozenset[str]) -> PreparedTerm:
    text, open_end = sought(" ".join(words))
    prefix = open_end or (bool(words) and words[-1] in begun)
    if len(parts := text.split()) > _PARTS:
        text, prefix = " ".join(parts[:_PARTS]), False
    names = prepare(words[0]).names if len(words) == 1 else ()
    if len(names) == 1 and _SIGNED_WORD.search(words[0]):
        return PreparedTerm(names[0])  # C# is not every c
    return PreparedTerm(text, names[0] if len(names) == 1 else "", prefix)


# ── the text index ──

Answer = TypeVar("Answer")

SEARCH_INDEXES = 2_000
"""Messages that a search indexes itself before it answers."""
SEARCH_WAITS = 0.4
"""Seconds after which it answers from what is indexed."""
CHECK_PAUSE = 60.0
WAIT = 60.0
_CLOSE = 2.0


class IndexStatus(NamedTuple):
    """The index: `lag` messages are missing. `trouble` is why it cannot be brought up to date, or ""; `built` is how
    many messages the index has that is being built; `cut` is how many are longer than what is indexed of them.
    """

    messages: int
    lag: int
    size: int
    position: Position | None
    rebuilding: bool
    trouble: str
    vectors: VectorState
    built: int
    cut: int


class IndexVerified(NamedTuple):
    """The problem that a check found, or "", and whether the index was built again because of it."""

    trouble: str
    rebuilt: bool


def _files_of(app: Herma) -> IndexFiles | ServerIndex:
    """Return where the index is kept: in the home, or on the server that has the rows."""
    if not app.settings.store.url:
        return IndexFiles(app.home)
    return ServerIndex(cast("PostgresDatabase", app.db))


@checked("parts")
class Index:
    """Implement `TextIndex`: follow the change feed, answer searches, rebuild when needed."""

    def __init__(
        self, app: Herma, *, feed: ChangeFeed | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.vectors = Vectors(app, feed=feed)
        self._ensure_open = app.ensure_open
        self._files = _files_of(app)
        self._feed = feed or ChangeFeed(app.db)
        self._clock = clock
        self._process = os.getpid()
        self._follower = Follower(self._files, self._feed)
        self._background = IndexWorker(app.worker.lane("index"), self._follower.in_slices, self._check_quickly)
        self._checked: float | None = None
        self._trouble = ""

    # ── for searches ──

    def find(self, terms: IndexQuery, limit: int) -> IndexAnswer:
        """Return the best `limit` messages for these terms among what is indexed."""
        self._ensure_open()
        wanted = prepare_query(terms)
        found = self._asking(lambda: self._files.current().find(wanted, limit))
        if found is None:
            notes = (self._why_none(),) if self._feed.position().seq else ()
            return IndexAnswer((), 0, notes)
        if self._trouble:
            return found._replace(notes=(*found.notes, f"The index cannot be brought up to date: {self._trouble}"))
        return found

    def _why_none(self) -> str:
        if trouble := self._trouble or self._background.trouble:
            return f"There is no index, and it cannot be built: {trouble}"
        built = self._files.built()
        far = f": {built:,} of {self._feed.message_count():,} messages so far" if built else ""
        return f"The index is being built{far}."

    def vocabulary(self, parts: Sequence[str], beginnings: Sequence[str] = (), limit: int = 20) -> Sequence[str]:
        """Return words (stems) that contain one of `parts` or begin with one of `beginnings`, commonest first.

        Only the newest part of the index is read.
        """
        self._ensure_open()
        inside, first = (
            [part for raw in given if (part := clean(raw).strip().lower())] for given in (parts, beginnings)
        )
        if not inside and not first:
            return ()
        return self._asking(lambda: self._files.current().vocabulary(inside, first, limit)) or ()

    def catch_up(self, at_most: int = SEARCH_INDEXES) -> int:
        """Index what is new if that is at most so many messages. → how many messages are still missing."""
        self._ensure_open()
        lag = self._follower.lag(at_most)
        if lag == 0:
            return 0
        self.vectors.catch_up()
        if lag <= at_most:
            deadline = self._clock() + SEARCH_WAITS
            self._try_catching_up(SEARCH_WAITS, stop=lambda: self._clock() > deadline)
            lag = self._follower.lag(at_most)
        if lag:
            self._background.begin()
        return lag

    def missing(self, limit: int = 500) -> Sequence[int]:
        """Return the newest messages that are not indexed yet, newest first."""
        self._ensure_open()
        return self._follower.newest_missing(limit)

    def schedule_check(self) -> None:
        """Check the index in the background, at most once a minute, because a result did not look right."""
        now = self._clock()
        if self._checked is None or now - self._checked >= CHECK_PAUSE:
            self._checked = now
            self._background.begin(check=True)

    # ── for writers and for people ──

    def written(self, messages: int = 1) -> None:
        """Note that messages were committed: they are indexed in the background when writing pauses."""
        self._ensure_open()
        self._background.written(messages)
        self.vectors.written(messages)

    def wait(self, timeout: float | None = None, progress: Progress = silent, *, embedding: bool = True) -> bool:
        """Wait until everything is indexed and (with `embedding`) embedded; `progress` reports the embedding.

        → False if time was up first, the index cannot be written, or the embedder fails.
        """
        self._ensure_open()
        deadline = self._clock() + (WAIT * 60 if timeout is None else timeout)
        while self._follower.lag(SEARCH_INDEXES) and (left := deadline - self._clock()) > 0:
            self._try_catching_up(min(left, 1.0), stop=lambda: self._clock() > deadline)
            if self._trouble:
                break
        if self._follower.lag(SEARCH_INDEXES):
            return False
        if not embedding:
            return True
        return self.vectors.wait(None if timeout is None else deadline - self._clock(), progress)

    def rebuild(self, progress: Progress = silent, embedding: Progress | None = silent) -> None:
        """Build the index again in the caller's time; searches go on with the old one. Then compare every vector with
        its text, and make those that differ again; None: leave the vectors as they are.
        """
        self._ensure_open()
        self._follower.rebuild(WAIT, progress)
        if embedding is not None:
            self.vectors.rebuild(embedding)

    def verify(self) -> IndexVerified:
        """Compare the index with the transcript, message by message; build it again if they differ."""
        self._ensure_open()
        return self._check(thorough=True)

    def status(self) -> IndexStatus:
        self._ensure_open()
        state, lag = self._follower.state(), self._follower.lag(SEARCH_INDEXES)
        building = lag > 0 and self._follower.position(self._feed.position()) is None
        trouble = (self._files.obstacle() or self._trouble or self._background.trouble) if lag else ""
        building = building or self._follower.rebuilding
        vectors, built, cut = self.vectors.state(), self._files.built(), self._feed.longer_than(MOST_INDEXED)
        return IndexStatus(state.messages, lag, state.size, state.position, building, trouble, vectors, built, cut)

    def drop(self) -> None:
        """Delete the stored index. The next search builds a new one."""
        self._ensure_open()
        with self._files.hold(WAIT):
            self._files.drop()
        self.vectors.drop()

    def close(self) -> None:
        """Stop indexing after the slice that is running, and close the files."""
        if self._process == os.getpid():  # a forked child has neither the thread nor the right to the files
            self._background.close(_CLOSE)
            self.vectors.close()
            self._files.close()

    def _asking(self, question: Callable[[], Answer]) -> Answer | None:
        """Ask the stored index. One that cannot answer is built again, at once if that is quick."""
        for attempt in self._again, self._discard, self._again:
            try:
                return question()
            except (IndexUnusable, StoreBusy) as error:
                if not attempt(question, error):
                    break
        return None

    def _again(self, _: Callable[[], object], __: Exception) -> bool:
        """Try once more: the file may have been replaced at this moment."""
        self._files.close(building=False)
        return True

    def _discard(self, question: Callable[[], object], failed: Exception) -> bool:
        """Delete an index that cannot answer, and build another. → whether there is one now."""
        try:
            if not isinstance(failed, IndexMissing):  # a missing one needs no lock, which its builder may hold
                with self._files.hold(SEARCH_WAITS):
                    try:
                        question()
                    except IndexUnusable:
                        self._files.drop(building=False)  # not the new one, or no build would end while searches come
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

    def _check(self, *, thorough: bool) -> IndexVerified:
        try:
            trouble = self._difference(thorough=thorough)
            if trouble and self._follower.lag(0):  # the transcript may have changed meanwhile
                self._try_catching_up(WAIT)
                with self._files.hold(WAIT):
                    trouble = self._difference(thorough=thorough)
        except IndexUnusable as error:
            trouble = str(error)
        if trouble:
            self._follower.rebuild(WAIT)
        return IndexVerified(trouble, rebuilt=bool(trouble))

    def _difference(self, *, thorough: bool) -> str:
        trouble = self._files.current().check(self._follower.rows, thorough=thorough)
        if not trouble and self._follower.lag(0) == 0 and self._follower.state().messages != self._feed.message_count():
            return "counts differ"
        return trouble

    def _check_quickly(self, stop: Callable[[], bool]) -> None:
        """Check a sample, which takes a moment: mostly there was nothing to find."""
        if not stop() and self._follower.position(self._feed.position()) is not None:
            self._check(thorough=False)
