"""The long tail of curated memory: `h.memory.tail`.

What tidying or the budget takes out of MEMORY.md and USER.md is kept here, found by words and by meaning, recalled
where it helps, and can be put back. Nothing comes here that a person deleted.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

from herma.curated.relevance import KNOWN_MODEL, Evidence, best_of, helps, says_something, weigh
from herma.errors import UsageError
from herma.ports import Place
from herma.ports.tail import TailRows
from herma.safety.scan import scan
from herma.types import Add, Applied, Author, Entry, MemoryOp, MemoryOutcome, Scope, TailEntry, TailHit, Target

if TYPE_CHECKING:
    from herma.ports.vectors import VectorIndex

KIND = "tail"
"""What entries of the long tail are called in the vector index."""
TERMS = 60
"""Words of a text that are looked at."""
_WORD = re.compile(r"\w+")
_POSTINGS = 500
_CANDIDATES = 60
_ENOUGH = 4
"""Entries that must be compared for one of them to stand out."""
Found: TypeAlias = list[TailEntry]
Hits: TypeAlias = list[TailHit]
Weighed: TypeAlias = list[tuple[TailEntry, Evidence]]
Terms: TypeAlias = Callable[[str], Sequence[str]]


class _Apply(Protocol):
    def __call__(
        self, target: Target, ops: MemoryOp, *, scope: Scope | None, author: Author, reason: str
    ) -> MemoryOutcome: ...


@dataclass(frozen=True, slots=True)
class TailParts:
    """What the long tail is made of: its rows, how texts become terms, and where meanings are compared."""

    rows: TailRows
    terms: Terms = lambda _: ()
    vectors: Callable[[], VectorIndex | None] = lambda: None


class Tail:
    """The long tails of all documents of one home."""

    def __init__(
        self,
        parts: TailParts,
        *,
        own: Callable[[Scope | None], list[Place]],
        shown: Callable[[Scope | None], list[Place]],
        apply: _Apply,
        annotate: Callable[[Place, Sequence[Entry]], None],
        notes: Callable[[Place, Sequence[str]], Mapping[str, Entry]],
        clock: Callable[[], float] = time.time,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        """`own`: the documents of a scope; `shown`: those that a session of it sees."""
        self._rows = parts.rows
        self._terms = parts.terms
        self._vectors = parts.vectors
        self._own = own
        self._shown = shown
        self._apply = apply
        self._annotate = annotate
        self._notes = notes
        self._clock = clock
        self._alive = alive

    # ── looking ──

    def list(self, target: Target | None = None, *, scope: Scope | None = None, forgotten: bool = False) -> Found:
        """What is in the long tail of this scope's files, newest first; or what a person had it forget."""
        self._alive()
        places = [place for place in self._own(scope) if target in (None, place.target)]
        found = [one for place in places for one in self._rows.select(place)]
        return [one for one in found if (one.forgotten is not None) == forgotten]

    def get(self, number: int) -> TailEntry | None:
        """One entry by its number, whatever its scope, forgotten or not."""
        self._alive()
        return self._rows.get([number]).get(number)

    def search(self, text: str, *, scope: Scope | None = None, limit: int = 10) -> Hits:
        """What has anything to do with a text, the nearest first: by words and, with an embedder, by meaning."""
        self._alive()
        weighed = self._weighed(text, self._shown(scope), meaning=True)
        found = [(entry, evidence) for entry, evidence in weighed if evidence.score > 0][: max(limit, 0)]
        return [TailHit(entry, evidence.score, self._why(entry, evidence)) for entry, evidence in found]

    def recall(
        self, text: str, *, scope: Scope | None = None, known: str = "", limit: int = 3, meaning: bool = True
    ) -> Hits:
        """What helps with what the user says, and only that. `known` is what the model has been shown already.

        What no longer holds, what was forgotten and what the scanner objects to is never among it.
        """
        self._alive()
        question = self._question(text)
        if not says_something(question):
            return []
        found = []
        counts, total = self._counts(question)
        for entry, evidence in self._weighed(text, self._shown(scope), meaning=meaning):
            if not entry.holds or entry.text in known or scan(entry.text):
                continue
            if helps(evidence, question, counts, total):
                found.append(TailHit(entry, evidence.score, self._why(entry, evidence)))
        return found[: min(limit, best_of([hit.score for hit in found]))] if found else []

    def is_empty(self, scope: Scope | None = None) -> bool:
        """Whether there is nothing that a session of this scope could recall. Costs next to nothing."""
        return self._rows.is_empty(self._shown(scope))

    # ── using ──

    def used(self, entries: Iterable[int], conversation: str) -> Found:
        """They were recalled in this conversation, which counts once. → them, as they are now."""
        self._alive()
        ids = list(entries)
        if not ids:
            return []
        self._rows.used(ids, conversation, self._clock())
        return list(self._rows.get(ids).values())

    def proposed(self, entry: TailEntry) -> None:
        """It was proposed for the prompt, which happens once."""
        self._rows.mark([entry.id], "proposed", self._clock())

    def restore(self, number: int, *, author: Author | None = None, reason: str = "") -> MemoryOutcome:
        """Put an entry back into its file, with what is known about it. Undoing that change takes it out again."""
        entry = self._find(number)
        if entry.forgotten is not None:
            raise UsageError(f"Entry {number} was forgotten.", hint=f"herma memory tail unforget {number}")
        place = Place.of(entry.target, entry.scope)
        known = self._notes(place, [entry.text]).get(entry.text)
        why = reason or f"put back from the long tail ({number})"
        op = Add(entry.text, entry.category, entry.tags)
        outcome = self._apply(entry.target, op, scope=entry.scope, author=author or Author(), reason=why)
        if isinstance(outcome, Applied) and known is not None:
            now = self._clock()
            self._annotate(place, [replace(known, confirmed=now, change=outcome.change)])
        return outcome

    def forget(self, numbers: Sequence[int]) -> Found:
        """They are found and recalled no more. → those that were there. `unforget` takes it back."""
        return self._mark(numbers, self._clock())

    def unforget(self, numbers: Sequence[int]) -> Found:
        return self._mark(numbers, None)

    # ── inside ──

    def _mark(self, numbers: Sequence[int], at: float | None) -> Found:
        found = [self._find(number) for number in dict.fromkeys(numbers)]  # an unknown one is said before any is marked
        changed = [one for one in found if (one.forgotten is None) != (at is None)]
        self._rows.mark([one.id for one in changed], "forgotten", at)
        return changed

    def _find(self, number: int) -> TailEntry:
        found = self.get(number)
        if found is None:
            raise UsageError(
                f"There is no entry {number} in the long tail.", hint="`herma memory tail list` shows what is there."
            )
        return found

    def _why(self, entry: TailEntry, evidence: Evidence) -> tuple[str, ...]:
        """For people: the words as they stand in the entry, not what they come down to."""
        words = {term: word for word in reversed(_WORD.findall(entry.text)) for term in self._terms(word)}
        return replace(evidence, shared=tuple(words.get(term, term) for term in evidence.shared)).why

    def _question(self, text: str) -> Sequence[str]:
        return list(self._terms(text))[:TERMS]

    def _counts(self, question: Sequence[str]) -> tuple[dict[str, int], int]:
        lists = self._rows.with_terms(question, _POSTINGS)
        counts = {term: len(ids) for term, ids in zip(question, lists, strict=True)}
        return counts, len({number for ids in lists for number in ids})

    def _weighed(self, text: str, places: Sequence[Place], *, meaning: bool) -> Weighed:
        """Entries of these documents that share a word or are near, best first."""
        question = self._question(text)
        votes: dict[int, int] = {}
        for ids in self._rows.with_terms(question, _POSTINGS):
            for number in ids:
                votes[number] = votes.get(number, 0) + 1
        best = sorted(votes, key=lambda number: (-votes[number], -number))[:_CANDIDATES]
        near = self._near(text, places) if meaning and says_something(question) else ({}, False)
        cosines, calibrated = near
        entries = self._rows.get(list(dict.fromkeys([*best, *cosines])))
        seen = set(places)
        usual = sorted(cosines.values())[len(cosines) // 2] if len(cosines) >= _ENOUGH else 1.0
        weighed = []
        for one in entries.values():
            if one.forgotten is None and Place.of(one.target, one.scope) in seen:
                cosine = cosines.get(one.id)
                margin = (cosine or 0.0) - usual
                terms = self._terms(one.text)
                weighed.append((one, weigh(question, terms, cosine, calibrated=calibrated, margin=margin)))
        return sorted(weighed, key=lambda pair: (-pair[1].score, -pair[0].id))

    def _near(self, text: str, places: Sequence[Place]) -> tuple[dict[int, float], bool]:
        """The nearest, and whether it is known what their cosines mean."""
        index = self._vectors()
        state = None if index is None else index.state()
        if index is None or state is None or not state.ready:
            return {}, False
        found = index.near(text, 20, kinds=(KIND,), scopes=[scope_key(place) for place in places])
        cosines = {int(hit.key): hit.score for hit in found.hits if hit.key.isdigit()}
        return cosines, state.model.startswith(KNOWN_MODEL)


def scope_key(place: Place) -> str:
    """A document as one text for the vector index."""
    return f"{place.profile}\0{place.target}\0{place.project}\0{place.user}"
