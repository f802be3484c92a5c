"""Embed what is new; keep, verify, drop."""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import apsw

from herma.errors import HermaError, SpendRefused, StoreBusy, StoreError
from herma.index.postings import Connections, fetch, guarded, identity, meta
from herma.index.sync import Background, Progress, silent
from herma.index.types import (
    MESSAGE,
    SESSION,
    Embeddable,
    Embeddables,
    EmbedderTrouble,
    IndexUnusable,
    Loaded,
    ModelRow,
    Nearest,
    Outline,
    PassageSource,
    Reach,
    Said,
    Spot,
    Step,
    VectorFile,
    VectorReader,
    VectorRow,
    VectorState,
    VectorTables,
    VectorUpkeep,
)
from herma.memory.entries import Place
from herma.models.embedder import Embedder
from herma.store.database import Database, queries
from herma.store.files import exclusive
from herma.transcript.messages import searchable_text
from herma.transcript.rows import ChangeFeed, FeedChange, Position, texts

if TYPE_CHECKING:
    from herma.index.nearest import Nearness
    from herma.index.types import Vector
    from herma.models.embedder import Vectors as EmbedderVectors


# ---------- store.sqlite.passages
#
# What the vector index reads of `herma.db`: implements `PassageSource`.


class SqlitePassages:
    """Prose of users and assistants only. What tools were given and what they said is found by its words."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = queries("passages")

    def said(self, message_ids: Sequence[int], at_most: int, before: int) -> list[Said]:
        def work(connection: apsw.Connection) -> list[Said]:
            rows: list[Any] = connection.execute(self._sql["said"], {"ids": json.dumps([*message_ids])}).fetchall()
            earlier = json.dumps([row[5] for row in rows if row[5] is not None])
            context: list[Any] = []
            if before:
                context = connection.execute(self._sql["contents"], {"ids": earlier}).fetchall()
            stored = [value for row in rows for value in row[3:5]] + [value for row in context for value in row[1:3]]
            whole = texts(connection, stored, base64=False)
            prose = {id_: _prose(whole(content), whole(parts)) for id_, content, parts in context}
            found = []
            for id_, session, role, content, parts, previous in rows:
                text = _prose(whole(content), whole(parts))[:at_most]
                if text.strip():
                    found.append(Said(id_, session, role, text, prose.get(previous, "")[-before:] if before else ""))
            return found

        return self._db.read(work, [])

    def outlines(self, session_ids: Sequence[str], messages: int, at_most: int) -> list[Outline]:
        def work(connection: apsw.Connection) -> list[Outline]:
            def edge(which: str, session: int) -> list[tuple[str, str]]:
                rows: list[Any] = connection.execute(
                    self._sql[which], {"session": session, "limit": messages}
                ).fetchall()
                whole = texts(connection, [value for row in rows for value in row[1:]], base64=False)
                said = [(role, _prose(whole(content), whole(parts))[:at_most]) for role, content, parts in rows]
                return [(role, text) for role, text in said if text.strip()]

            rows: list[Any] = connection.execute(self._sql["sessions"], {"ids": json.dumps([*session_ids])}).fetchall()
            return [
                Outline(id_, title, tuple(edge("first", key)), tuple(reversed(edge("last", key))))
                for key, id_, title in rows
            ]

        return self._db.read(work, [])

    def places(self) -> list[Place]:
        """Curated documents that were ever written to."""
        return [Place(*row) for row in self._db.rows(self._sql["places"])]

    def titles(self) -> dict[str, str]:
        return dict(self._db.rows(self._sql["titles"]))


def _prose(content: str | None, parts: str | None) -> str:
    return searchable_text(content if parts is None else json.loads(parts), (), None)


# ---------- index.embedding
#
# An embedder as a guest: what it does wrong is caught here, counted and told; then it is left alone for a while.

Answer = TypeVar("Answer")

FIRST_REST, LONGEST_REST = 1.0, 300.0
_PROBE = "Is anybody there?"
_QUERIES_KEPT = 64
_EMBEDDING_ASK_AGAIN = 60.0
"""Seconds until it is looked again whether there is room for more today."""


class Guest:
    """One embedder. Every method answers None where it fails or rests; `trouble` says why."""

    def __init__(
        self,
        embedder: Embedder,
        *,
        clock: Callable[[], float] = time.time,
        tell: Callable[[EmbedderTrouble], None] = lambda _: None,
        known: EmbedderTrouble | None = None,
    ) -> None:
        self._embedder = embedder
        self._clock = clock
        self._tell = tell
        self._mutex = threading.Lock()
        self._asked: dict[str, Vector] = {}
        self.name = embedder.name
        self.trouble = known if known is not None and known.model == self.name else EmbedderTrouble()
        self._dimension = 0
        self._spent = (0.0, "")

    @property
    def is_multilingual(self) -> bool:
        return bool(self._embedder.is_multilingual)

    @property
    def resting(self) -> bool:
        return self._clock() < self.trouble.retry_at

    @property
    def waiting(self) -> str:
        """Why no texts are embedded for now, though nothing is wrong with it; questions are."""
        until, why = self._spent
        return why if self._clock() < until else ""

    @property
    def note(self) -> str:
        """What is wrong, in one line for people."""
        return f"the embedder failed ({self.trouble.message})" if self.trouble.message else ""

    def made(self, model: ModelRow) -> bool:
        """Whether these are its vectors, as far as it is known how long its own are."""
        return model.name == self.name and self._dimension in (0, model.dimension)

    def dimension(self) -> int:
        """0 when it does not say. Where it is known, asking costs nothing."""
        if not self._dimension and not self.resting:
            found = self._asking(lambda: self._embedder.dimension)
            self._dimension = found or 0
        return self._dimension

    def query(self, text: str) -> Vector | None:
        with self._mutex:
            if text in self._asked:
                return self._asked[text]
        found = None if self.resting else self._asking(lambda: self._rows(self._embedder.queries([text]), 1))
        if found is None:
            return None
        with self._mutex:
            while len(self._asked) >= _QUERIES_KEPT:
                del self._asked[next(iter(self._asked))]
            self._asked[text] = found[0]
        row: Vector = found[0]
        return row

    def passages(self, texts: Sequence[str]) -> list[bytes] | None:
        """One vector in 8-bit numbers for each text; empty for a text that it refuses though it takes others."""
        if self.resting or self.waiting:
            return None
        found = self._asking(lambda: self._rows(self._embedder.passages(texts), len(texts)), quiet=True)
        if found is not None:
            return packed(found)
        if self.waiting:
            return None
        failed = self.trouble
        if self._asking(lambda: self._rows(self._embedder.passages([_PROBE]), 1)) is None:
            return None
        if len(texts) == 1:
            self._remember(EmbedderTrouble())
            return [b""]
        singly: list[bytes] = []
        for text in texts:
            one = self.passages([text])
            if one is None:
                return None
            singly += one
        if not any(singly):
            self._remember(self._next(failed.message))  # it takes nothing but the probe
            return None
        return singly

    def _asking(self, question: Callable[[], Answer], *, quiet: bool = False) -> Answer | None:
        """Ask. `quiet`: a failure is remembered, but not yet held against it."""
        try:
            answer = question()
        except SpendRefused as refused:  # no failure: tomorrow, or with more room, it goes on
            self._spent = (self._clock() + _EMBEDDING_ASK_AGAIN, str(refused))
            return None
        except Exception as error:  # noqa: BLE001  a guest may raise anything
            message = " ".join(str(error).split())[:200] or type(error).__name__
            if quiet:
                self.trouble = EmbedderTrouble(self.name, message, self.trouble.failures, self.trouble.retry_at)
            else:
                self._remember(self._next(message))
            return None
        if self.trouble != EmbedderTrouble():
            self._remember(EmbedderTrouble())
        return answer

    def _next(self, message: str) -> EmbedderTrouble:
        failures = self.trouble.failures + 1
        rest = min(LONGEST_REST, FIRST_REST * 2.0 ** min(failures - 1, 20))
        return EmbedderTrouble(self.name, message, failures, self._clock() + rest)

    def _remember(self, trouble: EmbedderTrouble) -> None:
        self.trouble = trouble
        self._tell(trouble)

    def _rows(self, given: EmbedderVectors, count: int) -> EmbedderVectors:
        import numpy as np

        found = np.asarray(given, dtype=np.float32)
        if found.ndim != 2 or found.shape[0] != count or (self._dimension and found.shape[1] != self._dimension):
            raise ValueError(f"{count} vectors of {self._dimension} numbers were expected, not {found.shape}")
        if not np.isfinite(found).all():
            raise ValueError("a vector has numbers that are none")
        return found


def packed(vectors: EmbedderVectors) -> list[bytes]:
    """Each vector scaled so that its largest number is 127. Only the direction is kept: that is all a cosine needs."""
    import numpy as np

    largest = np.abs(vectors).max(axis=1, keepdims=True)
    largest[largest == 0] = 1.0
    rows = np.rint(vectors / largest * 127.0).astype(np.int8)
    return [row.tobytes() for row in rows]


# ---------- index.passages
#
# What is embedded of a text: pure, bounded, and the same whenever it is asked for, so that a digest tells what is new.
#
# A message stands with the end of what was said before it: an answer is about its question, and "yes, that one" is
# about nothing by itself. It never stands with what follows: then every new message would change the one before. A long
# message is cut into parts at paragraphs, lines, sentences or words, the first that divides it; what comes after the
# last part is found by its words. Tool calls and results are not embedded at all: they are most of the bytes and little
# of the meaning, and what mattered in them is in the reply.

PART = 1_200
"""Characters of a part: models for retrieval read 512 tokens, and say most about the first 300."""
MOST_PARTS = 8
BEFORE = 160
"""Characters of what was said before."""
EDGE = 2
"""Messages at either end of a session that are in its gist."""
EDGE_TEXT = 320
_LEAST = PART // 2
_BREAKS = ("\n\n", "\n", ". ", "。", "! ", "? ", "; ", ", ", "、", " ")
RECIPE = "1"
"""Changes with everything here that changes what is embedded of the same text; then everything is compared anew."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A text to be embedded, and what its vector will belong to."""

    spot: Spot
    text: str

    @property
    def digest(self) -> int:
        found = blake2b(self.text.encode("utf-8", "surrogatepass"), digest_size=8, key=RECIPE.encode()).digest()
        return int.from_bytes(found, "big", signed=True)


