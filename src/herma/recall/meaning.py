"""Asking the index of vectors, within a deadline: search never waits long for a model, and says what it did without."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from dataclasses import dataclass

from herma.ports.vectors import Near, VectorIndex
from herma.recall.fuse import FOREIGN, NEAREST, ONE_THING
from herma.recall.match import units
from herma.recall.query import HAS_CJK, Query
from herma.recall.rules import Filters
from herma.recall.stopwords import NOT_ENGLISH

FILTERED = 600
"""The nearest that are asked for where rules leave out most of them."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What is near in meaning, how far to trust it, how long the question took to embed, and what to tell people."""

    near: tuple[Near, ...] = ()
    trust: float = 1.0
    took_ms: float = 0.0
    notes: tuple[str, ...] = ()


class Asker:
    """Asks one index of vectors. An embedder that is too slow goes on by itself; its answer serves the next time."""

    def __init__(self, vectors: VectorIndex, *, deadline: float) -> None:
        self._vectors = vectors
        self._deadline = deadline
        self._mutex = threading.Lock()
        self._busy: threading.Thread | None = None

    def ask(self, query: Query, filters: Filters) -> Meaning:
        """Nothing where there is no embedder, or nothing in plain language to embed."""
        text = " ".join(query.plain.split())
        state = self._vectors.state() if text and query.any_of else None
        if state is None or not state.wanted:
            return Meaning(notes=(f"vectors: {state.trouble}",) if state is not None and state.trouble else ())
        began = time.perf_counter()
        if not self._embedded(text):
            waited = f"{self._deadline:g} s"
            return Meaning(notes=(f"vectors: the embedder did not answer within {waited}; words alone were searched.",))
        took = (time.perf_counter() - began) * 1000
        found = self._vectors.near(text, FILTERED if filters.narrow else NEAREST)
        return Meaning(found.hits, _trust(query, multilingual=state.is_multilingual), round(took, 2), found.notes)

    def _embedded(self, text: str) -> bool:
        """Have the question embedded, which the index remembers. → whether that was done in time."""
        with self._mutex:
            if self._busy is not None and self._busy.is_alive():
                return False
            work = threading.Thread(target=self._vectors.scores, args=(text, ()), name="herma-question", daemon=True)
            self._busy = work
            work.start()
        work.join(self._deadline)
        return not work.is_alive()


def _trust(query: Query, *, multilingual: bool) -> float:
    """How far meaning counts: less where the model knows the language less, or where it is about one exact thing."""
    trust = ONE_THING if len(units(query)) == 1 else 1.0
    words = query.plain.casefold().split()
    if HAS_CJK.search(query.plain) or (not multilingual and _is_foreign(words)):
        trust *= FOREIGN
    return trust


def _is_foreign(words: Collection[str]) -> bool:
    return any(word in NOT_ENGLISH for word in words)
