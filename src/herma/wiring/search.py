"""Search over the transcripts."""

from __future__ import annotations

from herma.index import Index
from herma.recall.search import Searcher
from herma.store.sqlite.reader import SqliteReader
from herma.transcript import Transcripts
from herma.wiring.ground import Ground


def searcher(ground: Ground, kept: Transcripts, words: Index) -> Searcher:
    return Searcher(
        SqliteReader(ground.database), words, members=kept.conversation, clock=ground.clock, alive=ground.alive
    )
