"""Candidates from index and transcript; filters; widening."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from herma.index.types import Near, Terms, TextIndex
from herma.search.dates import Span
from herma.search.match import SEAM, Spelled, Unit, fold, holds, legible
from herma.search.query import Dropped, Query, Term
from herma.search.rank import (
    CHOSEN,
    HEARD,
    NAMED_DATE,
    NAMED_PERIOD,
    NEAREST,
    RECENT,
    SPEAKER,
    Candidate,
    Filters,
    Sifted,
    asks_for_the_present,
    lasting,
    look_for,
    shares,
    sift,
)
from herma.text import stem
from herma.transcript.rows import Head, Standing, TranscriptReader

# ---------- recall.gather
#
# Candidates for one search: from the index, from what is not indexed yet, and the turns beside them.

INDEXES = 2_000
"""Messages that a search indexes itself before it answers."""
SCANS = 500
"""Messages that are read one by one when more than that is missing."""
FIRST, MOST = 160, 5_000
"""Candidates that are asked for: at first, and at most, when rules or one long conversation use them up."""
RANKED = 100
"""Candidates whose text is read, and whose neighbours are. Twice as many find nothing more."""
FEW = 24
"""The same for a query that is one thing only: what the index says of it is all there is to know."""
BY_MEANING = 40
"""The same for what is near in meaning without being among the best by words."""
READ = 8_000
"""Characters of a message that ranking reads."""
SCANNED = 64_000
"""Characters of a message that are looked through where the index cannot be asked."""
BROWSED = 2_000
"""Newest messages that a query without words looks through."""
CLOSELY = 2_000
"""Newest messages that pass the filters and are read one by one, where the best matches do not."""


@dataclass(slots=True)
class Gathered:
    """What may be shown, best first, and what is known about it."""

    heads: dict[int, Head] = field(default_factory=dict)
    scores: dict[int, float] = field(default_factory=dict)
    sessions: dict[str, Standing] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    """Of messages that were few enough to be read at once, or that were read ahead."""
    neighbours: dict[int, tuple[int | None, int | None]] = field(default_factory=dict)
    beside: dict[int, Head] = field(default_factory=dict)
    """Turns beside candidates, whether or not they may be shown."""
    made: dict[int, Candidate] = field(default_factory=dict)
    sifted: Sifted = field(default_factory=Sifted)
    unindexed: set[int] = field(default_factory=set)
    """Messages that match and were not in the index when they were read."""
    notes: list[str] = field(default_factory=list)
    partly: bool = False
    """Whether there are messages, or ends of very long ones, that were not looked at and may match."""
    matched: int = 0
    near: dict[int, float] = field(default_factory=dict)
    """How near in meaning the nearest are that may be shown; they need not have any of the words."""
    cosines: dict[int, float] = field(default_factory=dict)


def terms_of(query: Query) -> Terms:
    """The query as the index takes it."""
    every = (*query.any_of, *(term for group in query.all_of for term in group), *query.none_of)
    return Terms(
        any_of=tuple(_words(term) for term in query.any_of),
        all_of=tuple(tuple(_words(term) for term in group) for group in query.all_of),
        none_of=tuple(_words(term) for term in query.none_of),
        prefix=frozenset(_words(term)[0] for term in every if term.kind == "prefix"),
    )


def _words(term: Term) -> tuple[str, ...]:
    if term.kind == "prefix" and SEAM.search(term.text):  # getTi*: as it stands, or its parts would run together
        return (term.text,)
    if term.kind == "prefix":  # the index holds stems: as much of the beginning as its stem shares
        start = term.text.lower()
        while start and not stem(term.text.lower()).startswith(start):
            start = start[:-1]
        return (start[:-1] if len(start) > 3 and start[-1] in "aeiouy" else start or term.text,)
    return tuple(term.text.split()) if term.kind == "phrase" else (term.text,)


class Gatherer:
    """Asks index and transcript."""

    def __init__(self, reader: TranscriptReader, index: TextIndex) -> None:
        self._reader = reader
        self._index = index

    def gather(self, query: Query, filters: Filters, looked_for: Sequence[Unit], limit: int, lag: int) -> Gathered:
        """Everything that matches and may be shown, as far as it can come to the top."""
        found = Gathered()
        if not query.any_of:
            self._newest(found, filters, query.none_of)
            return found
        if lag:
            self._scan(query, found, filters, looked_for)
        depth, closely = _depth(looked_for, limit), filters.narrow
        terms, asked = terms_of(query), 2 * depth if len(looked_for) == 1 else FIRST
        while True:
            answer = self._index.find(terms, asked)
            fresh = {one.message_id: one.score for one in answer.candidates if one.message_id not in found.scores}
            found.scores.update(fresh)
            new = [id_ for id_ in fresh if id_ not in found.unindexed] if found.unindexed else list(fresh)
            self._take(found, filters, new, READ if len(fresh) <= depth else 0)
            exhausted = len(answer.candidates) < asked and not answer.more
            if exhausted or _enough(found, depth, limit):
                break
            mostly_left_out = 2 * len(found.sifted.kept) < len(found.scores)
            if closely and mostly_left_out:
                closely = False
                if self._read_closely(query, found, filters, looked_for):
                    answer = replace(answer, notes=())  # of what passes, nothing was left out
                    break
            if asked >= MOST:
                if filters.narrow and mostly_left_out:
                    looked_at = f"the strongest matches and the newest {CLOSELY:,} messages were looked at"
                    found.notes.append(f"Of what passes the filters, {looked_at}.")
                break
            asked *= 4
        found.matched = max(answer.matches, len(found.scores)) + len(found.unindexed - found.scores.keys())
        found.notes.extend(answer.notes)
        return found

    def _scan(self, query: Query, found: Gathered, filters: Filters, looked_for: Sequence[Unit]) -> None:
        """Read what is not indexed yet, and take what the index would find: nothing else may fill the places of
        candidates, or count as a match that some rule left out.
        """
        matching = self._matching(query, found, list(self._index.missing(SCANS)), looked_for)
        found.unindexed.update(matching)
        self._take(found, filters, matching)

    def _read_closely(self, query: Query, found: Gathered, filters: Filters, looked_for: Sequence[Unit]) -> bool:
        """Read what passes the filters, newest first: what they leave of a common word need not be among its best
        matches. → whether that was everything.
        """
        passing = self._reader.newest(CLOSELY, filters.admitted())
        unknown = [id_ for id_ in passing if id_ not in found.heads and id_ not in found.scores]
        matching = self._matching(query, found, unknown, looked_for)
        found.scores.update(dict.fromkeys(matching, 0.0))
        self._take(found, filters, matching)
        found.partly = found.partly or len(passing) == CLOSELY
        return not found.partly

    def _matching(self, query: Query, found: Gathered, ids: Sequence[int], looked_for: Sequence[Unit]) -> list[int]:
        """Those of these messages that the index would find, by reading them."""
        matching = []
        for id_, text in self._reader.texts(ids, SCANNED).items():
            if _selected(query, Spelled(text), looked_for):
                matching.append(id_)
                found.texts[id_] = text[:READ]
            elif len(text) >= SCANNED:
                found.partly = True
        return matching

    def read_ahead(self, query: Query, found: Gathered, looked_for: Sequence[Unit], limit: int) -> None:
        """Read what `candidates` will need of what words have found, and find the words in it, while it is not known
        yet what is near in meaning: then only the rest is left to do.
        """
        chosen = [head.id for head in _chosen(found, _depth(looked_for, limit))]
        found.texts = dict(self._texts(found, chosen))
        if query.any_of and len(looked_for) != 1:
            pairs = self._neighbours(found, chosen).values()
            beside = sorted({id_ for pair in pairs for id_ in pair if id_ is not None}.difference(chosen))
            chosen += self._beside(found, beside)
        look_for(_made(found, chosen, found.texts), looked_for)

    def meet(self, found: Gathered, filters: Filters, near: Sequence[Near]) -> None:
        """Take in what is near in meaning and may be shown. What may not is not counted: it is no match."""
        heads = {one.message_id: found.heads[one.message_id] for one in near if one.message_id in found.heads}
        unknown = [one.message_id for one in near if one.message_id not in heads]
        new = self._reader.turns(unknown, READ if len(unknown) <= NEAREST else 0)
        heads.update((head.id, head) for head in new.heads)
        found.sessions.update(new.sessions)
        found.texts.update(new.texts)
        kept: list[tuple[int, float]] = []
        for one in near:
            head = heads.get(one.message_id)
            if head is not None and not filters.against(head, found.sessions.get(head.session_id)):
                found.heads[head.id] = head
                kept.append((head.id, one.score))
                if len(kept) == NEAREST:
                    break
        found.cosines = dict(kept)
        found.near = {id_: share * HEARD.get(found.heads[id_].role, 1.0) for id_, share in shares(kept).items()}

    def candidates(
        self, query: Query, filters: Filters, found: Gathered, looked_for: Sequence[Unit], limit: int
    ) -> list[Candidate]:
        """What is to be ranked, with text; neighbours of the best are among them, not all to be shown.

        A turn beside a match of one single thing is no evidence for it, so there none are read.
        """
        chosen = dict.fromkeys(head.id for head in _chosen(found, _depth(looked_for, limit)))
        chosen.update(dict.fromkeys(list(found.near)[:BY_MEANING]))
        made = _made(found, list(chosen), self._texts(found, chosen))
        if query.all_of or query.none_of:
            made = [one for one in made if one.id not in found.near or _selected(query, Spelled(one.text), looked_for)]
        flanks: list[Candidate] = []
        if query.any_of and len(looked_for) != 1:
            flanks = self._flanks(query, filters, found, made)
        soft = query.soft_dates
        for one in made:
            head = found.heads[one.id]
            one.bonus = _bonus(soft, head) + (lasting(one.folded) if head.role == "user" else 0.0)
        for one in flanks:
            one.bonus = _bonus(soft, found.heads[one.id])
        made += flanks
        if made and asks_for_the_present(query.plain):
            oldest = min(one.timestamp for one in made)
            span = max(one.timestamp for one in made) - oldest
            for one in made:
                one.bonus += RECENT * (one.timestamp - oldest) / span if span else 0.0
        return made

    def _newest(self, found: Gathered, filters: Filters, none_of: Sequence[Term]) -> None:
        newest = list(self._reader.newest(BROWSED, filters.admitted())) if filters.narrow else []
        if newest:
            found.notes.append("No words to look for: the newest messages that pass the filters.")
        else:
            found.notes.append(f"No words to look for: what passes the filters among the newest {BROWSED:,} messages.")
            newest = list(self._reader.newest(BROWSED))
        if none_of:
            texts = {id_: Spelled(text) for id_, text in self._reader.texts(newest, READ).items()}
            nothing = Spelled("")
            newest = [id_ for id_ in newest if not any(holds(term, texts.get(id_, nothing)) for term in none_of)]
        self._take(found, filters, newest)
        found.matched = len(newest)

    def _texts(self, found: Gathered, ids: Iterable[int]) -> Mapping[int, str]:
        unread = [id_ for id_ in ids if id_ not in found.texts]
        return {**found.texts, **self._reader.texts(unread, READ)} if unread else found.texts

    def _neighbours(self, found: Gathered, ids: Sequence[int]) -> dict[int, tuple[int | None, int | None]]:
        if unknown := [id_ for id_ in ids if id_ not in found.neighbours]:
            found.neighbours.update(self._reader.neighbours(unknown))
        return {id_: found.neighbours[id_] for id_ in ids if id_ in found.neighbours}

    def _beside(self, found: Gathered, ids: Sequence[int]) -> dict[int, Head]:
        """The heads of these turns; their texts are known then."""
        if unread := [id_ for id_ in ids if id_ not in found.beside]:
            turns = self._reader.turns(unread, READ)
            found.beside.update((head.id, head) for head in turns.heads)
            found.texts.update(turns.texts)
        return {id_: found.beside[id_] for id_ in ids if id_ in found.beside}

    def _take(self, found: Gathered, filters: Filters, ids: Sequence[int], characters: int = 0) -> None:
        met = self._reader.turns(ids, characters)
        heads = {head.id: head for head in met.heads}
        found.sessions.update(met.sessions)
        found.texts.update(met.texts)
        sifted = sift((heads[id_] for id_ in ids if id_ in heads), found.sessions, filters)
        found.heads.update((head.id, head) for head in sifted.kept)
        found.sifted.kept.extend(sifted.kept)
        for rule, count in sifted.dropped.items():
            found.sifted.dropped[rule] = found.sifted.dropped.get(rule, 0) + count

    def _flanks(self, query: Query, filters: Filters, found: Gathered, made: Sequence[Candidate]) -> list[Candidate]:
        """The turns beside the best candidates by words; what is only near in meaning has none of them around it.

        They are evidence; they are shown where no rule speaks against it.
        """
        by_id = {one.id: one for one in made}
        neighbours = self._neighbours(found, list(by_id))
        for id_, (before, after) in neighbours.items():
            by_id[id_].before, by_id[id_].after = before, after
        of_words = (pair for id_, pair in neighbours.items() if by_id[id_].found or id_ not in found.near)
        beside = sorted({id_ for pair in of_words for id_ in pair if id_ is not None} - by_id.keys())
        heads = self._beside(found, beside)
        found.heads.update(heads)
        flanks = _made(found, list(heads), found.texts)
        links = _links(neighbours)
        strict = bool(query.all_of or query.none_of)
        for one in flanks:
            head = heads[one.id]
            one.before, one.after = links.get(one.id, (None, None))
            spoken = head.role in ("user", "assistant")
            one.shown = spoken and not strict and not filters.against(head, found.sessions.get(head.session_id))
        return flanks


def _made(found: Gathered, ids: Sequence[int], texts: Mapping[int, str]) -> list[Candidate]:
    """Candidates for these, each made once."""
    for id_ in ids:
        if id_ not in found.made:
            head = found.heads.get(id_) or found.beside[id_]
            text = legible(stored := texts.get(id_, ""))
            found.made[id_] = Candidate(
                id=id_,
                group=found.sessions[head.session_id].conversation,
                text=text,
                folded=fold(text),
                found=found.scores.get(id_, 0.0),
                timestamp=head.timestamp,
                cut=len(stored) >= READ,
            )
    return [found.made[id_] for id_ in ids]


def _depth(looked_for: Sequence[Unit], limit: int) -> int:
    """How many candidates are read and ranked."""
    return max(FEW, 3 * limit) if len(looked_for) == 1 else RANKED


def _enough(found: Gathered, depth: int, limit: int) -> bool:
    kept = found.sifted.kept
    if len(kept) < min(depth, 5 * limit):
        return False
    return len({found.sessions[head.session_id].conversation for head in kept}) >= limit


def _chosen(found: Gathered, depth: int) -> list[Head]:
    """The best, and the best of every further conversation."""
    kept = sorted(found.sifted.kept, key=lambda head: -found.scores.get(head.id, float("inf")))
    best = kept[:depth]
    seen = {found.sessions[head.session_id].conversation for head in best}
    for head in kept[depth:]:
        conversation = found.sessions[head.session_id].conversation
        if conversation not in seen and len(seen) < depth:
            seen.add(conversation)
            best.append(head)
    return best


def _links(neighbours: Mapping[int, tuple[int | None, int | None]]) -> dict[int, tuple[int | None, int | None]]:
    """For the messages beside: which candidate is before and after them."""
    links: dict[int, tuple[int | None, int | None]] = {}
    for id_, (before, after) in neighbours.items():
        if before is not None:
            links[before] = (links.get(before, (None, None))[0], id_)
        if after is not None:
            links[after] = (id_, links.get(after, (None, None))[1])
    return links


def _selected(query: Query, there: Spelled, looked_for: Sequence[Unit]) -> bool:
    """What the index would decide about a message."""
    if any(holds(term, there) for term in query.none_of):
        return False
    if query.all_of:
        return all(any(holds(term, there) for term in group) for group in query.all_of)
    return any(map(there.has, looked_for))


def _bonus(dates: Sequence[Span], head: Head) -> float:
    """What speaks for a message besides its words: when and by whom it was said."""
    dated = max((_dated(span) for span in dates if span.covers(head.timestamp)), default=0.0) if dates else 0.0
    return dated + SPEAKER.get(head.role, 0.0)


def _dated(span: Span) -> float:
    return NAMED_PERIOD if span.relative or span.since is None or span.before is None else NAMED_DATE


# ---------- recall.wider
#
# When nothing was found: why, and what to try instead.

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
