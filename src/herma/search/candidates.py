"""Collect what may be shown for one query: filters, candidates of index, transcript and vectors, and wider queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from herma.index import IndexQuery, Near, TextIndex
from herma.search.match import SEAM, Spelled, Unit, fold, holds, legible, units
from herma.search.query import LISTS, Dropped, Query, Term
from herma.search.rank import (
    APART,
    NAMED_DATE,
    NAMED_PERIOD,
    NEAREST,
    ROLE_WEIGHTS,
    SPEAKER,
    Candidate,
    lasting,
    look_for,
    shares,
)
from herma.text import stem
from herma.transcript.rows import Admitted, Head, Standing

if TYPE_CHECKING:
    from herma.search.dates import Span
    from herma.transcript.rows import TranscriptReader
    from herma.types import Scope, SessionInfo

# ── filters: which messages may be shown; the messages that a rule hides are counted ──

HIDDEN_SOURCES = frozenset(("subagent", "tool", "kanban"))
"""Sessions without a person: the session that started them has their results."""

REMEDIES = {
    "deleted": "herma sessions delete --undo restores a deleted session.",
    "rewound": "herma sessions show --hidden shows rewound messages.",
    "archived": "Search with include_archived.",
    "hidden source": "Name the source, for example source:subagent.",
    "current conversation": "They are above, in this conversation.",
    "session": "Remove session: to see them.",
    "source": "Remove source: to see them.",
    "project": "Remove project: to see them.",
    "role": "Remove role: to see them.",
    "date": "Remove the date, or give a longer period.",
}
OTHERS = frozenset(("another user", "another profile"))
"""Messages of others are not counted: the number would reveal if they ever used a word."""
CHOSEN = ("date", "role", "source", "project", "session")
"""Rules that the query chose, in the order in which they are given up if nothing is left."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Hold what the query chose, and who asks. `live` are the sessions whose messages the model sees anyway."""

    query: Query = field(default_factory=lambda: Query(""))
    scope: Scope | None = None
    current: str | None = None
    live: frozenset[str] = frozenset()
    include_archived: bool = False

    @property
    def narrow(self) -> bool:
        """Return whether much of what matches may be left out."""
        chosen = self.query
        lists = chosen.roles or chosen.sources or chosen.projects or chosen.sessions
        return bool(lists or chosen.hard_dates or chosen.excluded or self.scope or self.current)

    def against(self, head: Head, session: SessionInfo | Standing | None) -> str:
        """Return the first rule that keeps a message out, or ""."""
        if session is None:
            return "deleted"
        return self._withheld(head, session) or self._unwanted(head, session)

    def _withheld(self, head: Head, session: SessionInfo | Standing) -> str:
        if self.scope and session.scope.user != self.scope.user:
            return "another user"
        if self.scope and self.scope.profile and session.scope.profile not in ("", self.scope.profile):
            return "another profile"
        if session.deleted is not None:
            return "deleted"
        if head.hidden == "rewound":
            return "rewound"
        if session.archived and not self.include_archived:
            return "archived"
        if session.source in HIDDEN_SOURCES and not _is_one(session.source, self.query.sources):
            return "hidden source"
        left_the_context = head.hidden == "compacted" or head.session_id not in self.live
        return "current conversation" if session.conversation == self.current and not left_the_context else ""

    def _unwanted(self, head: Head, session: SessionInfo | Standing) -> str:
        chosen = self.query
        if chosen.sessions and session.id not in chosen.sessions and session.conversation not in chosen.sessions:
            return "session"
        if chosen.sources and not _is_one(session.source, chosen.sources):
            return "source"
        if chosen.projects and not any(same_project(project, session.scope.project) for project in chosen.projects):
            return "project"
        if chosen.roles and head.role not in chosen.roles:
            return "role"
        if not all(span.covers(head.timestamp) for span in chosen.hard_dates):
            return "date"
        return next((rule for rule, value in chosen.excluded if _has(rule, value, head, session)), "")

    def without(self, *rules: str) -> Filters:
        """Return the same filters with some rules of the query given up."""
        given_up: dict[str, Any] = {LISTS[rule]: () for rule in rules if rule in LISTS}
        dates = self.query.soft_dates if "date" in rules else self.query.dates
        excluded = tuple(one for one in self.query.excluded if one[0] not in rules)
        return replace(self, query=replace(self.query, dates=dates, excluded=excluded, **given_up))

    def admitted(self) -> Admitted:
        """Return which messages may pass, as far as that is known without reading them."""
        elsewhere = self.without("date", "role", "session")
        spans = [span for span in self.query.hard_dates if not span.outside]

        def wanted(source: str, scope: Scope, archived: bool) -> bool:
            head = Head(0, "", "", 0.0, "compacted")
            return not elsewhere.against(head, Standing("", source, scope, "", archived, None))

        return Admitted(
            wanted,
            self.query.sessions,
            max((span.since for span in spans if span.since is not None), default=float("-inf")),
            min((span.before for span in spans if span.before is not None), default=float("inf")),
            self.query.roles,
        )