def of_message(said: Said) -> list[Passage]:
    before = _squeezed(said.before)
    if len(before) >= BEFORE:
        before = before.partition(" ")[2] or before  # the first word was cut
    lead = f"{before}\n" if before else ""
    return [
        Passage(Spot(MESSAGE, said.id, number, said.session_id), (lead if number == 0 else "") + part)
        for number, part in enumerate(parts(said.text))
    ]


def of_session(outline: Outline) -> list[Passage]:
    """Its title, how it began and how it ended. Nothing when nobody said anything."""
    first = [_squeezed(text)[:EDGE_TEXT] for _, text in outline.first]
    last = [_squeezed(text)[:EDGE_TEXT] for _, text in outline.last]
    said = list(dict.fromkeys((*first, *last)))
    if not said:
        return []
    text = "\n".join([line for line in (_squeezed(outline.title), *said) if line])
    return [Passage(Spot(SESSION, outline.session_id, 0, outline.session_id), text)]


def of_text(kind: str, given: Embeddable) -> list[Passage]:
    return [Passage(Spot(kind, given.key, n, "", given.scope), part) for n, part in enumerate(parts(given.text))]


def readable(text: str, *, is_multilingual: bool) -> bool:
    """Whether a model can make anything of it: one for English reads no other script, and all its vectors of such
    text are near each other.
    """
    if is_multilingual or text.isascii():
        return True
    letters = [character for character in text if character.isalpha()]
    return 2 * sum(character < "\u0250" for character in letters) >= len(letters)


def of_title(title: str) -> int:
    """What a title is remembered by; never 0."""
    return Passage(Spot(SESSION, ""), title).digest or 1


