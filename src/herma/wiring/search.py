"""Search over the transcripts."""

from __future__ import annotations

from collections.abc import Callable

from herma.index import Index
from herma.recall.rerank import Reranker
from herma.recall.search import Searcher
from herma.store.sqlite.reader import SqliteReader
from herma.transcript import Transcripts
from herma.wiring.ground import Ground


def searcher(ground: Ground, kept: Transcripts, words: Index, reranker: Callable[[], Reranker | None]) -> Searcher:
    settings = ground.settings.search
    return Searcher(
        SqliteReader(ground.database),
        words,
        members=kept.conversation,
        clock=ground.clock,
        alive=ground.alive,
        vectors=words.vectors,
        mode=settings.mode,
        wait=settings.model_wait,
        reranker=reranker,
    )
