"""When nothing was found: why, and what to try instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from herma.recall.match import fold
from herma.recall.query import Query, Term
from herma.recall.rules import CHOSEN, Filters
from herma.recall.stem import stem
from herma.types import Dropped

Vocabulary = Callable[[Sequence[str], Sequence[str], int], Sequence[str]]
"""Parts of words, beginnings of words and a number to that many known words, commonest first."""
ALIKE = 72.0
"""How alike (of 100) a known word must be to be taken for the one that was meant."""
_WORDS = 5_000


@dataclass(frozen=True, slots=True)
class Attempt:
    """A wider search, and how to say what was changed."""

    query: Query
    filters: Filters
    note: str


def explanation(query: Query, dropped: Sequence[Dropped], matched: int, sessions: int, *, partly: bool = False) -> str:
    """Why there is nothing to show, in one sentence. `partly`: some messages were neither indexed nor read."""
    if not sessions:
        return "Nothing is stored yet, so there is nothing to find."
    if dropped:
        rules = ", ".join(f"{one.count:,} by the rule “{one.rule}”" for one in dropped)
        looked_at = " that were looked at" if matched > sum(one.count for one in dropped) else ""
        return f"All matches{looked_at} were left out: {rules}. {dropped[0].remedy}".strip()
    if not query.any_of:
        return "There is nothing to look for in this query, and nothing recent passes its filters."
    words = ", ".join(str(term) for term in query.any_of[:8])
    if not any(letter.isalnum() for term in query.any_of for letter in term.text):
        return f"Letters and digits are indexed, signs are not, so {words} cannot be searched for."
    none = "No message that was searched" if partly else "No message"
    without = f" without {', '.join(map(str, query.none_of[:8]))}" if query.none_of else ""
    if query.all_of:
        return f"{none} contains all that is asked for ({words}){without}."
    return f"{none} contains {'' if len(query.any_of) == 1 else 'any of '}{words}{without}."


def wider(query: Query, filters: Filters, dropped: Sequence[Dropped], vocabulary: Vocabulary) -> Iterator[Attempt]:
    """Less and less of what was asked for: filters one by one, then what must occur, then words alike."""
    blamed = [rule for rule in CHOSEN if any(one.rule == rule for one in dropped)]
    for rule in blamed:
        yield Attempt(query, filters.without(rule), f"Nothing passes the filter on {rule}; these are without it.")
    if blamed:
        yield Attempt(query, filters.without(*CHOSEN), "Nothing passes the filters; these are without them.")
    if query.all_of:
        loose = replace(query, any_of=_loose(query), all_of=())
        yield Attempt(loose, filters, "Nothing contains all that must occur; these contain some of it.")
        query = loose
    if plain := _without_signs(query):
        said = ", ".join(f"{one} for {term}" for term, one in plain.items())
        yield Attempt(_instead(query, plain), filters, f"Looked for without what stands around it: {said}.")
    alike = _alike(query, vocabulary)
    if alike:
        said = ", ".join(f"{one} for {term}" for term, one in alike.items())
        if filters.scope and filters.scope.user:  # the words are everybody's: what was found shows those one may see
            said = "those that are marked"
        yield Attempt(_instead(query, alike), filters, f"Known words that come near were looked for instead: {said}.")


def _loose(query: Query) -> tuple[Term, ...]:
    """Every word of the phrases on its own."""
    terms: dict[Term, None] = {}
    for term in query.any_of:
        terms.update((Term(word), None) for word in (term.text.split() if term.kind == "phrase" else ()))
        if term.kind != "phrase":
            terms[term] = None
    return tuple(terms)


def _without_signs(query: Query) -> dict[Term, Term]:
    """For names that begin or end with a sign, and versions that begin with a v, what is inside: ".NET", "v1.2"."""
    found = {}
    for term in query.any_of[:8]:
        letters = [at for at, letter in enumerate(term.text) if letter.isalnum()] if term.kind == "word" else []
        inside = term.text[letters[0] : letters[-1] + 1] if letters else ""
        if inside[:1] in ("v", "V") and inside[1:2].isdigit():
            inside = inside[1:]
        if len(inside) > 1 and inside != term.text:
            found[term] = Term(inside)
    return found


def _alike(query: Query, vocabulary: Vocabulary) -> dict[Term, Term]:
    """For each word a known one that contains it, or that is spelled nearly like it."""
    words = {term: fold(term.text) for term in query.any_of[:8] if term.kind != "phrase"}
    words = {term: word for term, word in words.items() if len(word) > 2 and word.isalnum()}
    if not words:
        return {}
    # A slip is seldom in the first letters and the last ones at once.
    parts = dict.fromkeys(piece for word in words.values() for piece in (word[:3], word[-3:]))
    known = vocabulary([*parts], [*dict.fromkeys(word[:2] for word in words.values())], _WORDS)
    found = {}
    for term, word in words.items():
        inside = (one for one in known if word in one and one not in (word, stem(word)) and _grew(word, one))
        if near := next(inside, "") or _nearest(word, known):
            found[term] = Term(near, "prefix")
    return found


def _grew(word: str, known: str) -> bool:
    """Whether a known word that contains another may be of its kind: three letters are in the middle of too many."""
    return len(word) > 3 or not word.isascii() or known.startswith(word)


def _nearest(word: str, known: Sequence[str]) -> str:
    """The known word most alike."""
    from rapidfuzz import fuzz

    best, likeness = "", ALIKE
    for one in known:
        score = fuzz.ratio(one, stem(word))
        if score > likeness and one != stem(word) and _grew(word, one):
            best, likeness = one, score
    return best


def _instead(query: Query, alike: dict[Term, Term]) -> Query:
    return replace(query, any_of=tuple(alike.get(term, term) for term in query.any_of))