def parts(text: str) -> list[str]:
    """At most so many pieces of at most so many characters each; white space at the ends goes."""
    found: list[str] = []
    for part in _cut(text):
        if len(found) == MOST_PARTS:
            break
        if part.strip():
            found.append(part.strip())
    return found


def _cut(text: str) -> Iterator[str]:
    at = 0
    while len(text) - at > PART:
        end = at + PART
        for mark in _BREAKS:
            found = text.rfind(mark, at + _LEAST, end)
            if found >= 0:
                end = found + len(mark)
                break
        yield text[at:end]
        at = end
    yield text[at:]


def _squeezed(text: str) -> str:
    return " ".join(text.split())


def at_most() -> int:
    """As much of a message as is ever looked at."""
    return PART * (MOST_PARTS + 1)


def changed(
    passages: Sequence[Passage], stored: Mapping[tuple[int | str, int], int]
) -> tuple[list[Passage], list[int | str], list[int | str]]:
    """Compare with what is stored. → what is to be embedded, keys that are as they should be, keys to be replaced.

    A key is replaced as a whole, so that it never has parts of two texts.
    """
    wanted: dict[int | str, dict[int, int]] = {}
    for passage in passages:
        wanted.setdefault(passage.spot.key, {})[passage.spot.part] = passage.digest
    have: dict[int | str, dict[int, int]] = {}
    for (key, part), digest in stored.items():
        have.setdefault(key, {})[part] = digest
    met = [key for key, digests in wanted.items() if have.get(key) == digests]
    same = set(met)
    stale = [key for key in have if key not in same]
    return [passage for passage in passages if passage.spot.key not in same], met, stale


# ---------- index.vectors_walk
#
# Embedding what is new, step by step: messages (new ones first, then back to the oldest), gists, registered texts.
#
# Every step is one transaction that moves the reach with the vectors, so that whoever comes after a crash goes on where
# it was. Purged messages go at once, whether or not there is an embedder.

Stop = Callable[[], bool]

CHANGES = 1_024
"""Changes of the feed that are read at a time."""
TEXTS = 32
"""Texts that an embedder is given at a time."""
GIST_AFTER = 8
"""Messages after which the gist of a session is made again in the background; whoever waits gets it after one."""
_RECIPE = "recipe"
"""Under this name a model remembers how its texts were made."""
KEPT_UNUSED = 3_600.0
"""Seconds for which vectors of another model stay after their last use, once this one has everything: another process
may still use them, and two that want different models must not undo each other's work."""


class Kept(VectorTables, VectorUpkeep, Protocol):
    """The stored vectors, for reading and for writing."""


class EmbedderResting(Exception):
    """The embedder failed and is left alone; nothing of this step was kept."""


