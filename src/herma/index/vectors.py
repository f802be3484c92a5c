"""Embed messages and registered texts in the background, and answer which are near a question.

Word search works without vectors. An embedder's failure is never raised here, and nothing here can lose a message:
damaged or missing vectors are made again from the transcript.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from herma.errors import HermaError, SpendRefused, StoreBusy, StoreError
from herma.features import lazy_property
from herma.index import MESSAGE, Embeddable, Embeddables, IndexUnusable, Nearest, VectorState
from herma.index.postgres import ServerNeighbours, ServerVectors
from herma.index.vector_store import (
    EmbedderTrouble,
    EmbeddingStep,
    ModelRow,
    Reach,
    VectorFile,
    VectorRow,
    VectorStore,
    VectorTarget,
)
from herma.store.database import Database, DatabaseConnection
from herma.transcript.messages import searchable_text
from herma.transcript.rows import ChangeFeed, FeedChange, Position, texts
from herma.worker import BackgroundCall, Lane

if TYPE_CHECKING:
    from herma.app import Herma
    from herma.index import Vector
    from herma.index.nearest import Neighbours
    from herma.models.embedder import Embedder
    from herma.models.embedder import Vectors as EmbedderVectors
    from herma.store.postgres import PostgresDatabase

Progress = Callable[[int, int], None]
"""Called with how many messages are done, and of how many."""
Stop = Callable[[], bool]
Work = Callable[[Stop], None]

INDEX_QUIET = 0.2
"""Seconds without a write after which indexing begins."""
MOST_BEHIND = 5_000
"""Messages behind at which it begins without waiting."""
_RETRY = 0.1


def never() -> bool:
    return False


def silent(done: int, total: int) -> None:
    """Show no progress."""


class IndexWorker:
    """Run `work` in a lane when writing pauses, and `check` on request. A failure is kept in `trouble`."""

    def __init__(self, lane: Lane, work: Work, check: Work = lambda _: None, *, quiet: float = INDEX_QUIET) -> None:
        self._lane = lane
        self._work, self._check = work, check
        self._quiet = quiet
        self._mutex = threading.Lock()
        self._behind = 0
        self._checks = False
        self.trouble = ""

    def written(self, messages: int) -> None:
        """Note that `messages` were written."""
        with self._mutex:
            self._behind += messages
            after = self._quiet if self._behind < MOST_BEHIND else 0.0
        self._begin(after)

    def begin(self, *, check: bool = False) -> None:
        """Begin at once, with a check afterwards if `check`."""
        with self._mutex:
            self._checks = self._checks or check
        self._begin(0.0)

    def close(self, timeout: float) -> None:
        """Stop after the slice that is running."""
        self._lane.close(0.0, timeout)

    def _begin(self, after: float) -> None:
        self._lane.submit("following the transcript", self._run, after=after, replacing=True)

    def _run(self, cancel: threading.Event) -> None:
        with self._mutex:
            check, self._checks, self._behind = self._checks, False, 0
        try:
            self._work(cancel.is_set)
            if check:
                self._check(cancel.is_set)
            self.trouble = ""
        except StoreBusy:
            with self._mutex:
                self._checks = self._checks or check
            self._begin(_RETRY)
        except (HermaError, IndexUnusable) as error:
            self.trouble = str(error)


# ── what is read from the transcript ──


class EmbeddableMessage(NamedTuple):
    """A message to embed: its prose, and the end of the prose before it."""

    id: int
    session_id: str
    text: str
    before: str = ""


class PassageRows:
    """Read the prose of users and assistants. Tool calls and results are found by their words only."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = database.queries("index.passages")

    def said(self, message_ids: Sequence[int], at_most: int, before: int) -> list[EmbeddableMessage]:
        """Return the messages that have prose, each cut to `at_most` characters, with up to `before` characters of the
        end of the prose before it in the same session.
        """

        def work(connection: DatabaseConnection) -> list[EmbeddableMessage]:
            rows = connection.rows(self._sql["said"], {"ids": [*message_ids]})
            earlier = [row[5] for row in rows if row[5] is not None]
            context = connection.rows(self._sql["contents"], {"ids": earlier})
            stored = [value for row in rows for value in row[3:5]] + [value for row in context for value in row[1:3]]
            whole = texts(connection, stored, base64=False)
            prose = {id_: _prose(whole(content), whole(parts)) for id_, content, parts in context}
            found = []
            for id_, session, _, content, parts, previous in rows:
                text = _prose(whole(content), whole(parts))[:at_most]
                if text.strip():
                    found.append(EmbeddableMessage(id_, session, text, prose.get(previous, "")[-before:]))
            return found

        return self._db.read(work, [])

    def places(self) -> list[tuple[Any, ...]]:
        """Return the fields of `Place` for every curated document that was ever written to."""
        return list(self._db.rows(self._sql["places"]))