def _is_one(source: str, sources: Sequence[str]) -> bool:
    return source in sources or any(source.casefold() == one.casefold() for one in sources)


def _has(rule: str, value: str, head: Head, session: SessionInfo | Standing) -> bool:
    match rule:
        case "source":
            return _is_one(session.source, (value,))
        case "project":
            return same_project(value, session.scope.project)
        case "role":
            return head.role == value
        case _:
            return value in (session.id, session.conversation)


def same_project(wanted: str, project: str) -> bool:
    """Return whether a project is the wanted one, by its path, its last name, or a folder above it."""
    wanted, project = wanted.rstrip("/").casefold(), project.rstrip("/").casefold()
    return project == wanted or project.startswith(wanted + "/") or project.rpartition("/")[2] == wanted


def live_sessions(current: str, members: Sequence[SessionInfo]) -> frozenset[str]:
    """Return the sessions of a conversation whose text the model still sees: back to the last compression.

    Sessions that branch off this line count as live too.
    """
    by_id = {member.id: member for member in members}
    left: set[str] = set()
    compressed = False
    seen: set[str] = set()
    at = by_id.get(current)
    while at is not None and at.id not in seen:
        seen.add(at.id)
        if compressed:
            left.add(at.id)
        compressed = compressed or at.reason == "compression"
        at = by_id.get(at.parent or "")
    return frozenset({current, *by_id} - left)


# ── candidates ──

INDEXES = 2_000
"""Messages that a search indexes itself before it answers."""
SCANS = 500
"""Messages that are read one by one if more than that is missing from the index."""
FIRST, MOST = 160, 5_000
"""Candidates that are asked for: at first, and at most, if rules or one long conversation use them up."""
RANKED = 100
"""Candidates that are read with their neighbours. Twice as many find nothing more."""
FEW = 24
"""The same for a query of one thing only, which the index ranks well enough."""
BY_MEANING = 40
"""Candidates that are near in meaning without being among the best by words."""
READ = 8_000
"""Characters of a message that ranking reads."""
SCANNED = 64_000
"""Characters of a message that are read where the index cannot be asked."""
BROWSED = 2_000
"""Newest messages that a query without words looks through."""
CLOSELY = 2_000
"""Newest messages that pass the filters and are read one by one, if the best matches do not pass."""

Neighbours: TypeAlias = tuple[int | None, int | None]


def terms_of(query: Query) -> IndexQuery:
    """Return the query as the index takes it."""
    every = (*query.any_of, *(term for group in query.all_of for term in group), *query.none_of)
    return IndexQuery(
        any_of=tuple(_words(term) for term in query.any_of),
        all_of=tuple(tuple(_words(term) for term in group) for group in query.all_of),
        none_of=tuple(_words(term) for term in query.none_of),
        prefix=frozenset(_words(term)[0] for term in every if term.kind == "prefix"),
    )


def _words(term: Term) -> tuple[str, ...]:
    if term.kind == "prefix" and SEAM.search(term.text):  # getTi*: as it stands, or its parts would run together
        return (term.text,)
    if term.kind == "prefix":  # the index has stems: as much of the prefix as its stem shares
        start = term.text.lower()
        while start and not stem(term.text.lower()).startswith(start):
            start = start[:-1]
        return (start[:-1] if len(start) > 3 and start[-1] in "aeiouy" else start or term.text,)
    return tuple(term.text.split()) if term.kind == "phrase" else (term.text,)


