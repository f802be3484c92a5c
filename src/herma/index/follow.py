"""Following the change feed into the stored index in slices; and building the index anew beside the old one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from hashlib import blake2b

from herma.index.prepare import prepare
from herma.ports import ChangeFeed, IndexFiles, IndexRow, IndexState, IndexTables, IndexUnusable, Position, Searchable

Progress = Callable[[int, int], None]
"""Called with how many messages are done, and of how many."""
Stop = Callable[[], bool]

SLICE = 0.005
"""How long anything is held in the background."""
BATCH = 512
"""Messages at a time where somebody waits for them."""
_PAUSE = 0.001


def never() -> bool:
    return False


def silent(done: int, total: int) -> None:
    """No progress wanted."""


class Follower:
    """The only writer of the stored index in this process. Whoever calls `step` or `advance` holds the files."""

    def __init__(self, files: IndexFiles, feed: ChangeFeed) -> None:
        self._files = files
        self._feed = feed
        self._part = (0, 0)  # the change that is being indexed in parts, and how much of it is
        self.rebuilding = False

    def state(self) -> IndexState:
        """The index in use; without a position when there is none that could be continued."""
        try:
            return self._files.current().state()
        except IndexUnusable:
            return IndexState()

    def position(self, end: Position) -> Position | None:
        """Where the index in use stands in this feed; None when it has to be built (anew)."""
        reached = self.state().position
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
        """Index everything that is new, in the caller's time."""
        with self._files.hold(wait):
            if (end := self._feed.position()).seq == 0:
                return
            if reached := self.position(end):
                try:
                    self._advance(self._files.current(), reached, end, stop)
                except IndexUnusable:
                    self._files.drop()
            if not reached or self.position(end) is None:
                self._build(anew=False, stop=stop)

    def in_slices(self, stop: Stop) -> None:
        """Index everything that is new and do the upkeep, holding nothing for longer than a slice.

        The two take turns: upkeep that is put off piles up.
        """
        batch, more, upkeep = 16, True, True
        while more and not stop():
            with self._files.hold(0):
                started = time.monotonic()
                end = self._feed.position()
                if end.seq == 0:
                    return
                reached = self.position(end)
                if reached is None:
                    self._build(anew=False, stop=stop)
                    continue
                upkeep = not upkeep or reached.seq == end.seq
                try:
                    if upkeep:
                        more = self._tidy_for(self._files.current(), started + SLICE / 2) or reached.seq < end.seq
                    else:
                        self._step(self._files.current(), reached, batch)
                except IndexUnusable:
                    self._files.drop()
                took = time.monotonic() - started
                if not upkeep:
                    batch = max(4, batch // 2) if took > SLICE else min(BATCH, batch * 2) if took < SLICE / 2 else batch
            time.sleep(_PAUSE)

    def rebuild(self, wait: float, progress: Progress = silent, stop: Stop = never, *, anew: bool = True) -> None:
        """Build the index beside the one in use and put it in its place."""
        with self._files.hold(wait):
            self._build(anew=anew, progress=progress, stop=stop)

    def rows(self, message_ids: Sequence[int]) -> Sequence[IndexRow]:
        """These messages as the index keeps them."""
        return [_row(message) for message in self._feed.searchable(message_ids)]

    def _advance(self, tables: IndexTables, reached: Position, end: Position, stop: Stop) -> None:
        while reached.seq < end.seq and not stop():
            reached = self._step(tables, reached, BATCH)
        tables.tidy()

    def _step(self, tables: IndexTables, reached: Position, batch: int) -> Position:
        """Index about `batch` messages. A larger change is indexed in parts, and is passed when its last part is."""
        wanted: dict[int, bool] = {}
        seq = reached.seq
        for change in self._feed.since(seq, batch):
            done = self._part[1] if self._part[0] == change.seq else 0
            ids = change.message_ids[done : done + batch - len(wanted)]
            wanted.update(dict.fromkeys(ids, change.kind == "append"))
            if done + len(ids) < len(change.message_ids):
                self._part = (change.seq, done + len(ids))
                break
            seq = change.seq
        rows = self.rows([message for message, here in wanted.items() if here])
        gone = [message for message, here in wanted.items() if not here]
        reached = Position(reached.store_id, reached.epoch, seq)
        tables.put(rows, gone, reached)
        return reached

    def _tidy_for(self, tables: IndexTables, deadline: float) -> bool:
        while tables.tidy():
            if time.monotonic() > deadline:
                return True
        return False

    # ── building ──

    def _build(self, *, anew: bool, progress: Progress = silent, stop: Stop = never) -> None:
        self.rebuilding = True
        try:
            try:
                finished = self._fill(anew, progress, stop)
            except IndexUnusable:
                finished = self._fill(True, progress, stop)
            if finished:
                self._files.publish()
        finally:
            self.rebuilding = False

    def _fill(self, anew: bool, progress: Progress, stop: Stop) -> bool:
        """Fill the new index up to the end of the feed. → False when it was stopped; the next attempt goes on there."""
        end = self._feed.position()
        tables = self._files.building(anew=anew)
        reached = tables.state().position
        if reached is not None and (reached.store_id, reached.epoch) != (end.store_id, end.epoch):
            tables, reached = self._files.building(anew=True), None
        reached = reached or Position(end.store_id, end.epoch, 0)
        self._part = (0, 0)
        tables.put((), (), reached)
        total = self._feed.message_count()
        while reached.seq < end.seq:
            if stop():
                return False
            reached = self._step(tables, reached, BATCH)
            while tables.tidy():
                if stop():
                    return False
            progress(tables.state().messages, total)
            if reached.seq >= end.seq:
                end = self._feed.position()
        return True


def _row(message: Searchable) -> IndexRow:
    prepared = prepare(message.text)
    digest = blake2b(message.text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return IndexRow(message.id, prepared.text, " ".join(prepared.names), int.from_bytes(digest, "big", signed=True))
