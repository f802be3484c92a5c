"""Embedding what is new, step by step: messages (new ones first, then back to the oldest), gists, registered texts.

Every step is one transaction that moves the reach with the vectors, so that whoever comes after a crash goes on where
it was. Purged messages go at once, whether or not there is an embedder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from herma.index import passages as text
from herma.index.embedding import Guest
from herma.index.passages import Passage
from herma.ports import ChangeFeed, FeedChange, IndexUnusable, Position
from herma.ports.vectors import (
    MESSAGE,
    SESSION,
    Embeddables,
    ModelRow,
    PassageSource,
    Reach,
    Step,
    VectorFile,
    VectorRow,
    VectorTables,
    VectorUpkeep,
)

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
        if model.versions.get(_RECIPE) == text.RECIPE:
            return False
        begun = model.reach.walked > 0
        if begun:
            self._tables.check()
        self._tables.put(model, Step(kind=_RECIPE, version=text.RECIPE))
        return begun

    def _messages(self, guest: Guest, model: ModelRow, end: int, batch: int) -> bool:
        reach = model.reach
        if reach.high < end:
            ids, reach = ahead(reach, self._feed.since(reach.high, CHANGES), batch)
        elif reach.low > 0:
            ids, reach = behind(reach, self._feed.since(max(0, reach.low - CHANGES), CHANGES), batch)
        if reach == model.reach:
            return False
        said = self._source.said(ids, text.at_most(), text.BEFORE) if ids else ()
        wanted = _readable(guest, [passage for one in said for passage in text.of_message(one)])
        new, met, stale = text.changed(wanted, self._tables.digests(model, MESSAGE, ids))
        rows = self._embedded(guest, model, new)
        touched = Counter(one.session_id for one in said)
        self._tables.put(model, Step(rows, MESSAGE, met, stale, reach=reach, touched=touched))
        return True

    def _gists(self, guest: Guest, model: ModelRow, sessions: Sequence[str]) -> bool:
        if not sessions:
            return False
        outlines = self._source.outlines(sessions, text.EDGE, text.EDGE_TEXT * 2)
        wanted = _readable(guest, [passage for outline in outlines for passage in text.of_session(outline)])
        new, met, stale = text.changed(wanted, self._tables.digests(model, SESSION, sessions))
        rows = self._embedded(guest, model, new)
        kept = {passage.spot.key for passage in wanted}
        outlined = [(one.session_id, text.of_title(one.title)) for one in outlines if one.session_id in kept]
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
                if session not in titles or (digest and digest != text.of_title(titles[session]))
            ]
        taken, self._renamed = self._renamed[:batch], self._renamed[batch:]
        return taken

    def _texts(self, guest: Guest, model: ModelRow, source: Embeddables, stop: Stop) -> bool:
        """All texts of one kind; those that are embedded already cost no more than being read."""
        kind, version = source.kind, source.version()
        if model.versions.get(kind) == version:
            return False
        wanted = _readable(guest, [passage for one in source.texts() for passage in text.of_text(kind, one)])
        new, met, stale = text.changed(wanted, self._tables.digests(model, kind, None))
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
    return [one for one in passages if text.readable(one.text, is_multilingual=guest.is_multilingual)]


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