class Candidates:
    """The messages that may be shown for one query, and what is known of them so far."""

    def __init__(self, reader: TranscriptReader, index: TextIndex, query: Query, filters: Filters, limit: int) -> None:
        self._reader = reader
        self._index = index
        self._query = query
        self._filters = filters
        self._limit = limit
        self.looked_for = units(query)
        self.heads: dict[int, Head] = {}
        self.scores: dict[int, float] = {}
        self.sessions: dict[str, Standing] = {}
        self._texts: dict[int, str] = {}
        self._neighbours: dict[int, Neighbours] = {}
        self._beside: dict[int, Head] = {}
        self._made: dict[int, Candidate] = {}
        self._kept: list[Head] = []
        self._dropped: Counter[str] = Counter()
        self.unindexed: set[int] = set()
        """Matches that were not in the index when they were read."""
        self.notes: list[str] = []
        self.partly = False
        """True if there may be matches among what was not read."""
        self.matched = 0
        """Number of matching messages, shown or not."""
        self.near: dict[int, float] = {}
        """Similarity of each in meaning, from 0 to 1; these need not have any of the words."""
        self.cosines: dict[int, float] = {}
        self.nearer: dict[int, float] = {}
        """By how many standard deviations each is nearer to the question than to all other messages."""

    @property
    def dropped(self) -> tuple[Dropped, ...]:
        return tuple(Dropped(rule, count, REMEDIES[rule]) for rule, count in self._dropped.items())

    @property
    def _depth(self) -> int:
        """Return how many candidates are read and ranked."""
        return max(FEW, 3 * self._limit) if len(self.looked_for) == 1 else RANKED

    def collect(self, lag: int) -> None:
        """Find everything that matches and may be shown, as far as it can come to the top."""
        if not self._query.any_of:
            self._gather_newest()
            return
        if lag:  # read what is not indexed yet, and take what the index would find
            matching = self._matching(list(self._index.missing(SCANS)))
            self.unindexed.update(matching)
            self._take(matching)
        closely = self._filters.narrow
        terms, asked = terms_of(self._query), 2 * self._depth if len(self.looked_for) == 1 else FIRST
        while True:
            answer = self._index.find(terms, asked)
            fresh = {one.message_id: one.score for one in answer.candidates if one.message_id not in self.scores}
            self.scores.update(fresh)
            self._take([id_ for id_ in fresh if id_ not in self.unindexed], READ if len(fresh) <= self._depth else 0)
            if (len(answer.candidates) < asked and not answer.more) or self._enough():
                break
            mostly_left_out = 2 * len(self._kept) < len(self.scores)
            if closely and mostly_left_out:
                closely = False
                if self._read_closely():
                    answer = answer._replace(notes=())  # nothing that passes was left out
                    break
            if asked >= MOST:
                if self._filters.narrow and mostly_left_out:
                    looked_at = f"the strongest matches and the newest {CLOSELY:,} messages were read"
                    self.notes.append(f"Of what passes the filters, {looked_at}.")
                break
            asked *= 4
        self.matched = max(answer.matches, len(self.scores)) + len(self.unindexed - self.scores.keys())
        self.notes.extend(answer.notes)

    def read_ahead(self) -> None:
        """Read what `candidates` will need of the matches by words, while the question is being embedded."""
        chosen = [head.id for head in self._chosen()]
        self._read(chosen)
        if self._query.any_of and len(self.looked_for) != 1:
            pairs = self._neighbours_of(chosen).values()
            beside = sorted({id_ for pair in pairs for id_ in pair if id_ is not None}.difference(chosen))
            chosen += self._read_beside(beside)
        look_for(self._make(chosen), self.looked_for)

    def add_near(self, near: Sequence[Near], spread: float) -> None:
        """Add messages that are near in meaning and may be shown. Hidden ones are not counted: they do not match."""
        unknown = [one.message_id for one in near if one.message_id not in self.heads]
        new = self._reader.turns(unknown, READ if len(unknown) <= NEAREST else 0)
        heads = {head.id: head for head in new.heads}
        self.sessions.update(new.sessions)
        self._texts.update(new.texts)
        kept: list[tuple[int, float]] = []
        for one in near:
            head = self.heads.get(one.message_id) or heads.get(one.message_id)
            if head is not None and not self._filters.against(head, self.sessions.get(head.session_id)):
                self.heads[head.id] = head
                kept.append((head.id, one.score - APART * one.usual))
                self.cosines[head.id] = one.score
                self.nearer[head.id] = (one.score - one.usual) / spread if spread else 0.0
                if len(kept) == NEAREST:
                    break
        self.near = {id_: share * ROLE_WEIGHTS.get(self.heads[id_].role, 1.0) for id_, share in shares(kept).items()}

    def candidates(self) -> list[Candidate]:
        """Return what is to be ranked, with text. Neighbours of the best are among them; not all are to be shown.

        A turn beside a match of one single thing is not evidence for it, so none are read there.
        """
        query = self._query
        chosen = dict.fromkeys(head.id for head in self._chosen())
        chosen.update(dict.fromkeys(list(self.near)[:BY_MEANING]))
        self._read(chosen)
        made = self._make(list(chosen))
        if query.all_of or query.none_of:
            made = [
                one for one in made if one.id not in self.near or selected(query, Spelled(one.text), self.looked_for)
            ]
        flanks = self._flanks(made) if query.any_of and len(self.looked_for) != 1 else []
        soft = query.soft_dates
        for one in made:
            head = self.heads[one.id]
            one.bonus = _bonus(soft, head) + (lasting(one.folded) if head.role == "user" else 0.0)
        for one in flanks:
            one.bonus = _bonus(soft, self.heads[one.id])
        return made + flanks

    def _gather_newest(self) -> None:
        newest = list(self._reader.newest(BROWSED, self._filters.admitted())) if self._filters.narrow else []
        if newest:
            self.notes.append("The query has no words: these are the newest messages that pass the filters.")
        else:
            self.notes.append(f"The query has no words: the newest {BROWSED:,} messages were filtered.")
            newest = list(self._reader.newest(BROWSED))
        if self._query.none_of:
            texts = {id_: Spelled(text) for id_, text in self._reader.texts(newest, READ).items()}
            nothing = Spelled("")
            newest = [
                id_ for id_ in newest if not any(holds(term, texts.get(id_, nothing)) for term in self._query.none_of)
            ]
        self._take(newest)
        self.matched = len(newest)

    def _enough(self) -> bool:
        if len(self._kept) < min(self._depth, 5 * self._limit):
            return False
        return len({self.sessions[head.session_id].conversation for head in self._kept}) >= self._limit

    def _read_closely(self) -> bool:
        """Read what passes the filters, newest first: it need not be among the best matches of a common word.

        → whether that was everything.
        """
        passing = self._reader.newest(CLOSELY, self._filters.admitted())
        matching = self._matching([id_ for id_ in passing if id_ not in self.heads and id_ not in self.scores])
        self.scores.update(dict.fromkeys(matching, 0.0))
        self._take(matching)
        self.partly = self.partly or len(passing) == CLOSELY
        return not self.partly

    def _matching(self, ids: Sequence[int]) -> list[int]:
        """Return those of these messages that the index would find, by reading them."""
        matching = []
        for id_, text in self._reader.texts(ids, SCANNED).items():
            if selected(self._query, Spelled(text), self.looked_for):
                matching.append(id_)
                self._texts[id_] = text[:READ]
            elif len(text) >= SCANNED:
                self.partly = True
        return matching

    def _take(self, ids: Sequence[int], characters: int = 0) -> None:
        """Keep those that pass the filters, and count the others."""
        read = self._reader.turns(ids, characters)
        self.sessions.update(read.sessions)
        self._texts.update(read.texts)
        heads = {head.id: head for head in read.heads}
        for head in [heads[id_] for id_ in ids if id_ in heads]:
            rule = self._filters.against(head, self.sessions.get(head.session_id))
            if not rule:
                self.heads[head.id] = head
                self._kept.append(head)
            elif rule not in OTHERS:
                self._dropped[rule] += 1

    def _chosen(self) -> list[Head]:
        """Return the best, and the best of every further conversation."""
        kept = sorted(self._kept, key=lambda head: -self.scores.get(head.id, float("inf")))
        best = kept[: self._depth]
        seen = {self.sessions[head.session_id].conversation for head in best}
        for head in kept[self._depth :]:
            conversation = self.sessions[head.session_id].conversation
            if conversation not in seen and len(seen) < self._depth:
                seen.add(conversation)
                best.append(head)
        return best

    def _read(self, ids: Iterable[int]) -> None:
        if unread := [id_ for id_ in ids if id_ not in self._texts]:
            self._texts.update(self._reader.texts(unread, READ))

    def _neighbours_of(self, ids: Sequence[int]) -> dict[int, Neighbours]:
        if unknown := [id_ for id_ in ids if id_ not in self._neighbours]:
            self._neighbours.update(self._reader.neighbours(unknown))
        return {id_: self._neighbours[id_] for id_ in ids if id_ in self._neighbours}

    def _read_beside(self, ids: Sequence[int]) -> list[int]:
        """Read these turns. → those that exist."""
        if unread := [id_ for id_ in ids if id_ not in self._beside]:
            turns = self._reader.turns(unread, READ)
            self._beside.update((head.id, head) for head in turns.heads)
            self._texts.update(turns.texts)
        return [id_ for id_ in ids if id_ in self._beside]

    def _flanks(self, made: Sequence[Candidate]) -> list[Candidate]:
        """Return the turns beside the best candidates by words, as evidence; shown only if no rule is against it."""
        by_id = {one.id: one for one in made}
        neighbours = self._neighbours_of(list(by_id))
        links: dict[int, Neighbours] = {}
        for id_, (before, after) in neighbours.items():
            by_id[id_].before, by_id[id_].after = before, after
            if before is not None:
                links[before] = (links.get(before, (None, None))[0], id_)
            if after is not None:
                links[after] = (id_, links.get(after, (None, None))[1])
        of_words = (pair for id_, pair in neighbours.items() if by_id[id_].found or id_ not in self.near)
        beside = self._read_beside(sorted({id_ for pair in of_words for id_ in pair if id_ is not None} - by_id.keys()))
        self.heads.update((id_, self._beside[id_]) for id_ in beside)
        flanks = self._make(beside)
        strict = bool(self._query.all_of or self._query.none_of)
        for one in flanks:
            head = self._beside[one.id]
            one.before, one.after = links.get(one.id, (None, None))
            spoken = head.role in ("user", "assistant")
            one.shown = spoken and not strict and not self._filters.against(head, self.sessions.get(head.session_id))
        return flanks

    def _make(self, ids: Sequence[int]) -> list[Candidate]:
        for id_ in ids:
            if id_ not in self._made:
                head = self.heads.get(id_) or self._beside[id_]
                stored = self._texts.get(id_, "")
                text = legible(stored)
                self._made[id_] = Candidate(
                    id=id_,
                    group=self.sessions[head.session_id].conversation,
                    text=text,
                    folded=fold(text),
                    found=self.scores.get(id_, 0.0),
                    timestamp=head.timestamp,
                    cut=len(stored) >= READ,
                )
        return [self._made[id_] for id_ in ids]


