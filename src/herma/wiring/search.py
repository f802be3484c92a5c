"""Search over the transcripts."""

from __future__ import annotations

from collections.abc import Callable

from herma.errors import ConfigError
from herma.index import Index
from herma.recall.asked import MODES, Mode
from herma.recall.rerank import Reranker
from herma.recall.search import Searcher
from herma.store.sqlite.reader import SqliteReader
from herma.transcript import Transcripts
from herma.wiring.ground import Ground


def read_mode(name: str) -> Mode:
    """`search.mode` as it may be."""
    for mode in MODES:
        if name.strip().lower() == mode:
            return mode
    raise ConfigError(f"search.mode is {name!r}.", hint=f"There are {', '.join(MODES)}.")


def searcher(ground: Ground, kept: Transcripts, words: Index, reranker: Callable[[], Reranker | None]) -> Searcher:
    settings = ground.settings.search
    return Searcher(
        SqliteReader(ground.database),
        words,
        members=kept.conversation,
        clock=ground.clock,
        alive=ground.alive,
        vectors=words.vectors,
        mode=read_mode(settings.mode),
        wait=settings.model_wait,
        reranker=reranker,
    )