class Walk:
    """The only one in this process who adds vectors. Whoever calls `step` holds the tables."""

    def __init__(
        self,
        tables: Kept,
        feed: ChangeFeed,
        source: PassageSource,
        clock: Callable[[], float],
        sources: Callable[[], Sequence[Embeddables]] = tuple,
    ) -> None:
        self._tables = tables
        self._feed = feed
        self._source = source
        self._clock = clock
        self._made: list[Embeddables] | None = None
        self._registered: list[Embeddables] = []
        self._make = sources
        self._renamed: list[str] | None = None

    def register(self, source: Embeddables) -> None:
        self._registered.append(source)

    def _sources(self) -> list[Embeddables]:
        if self._made is None:
            self._made = list(self._make())
        return [*self._made, *self._registered]

    def anything(self) -> bool:
        """Whether there is anything to embed at all; if not, no file is made."""
        return bool(self._feed.position().seq) or any(True for source in self._sources() for _ in source.texts())

    def notice(self, *, create: bool) -> VectorFile | None:
        """Read the feed to its end: what was purged goes. → the file, if there is one now."""
        end = self._feed.position()
        try:
            file = self._tables.file()
        except IndexUnusable:
            if not create:
                return None
            self._tables.drop()
            self._tables.notice(0, Position(end.store_id, end.epoch, 0), 0, ())
            file = self._tables.file()
        here = (file.noticed.store_id, file.noticed.epoch) == (end.store_id, end.epoch)
        if here and file.noticed.seq == end.seq:
            return file
        if here and file.noticed.seq > end.seq:  # another history of the same store
            self._tables.drop()
            return self.notice(create=create)
        since = file.noticed.seq if here else 0
        while since < end.seq or not here:
            changes = self._feed.since(since, CHANGES)
            reached = changes[-1].seq if changes else end.seq
            appended = sum(len(change.message_ids) for change in changes if change.kind == "append")
            gone = [number for change in changes if change.kind == "purge" for number in change.message_ids]
            self._tables.notice(since, Position(end.store_id, end.epoch, reached), appended, gone)
            since, here = reached, True
        return self._tables.file()

    def begin(self) -> None:
        """Look for sessions whose title changed, or that are gone, at the next step that has time for it."""
        self._renamed = None

    def step(self, guest: Guest, batch: int, stop: Stop, *, gist_after: int = 1) -> bool:
        """Do a little. → whether there is more to do. Raises `EmbedderResting`."""
        file = self.notice(create=True)
        if file is None:
            return False
        dimension = guest.dimension()
        if not dimension:
            raise EmbedderResting
        model = self._tables.model(guest.name, dimension, self._clock())
        if self._another_recipe(model):
            return True
        if (
            self._messages(guest, model, file.noticed.seq, batch)
            or self._gists(guest, model, self._tables.gists(model, gist_after, batch))
            or self._gists(guest, model, self._renamed_sessions(model, batch))
        ):
            return True
        sources = self._sources()
        if any(self._texts(guest, model, source, stop) for source in sources):
            return True
        kinds = [MESSAGE, SESSION, *(source.kind for source in sources)]
        return self._tables.sweep(model, kinds, self._clock() - KEPT_UNUSED)

    # ── the steps ──

    def _another_recipe(self, model: ModelRow) -> bool:
        """Whether it was embedded by another version, which made other texts of the same messages."""
        if model.versions.get(_RECIPE) == RECIPE:
            return False
        begun = model.reach.walked > 0
        if begun:
            self._tables.check()
        self._tables.put(model, Step(kind=_RECIPE, version=RECIPE))
        return begun

    def _messages(self, guest: Guest, model: ModelRow, end: int, batch: int) -> bool:
        reach = model.reach
        if reach.high < end:
            ids, reach = ahead(reach, self._feed.since(reach.high, CHANGES), batch)
        elif reach.low > 0:
            ids, reach = behind(reach, self._feed.since(max(0, reach.low - CHANGES), CHANGES), batch)
        if reach == model.reach:
            return False
        said = self._source.said(ids, at_most(), BEFORE) if ids else ()
        wanted = _readable(guest, [passage for one in said for passage in of_message(one)])
        new, met, stale = changed(wanted, self._tables.digests(model, MESSAGE, ids))
        rows = self._embedded(guest, model, new)
        touched = Counter(one.session_id for one in said)
        self._tables.put(model, Step(rows, MESSAGE, met, stale, reach=reach, touched=touched))
        return True

    def _gists(self, guest: Guest, model: ModelRow, sessions: Sequence[str]) -> bool:
        if not sessions:
            return False
        outlines = self._source.outlines(sessions, EDGE, EDGE_TEXT * 2)
        wanted = _readable(guest, [passage for outline in outlines for passage in of_session(outline)])
        new, met, stale = changed(wanted, self._tables.digests(model, SESSION, sessions))
        rows = self._embedded(guest, model, new)
        kept = {passage.spot.key for passage in wanted}
        outlined = [(one.session_id, of_title(one.title)) for one in outlines if one.session_id in kept]
        ended = [session for session in sessions if session not in kept]
        self._tables.put(model, Step(rows, SESSION, met, stale, outlined=outlined, ended=ended))
        return True

    def _renamed_sessions(self, model: ModelRow, batch: int) -> list[str]:
        """Titles are in no feed, so they are compared: once per walk."""
        if self._renamed is None:
            titles = self._source.titles()
            self._renamed = [
                session
                for session, digest in self._tables.titles(model).items()
                if session not in titles or (digest and digest != of_title(titles[session]))
            ]
        taken, self._renamed = self._renamed[:batch], self._renamed[batch:]
        return taken

    def _texts(self, guest: Guest, model: ModelRow, source: Embeddables, stop: Stop) -> bool:
        """All texts of one kind; those that are embedded already cost no more than being read."""
        kind, version = source.kind, source.version()
        if model.versions.get(kind) == version:
            return False
        wanted = _readable(guest, [passage for one in source.texts() for passage in of_text(kind, one)])
        new, met, stale = changed(wanted, self._tables.digests(model, kind, None))
        by_key: dict[int | str, list[Passage]] = {}
        for passage in new:
            by_key.setdefault(passage.spot.key, []).append(passage)
        keys = list(by_key)
        for at in range(0, len(keys), TEXTS):
            some = keys[at : at + TEXTS]
            rows = self._embedded(guest, model, [passage for key in some for passage in by_key[key]])
            self._tables.put(model, Step(rows, kind, stale=some))
            if stop():
                return True
        gone = [key for key in stale if key not in by_key]
        self._tables.put(model, Step((), kind, met, gone, version=version))
        return True

    def _embedded(self, guest: Guest, model: ModelRow, passages: Sequence[Passage]) -> list[VectorRow]:
        """Vectors for these: those of texts that are stored already, and new ones."""
        if not passages:
            return []
        digests = [passage.digest for passage in passages]
        known = dict(self._tables.known(model, digests))
        if model.checking:  # what was refused once may be taken now
            known = {digest: vector for digest, vector in known.items() if vector}
        texts = {digest: one.text for digest, one in zip(digests, passages, strict=True) if digest not in known}
        missing = list(texts)
        for at in range(0, len(missing), TEXTS):
            some = missing[at : at + TEXTS]
            vectors = guest.passages([texts[digest] for digest in some])
            if vectors is None:
                raise EmbedderResting
            known.update(zip(some, vectors, strict=True))
        return [VectorRow(one.spot, digest, known[digest]) for one, digest in zip(passages, digests, strict=True)]


def _readable(guest: Guest, passages: Sequence[Passage]) -> list[Passage]:
    return [one for one in passages if readable(one.text, is_multilingual=guest.is_multilingual)]


def ahead(reach: Reach, changes: Sequence[FeedChange], batch: int) -> tuple[list[int], Reach]:
    """The next messages after what is reached, oldest first, and how far that is."""
    wanted: list[int] = []
    high, part = reach.high, reach.high_part
    for change in changes:
        if change.kind == "append":
            taken = change.message_ids[part : part + batch - len(wanted)]
            wanted += taken
            part += len(taken)
            if part < len(change.message_ids):
                break
        high, part = change.seq, 0
    return wanted, Reach(reach.low, high, reach.low_part, part, reach.walked + len(wanted))


def behind(reach: Reach, changes: Sequence[FeedChange], batch: int) -> tuple[list[int], Reach]:
    """The next messages before what is reached, newest first, and how far that is. `changes` has all that are less than
    `CHANGES` before it; numbers that no change has are passed over.
    """
    wanted: list[int] = []
    part = reach.low_part
    for change in reversed(changes):
        if change.seq <= reach.low and change.kind == "append":
            left = change.message_ids[: len(change.message_ids) - part]
            taken = left[max(0, len(left) - (batch - len(wanted))) :]
            wanted += reversed(taken)
            part += len(taken)
            if part < len(change.message_ids):
                return wanted, Reach(change.seq, reach.high, part, reach.high_part, reach.walked + len(wanted))
            part = 0
    low = max(0, reach.low - CHANGES)
    return wanted, Reach(low, reach.high, 0, reach.high_part, reach.walked + len(wanted))


# ---------- index.vectors
#
# The vector index over all transcripts: embeds in the background, answers what is near, and is never in the way.
#
# Words work without it. Nothing here raises because of an embedder, and nothing here can lose a message: whatever
# happens to the stored vectors, they are made again from the transcript.