def selected(query: Query, there: Spelled, looked_for: Sequence[Unit]) -> bool:
    """Return what the index would decide about a message."""
    if any(holds(term, there) for term in query.none_of):
        return False
    if query.all_of:
        return all(any(holds(term, there) for term in group) for group in query.all_of)
    return any(map(there.has, looked_for))


def _bonus(dates: Sequence[Span], head: Head) -> float:
    """Return what time and speaker of a message add to its score."""
    named = [
        NAMED_PERIOD if span.relative or span.since is None or span.before is None else NAMED_DATE
        for span in dates
        if span.covers(head.timestamp)
    ]
    return max(named, default=0.0) + SPEAKER.get(head.role, 0.0)


# ── when nothing was found: why, and what to try instead ──

Vocabulary: TypeAlias = Callable[[Sequence[str], Sequence[str], int], Sequence[str]]
"""Parts of words, beginnings of words and a number → that many known words, commonest first."""
ALIKE = 72.0
"""Least similarity (of 100) of a known word that stands for the typed one."""
_KNOWN_WORDS = 5_000
_SHORT = 6
"""A shorter word is only replaced by a known one that begins with the same letter."""


class Attempt(NamedTuple):
    """A wider search, and a note on what is different."""

    query: Query
    filters: Filters
    note: str


