"""Search over all past sessions → `SearchReport`.

Read the query → bring the index up to date → candidates → drop what may not be shown, and count it → rank with the real
text and the turns around it → group by conversation → mark what matched. When nothing is left: say why, and try wider.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

from herma.ports import Head, TextIndex, TranscriptReader
from herma.ports.vectors import VectorIndex
from herma.recall.arrange import Arranged, arrange
from herma.recall.asked import (
    MOST_HITS,
    Level,
    Mode,
    Sort,
    Wanted,
    check,
    check_filters,
    edges,
    known_roles,
    no_roles,
    several,
    unread,
)
from herma.recall.described import describe
from herma.recall.fuse import STANDS_OUT, by_cosine, fuse, stands_out
from herma.recall.gather import INDEXES, SCANS, Gathered, Gatherer
from herma.recall.match import Unit, fold, legible, named, units
from herma.recall.meaning import Asker, Meaning, Pending
from herma.recall.present import hit, searched, why
from herma.recall.query import Query, parse
from herma.recall.rank import Candidate, rank
from herma.recall.rerank import Reranker
from herma.recall.rules import Filters, live_sessions
from herma.recall.snippet import matches, snippet
from herma.recall.wider import explanation, wider
from herma.recall.window import Context, in_context
from herma.types import Dropped, Hit, Scope, SearchReport, SessionInfo

_TITLES = 100
"""Conversations whose titles match that are looked at where not all of them may be shown."""
_QUOTED = "\"'`“”„«» \n\t"


@dataclass(slots=True)
class _Answer:
    """One pass: what it found and what happened on the way."""

    dropped: tuple[Dropped, ...] = ()
    notes: list[str] = field(default_factory=list)
    matched: int = 0
    """How many messages the index named, shown or not."""
    partly: bool = False
    """Whether there may be matches among what was not looked at."""
    hits: tuple[Hit, ...] = ()
    widened: bool = False
    members: Mapping[str, Sequence[SessionInfo]] = field(default_factory=dict)
    """The sessions of conversations that are shown, as far as they were read."""


class Searcher:
    """Searches one home. `members` gives all sessions of a conversation."""

    def __init__(
        self,
        reader: TranscriptReader,
        index: TextIndex,
        *,
        members: Callable[[str], Sequence[SessionInfo]],
        clock: Callable[[], float] = time.time,
        alive: Callable[[], None] = lambda: None,
        vectors: VectorIndex | None = None,
        mode: Mode = "hybrid",
        wait: float = 1.0,
        reranker: Callable[[], Reranker | None] = lambda: None,
    ) -> None:
        self._reader = reader
        self._index = index
        self._members = members
        self._clock = clock
        self._alive = alive
        self._gatherer = Gatherer(reader, index)
        self._asker = Asker(vectors, deadline=wait) if vectors is not None else None
        self._mode = mode
        self._wait = wait
        self._reranker = reranker
        self._looked_for: tuple[str, Sequence[Unit]] = ("", ())
        self._shown: tuple[Sequence[Hit], Mapping[str, Sequence[SessionInfo]]] = ((), {})

    def search(
        self,
        text: str,
        *,
        limit: int = 10,
        level: Level = "session",
        scope: Scope | None = None,
        current_session: str | None = None,
        role: str | Sequence[str] | None = None,
        source: str | Sequence[str] | None = None,
        project: str | Sequence[str] | None = None,
        since: str | float | None = None,
        before: str | float | None = None,
        sort: Sort = None,
        include_archived: bool = False,
        explain: bool = False,
        mode: Mode | None = None,
    ) -> SearchReport:
        """Find what was said. Any text is a query; the report says how it was read and what was left out.

        Without `scope` everything in the home is searched; with it, what belongs to the same user. `mode` is by words,
        by vectors or by both; without an embedder, and where vectors say nothing, it is by words.
        """
        self._alive()
        began, mode = time.perf_counter(), mode or self._mode
        check(text, limit, level, sort, mode)
        check_filters({"role": role, "source": source, "project": project}, since, before, scope, current_session)
        query = parse(text, self._clock())
        if any(given is not None for given in (role, source, project, since, before)):
            query = self._narrowed(query, role, source, project, since, before)
        filters = self._filters(query, scope, current_session, include_archived)
        wanted = Wanted(max(1, min(limit, MOST_HITS)), level, sort, explain, mode)
        sessions = self._reader.size()
        lag, answer, pending = 0, _Answer(), Pending(Meaning())
        if sessions:
            lag = self._index.catch_up(INDEXES)
            pending = self._asked_of_vectors(query, filters, mode)
            with self._steady(pending):
                answer = self._answer(query, filters, wanted, lag, pending)
        meaning = pending.result()
        if not answer.hits or not (answer.matched or mode == "vectors"):
            answer = self._try_wider(query, filters, wanted, answer, lag, sessions, pending)
        self._shown = (answer.hits, answer.members)
        return SearchReport(
            query=text,
            hits=answer.hits,
            understood=describe(query),
            searched=searched(sessions, lag),
            sessions=sessions,
            dropped=answer.dropped,
            notes=tuple(dict.fromkeys((*query.notes, *answer.notes, *meaning.notes))),
            lag=lag,
            mode="words" if not meaning.near else mode,
            embedding_ms=meaning.took_ms,
            took_ms=round((time.perf_counter() - began) * 1000, 2),
            widened=answer.widened,
        )

    def looked_for(self, text: str) -> Sequence[Unit]:
        """What a query looks for, to be marked in what it found."""
        last, found = self._looked_for
        return found if last == text else units(parse(text, self._clock()))

    def in_context(self, hits: Sequence[Hit]) -> list[Context]:
        """Each hit with the turns around it, and how its conversation began and ended."""
        self._alive()
        last, members = self._shown
        return in_context(self._reader, hits, members if last is hits else {}) if hits else []

    def _steady(self, pending: Pending) -> AbstractContextManager[None]:
        """All that is read for an answer is of one moment, unless it waits for a model: then nobody waits for it."""
        return nullcontext() if pending.waiting or self._reranker() is not None else self._reader.steady()

    def _asked_of_vectors(self, query: Query, filters: Filters, mode: Mode) -> Pending:
        return self._asker.begin(query, filters) if self._asker and mode != "words" else Pending(Meaning())

    # ── one pass ──

    def _answer(self, query: Query, filters: Filters, wanted: Wanted, lag: int, pending: Pending) -> _Answer:
        looked_for = units(query)
        self._looked_for = (query.text, looked_for)
        if wanted.mode == "vectors" and pending.result().near:
            found = Gathered()
        else:  # meanwhile the question is embedded and compared
            found = self._gatherer.gather(query, filters, looked_for, wanted.limit, lag)
            if pending.waiting:
                self._gatherer.read_ahead(query, found, looked_for, wanted.limit)
        meaning = pending.result()
        if meaning.near:
            self._gatherer.meet(found, filters, meaning.near)
        answer = _Answer(found.sifted.report(), list(found.notes), found.matched, found.partly)
        ranked = self._ranked(query, filters, found, looked_for, wanted, meaning)
        arranged = arrange(ranked, query, wanted, found, self._reranker(), self._wait)
        answer.notes += arranged.notes
        answer.hits = self._hits(query, arranged, found, looked_for, wanted, answer)
        if wanted.level == "session":
            answer.hits = self._titled(query, filters, answer.hits, looked_for, wanted)
        return answer

    def _ranked(
        self,
        query: Query,
        filters: Filters,
        found: Gathered,
        looked_for: Sequence[Unit],
        wanted: Wanted,
        meaning: Meaning,
    ) -> list[Candidate]:
        candidates = self._gatherer.candidates(query, filters, found, looked_for, wanted.limit)
        if wanted.mode == "vectors" and found.near:
            return by_cosine(candidates, found.cosines)
        ranked = fuse(rank(candidates, looked_for), found.near, meaning.trust)
        if not query.any_of:
            return ranked
        if not found.matched and not stands_out(found.cosines.values(), meaning.least):
            return []
        shown = [one for one in ranked if one.score > 0 and one.shown]
        if not found.matched:  # nothing but nearness speaks for these
            shown = [one for one in shown if found.cosines.get(one.id, 0.0) >= meaning.least - STANDS_OUT]
        honest = [one for one in shown if not one.found or _has_any(one, looked_for)]
        if len(honest) < len(shown) and all(term.kind != "prefix" for term in query.any_of):
            self._index.suspect()
            found.notes.append(
                f"{len(shown) - len(honest)} matches do not contain the words: the index is being checked."
            )
        return honest

    def _hits(
        self,
        query: Query,
        arranged: Arranged,
        found: Gathered,
        looked_for: Sequence[Unit],
        wanted: Wanted,
        answer: _Answer,
    ) -> tuple[Hit, ...]:
        cut = [one.id for one in arranged.chosen if one.cut]
        whole = self._reader.texts(cut, 1_000_000) if cut else {}
        sessions = self._sessions(arranged.chosen, found, wanted, answer)
        hits = []
        for one in arranged.chosen:
            head = found.heads[one.id]
            if (session := sessions.get(head.session_id)) is None:  # purged a moment ago
                continue
            text = legible(whole[one.id]) if one.id in whole else one.text
            folded = fold(text) if one.cut else one.folded
            places = matches(text, folded, looked_for)
            cosine = found.cosines.get(one.id)
            reasons = why(one, folded, places, query, cosine=cosine, explain=wanted.explain)
            newer = arranged.outdated.get(one.id)
            if newer is not None:
                reasons += (f"is possibly outdated: message {newer} says otherwise, later",)
            shown = hit(head, session, snippet(text, places), one.score, reasons)
            hits.append(replace(shown, outdated_by=newer) if newer is not None else shown)
        return tuple(hits)

    def _sessions(
        self, chosen: Sequence[Candidate], found: Gathered, wanted: Wanted, answer: _Answer
    ) -> Mapping[str, SessionInfo]:
        """The sessions that are shown. Where conversations are, all of theirs: whoever shows these needs them too."""
        if wanted.level != "session":
            return self._reader.sessions(sorted({found.heads[one.id].session_id for one in chosen}))
        answer.members = self._reader.members([one.group for one in chosen]) if chosen else {}
        return {session.id: session for members in answer.members.values() for session in members}

    def _titled(
        self, query: Query, filters: Filters, hits: tuple[Hit, ...], looked_for: Sequence[Unit], wanted: Wanted
    ) -> tuple[Hit, ...]:
        """Conversations whose title has all the words come first, found by their words or not; where there are hits
        enough, only the one whose title was given as it stands.
        """
        words = [term.text for term in query.any_of if term.kind != "prefix"]
        title = query.text.strip(_QUOTED)
        if wanted.sort or query.roles or not words:
            return hits
        most = max(wanted.limit, _TITLES) if filters.narrow else wanted.limit
        if len(words) > 8 or query.all_of or len(hits) >= wanted.limit:
            sessions = self._reader.titled([title], most, exactly=True)
        else:
            sessions = sorted(self._reader.titled(words, most), key=lambda one: one[0].title != title)
        named: list[Hit] = []
        for session, first in sessions:
            head = Head(first or 0, session.id, "session_title", session.last_active)
            if filters.against(head, session) or any(one.conversation == session.conversation for one in named):
                continue
            name, said = session.title or "", "is what was asked for" if session.title == title else "has all the words"
            line = snippet(name, matches(name, fold(name), looked_for))
            named.append(hit(head, session, line, 1.0, (f"the title {said}",)))
        known = {one.conversation for one in named}
        rest = [one for one in hits if one.conversation not in known]
        by_conversation = {one.conversation: one for one in hits}
        first_ones = [
            replace(by_conversation[one.conversation], why=(*by_conversation[one.conversation].why, *one.why))
            if one.conversation in by_conversation
            else one
            for one in named
        ]
        return tuple((first_ones + rest)[: wanted.limit])

    # ── when nothing was found ──

    def _try_wider(
        self,
        query: Query,
        filters: Filters,
        wanted: Wanted,
        empty: _Answer,
        lag: int,
        sessions: int,
        pending: Pending,
    ) -> _Answer:
        """`empty` has no hits, or only such as are near in meaning: those stay when words alike find nothing."""
        empty.notes.append(
            explanation(query, empty.dropped, empty.matched, sessions, partly=empty.partly or lag > SCANS)
        )
        if not sessions:
            return empty
        if empty.hits:
            empty.notes.append("These are near in meaning.")
        if query.any_of and not empty.matched:
            self._index.suspect()
        for attempt in wider(query, filters, empty.dropped, self._index.vocabulary):
            answer = self._answer(attempt.query, attempt.filters, wanted, lag, pending)
            if answer.matched and answer.hits:
                answer.dropped, answer.widened = empty.dropped, True
                answer.notes = [*empty.notes, attempt.note, *answer.notes]
                return answer
        return empty

    # ── small things ──

    def _narrowed(
        self,
        query: Query,
        role: str | Sequence[str] | None,
        source: str | Sequence[str] | None,
        project: str | Sequence[str] | None,
        since: str | float | None,
        before: str | float | None,
    ) -> Query:
        """The query with what keyword arguments ask for besides."""
        return replace(
            query,
            roles=(*query.roles, *known_roles(role)),
            sources=(*query.sources, *several(source)),
            projects=(*query.projects, *several(project)),
            dates=(*query.dates, *edges(since, before, self._clock())),
            notes=(*query.notes, *no_roles(role), *unread(since, before, self._clock())),
        )

    def _filters(self, query: Query, scope: Scope | None, current: str | None, include_archived: bool) -> Filters:
        conversation, live = current, frozenset[str]()
        known = self._reader.sessions([current]).get(current) if current else None
        if known:
            conversation, live = known.conversation, live_sessions(known.id, self._members(known.id))
        return Filters(
            roles=query.roles,
            sources=query.sources,
            projects=query.projects,
            sessions=query.sessions,
            excluded=query.excluded,
            dates=query.hard_dates,
            scope=scope,
            current=conversation,
            live=live,
            include_archived=include_archived,
        )


def _has_any(one: Candidate, looked_for: Sequence[Unit]) -> bool:
    if one.cut or one.weights or any(unit.part in one.folded for unit in looked_for):
        return True
    return named(one.text, looked_for)