def _prose(content: str | None, parts: str | None) -> str:
    return searchable_text(content if parts is None else json.loads(parts), (), None)


# ── the embedder, guarded ──

Answer = TypeVar("Answer")

FIRST_REST, LONGEST_REST = 1.0, 300.0
_PROBE = "Is anybody there?"
_QUERIES_KEPT = 64
_SPEND_AGAIN = 60.0
"""Seconds after a refused expense until the daily budget is checked again."""


class GuardedEmbedder:
    """One embedder that may fail. Each method returns None while it fails or is not asked; `trouble` says why.

    After a failure it is not asked for a while, which doubles with every failure in a row.
    """

    def __init__(
        self,
        embedder: Embedder,
        *,
        clock: Callable[[], float],
        report: Callable[[EmbedderTrouble], None],
        known: EmbedderTrouble | None,
    ) -> None:
        self._embedder = embedder
        self._clock = clock
        self._report = report
        self._mutex = threading.Lock()
        self._asked: dict[str, Vector] = {}
        self.name = embedder.name
        self.trouble = known if known is not None and known.model == self.name else EmbedderTrouble()
        self._dimension = 0
        self._refused = (0.0, "")

    @property
    def is_multilingual(self) -> bool:
        return bool(self._embedder.is_multilingual)

    @property
    def paused(self) -> bool:
        return self._clock() < self.trouble.retry_at

    @property
    def waiting(self) -> str:
        """Why no texts are embedded although nothing is broken (the daily budget is used up), or ""."""
        until, why = self._refused
        return why if self._clock() < until else ""

    @property
    def note(self) -> str:
        return f"the embedder failed ({self.trouble.message})" if self.trouble.message else ""

    def made(self, model: ModelRow) -> bool:
        """Return whether these vectors are its own, as far as its dimension is known."""
        return model.name == self.name and self._dimension in (0, model.dimension)

    def dimension(self) -> int:
        """Return the numbers per vector, or 0 if the embedder does not answer."""
        if not self._dimension and not self.paused:
            self._dimension = self._ask(lambda: self._embedder.dimension) or 0
        return self._dimension

    def query(self, text: str) -> Vector | None:
        with self._mutex:
            if text in self._asked:
                return self._asked[text]
        found = None if self.paused else self._ask(lambda: self._rows(self._embedder.queries([text]), 1))
        if found is None:
            return None
        row: Vector = found[0]
        with self._mutex:
            while len(self._asked) >= _QUERIES_KEPT:
                del self._asked[next(iter(self._asked))]
            self._asked[text] = row
        return row

    def passages(self, texts: Sequence[str]) -> list[bytes] | None:
        """Return a vector in 8-bit numbers for each text; empty for a text that is refused while others are taken."""
        if self.paused or self.waiting:
            return None
        found = self._ask(lambda: self._rows(self._embedder.passages(texts), len(texts)), quiet=True)
        if found is not None:
            return packed(found)
        if self.waiting:
            return None
        failed = self.trouble
        if self._ask(lambda: self._rows(self._embedder.passages([_PROBE]), 1)) is None:
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

    def _ask(self, question: Callable[[], Answer], *, quiet: bool = False) -> Answer | None:
        """Ask. `quiet`: remember a failure, but keep asking."""
        try:
            answer = question()
        except SpendRefused as refused:  # not a failure: it goes on tomorrow, or with a larger budget
            self._refused = (self._clock() + _SPEND_AGAIN, str(refused))
            return None
        except Exception as error:  # noqa: BLE001  a plugin may raise anything
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
        self._report(trouble)

    def _rows(self, given: EmbedderVectors, count: int) -> EmbedderVectors:
        import numpy as np

        found = np.asarray(given, dtype=np.float32)
        if found.ndim != 2 or found.shape[0] != count or (self._dimension and found.shape[1] != self._dimension):
            raise ValueError(f"{count} vectors of {self._dimension} numbers were expected, not {found.shape}")
        if not np.isfinite(found).all():
            raise ValueError("a vector contains values that are not finite numbers")
        return found