def explanation(query: Query, dropped: Sequence[Dropped], matched: int, sessions: int, *, partly: bool = False) -> str:
    """Return why there is nothing to show, in one sentence. `partly`: not all messages could be searched."""
    if not sessions:
        return "No conversation is stored yet."
    if dropped:
        total = sum(one.count for one in dropped)
        matches = "1 match was" if total == 1 else f"{total:,} matches were"
        rules = f" by the rule “{dropped[0].rule}”"
        if len(dropped) > 1:
            rules = ": " + ", ".join(f"{one.count:,} by the rule “{one.rule}”" for one in dropped)
        seen = "Of the matches that were read, all are hidden: " if matched > total else ""
        return f"{seen}{matches} hidden{rules}. {dropped[0].remedy}".strip()
    if not query.any_of:
        return "The query has no words, and nothing recent passes its filters."
    words = ", ".join(str(term) for term in query.any_of[:8])
    if not any(letter.isalnum() for term in query.any_of for letter in term.text):
        return f"Only letters and digits are indexed, so {words} cannot be searched for."
    none = "No message that was searched" if partly else "No message"
    without = f" without {', '.join(map(str, query.none_of[:8]))}" if query.none_of else ""
    if query.all_of:
        return f"{none} contains all required words ({words}){without}."
    return f"{none} contains {'' if len(query.any_of) == 1 else 'any of '}{words}{without}."


