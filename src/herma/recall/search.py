"""Search over all past sessions → `SearchReport`.

Read the query → bring the index up to date → candidates → drop what may not be shown, and count it → rank with the real
text and the turns around it → group by conversation → mark what matched. When nothing is left: say why, and try wider.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from herma.errors import UsageError
from herma.ports import Head, TextIndex, TranscriptReader
from herma.recall.dates import Span, read_value
from herma.recall.gather import INDEXES, SCANS, Gathered, Gatherer
from herma.recall.match import Place, Unit, fold, units
from herma.recall.query import Query, describe, parse
from herma.recall.rank import Candidate, rank
from herma.recall.rules import DEMOTED_SOURCES, Filters, live_sessions
from herma.recall.snippet import matches, snippet
from herma.recall.wider import explanation, wider
from herma.recall.window import Context, in_context
from herma.types import Dropped, Hit, Scope, SearchReport, SessionInfo

Level = Literal["session", "message"]
Sort = Literal["newest", "oldest"] | None
MOST_HITS = 200
"""More than anybody reads."""
_FAR = 200_000_000_000
"""Seconds from 1970 that still have a date (the year 8307); neither infinity nor what is no number is below it."""


@dataclass(slots=True)
class _Answer:
    """One pass: what it found and what happened on the way."""

    hits: tuple[Hit, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    notes: list[str] = field(default_factory=list)
    matched: int = 0
    """How many messages the index named, shown or not."""
    widened: bool = False


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
    ) -> None:
        self._reader = reader
        self._index = index
        self._members = members
        self._clock = clock
        self._alive = alive
        self._gatherer = Gatherer(reader, index)
        self._looked_for: tuple[str, Sequence[Unit]] = ("", ())

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
    ) -> SearchReport:
        """Find what was said. Any text is a query; the report says how it was read and what was left out.

        Without `scope` everything in the home is searched; with it, what belongs to the same user.
        """
        self._alive()
        _check(text, limit, level, sort)
        began = time.perf_counter()
        query = parse(text, self._clock())
        query = replace(
            query,
            roles=(*query.roles, *_several(role)),
            sources=(*query.sources, *_several(source)),
            projects=(*query.projects, *_several(project)),
            dates=(*query.dates, *_edges(since, before, self._clock())),
            notes=(*query.notes, *_unread(since, before, self._clock())),
        )
        filters = self._filters(query, scope, current_session, include_archived)
        wanted = _Wanted(max(1, min(limit, MOST_HITS)), level, sort, explain)
        sessions = self._reader.size()
        lag, answer = 0, _Answer()
        if sessions:
            lag = self._index.catch_up(INDEXES)
            answer = self._answer(query, filters, wanted, lag)
        if not answer.hits:
            answer = self._try_wider(query, filters, wanted, answer, lag, sessions)
        return SearchReport(
            query=text,
            hits=answer.hits,
            understood=describe(query),
            searched=_searched(sessions, lag),
            sessions=sessions,
            dropped=answer.dropped,
            notes=tuple(dict.fromkeys((*query.notes, *answer.notes))),
            lag=lag,
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
        return in_context(self._reader, hits) if hits else []

    # ── one pass ──

    def _answer(self, query: Query, filters: Filters, wanted: _Wanted, lag: int) -> _Answer:
        looked_for = units(query)
        self._looked_for = (query.text, looked_for)
        found = self._gatherer.gather(query, filters, looked_for, wanted.limit, lag)
        answer = _Answer(dropped=found.sifted.report(), notes=list(found.notes), matched=found.matched)
        ranked = self._ranked(query, filters, found, looked_for, wanted.limit)
        if wanted.sort:
            ranked = sorted(ranked, key=lambda one: (one.timestamp, one.id), reverse=wanted.sort == "newest")
        chosen = _one_each(ranked) if wanted.level == "session" else ranked
        chosen = _demoted(chosen, found)[: wanted.limit]
        answer.hits = self._hits(query, chosen, found, looked_for, wanted)
        if wanted.level == "session" and len(answer.hits) < wanted.limit:
            answer.hits = self._titled(query, filters, answer.hits, looked_for, wanted)
        return answer

    def _ranked(
        self, query: Query, filters: Filters, found: Gathered, looked_for: Sequence[Unit], limit: int
    ) -> list[Candidate]:
        candidates = self._gatherer.candidates(query, filters, found, looked_for, limit)
        ranked = rank(candidates, looked_for)
        if not query.any_of:
            return ranked
        shown = [one for one in ranked if one.score > 0 and one.shown]
        honest = [one for one in shown if not one.found or _has_any(one, looked_for)]
        if len(honest) < len(shown) and all(term.kind != "prefix" for term in query.any_of):
            self._index.suspect()
            found.notes.append(
                f"{len(shown) - len(honest)} matches do not contain the words: the index is being checked."
            )
        return honest

    def _hits(
        self, query: Query, chosen: Sequence[Candidate], found: Gathered, looked_for: Sequence[Unit], wanted: _Wanted
    ) -> tuple[Hit, ...]:
        cut = [one.id for one in chosen if one.cut]
        whole = self._reader.texts(cut, 1_000_000) if cut else {}
        hits = []
        for one in chosen:
            head = found.heads[one.id]
            session = found.sessions[head.session_id]
            text = whole.get(one.id, one.text)
            folded = fold(text) if one.cut else one.folded
            places = matches(folded, looked_for)
            why = _why(one, folded, places, query, explain=wanted.explain)
            hits.append(_hit(head, session, snippet(text, places), one.score, why))
        return tuple(hits)

    def _titled(
        self, query: Query, filters: Filters, hits: tuple[Hit, ...], looked_for: Sequence[Unit], wanted: _Wanted
    ) -> tuple[Hit, ...]:
        """Conversations whose title has all the words come first, found by their words or not."""
        words = [term.text for term in query.any_of if term.kind != "prefix"]
        if not words or len(words) > 8 or query.all_of or query.roles or wanted.sort:
            return hits
        named: list[Hit] = []
        for session, first in self._reader.titled(words, wanted.limit):
            head = Head(first or 0, session.id, "session_title", session.last_active)
            if filters.against(head, session) or any(hit.conversation == session.conversation for hit in named):
                continue
            title = session.title or ""
            line = snippet(title, matches(fold(title), looked_for))
            named.append(_hit(head, session, line, 1.0, ("the title has all the words",)))
        known = {hit.conversation for hit in named}
        rest = [hit for hit in hits if hit.conversation not in known]
        by_conversation = {hit.conversation: hit for hit in hits}
        first_ones = [
            replace(by_conversation[hit.conversation], why=(*by_conversation[hit.conversation].why, *hit.why))
            if hit.conversation in by_conversation
            else hit
            for hit in named
        ]
        return tuple((first_ones + rest)[: wanted.limit])

    # ── when nothing was found ──

    def _try_wider(
        self, query: Query, filters: Filters, wanted: _Wanted, empty: _Answer, lag: int, sessions: int
    ) -> _Answer:
        empty.notes.append(explanation(query, empty.dropped, empty.matched, sessions))
        if not sessions:
            return empty
        if query.any_of and not empty.matched:
            self._index.suspect()
        for attempt in wider(query, filters, empty.dropped, self._index.vocabulary):
            answer = self._answer(attempt.query, attempt.filters, wanted, lag)
            if answer.hits:
                answer.dropped, answer.widened = empty.dropped, True
                answer.notes = [*empty.notes, attempt.note, *answer.notes]
                return answer
        return empty

    # ── small things ──

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
            dates=query.hard_dates,
            scope=scope,
            current=conversation,
            live=live,
            include_archived=include_archived,
        )


@dataclass(frozen=True, slots=True)
class _Wanted:
    limit: int
    level: Level
    sort: Sort
    explain: bool


def _searched(sessions: int, lag: int) -> str:
    if not sessions:
        return "Nothing is stored yet."
    where = f"All messages and titles of {sessions:,} session{'s' if sessions != 1 else ''}"
    if lag:
        where += f", except that of the newest {lag:,} messages only the last {SCANS:,} were read"
    return where + "."


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


def _has_any(one: Candidate, looked_for: Sequence[Unit]) -> bool:
    return one.cut or bool(one.weights) or any(unit.part in one.folded for unit in looked_for)


def _why(
    one: Candidate, folded: str, places: Sequence[tuple[Place, str]], query: Query, *, explain: bool
) -> tuple[str, ...]:
    words = list(dict.fromkeys(folded[start:end] for (start, end), _ in places))
    why = ["passes the filters"]
    if query.any_of:
        why = [f"has {', '.join(words[:8])}" if words else "stands next to a match"]
    if any(span.covers(one.timestamp) for span in query.soft_dates):
        why.append("is from the time that was named")
    if explain:
        why.append(
            f"index {one.found:.2f}, beside {one.beside:.2f}, conversation {one.around:.2f}, bonus {one.bonus:.2f}"
        )
    return tuple(why)


def _hit(head: Head, session: SessionInfo, line: str, score: float, why: tuple[str, ...]) -> Hit:
    return Hit(
        session_id=head.session_id,
        message_id=head.id,
        role=head.role,
        snippet=line,
        score=round(score, 4),
        timestamp=head.timestamp,
        conversation=session.conversation,
        session=session,
        why=why,
    )


def _several(value: str | Sequence[str] | None) -> tuple[str, ...]:
    given = value.split(",") if isinstance(value, str) else value or ()
    return tuple(item.strip() for item in given if item.strip())


def _edges(since: str | float | None, before: str | float | None, now: float) -> list[Span]:
    """Keyword arguments: seconds, or a date as in a query. What cannot be read is no filter."""
    spans = []
    if (at := _moment(since, now)) is not None:
        spans.append(Span(at, None, f"since:{since}"))
    if (at := _moment(before, now)) is not None:
        spans.append(Span(None, at, f"before:{before}"))
    return spans


def _unread(since: str | float | None, before: str | float | None, now: float) -> list[str]:
    return [
        f"{value!r} is no date I can read (2026-03-05, 7d, yesterday); it was not used."
        for value in (since, before)
        if value not in (None, "") and _moment(value, now) is None
    ]


def _moment(value: str | float | None, now: float) -> float | None:
    if isinstance(value, str):
        span = read_value(value, now)
        return span.since if span else None
    return value if value is None or abs(value) < _FAR else None


def _check(text: object, limit: object, level: str, sort: str | None) -> None:
    """A slip of the caller's is said, instead of being taken for something else."""
    if not isinstance(text, str):
        raise UsageError(f"A query is text, not {type(text).__name__}.", hint='For example: search("login bug").')
    if not isinstance(limit, int):
        raise UsageError(f"The limit is a whole number, not {limit!r}.", hint="For example: limit=3.")
    if level not in get_args(Level):
        raise UsageError(f"{level!r} is no level.", hint=f"There are {', '.join(get_args(Level))}.")
    if sort not in (None, "newest", "oldest"):
        raise UsageError(f"{sort!r} is no order.", hint="There are newest and oldest; by relevance without it.")
