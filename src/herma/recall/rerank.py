"""An optional second opinion on the first few hits, from whoever can read question and text together.

None comes with Herma. A program that has one hands it over (`h.reranker = …`), and it is asked within a deadline; what
it does wrong leaves the order as it was, and the report says so.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

RERANKED = 20
"""Hits that are shown to it."""
READS = 2_000
"""Characters of each that it is given."""


class Reranker(Protocol):
    """Says how well each text answers the question. Only the order of its numbers matters."""

    def scores(self, question: str, texts: Sequence[str]) -> Sequence[float]: ...


@dataclass(frozen=True, slots=True)
class Opinion:
    """The order it would have, as places in what it was given; or none, and why."""

    order: tuple[int, ...] = ()
    note: str = ""


class _Asked(threading.Thread):
    def __init__(self, reranker: Reranker, question: str, texts: Sequence[str]) -> None:
        super().__init__(name="herma-rerank", daemon=True)
        self._question = question
        self._texts = texts
        self._reranker = reranker
        self.scores: Sequence[float] = ()
        self.trouble = ""

    def run(self) -> None:
        try:
            self.scores = [float(score) for score in self._reranker.scores(self._question, self._texts)]
        except Exception as error:  # noqa: BLE001  a guest may raise anything
            self.trouble = " ".join(str(error).split())[:200] or type(error).__name__


def opinion(reranker: Reranker, question: str, texts: Sequence[str], deadline: float) -> Opinion:
    """Ask, for at most `deadline` seconds. Texts that it finds equally good stay in the order they had."""
    asked = _Asked(reranker, question, [text[:READS] for text in texts])
    asked.start()
    asked.join(deadline)
    if asked.is_alive():
        return Opinion(note=f"rerank: no answer within {deadline:g} s; the order is that of the search.")
    if asked.trouble:
        return Opinion(note=f"rerank: it failed ({asked.trouble}); the order is that of the search.")
    scores = asked.scores
    if len(scores) != len(texts) or not all(map(math.isfinite, scores)):
        return Opinion(note="rerank: it did not give one number for each text; the order is that of the search.")
    return Opinion(order=tuple(sorted(range(len(texts)), key=lambda at: -scores[at])))
