"""The text index over all transcripts: follows the change feed, answers searches, and builds itself anew when it must.

Nothing here can lose a message: whatever happens to the stored index, it is derived again from the transcript.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from herma.errors import StoreBusy, StoreError
from herma.index.background import Background
from herma.index.follow import Follower, Progress, silent
from herma.index.prepare import clean
from herma.index.sieve import sieve
from herma.index.vectors import Vectors
from herma.ports import ChangeFeed, Found, IndexFiles, IndexUnusable, Position, Terms
from herma.ports.index import IndexMissing
from herma.ports.vectors import VectorState

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
