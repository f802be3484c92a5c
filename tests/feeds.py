"""A transcript in memory, for tests of what follows it."""

from __future__ import annotations

from collections.abc import Sequence

from herma.transcript.rows import ChangeFeed, FeedChange, Position, Searchable

SHARD = 1 << 15
"""Messages of one part of the text index."""


class Feed(ChangeFeed):
    """A transcript in memory, with a change feed."""

    def __init__(self, first: int = 1) -> None:
        self.texts: dict[int, str] = {}
        self.changes: list[FeedChange] = []
        self.epoch = "epoch"
        self.next = first

    @classmethod
    def of(cls, texts: dict[int, str]) -> Feed:
        """Return one that has these texts since one change."""
        feed = cls()
        feed.texts, feed.changes = texts, [FeedChange(1, "append", tuple(texts))]
        return feed

    def append(self, *texts: str) -> tuple[int, ...]:
        ids = tuple(range(self.next, self.next + len(texts)))
        self.next += len(texts)
        self.texts.update(zip(ids, texts, strict=True))
        self.changes.append(FeedChange(len(self.changes) + 1, "append", ids))
        return ids

    def purge(self, *ids: int) -> None:
        for message_id in ids:
            self.texts.pop(message_id, None)
        self.changes.append(FeedChange(len(self.changes) + 1, "purge", ids))

    def position(self) -> Position:
        return Position("store", self.epoch, len(self.changes))

    def longer_than(self, characters: int) -> int:
        return sum(len(text) > characters for text in self.texts.values())

    def since(self, seq: int, limit: int) -> Sequence[FeedChange]:
        return self.changes[seq : seq + limit]

    def searchable(self, message_ids: Sequence[int]) -> Sequence[Searchable]:
        return [Searchable(i, "session", "user", 0.0, self.texts[i]) for i in message_ids if i in self.texts]

    def message_count(self) -> int:
        return len(self.texts)
