"""The vector index over all transcripts: embeds in the background, answers what is near, and is never in the way.

Words work without it. Nothing here raises because of an embedder, and nothing here can lose a message: whatever happens
to the stored vectors, they are made again from the transcript.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from herma.errors import HermaError, StoreBusy, StoreError
from herma.index.background import Background
from herma.index.embedding import Guest
from herma.index.follow import Progress, silent
from herma.index.vectors_walk import GIST_AFTER, EmbedderResting, Kept, Walk
from herma.ports import ChangeFeed, Embedder, IndexUnusable
from herma.ports.vectors import (
    MESSAGE,
    Embeddables,
    EmbedderTrouble,
    Nearest,
    PassageSource,
    VectorReader,
    VectorState,
)

if TYPE_CHECKING:
    from herma.index.nearness import Nearness
    from herma.ports.vectors import Vector

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
            from herma.index.nearness import Nearness

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
