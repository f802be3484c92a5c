"""From a ranking to what is shown: a second opinion, the later of two claims first, no crowd, one of a conversation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from herma.recall import characters, teller
from herma.recall.asked import Wanted
from herma.recall.fuse import spread_out
from herma.recall.gather import Gathered
from herma.recall.outdated import Spoken, asks_for_the_past, latest_first, outdated
from herma.recall.query import Query
from herma.recall.rank import Candidate
from herma.recall.rerank import RERANKED, Reranker, opinion
from herma.recall.rules import DEMOTED_SOURCES

LEAST_POOL = 20
"""Of so many, later claims are looked for, and twice as many as are wanted."""

LOOKED_AT, READ_CLOSELY = 150, 100
"""Of so many it is asked who told them, and of so many which characters they have: what is further down hardly comes
among the first ten by that."""


@dataclass(slots=True)
class Arranged:
    """What is shown, best first. `outdated`: messages that another one, later, says otherwise than."""

    chosen: list[Candidate]
    outdated: dict[int, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def arrange(
    ranked: Sequence[Candidate],
    query: Query,
    wanted: Wanted,
    found: Gathered,
    reranker: Reranker | None = None,
    deadline: float = 1.0,
) -> Arranged:
    result = Arranged(list(ranked))
    if query.any_of and not wanted.sort:
        if wanted.mode != "vectors":
            result.chosen = _by_more(ranked, query, found)
        if reranker is not None:
            _rerank(result, query, reranker, deadline)
        elif wanted.level == "message" and wanted.mode != "vectors":
            result.chosen = spread_out(result.chosen, wanted.limit)
        _latest_first(result, query, wanted, found)
    elif wanted.sort:
        newest = wanted.sort == "newest"
        result.chosen = sorted(result.chosen, key=lambda one: (one.timestamp, one.id), reverse=newest)
    if wanted.level == "session":
        result.chosen = _one_each(result.chosen)
    result.chosen = _demoted(result.chosen, found)[: wanted.limit]
    return result


def _by_more(ranked: Sequence[Candidate], query: Query, found: Gathered) -> list[Candidate]:
    """With what speaks for a message beside its words: who told it, and single characters."""
    first = ranked[:LOOKED_AT]
    more = [characters.gains(characters.sought(query), first[:READ_CLOSELY])]
    if query.ignored:  # a sentence, no bare words
        more.append(teller.gains(query.plain, first, {one.id: found.heads[one.id].role for one in first}))
    for one in first:
        gain = sum(gains.get(one.id, 0.0) for gains in more)
        one.bonus += gain
        one.score += gain
    return sorted(ranked, key=lambda one: (-one.score, -one.timestamp, -one.id))


def _rerank(result: Arranged, query: Query, reranker: Reranker, deadline: float) -> None:
    first = result.chosen[:RERANKED]
    said = opinion(reranker, query.plain or query.text, [one.text for one in first], deadline)
    if said.note:
        result.notes.append(said.note)
    else:
        result.chosen[:RERANKED] = [first[at] for at in said.order]


def _latest_first(result: Arranged, query: Query, wanted: Wanted, found: Gathered) -> None:
    pool = result.chosen[: max(LEAST_POOL, 2 * wanted.limit)]
    heads = found.heads
    spoken = [
        Spoken(
            one.id, one.folded, one.timestamp, found.sessions[heads[one.id].session_id].scope.user, heads[one.id].role
        )
        for one in pool
        if heads[one.id].role in ("user", "assistant")
    ]
    result.outdated = outdated(spoken)
    if result.outdated and not asks_for_the_past(query.text):
        by_id = {one.id: one for one in pool}
        order = latest_first([one.id for one in pool], result.outdated)
        result.chosen[: len(pool)] = [by_id[id_] for id_ in order]


def _one_each(ranked: Iterable[Candidate]) -> list[Candidate]:
    """The best of each conversation."""
    best: dict[str, Candidate] = {}
    for one in ranked:
        best.setdefault(one.group, one)
    return list(best.values())


def _demoted(ranked: Sequence[Candidate], found: Gathered) -> list[Candidate]:
    """The same order, with what runs by itself after everything else."""
    return sorted(ranked, key=lambda one: _source(one, found) in DEMOTED_SOURCES)


def _source(one: Candidate, found: Gathered) -> str:
    return found.sessions[found.heads[one.id].session_id].source
