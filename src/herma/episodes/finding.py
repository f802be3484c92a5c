"""Finding earlier work on the like of a task: by its words and, where there is an embedder, by its meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from herma.episodes.similar import Language, coverage, fused, ranked, terms_of
from herma.episodes.value import value, weight_of
from herma.ports.episodes import EpisodeLookup, EpisodeRows
from herma.types import Episode, EpisodeHit, Scope

if TYPE_CHECKING:
    from herma.ports.vectors import Near, VectorIndex

KIND = "episode"
"""What episodes are called in the vector index."""
_OWN_TERMS = 80
"""Words that an episode is found by."""
_POSTINGS = 3_000
"""Episodes of one word that are ranked: of a word that more have, the newest."""
_FAR = 0.75
"""What is found by its meaning alone must come this near to the nearest."""
_LOOKED_AT = 2_000
"""Candidates that are read at most, where most are other people's."""


class Finder:
    """Two rankings made one; each gives twice as many candidates as are wanted."""

    def __init__(
        self,
        rows: EpisodeRows,
        lookup: EpisodeLookup,
        language: Language,
        vectors: Callable[[], VectorIndex | None],
        *,
        profile: str,
        clock: Callable[[], float],
    ) -> None:
        self._rows = rows
        self._lookup = lookup
        self._language = language
        self._vectors = vectors
        self._profile = profile
        self._clock = clock

    def terms(self, episode: Episode) -> tuple[str, ...]:
        """What an episode is found by."""
        return terms_of_episode(episode, self._language)

    def similar(self, task: str, limit: int, user: str, not_of: str) -> list[EpisodeHit]:
        """The nearest first, of this user, leaving a conversation out."""
        if limit <= 0 or not task.strip():
            return []
        where = Scope(self._profile, user=user)
        terms = terms_of(task, self._language)
        covered = coverage(self._lookup.with_terms(terms, _POSTINGS), self._lookup.live_count())
        known: dict[int, Episode] = {}
        by_words = self._visible(ranked(covered), 2 * limit, where, not_of, known)
        near = self._near(task, 2 * limit + 1, where)
        by_meaning = self._visible([int(hit.key) for hit in near], 2 * limit, where, not_of, known)
        cosines = {int(hit.key): hit.score for hit in near}
        far = _FAR * max(cosines.values(), default=0.0)
        by_meaning = [number for number in by_meaning if number in by_words or cosines[number] >= far]
        now = self._clock()
        hits = []
        for number in fused(by_words, by_meaning)[:limit]:
            share = covered.get(number, 0.0)
            why = [f"{share:.0%} of the words"] if share else []
            why += [f"meaning {cosines[number]:.2f}"] if number in cosines else []
            likeness = max(share, 0.5 * cosines.get(number, 0.0))
            worth = value(weight_of(known[number]), now, likeness)
            hits.append(EpisodeHit(known[number], likeness, worth, tuple(why), share, cosines.get(number)))
        return hits

    def _visible(
        self, order: Sequence[int], wanted: int, where: Scope, not_of: str, known: dict[int, Episode]
    ) -> list[int]:
        """The first so many that this user may see, live and of another conversation; they are put into `known`."""
        found: list[int] = []
        for at in range(0, min(len(order), _LOOKED_AT), 4 * wanted):
            some = order[at : at + 4 * wanted]
            read = self._rows.get(some)
            for number in some:
                one = read.get(number)
                if one is None or one.archived is not None or one.conversation == not_of:
                    continue
                if (one.scope.profile, one.scope.user) == (where.profile, where.user):
                    known[number] = one
                    found.append(number)
            if len(found) >= wanted:
                break
        return found[:wanted]

    def _near(self, task: str, limit: int, scope: Scope) -> list[Near]:
        vectors = self._vectors()
        if vectors is None or not vectors.state().ready:
            return []
        found = vectors.near(task, limit, kinds=(KIND,), scopes=(scope_key(scope),))
        return [hit for hit in found.hits if hit.key.isdigit()]


def terms_of_episode(episode: Episode, language: Language) -> tuple[str, ...]:
    """What an episode is found by."""
    from herma.episodes.build import words_of  # asked where one is kept

    return terms_of(words_of(episode), language, _OWN_TERMS)


def scope_key(scope: Scope) -> str:
    """Whose episodes these are, as one text for the vector index."""
    return f"{scope.profile}\0{scope.user}"