QUIET = 1.0
"""Seconds without a write after which embedding begins: later than words, as it takes the processor for longer."""
SLICE = 0.25
"""Seconds of work after which the next batch is smaller."""
LEAST, MOST = 4, 64
MOST_DISCARDED = 3
LONG_LIVED = 10.0
"""Seconds after which a process that only searches embeds what is missing; one that ends at once never does."""
_LOOK_AGAIN = 0.25
_CLOSE = 2.0
_HOUR = 3_600.0


class VectorStore(Kept, VectorReader, Protocol):
    """Where vectors are kept."""


class Vectors:
    """Implements `VectorIndex`. `embedder` is called when one is first needed, and may answer None: then there are no
    vectors, and what was purged is forgotten all the same.
    """

    def __init__(
        self,
        store: VectorStore,
        feed: ChangeFeed,
        source: PassageSource,
        embedder: Callable[[], Embedder | None],
        *,
        clock: Callable[[], float] = time.time,
        alive: Callable[[], None] = lambda: None,
        sources: Callable[[], Sequence[Embeddables]] = tuple,
    ) -> None:
        self._store = store
        self._feed = feed
        self._embedder = embedder
        self._clock = clock
        self._alive = alive
        self._process = os.getpid()
        self._walk = Walk(store, feed, source, clock, sources)
        self._born = time.monotonic()
        self._background = Background(self.in_slices, lambda _: None, quiet=QUIET)
        self._guest: Guest | None = None
        self._asked_for = False
        self._trouble = ""
        self._discarded = 0
        self._nearness: Nearness | None = None

    def register(self, source: Embeddables) -> None:
        """Have these texts embedded too."""
        self._walk.register(source)

    # ── for searches ──

    def near(
        self,
        query: str | Vector,
        k: int,
        *,
        kinds: Collection[str] = (MESSAGE,),
        allowed: Collection[int] | Collection[str] | None = None,
        scopes: Collection[str] | None = None,
    ) -> Nearest:
        """The `k` nearest of these kinds, each key once."""
        self._alive()
        if k <= 0:
            return Nearest()
        nearness, vector, note = self._ready(query)
        if nearness is None or vector is None:
            return Nearest((), (note,) if note else ())
        try:
            hits = nearness.near(vector, k, kinds, allowed, scopes)
        except (IndexUnusable, StoreBusy) as error:
            self._nearness = None
            return Nearest((), (f"vectors: they cannot be read ({error}).",))
        return Nearest(tuple(hits), self._notes(nearness.note()))

    def scores(self, query: str | Vector, message_ids: Sequence[int]) -> Mapping[int, float]:
        """The cosine for each of these messages that has a vector."""
        self._alive()
        nearness, vector, _ = self._ready(query)
        if nearness is None or vector is None or not message_ids:
            return {}
        try:
            return nearness.scores(vector, message_ids)
        except (IndexUnusable, StoreBusy):
            self._nearness = None
            return {}

    def warm(self) -> None:
        """Load the embedder and read the vectors now, so that the next question does not have to wait for them."""
        self.near("Is anybody there?", 1)

    def state(self) -> VectorState:
        self._alive()
        guest = self._visitor()
        try:
            file = self._store.file()
        except (IndexUnusable, StoreError):
            file = None
        if guest is None and file is None:
            return VectorState(trouble=self._trouble)
        name, told = (guest.name, guest.trouble) if guest else ("", EmbedderTrouble())
        models = file.models if file else ()
        mine = next((row for row in models if guest is not None and guest.made(row)), None)
        if guest is not None and not told.message and file is not None and file.trouble.model == name:
            told = file.trouble
        appended = file.appended if file else self._feed.message_count()
        walked = min(mine.reach.walked, appended) if mine else 0
        return VectorState(
            model=name,
            dimension=mine.dimension if mine else 0,
            vectors=mine.vectors if mine else 0,
            done=walked,
            left=appended - walked if guest else 0,
            size=file.size if file else 0,
            trouble=told.message or self._trouble or self._background.trouble or (guest.waiting if guest else ""),
            failures=told.failures,
            retry_at=told.retry_at,
            others=tuple((row.name, row.vectors) for row in models if row is not mine),
            is_multilingual=guest is not None and guest.is_multilingual,
        )

    # ── for writers and for people ──

    def written(self, messages: int = 1) -> None:
        """Messages were committed: they are embedded in the background when writing pauses."""
        if not self._asked_for or self._guest is not None:
            self._background.written(messages)

    def catch_up(self) -> None:
        """Forget what was purged. Embeds nothing."""
        try:
            self._walk.notice(create=False)
        except (IndexUnusable, StoreError) as error:
            self._trouble = str(error)

    def wait(self, timeout: float | None = None, progress: Progress = silent) -> bool:
        """Embed everything, in the caller's time. → False when time was up first, or the embedder fails."""
        self._alive()
        deadline = time.monotonic() + (_HOUR * 24 if timeout is None else timeout)
        return self._run(lambda: time.monotonic() > deadline, progress)

    def rebuild(self, progress: Progress = silent) -> bool:
        """Compare every vector with its text, and make those again that differ or are damaged. → as `wait`."""
        self._alive()
        if self._visitor() is None:
            self.catch_up()
            return True
        try:
            damaged = self._store.check()
        except IndexUnusable:
            damaged = "damaged"
        if damaged:
            self.drop()
        self._walk.begin()
        return self.wait(progress=progress)

    def drop(self) -> None:
        """Delete the stored vectors. They are made again in the background."""
        self._alive()
        with self._store.hold(_HOUR):
            self._store.drop()
        self._nearness = None

    def close(self) -> None:
        """Stop after the step at hand, and let go of the file."""
        if self._process == os.getpid():
            self._background.close(_CLOSE)
            self._store.close()

    # ── inside ──

    def in_slices(self, stop: Callable[[], bool]) -> None:
        """Embed everything in the background: in small steps, with as much rest as work in between."""
        batch = LEAST
        self._walk.begin()
        if self._visitor() is None or not self._walk.anything():
            return
        while not stop() and (guest := self._visitor()) is not None:
            started = time.monotonic()
            try:
                with self._store.hold(0):
                    if not self._walk.step(guest, batch, stop, gist_after=GIST_AFTER):
                        return
            except (EmbedderResting, StoreBusy):  # or another process is at it: what it does not do, is done then
                time.sleep(_LOOK_AGAIN)
                continue
            except IndexUnusable as error:
                if stop() or not self._discard(error):
                    return
                continue
            took = time.monotonic() - started
            batch = max(LEAST, batch // 2) if took > SLICE else min(MOST, batch * 2) if took < SLICE / 2 else batch
            rest = time.monotonic() + took
            while time.monotonic() < rest and not stop():
                time.sleep(min(took, 0.05))

    def _run(self, stop: Callable[[], bool], progress: Progress) -> bool:
        guest = self._visitor()
        if guest is None or not self._walk.anything():
            self.catch_up()
            return not self._trouble
        self._walk.begin()
        more = True
        while more and not stop():
            try:
                with self._store.hold(_LOOK_AGAIN):
                    more = self._walk.step(guest, MOST, stop)
            except EmbedderResting:
                return False
            except StoreBusy:
                continue
            except StoreError as error:
                self._trouble = str(error)
                return False
            except IndexUnusable as error:
                if not self._discard(error):
                    return False
                continue
            self._discarded = 0
            self._report(progress)
        if not more:
            self._trouble = ""
        return not more

    def _discard(self, error: IndexUnusable) -> bool:
        """Delete a file that cannot be used. → whether to try again: not when another one is no better."""
        self._discarded += 1
        self._trouble = str(error)
        if self._discarded > MOST_DISCARDED:
            return False
        with self._store.hold(_HOUR):
            self._store.drop()
        return True

    def _report(self, progress: Progress) -> None:
        if progress is not silent:
            state = self.state()
            progress(state.done, state.done + state.left)

    def _visitor(self) -> Guest | None:
        """The embedder, if there is one; what other processes know about it is known here too."""
        if not self._asked_for:
            try:
                found = self._embedder()
                self._trouble = ""
            except HermaError as error:
                self._trouble = str(error)
                return None
            self._asked_for = True
            if found is not None:
                self._guest = Guest(found, clock=self._clock, tell=self._tell, known=self._told())
        return self._guest

    def _told(self) -> EmbedderTrouble | None:
        try:
            return self._store.file().trouble
        except (IndexUnusable, StoreError):
            return None

    def _tell(self, trouble: EmbedderTrouble) -> None:
        try:
            self._store.trouble(trouble)
        except (IndexUnusable, StoreError) as error:  # then only this process knows
            self._trouble = str(error)

    def _ready(self, query: str | Vector) -> tuple[Nearness | None, Vector | None, str]:
        """What is compared, what it is compared with; or why there is nothing to compare."""
        guest = self._visitor()
        if guest is None:
            return None, None, f"vectors: {self._trouble}" if self._trouble else ""
        try:
            if not any(guest.made(row) and row.vectors for row in self._store.file().models):
                return None, None, "vectors: nothing is embedded yet."
        except (IndexUnusable, StoreError):
            return None, None, "vectors: nothing is embedded yet."
        dimension = guest.dimension()
        if not dimension:
            return None, None, f"vectors: {guest.note}; words alone were searched."
        nearness, reading = self._nearness, None
        if nearness is None or nearness.dimension != dimension:
            from herma.index.nearest import Nearness

            nearness = self._nearness = Nearness(self._store, guest.name, dimension)
            reading = threading.Thread(target=nearness.read, name="herma-vectors", daemon=True)
            reading.start()
        vector = guest.query(query) if isinstance(query, str) else query
        if reading is not None:  # a model takes as long to load at its first question
            reading.join()
        if vector is None:
            return None, None, f"vectors: {guest.note}; words alone were searched."
        return nearness, vector, ""

    def _notes(self, slow: str) -> tuple[str, ...]:
        state = self.state()
        if state.coverage < 1.0:
            if time.monotonic() - self._born > LONG_LIVED:
                self._background.begin()
            return (f"vectors: {state.left:,} of {state.done + state.left:,} messages are not embedded yet.",)
        return (f"vectors: {slow}",) if slow else ()


# ---------- store.sqlite.index_vectors
#
# `index.db.vectors` in a home: implements `VectorTables`, `VectorUpkeep` and `VectorReader`.
#
# A file of its own beside `index.db`: words are rebuilt in seconds and then replace their file by its name, vectors
# take minutes to be made again and are only ever added and removed. Nothing here waits for a lock that words need.

APPLICATION_ID = 0x48524D56  # "HRMV"
FORMAT = 1
"""Changes whenever the same texts would be stored differently: a file of another format is made anew."""
_INDEX_VECTORS_ASK_AGAIN = 0.005
_REMOVALS_KEPT = 20_000
_SWEEP = 1_000


class SqliteVectors:
    """Writers that embed hold the lock; noticing what was purged needs no more than a transaction."""

    def __init__(self, home: Path) -> None:
        self.path = home / "index.db.vectors"
        self._lock = home / "index.db.vectors.lock"
        self._sql = queries("index_vectors")
        self._mutex = threading.Lock()
        self._open: Connections | None = None
        self._identity: tuple[int, int] | None = None
        self._changes = 0
        self._versions: dict[apsw.Connection, int] = {}
        self._seen: tuple[object, VectorFile] | None = None

    # ── for whoever embeds ──

    def hold(self, timeout: float) -> AbstractContextManager[bool]:
        return exclusive(self._lock, timeout, longest_pause=_INDEX_VECTORS_ASK_AGAIN)

    def file(self) -> VectorFile:
        """Read again only after a change: every search asks for it, several times."""
        changed, seen = self.changed(), self._seen
        if seen is None or seen[0] != changed:
            seen = self._seen = (changed, self._file())
        return seen[1]

    def _file(self) -> VectorFile:
        with self._connections().reading() as connection:
            facts = meta(connection, FORMAT)
            models = tuple(_model(row) for row in fetch(connection, self._sql["models"]))
        told = (facts.get("trouble_of", ""), facts.get("trouble", ""))
        trouble = EmbedderTrouble(*told, int(facts.get("failures", 0)), float(facts.get("retry_at", 0.0)))
        noticed = Position(facts["store_id"], facts["epoch"], int(facts["noticed"]))
        return VectorFile(noticed, int(facts["appended"]), models, trouble, self.path.stat().st_size)

    def notice(self, since: int, position: Position, appended: int, gone: Sequence[int]) -> None:
        if identity(self.path) is None:
            _create(self.path, position)
        with self._connections().writing() as connection:
            facts = meta(connection, FORMAT)
            if (facts["store_id"], facts["epoch"]) != (position.store_id, position.epoch):
                connection.execute(self._sql["walk_again"], (position.seq,))
                facts |= {"appended": "0", "noticed": "0"}
            if int(facts["noticed"]) != since:
                return  # somebody else noticed the same
            if gone:
                self._forget_messages(connection, gone)
            _remember(
                connection,
                store_id=position.store_id,
                epoch=position.epoch,
                noticed=position.seq,
                appended=int(facts["appended"]) + appended,
            )

    def model(self, name: str, dimension: int, at: float) -> ModelRow:
        with self._connections().reading() as connection:
            for row in fetch(connection, self._sql["models"]):
                found = _model(row)
                if (found.name, found.dimension) == (name, dimension) and at - found.used < _SAY_AGAIN:
                    return found
        with self._connections().writing() as connection:
            noticed = int(meta(connection, FORMAT)["noticed"])
            connection.execute(self._sql["add_model"], (name, dimension, at, noticed))
            rows = fetch(connection, self._sql["models"])
        return next(row for row in map(_model, rows) if (row.name, row.dimension) == (name, dimension))

    def digests(self, model: ModelRow, kind: str, keys: Sequence[int | str] | None) -> dict[tuple[int | str, int], int]:
        with self._connections().reading() as connection:
            if keys is None:
                rows = fetch(connection, self._sql["all_stored"], (kind, model.id))
                return {(key, part): digest for key, part, digest in rows}
            rows = fetch(connection, self._sql["stored"], (kind, json.dumps([*keys]), model.id))
        return {
            (key, part): digest for key, part, digest, check, vector in rows if _whole(check, vector, model.dimension)
        }

    def known(self, model: ModelRow, digests: Sequence[int]) -> dict[int, bytes]:
        with self._connections().reading() as connection:
            rows = fetch(connection, self._sql["known"], (json.dumps([*digests]), model.id))
        return {digest: vector for digest, checksum, vector in rows if _whole(checksum, vector, model.dimension)}

    def put(self, model: ModelRow, step: Step) -> None:
        with self._connections().writing() as connection:
            if step.stale:
                given = (step.kind, json.dumps([*step.stale]), model.id)
                self._forget(connection, fetch(connection, self._sql["ids_of_keys"], given))
            if step.met:
                connection.execute(self._sql["met"], (step.kind, json.dumps([*step.met]), model.id))
            self._add(connection, model, step.rows)
            for session, messages in (step.touched or {}).items():
                connection.execute(self._sql["touch"], (model.id, session, messages))
            done = [(model.id, session, title) for session, title in step.outlined]
            connection.executemany(self._sql["outlined"], done)
            gone = [(model.id, session) for session in step.ended]
            connection.executemany("DELETE FROM gists WHERE model = ? AND session = ?", gone)
            if step.reach is not None:
                reach = step.reach
                values = (model.id, reach.low, reach.high, reach.low_part, reach.high_part, reach.walked)
                connection.execute(self._sql["advance"], values)
            if step.version is not None:
                connection.execute(self._sql["set_version"], (model.id, step.kind, step.version))

    # ── upkeep ──

    def trouble(self, found: EmbedderTrouble) -> None:
        with self._connections().writing() as connection:
            facts = {"trouble_of": found.model, "trouble": found.message}
            _remember(connection, **facts, failures=found.failures, retry_at=found.retry_at)

    def gists(self, model: ModelRow, after: int, limit: int) -> list[str]:
        with self._connections().reading() as connection:
            return [row[0] for row in fetch(connection, self._sql["waiting_gists"], (model.id, max(1, after), limit))]

    def titles(self, model: ModelRow) -> dict[str, int]:
        with self._connections().reading() as connection:
            return dict(fetch(connection, self._sql["gist_titles"], (model.id,)))

    def check(self) -> str:
        with self._connections().reading(afresh=True) as connection:
            meta(connection, FORMAT)
            if fetch(connection, "PRAGMA quick_check(1)") != [("ok",)]:
                return "damaged"
        with self._connections().writing() as connection:
            connection.execute(self._sql["walk_again"], (int(meta(connection, FORMAT)["noticed"]),))
        return ""

    def sweep(self, model: ModelRow, kinds: Sequence[str], unused_since: float) -> bool:
        with self._connections().writing() as connection:
            given = (model.id, json.dumps([*kinds]), _SWEEP)
            if model.checking and self._forget(connection, fetch(connection, self._sql["not_met"], given)):
                return True
            connection.execute("UPDATE models SET whole = round WHERE id = ?", (model.id,))
            for other in map(_model, fetch(connection, self._sql["models"])):
                if other.id != model.id and other.used < unused_since:
                    if not self._forget(connection, fetch(connection, self._sql["of_model"], (other.id, _SWEEP))):
                        connection.execute("DELETE FROM gists WHERE model = ?", (other.id,))
                        connection.execute("DELETE FROM models WHERE id = ?", (other.id,))
                    return True
        with self._connections().writing() as connection:
            before = fetch(connection, "PRAGMA freelist_count")[0][0]
            fetch(connection, f"PRAGMA incremental_vacuum({_SWEEP})")
            after = fetch(connection, "PRAGMA freelist_count")[0][0]
        return bool(0 < after < before)

    def drop(self) -> None:
        self.close()
        _remove(self.path)

    def close(self) -> None:
        with self._mutex:
            if self._open is not None:
                self._open.close()
            self._open = self._identity = None

    # ── for whoever compares ──

    def changed(self) -> object:
        """A connection knows whether anybody wrote since it last looked, but numbers of different connections cannot be
        compared. So changes are counted here: one that sees none confirms the count, whoever counted last.
        """
        with self._connections().glancing() as connection:
            version = fetch(connection, "PRAGMA data_version")[0][0]
            with self._mutex:
                if self._versions.get(connection) != version:
                    self._versions[connection] = version
                    self._changes += 1
                return self._changes

    def find(self, name: str, dimension: int) -> tuple[str, int, int]:
        with self._connections().reading() as connection:
            file = meta(connection, FORMAT)["file"]
            sql = "SELECT id, vectors FROM models WHERE name = ? AND dimension = ?"
            rows = fetch(connection, sql, (name, dimension))
        return (file, *rows[0]) if rows else (file, 0, 0)

    def load(self, model: int, dimension: int, *, messages: bool, after: int, limit: int) -> Loaded:
        with self._connections().reading() as connection:
            sql = self._sql["load_messages" if messages else "load_others"]
            rows = fetch(connection, sql, (after, model, dimension, limit))
        if not rows:
            return Loaded(last=after)
        ids, keys, sessions, vectors, *others = zip(*rows, strict=True)
        kinds, scopes = others or ((), ())
        return Loaded(ids, keys, sessions, b"".join(vectors), kinds, scopes, ids[-1])

    def removed(self, after: int) -> tuple[Sequence[int] | None, int]:
        with self._connections().reading() as connection:
            last = fetch(connection, "SELECT coalesce(max(seq), 0) FROM removed")[0][0]
            if after < 0 or after == last:
                return (), last
            rows = fetch(connection, "SELECT seq, vector FROM removed WHERE seq > ? ORDER BY seq", (after,))
        whole = bool(rows) and rows[0][0] == after + 1
        return [row[1] for row in rows] if whole else None, last

    def sessions(self, after: int) -> dict[int, str]:
        with self._connections().reading() as connection:
            return dict(fetch(connection, "SELECT id, session FROM sessions WHERE id > ?", (after,)))

    # ── inside ──

    def _connections(self) -> Connections:
        with self._mutex:
            found = identity(self.path)
            if found is None:
                raise IndexUnusable(f"{self.path} is not there")
            if self._open is None or found != self._identity:
                if self._open is not None:
                    self._open.close()
                self._open, self._identity = Connections(self.path), found
                self._changes, self._versions = self._changes + 1, {}
            return self._open

    def _forget_messages(self, connection: apsw.Connection, message_ids: Sequence[int]) -> None:
        """Their vectors, and the gists of their sessions, which are made again if there is anything left to say."""
        numbers = json.dumps([*message_ids])
        sessions = fetch(connection, self._sql["sessions_of_messages"], (numbers,))
        self._forget(connection, fetch(connection, self._sql["ids_of_keys"], ("message", numbers, 0)))
        names = [session for _, session in sessions]
        self._forget(connection, fetch(connection, self._sql["ids_of_keys"], ("session", json.dumps(names), 0)))
        connection.executemany(
            "UPDATE gists SET messages = messages + 1, made = 0 WHERE session = ?", [(name,) for name in names]
        )

    def _forget(self, connection: apsw.Connection, rows: Sequence[tuple[Any, ...]]) -> int:
        connection.executemany("DELETE FROM vectors WHERE id = ?", [(row[0],) for row in rows])
        connection.executemany("INSERT INTO removed (vector) VALUES (?)", [(row[0],) for row in rows])
        for model, count in Counter(row[1] for row in rows).items():
            connection.execute("UPDATE models SET vectors = vectors - ? WHERE id = ?", (count, model))
        if rows:
            connection.execute("DELETE FROM removed WHERE seq <= (SELECT max(seq) FROM removed) - ?", (_REMOVALS_KEPT,))
        return len(rows)

    def _add(self, connection: apsw.Connection, model: ModelRow, rows: Iterable[VectorRow]) -> None:
        numbers: dict[str, int] = {"": 0}
        values = []
        for row in rows:
            spot = row.spot
            if spot.session_id not in numbers:
                connection.execute("INSERT OR IGNORE INTO sessions (session) VALUES (?)", (spot.session_id,))
                found = fetch(connection, "SELECT id FROM sessions WHERE session = ?", (spot.session_id,))
                numbers[spot.session_id] = found[0][0]
            checksum = zlib.crc32(row.vector)
            place = (model.id, spot.kind, spot.key, spot.part, numbers[spot.session_id], spot.scope)
            values.append((*place, row.digest, checksum, row.vector))
        connection.executemany(self._sql["add"], values)
        connection.execute("UPDATE models SET vectors = vectors + ? WHERE id = ?", (len(values), model.id))


_SAY_AGAIN = 600.0
"""Seconds after which it is written down again that a model is in use."""


def _whole(checksum: int, vector: bytes, dimension: int) -> bool:
    """Whether this is what was stored. A refused text has no vector."""
    return zlib.crc32(vector) == checksum and len(vector) in (0, dimension)


def _model(row: Sequence[Any]) -> ModelRow:
    number, name, dimension, low, high, low_part, high_part, walked, vectors, used, checking, versions = row
    known: Mapping[str, str] = json.loads(versions)
    reach = Reach(low, high, low_part, high_part, walked)
    return ModelRow(number, name, dimension, reach, vectors, used, bool(checking), known)


def _create(path: Path, position: Position) -> None:
    with guarded(path):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        try:
            connection.set_busy_timeout(5_000)
            fetch(connection, "PRAGMA synchronous = OFF")
            fetch(connection, "PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("BEGIN EXCLUSIVE")
            if not fetch(connection, "SELECT 1 FROM sqlite_schema WHERE name = 'meta'"):
                connection.execute(queries("index_vectors")["schema"])
                _remember(
                    connection,
                    format=FORMAT,
                    file=secrets.token_hex(8),
                    store_id=position.store_id,
                    epoch=position.epoch,
                    noticed=0,
                    appended=0,
                )
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute("COMMIT")
        finally:
            connection.close(True)
    path.chmod(0o600)


def _remember(connection: apsw.Connection, **facts: str | float) -> None:
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", [(key, str(facts[key])) for key in facts])


def _remove(path: Path) -> None:
    try:
        for name in (path, path.with_name(path.name + "-journal")):
            name.unlink(missing_ok=True)
    except OSError as exc:
        raise StoreError(f"{path} cannot be deleted: {exc.strerror}.") from exc
