"""Looking back before each turn: what it searches, and how it comes along in sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from herma.recall.prefetch_watch import FactWatcher, PastWatcher
from herma.store.sqlite.sessions import SqliteSessions
from herma.turn.company import Company, Invite
from herma.types import SessionView
from herma.wiring.ground import Ground

if TYPE_CHECKING:
    from herma.facts import Facts
    from herma.index import Index
    from herma.recall.prefetch import Prefetcher
    from herma.recall.prefetching import Prefetch
    from herma.transcript import Transcripts

_EMBEDDING = 0.4
"""Part of the deadline that embedding the question may take; the rest is for searching."""


def prefetch(ground: Ground, kept: Transcripts, words: Callable[[], Index], facts: Callable[[], Facts]) -> Prefetch:
    from herma.recall.prefetch import CHARACTERS, Prefetcher
    from herma.recall.prefetching import Prefetch, PrefetchParts
    from herma.recall.search import Searcher
    from herma.store.sqlite.reader import SqliteReader
    from herma.wiring.sessions import window_budget

    settings = ground.settings.search
    deadline = settings.prefetch_ms / 1000

    def made(warm: Callable[[], bool]) -> Prefetcher:
        index, reader = words(), SqliteReader(ground.database)
        searcher = Searcher(
            reader,
            index,
            members=kept.conversation,
            clock=ground.clock,
            alive=ground.alive,
            vectors=index.vectors,
            mode=settings.mode,
            wait=_EMBEDDING * deadline,
        )
        vectors = None if settings.mode == "words" else index.vectors
        return Prefetcher(searcher, reader, index, vectors=vectors, warm=warm, clock=ground.clock)

    def room(model: str) -> int:
        """A quarter of what the window gives to memory, at about four characters a token."""
        budget = window_budget(ground.settings.context).of(model or ground.settings.model.name or None)
        return min(CHARACTERS, budget.room("memory"))

    def warm() -> None:
        vectors = words().vectors
        if settings.mode != "words" and vectors is not None and vectors.state().ready:
            vectors.warm()

    parts = PrefetchParts(made, lambda text, scope: facts().answer(text, scope), room, warm)
    return Prefetch(parts, enabled=settings.prefetch, deadline=deadline)


def with_prefetch(ground: Ground, made: Callable[[], Prefetch], facts: Callable[[], Facts]) -> Invite:
    """In every session: who looks back before each turn."""
    settings = ground.settings.search
    sessions = SqliteSessions(ground.database)

    def invite(view: SessionView, rehearsal: bool) -> Company:  # noqa: ARG001
        if rehearsal or not settings.prefetch:
            return Company()
        deadline = settings.prefetch_ms / 1000
        return Company(watchers=[FactWatcher(facts, deadline), PastWatcher(made, sessions.others_spoken, deadline)])

    return invite