def packed(vectors: EmbedderVectors) -> list[bytes]:
    """Scale each vector so that its largest number is 127. Only the direction is kept, as a cosine needs no more."""
    import numpy as np

    largest = np.abs(vectors).max(axis=1, keepdims=True)
    largest[largest == 0] = 1.0
    rows = np.rint(vectors / largest * 127.0).astype(np.int8)
    return [row.tobytes() for row in rows]


# ── what is embedded of a text: pure, bounded, and the same every time, so that a digest tells what is new ──
#
# A message stands with the end of what was said before it: an answer is about its question, and "yes, that one" is
# about nothing by itself. It never stands with what follows, or every new message would change the one before. A long
# message is cut into parts; text after the last part is found by its words. Tool calls and results are not
# embedded: they are most of the bytes and little of the meaning, and the reply has what mattered in them.

PART = 1_200
"""Characters of a part: models for retrieval read 512 tokens, and the first 300 count most."""
MOST_PARTS = 8
BEFORE = 160
"""Characters of the text before a message."""
_MOST_READ = PART * (MOST_PARTS + 1)
"""Characters of a message that are read."""
_LEAST_PART = PART // 2
_BREAKS = ("\n\n", "\n", ". ", "。", "! ", "? ", "; ", ", ", "、", " ")
RECIPE = "1"
"""Changes with everything here that changes the embedded text of a message; then everything is compared again."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A text to embed, and what its vector will belong to."""

    target: VectorTarget
    text: str

    @property
    def digest(self) -> int:
        found = blake2b(self.text.encode("utf-8", "surrogatepass"), digest_size=8, key=RECIPE.encode()).digest()
        return int.from_bytes(found, "big", signed=True)


def of_message(message: EmbeddableMessage) -> list[Passage]:
    before = " ".join(message.before.split())
    if len(before) >= BEFORE:
        before = before.partition(" ")[2] or before  # the first word was cut
    lead = f"{before}\n" if before else ""
    return [
        Passage(VectorTarget(MESSAGE, message.id, number, message.session_id), (lead if number == 0 else "") + part)
        for number, part in enumerate(parts(message.text))
    ]


def of_text(kind: str, given: Embeddable) -> list[Passage]:
    return [
        Passage(VectorTarget(kind, given.key, n, "", given.scope), part) for n, part in enumerate(parts(given.text))
    ]


def readable(text: str, *, is_multilingual: bool) -> bool:
    """Return whether a model can read a text: to one for English, all texts in other scripts are alike."""
    if is_multilingual or text.isascii():
        return True
    letters = [character for character in text if character.isalpha()]
    return 2 * sum(character < "\u0250" for character in letters) >= len(letters)


def parts(text: str) -> list[str]:
    """Cut a text at paragraphs, lines, sentences or words: at most `MOST_PARTS` pieces of `PART` characters."""
    found: list[str] = []
    at = 0
    while at < len(text) and len(found) < MOST_PARTS:
        end = at + PART
        if end < len(text):
            breaks = ((text.rfind(mark, at + _LEAST_PART, end), mark) for mark in _BREAKS)
            end = next((place + len(mark) for place, mark in breaks if place >= 0), end)
        if part := text[at:end].strip():
            found.append(part)
        at = end
    return found


def changed(
    passages: Sequence[Passage], stored: Mapping[tuple[int | str, int], int]
) -> tuple[list[Passage], list[int | str], list[int | str]]:
    """Compare with what is stored. → the passages to embed, the keys that are up to date, the keys to replace.

    A key is replaced as a whole, so that it never has parts of two texts.
    """
    wanted: dict[int | str, dict[int, int]] = {}
    for passage in passages:
        wanted.setdefault(passage.target.key, {})[passage.target.part] = passage.digest
    have: dict[int | str, dict[int, int]] = {}
    for (key, part), digest in stored.items():
        have.setdefault(key, {})[part] = digest
    met = [key for key, digests in wanted.items() if have.get(key) == digests]
    same = set(met)
    stale = [key for key in have if key not in same]
    return [passage for passage in passages if passage.target.key not in same], met, stale