def wider(query: Query, filters: Filters, dropped: Sequence[Dropped], vocabulary: Vocabulary) -> Iterator[Attempt]:
    """Yield wider queries: without filters, one by one, then with any of the words, then with similar words."""
    blamed = [rule for rule in CHOSEN if any(one.rule == rule for one in dropped)]
    for rule in blamed:
        yield Attempt(query, filters.without(rule), f"Nothing matched with that {rule} filter. Without it:")
    if blamed:
        yield Attempt(query, filters.without(*CHOSEN), "Nothing matched with those filters. Without them:")
    if query.all_of:
        query = replace(query, any_of=_loose(query), all_of=())
        yield Attempt(query, filters, "Nothing contains all required words; these contain some of them.")
    if plain := _without_signs(query):
        said = ", ".join(f"{one} for {term}" for term, one in plain.items())
        yield Attempt(_instead(query, plain), filters, f"Searched without the signs around it: {said}.")
    if alike := _alike(query, vocabulary):
        said = ", ".join(f"{one} for {term}" for term, one in alike.items())
        if filters.scope and filters.scope.user:  # others' words too: only what this user may see is named
            said = "see the marked ones"
        yield Attempt(_instead(query, alike), filters, f"Searched for similar words that occur: {said}.")


def _loose(query: Query) -> tuple[Term, ...]:
    """Return every word of the phrases on its own."""
    terms: dict[Term, None] = {}
    for term in query.any_of:
        terms.update((Term(word), None) for word in (term.text.split() if term.kind == "phrase" else ()))
        if term.kind != "phrase":
            terms[term] = None
    return tuple(terms)


def _without_signs(query: Query) -> dict[Term, Term]:
    """Return what is inside of names with a sign at an end, and of versions with a v: ".NET", "v1.2"."""
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
    """Return, for each word, a known one that contains it or is spelled nearly like it."""
    words = {term: fold(term.text) for term in query.any_of[:8] if term.kind != "phrase"}
    words = {term: word for term, word in words.items() if len(word) > 2 and word.isalnum()}
    if not words:
        return {}
    # a typing error is seldom in the first and the last letters at once
    parts = dict.fromkeys(piece for word in words.values() for piece in (word[:3], word[-3:]))
    known = vocabulary([*parts], [*dict.fromkeys(word[:2] for word in words.values())], _KNOWN_WORDS)
    found = {}
    for term, word in words.items():
        inside = (one for one in known if word in one and one not in (word, stem(word)) and _grew(word, one))
        if near := next(inside, "") or _nearest(word, known):
            found[term] = Term(near, "prefix")
    return found


def _grew(word: str, known: str) -> bool:
    """Return whether a known word that contains another may be of its kind: too many contain the same three letters."""
    return len(word) > 3 or not word.isascii() or known.startswith(word)


def _nearest(word: str, known: Sequence[str]) -> str:
    from rapidfuzz import fuzz

    best, likeness = "", ALIKE
    for one in known:
        if len(word) < _SHORT and one[0] != word[0]:  # "good" is one letter from "wood", and not in meaning
            continue
        score = fuzz.ratio(one, stem(word))
        if score > likeness and one != stem(word) and _grew(word, one):
            best, likeness = one, score
    return best


def _instead(query: Query, alike: Mapping[Term, Term]) -> Query:
    return replace(query, any_of=tuple(alike.get(term, term) for term in query.any_of))
