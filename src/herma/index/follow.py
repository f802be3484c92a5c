"""Following the change feed into the stored index in slices; and building the index anew beside the old one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from hashlib import blake2b

from herma.errors import StoreBusy
from herma.index.prepare import prepare
from herma.ports import (
    ChangeFeed,
    FeedChange,
    IndexFiles,
    IndexRow,
    IndexState,
    IndexTables,
    IndexUnusable,
    Position,
    Searchable,
)

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