# ── embedding what is new, step by step ──

CHANGES = 1_024
"""Changes of the feed that are read at a time."""
TEXTS = 32
"""Texts that an embedder is given at a time."""
_RECIPE = "recipe"
"""The kind under which a model remembers `RECIPE`."""
KEPT_UNUSED = 3_600.0
"""Seconds for which the vectors of another model stay after their last use, once this one has everything: another
process may still use them, and two that want different models must not undo each other's work."""


class EmbedderPaused(Exception):
    """The embedder failed or has no budget; nothing of this step was kept."""


class EmbeddingRun:
    """Add vectors: of messages (new ones first, then back to the oldest) and registered texts.

    Each step is one transaction that moves the reach with the vectors, so that a run goes on after a crash where it
    was. The caller of `step` holds the lock of the store. Purged messages go at once, with or without an embedder.
    """

    def __init__(
        self,
        store: VectorStore | ServerVectors,
        feed: ChangeFeed,
        rows: PassageRows,
        sources: Sequence[Embeddables],
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._feed = feed
        self._rows = rows
        self.sources = sources
        self._clock = clock

    def anything(self) -> bool:
        """Return whether there is anything to embed; if not, no file is made."""
        return bool(self._feed.position().seq) or any(True for source in self.sources for _ in source.texts())

    def notice(self, *, create: bool) -> VectorFile | None:
        """Read the feed to its end and remove what was purged. → the file, if there is one now."""
        end = self._feed.position()
        try:
            file = self._store.file()
        except IndexUnusable:
            if not create:
                return None
            self._store.drop()
            self._store.notice(0, Position(end.store_id, end.epoch, 0), 0, ())
            file = self._store.file()
        here = (file.noticed.store_id, file.noticed.epoch) == (end.store_id, end.epoch)
        if here and file.noticed.seq == end.seq:
            return file
        if here and file.noticed.seq > end.seq:  # another history of the same store
            self._store.drop()
            return self.notice(create=create)
        since = file.noticed.seq if here else 0
        while since < end.seq or not here:
            changes = self._feed.since(since, CHANGES)
            reached = changes[-1].seq if changes else end.seq
            appended = sum(len(change.message_ids) for change in changes if change.kind == "append")
            gone = [number for change in changes if change.kind == "purge" for number in change.message_ids]
            self._store.notice(since, Position(end.store_id, end.epoch, reached), appended, gone)
            since, here = reached, True
        return self._store.file()

    def step(self, embedder: GuardedEmbedder, batch: int, stop: Stop) -> bool:
        """Do a little. → whether there is more to do. Raises `EmbedderResting`."""
        file = self.notice(create=True)
        if file is None:
            return False
        dimension = embedder.dimension()
        if not dimension:
            raise EmbedderPaused
        model = self._store.model(embedder.name, dimension, self._clock())
        if self._another_recipe(model):
            return True
        if self._messages(embedder, model, file.noticed.seq, batch):
            return True
        if any(self._texts(embedder, model, source, stop) for source in self.sources):
            return True
        kinds = [MESSAGE, *(source.kind for source in self.sources)]
        return self._store.sweep(model, kinds, self._clock() - KEPT_UNUSED)

    def _another_recipe(self, model: ModelRow) -> bool:
        """Return whether another version, which made other texts of the same messages, embedded them."""
        if model.versions.get(_RECIPE) == RECIPE:
            return False
        begun = model.reach.walked > 0
        if begun:
            self._store.check()
        self._store.put(model, EmbeddingStep(kind=_RECIPE, version=RECIPE))
        return begun

    def _messages(self, embedder: GuardedEmbedder, model: ModelRow, end: int, batch: int) -> bool:
        reach = model.reach
        if reach.high < end:
            ids, reach = ahead(reach, self._feed.since(reach.high, CHANGES), batch)
        elif reach.low > 0:
            ids, reach = behind(reach, self._feed.since(max(0, reach.low - CHANGES), CHANGES), batch)
        if reach == model.reach:
            return False
        said = self._rows.said(ids, _MOST_READ, BEFORE) if ids else ()
        wanted = _readable(embedder, [passage for one in said for passage in of_message(one)])
        new, met, stale = changed(wanted, self._store.digests(model, MESSAGE, ids))
        rows = self._embedded(embedder, model, new)
        self._store.put(model, EmbeddingStep(rows, MESSAGE, met, stale, reach=reach))
        return True

    def _texts(self, embedder: GuardedEmbedder, model: ModelRow, source: Embeddables, stop: Stop) -> bool:
        """Embed all texts of one kind; those that are embedded already are only read."""
        kind, version = source.kind, source.version()
        if model.versions.get(kind) == version:
            return False
        wanted = _readable(embedder, [passage for one in source.texts() for passage in of_text(kind, one)])
        new, met, stale = changed(wanted, self._store.digests(model, kind, None))
        by_key: dict[int | str, list[Passage]] = {}
        for passage in new:
            by_key.setdefault(passage.target.key, []).append(passage)
        keys = list(by_key)
        for at in range(0, len(keys), TEXTS):
            some = keys[at : at + TEXTS]
            rows = self._embedded(embedder, model, [passage for key in some for passage in by_key[key]])
            self._store.put(model, EmbeddingStep(rows, kind, stale=some))
            if stop():
                return True
        gone = [key for key in stale if key not in by_key]
        self._store.put(model, EmbeddingStep((), kind, met, gone, version=version))
        return True

    def _embedded(self, embedder: GuardedEmbedder, model: ModelRow, passages: Sequence[Passage]) -> list[VectorRow]:
        """Return vectors for these: stored ones of the same text, and new ones."""
        digests = [passage.digest for passage in passages]
        known = dict(self._store.known(model, digests)) if passages else {}
        if model.checking:  # a text that was refused once may be taken now
            known = {digest: vector for digest, vector in known.items() if vector}
        texts = {digest: one.text for digest, one in zip(digests, passages, strict=True) if digest not in known}
        missing = list(texts)
        for at in range(0, len(missing), TEXTS):
            some = missing[at : at + TEXTS]
            vectors = embedder.passages([texts[digest] for digest in some])
            if vectors is None:
                raise EmbedderPaused
            known.update(zip(some, vectors, strict=True))
        return [VectorRow(one.target, digest, known[digest]) for one, digest in zip(passages, digests, strict=True)]


def _readable(embedder: GuardedEmbedder, passages: Sequence[Passage]) -> list[Passage]:
    return [one for one in passages if readable(one.text, is_multilingual=embedder.is_multilingual)]


def ahead(reach: Reach, changes: Sequence[FeedChange], batch: int) -> tuple[list[int], Reach]:
    """Return the next messages after the reach, oldest first, and the new reach."""
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
    """Return the next messages before the reach, newest first, and the new reach.

    `changes` has all that are less than `CHANGES` before it; numbers that no change has are passed over.
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


# ── the vector index ──

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


class Vectors:
    """The vectors of messages and registered texts. Without an embedder nothing is embedded, but vectors of
    purged messages are removed all the same.
    """

    def __init__(self, app: Herma, *, feed: ChangeFeed | None = None) -> None:
        self._app = app
        self._clock = app.clock
        self._feed = feed or ChangeFeed(app.db)
        self._sources: list[Embeddables] = []
        self._process = os.getpid()
        self._born = time.monotonic()
        self._background = IndexWorker(app.worker.lane("vectors"), self.in_slices, quiet=QUIET)
        self._embedder: GuardedEmbedder | None = None
        self._asked_for = False
        self._trouble = ""
        self._discarded = 0
        self._neighbours: Neighbours | ServerNeighbours | None = None

    def register(self, source: Embeddables) -> None:
        """Have these texts embedded too."""
        self._sources.append(source)

    @lazy_property
    def _store(self) -> VectorStore | ServerVectors:
        """Return where the vectors are: on a server that has pgvector, else in a file of this home."""
        if self._app.settings.store.url and (server := cast("PostgresDatabase", self._app.db)).has_vectors():
            return ServerVectors(server)
        return VectorStore(self._app.home)

    @lazy_property
    def _run(self) -> EmbeddingRun:
        return EmbeddingRun(self._store, self._feed, PassageRows(self._app.db), self._sources, self._clock)

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
        """Return the `k` nearest of these kinds, each key once; only keys in `allowed`, only these scopes.

        Hidden and deleted messages are among them, as in the text index: the caller checks their heads.
        """
        return self._nearest(query, k, lambda found, one: Nearest(found.near(one, k, kinds, allowed, scopes)))

    def apart(self, query: str | Vector, k: int, share: float) -> Nearest:
        """Return the `k` messages whose cosine, less `share` of their usual one, is highest, in that order."""
        return self._nearest(query, k, lambda found, one: found.apart(one, k, share))

    def _nearest(
        self, query: str | Vector, k: int, look: Callable[[Neighbours | ServerNeighbours, Vector], Nearest]
    ) -> Nearest:
        self._app.ensure_open()
        if k <= 0:
            return Nearest()
        neighbours, vector, note = self._ready(query)
        if neighbours is None or vector is None:
            return Nearest((), (note,) if note else ())
        try:
            found = look(neighbours, vector)
        except (IndexUnusable, StoreBusy) as error:
            self._neighbours = None
            return Nearest((), (f"vectors: they cannot be read ({error}).",))
        return replace(found, notes=self._notes())

    def scores(self, query: str | Vector, message_ids: Sequence[int]) -> Mapping[int, float]:
        """Return the cosine of each of these messages that has a vector."""
        self._app.ensure_open()
        neighbours, vector, _ = self._ready(query)
        if neighbours is None or vector is None or not message_ids:
            return {}
        try:
            return neighbours.scores(vector, message_ids)
        except (IndexUnusable, StoreBusy):
            self._neighbours = None
            return {}

    def warm(self) -> None:
        """Load the embedder and read the vectors now, so that the next question does not wait for them."""
        self.near(_PROBE, 1)

    def state(self) -> VectorState:
        self._app.ensure_open()
        embedder = self._guarded()
        try:
            file = self._store.file()
        except (IndexUnusable, StoreError):
            file = None
        if embedder is None and file is None:
            return VectorState(trouble=self._trouble)
        name, failed = (embedder.name, embedder.trouble) if embedder else ("", EmbedderTrouble())
        models = file.models if file else ()
        mine = next((row for row in models if embedder is not None and embedder.made(row)), None)
        if embedder is not None and not failed.message and file is not None and file.trouble.model == name:
            failed = file.trouble
        appended = file.appended if file else self._feed.message_count()
        walked = min(mine.reach.walked, appended) if mine else 0
        waiting = embedder.waiting if embedder else ""
        return VectorState(
            model=name,
            dimension=mine.dimension if mine else 0,
            vectors=mine.vectors if mine else 0,
            done=walked,
            left=appended - walked if embedder else 0,
            size=file.size if file else 0,
            trouble=failed.message or self._trouble or self._background.trouble or waiting,
            failures=failed.failures,
            retry_at=failed.retry_at,
            others=tuple((row.name, row.vectors) for row in models if row is not mine),
            is_multilingual=embedder is not None and embedder.is_multilingual,
        )

    # ── for writers and for people ──

    def written(self, messages: int = 1) -> None:
        """Note that messages were committed: they are embedded in the background when writing pauses."""
        if not self._asked_for or self._embedder is not None:
            self._background.written(messages)

    def catch_up(self) -> None:
        """Remove what was purged. Embeds nothing."""
        try:
            self._run.notice(create=False)
        except (IndexUnusable, StoreError) as error:
            self._trouble = str(error)

    def wait(self, timeout: float | None = None, progress: Progress = silent) -> bool:
        """Embed everything, in the caller's time. → False if time was up first, or the embedder fails."""
        self._app.ensure_open()
        deadline = time.monotonic() + (_HOUR * 24 if timeout is None else timeout)
        return self._embed_all(lambda: time.monotonic() > deadline, progress)

    def rebuild(self, progress: Progress = silent) -> bool:
        """Compare every vector with its text, and make those again that differ or are damaged. → as `wait`."""
        self._app.ensure_open()
        if self._guarded() is None:
            self.catch_up()
            return True
        try:
            damaged = self._store.check()
        except IndexUnusable:
            damaged = "damaged"
        if damaged:
            self.drop()
        return self.wait(progress=progress)

    def drop(self) -> None:
        """Delete the stored vectors. They are made again in the background."""
        self._app.ensure_open()
        with self._store.hold(_HOUR):
            self._store.drop()
        self._neighbours = None

    def close(self) -> None:
        """Stop after the step that is running, and close the file."""
        if self._process == os.getpid():
            self._background.close(_CLOSE)
            if "_store" in vars(self):
                self._store.close()

    # ── inside ──

    def in_slices(self, stop: Stop) -> None:
        """Embed everything in the background: in small steps, with as much rest as work in between."""
        batch = LEAST
        if self._guarded() is None or not self._run.anything():
            return
        while not stop() and (embedder := self._guarded()) is not None:
            started = time.monotonic()
            try:
                with self._store.hold(0):
                    if not self._run.step(embedder, batch, stop):
                        return
            except (EmbedderPaused, StoreBusy):  # or another process does the work
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

    def _embed_all(self, stop: Stop, progress: Progress) -> bool:
        embedder = self._guarded()
        if embedder is None or not self._run.anything():
            self.catch_up()
            return not self._trouble
        more = True
        while more and not stop():
            try:
                with self._store.hold(_LOOK_AGAIN):
                    more = self._run.step(embedder, MOST, stop)
            except EmbedderPaused:
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
            if progress is not silent:
                state = self.state()
                progress(state.done, state.done + state.left)
        if not more:
            self._trouble = ""
        return not more

    def _discard(self, error: IndexUnusable) -> bool:
        """Delete a file that cannot be used. → whether to try again: not after several that were no better."""
        self._discarded += 1
        self._trouble = str(error)
        if self._discarded > MOST_DISCARDED:
            return False
        with self._store.hold(_HOUR):
            self._store.drop()
        return True

    def _guarded(self) -> GuardedEmbedder | None:
        """Return the embedder, if there is one, with the trouble that other processes recorded."""
        if not self._asked_for:
            try:
                found = self._app.models.embedder()
                self._trouble = ""
            except HermaError as error:
                self._trouble = str(error)
                return None
            self._asked_for = True
            if found is not None:
                try:
                    known = self._store.file().trouble
                except (IndexUnusable, StoreError):
                    known = None
                self._embedder = GuardedEmbedder(found, clock=self._clock, report=self._record, known=known)
        return self._embedder

    def _record(self, trouble: EmbedderTrouble) -> None:
        try:
            self._store.trouble(trouble)
        except (IndexUnusable, StoreError) as error:  # then only this process knows
            self._trouble = str(error)

    def _ready(self, query: str | Vector) -> tuple[Neighbours | ServerNeighbours | None, Vector | None, str]:
        """Return the vectors to compare and the vector of the question, or a note that says why there are none."""
        embedder = self._guarded()
        if embedder is None:
            return None, None, f"vectors: {self._trouble}" if self._trouble else ""
        try:
            if not any(embedder.made(row) and row.vectors for row in self._store.file().models):
                return None, None, "vectors: nothing is embedded yet. To do it now: herma index embed"
        except (IndexUnusable, StoreError):
            return None, None, "vectors: nothing is embedded yet. To do it now: herma index embed"
        dimension = embedder.dimension()
        if not dimension:
            return None, None, f"vectors: {embedder.note}; words alone were searched."
        neighbours, reading = self._neighbours, None
        if neighbours is None or neighbours.dimension != dimension:
            neighbours = self._neighbours = self._store.neighbours(embedder.name, dimension)
            reading = BackgroundCall("vectors", neighbours.read).start()
        vector = embedder.query(query) if isinstance(query, str) else query
        if reading is not None:  # loading a model for its first question takes as long
            reading.answer()
        if vector is None:
            return None, None, f"vectors: {embedder.note}; words alone were searched."
        return neighbours, vector, ""

    def _notes(self) -> tuple[str, ...]:
        state = self.state()
        if state.coverage == 1.0:
            return ()
        if time.monotonic() - self._born > LONG_LIVED:
            self._background.begin()
        left = f"{state.left:,} of {state.done + state.left:,} messages are not embedded yet"
        return (f"vectors: {left}. To do it now: herma index embed",)
