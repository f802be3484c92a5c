"""Asking the index of vectors, within a deadline: search never waits long for a model, and says what it did without."""

from __future__ import annotations

import _thread
import re
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass

from herma.errors import HermaError
from herma.ports.vectors import Near, VectorIndex
from herma.recall.fuse import FOREIGN, KEYWORDS, NEAREST, ONE_THING
from herma.recall.match import units
from herma.recall.query import Query
from herma.recall.rules import Filters
from herma.recall.stopwords import NOT_ENGLISH
from herma.recall.stripped import HAS_CJK

_ENGLISH = re.compile("[A-Za-z]{3}")
_UNRELATED = {"e5-small": 0.8}
"""What a model says of texts that have nothing to do with each other; of the few of a small home one is always nearest.
e5-small: of a stranger's messages 98 in 100 are below it, of messages that answer the question 3 in 100."""
FILTERED = 600
"""The nearest that are asked for where rules leave out most of them."""
AT_ONCE = 16
"""Questions of as many searches that an embedder is given at a time; a thread waits for each."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What is near in meaning, how far to trust it, how long the question took to embed, and what to tell people."""

    near: tuple[Near, ...] = ()
    trust: float = 1.0
    took_ms: float = 0.0
    notes: tuple[str, ...] = ()
    least: float = 0.0
    """The cosine from which on something is near at all, where that is known of the model."""


class Asker:
    """Asks one index of vectors, beside whatever else a search does.

    An embedder that is too slow goes on by itself; meanwhile searches are by words, and its answer serves the next one.
    That other searches ask at the same moment is no reason to call it slow: only a question that is overdue is.
    """

    def __init__(self, vectors: VectorIndex, *, deadline: float) -> None:
        self._vectors = vectors
        self._deadline = deadline
        self._mutex = threading.Lock()
        self._open: list[_Question] = []

    def begin(self, query: Query, filters: Filters) -> Pending:
        """Nothing is asked where there is no embedder, or nothing in plain language to embed, or nothing that the model
        can read: what it calls near then is noise, and an empty answer that says why is worth more.
        """
        text = " ".join(query.plain.split())
        state = self._vectors.state() if text and query.any_of else None
        if state is None or not state.wanted:
            return Pending(Meaning(notes=(f"vectors: {state.trouble}",) if state is not None and state.trouble else ()))
        if not state.is_multilingual and _is_unreadable(text):
            return Pending(Meaning())
        with self._mutex:
            now = time.monotonic()
            self._open = [asked for asked in self._open if not asked.done.is_set()]
            if any(asked.until <= now for asked in self._open):
                return Pending(_late(self._deadline))
            if len(self._open) >= AT_ONCE:
                return Pending(Meaning(notes=(_CROWDED,)))
            trust = _trust(query, multilingual=state.is_multilingual)
            least = next((floor for name, floor in _UNRELATED.items() if state.model.startswith(name)), 0.0)
            question = _Question(self._vectors, text, FILTERED if filters.narrow else NEAREST, trust, least)
            question.until = now + self._deadline
            self._open.append(question)
            question.start()
            return Pending(_late(self._deadline), question)


class Pending:
    """An answer that may still be on its way."""

    def __init__(self, otherwise: Meaning, question: _Question | None = None) -> None:
        self._answer = otherwise
        self._question = question

    @property
    def waiting(self) -> bool:
        """Whether it is not there yet."""
        return self._question is not None and not self._question.done.is_set()

    def result(self) -> Meaning:
        """What is near; waits for it until the deadline, then no more."""
        if self._question is not None:
            if self._question.done.wait(max(0.0, self._question.until - time.monotonic())):
                self._answer = self._question.answer
            self._question = None
        return self._answer


class _Question:
    """Asks in a thread of its own. A thread of `threading` would have its starter wait until it runs, and that takes as
    long as a tenth of a search.
    """

    def __init__(self, vectors: VectorIndex, text: str, nearest: int, trust: float, least: float) -> None:
        self._vectors, self._text, self._nearest, self._trust, self._least = vectors, text, nearest, trust, least
        self.answer = Meaning()
        self.until = 0.0
        self.done = threading.Event()

    def start(self) -> None:
        _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        try:
            self.run()
        finally:
            self.done.set()

    def run(self) -> None:
        try:
            began = time.perf_counter()
            self._vectors.scores(self._text, ())  # embeds the question, which the index remembers
            took = (time.perf_counter() - began) * 1000
            found = self._vectors.near(self._text, self._nearest)
            near = tuple(one for one in found.hits if one.score >= self._least)
            self.answer = Meaning(near, self._trust, round(took, 2), found.notes, self._least)
        except HermaError as error:  # the home was closed meanwhile, or cannot be read: words may still be found
            self.answer = Meaning(notes=(f"vectors: {error}",))


_CROWDED = f"vectors: {AT_ONCE} other searches are asking the embedder just now; words alone were searched."


def _late(deadline: float) -> Meaning:
    return Meaning(notes=(f"vectors: the embedder did not answer within {deadline:g} s; words alone were searched.",))


def _trust(query: Query, *, multilingual: bool) -> float:
    """How far meaning counts: less where the model knows the language less, or where it is about one exact thing."""
    trust = ONE_THING if len(units(query)) == 1 else 1.0 if query.ignored else KEYWORDS
    words = query.plain.casefold().split()
    if HAS_CJK.search(query.plain) or (not multilingual and _is_foreign(words)):
        trust *= FOREIGN
    return trust


def _is_unreadable(text: str) -> bool:
    """Whether a model that knows English only has nothing to go by: Chinese, Japanese or Korean, and no other word."""
    return HAS_CJK.search(text) is not None and _ENGLISH.search(text) is None


def _is_foreign(words: Collection[str]) -> bool:
    return any(word in NOT_ENGLISH for word in words)
