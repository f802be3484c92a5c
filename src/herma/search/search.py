"""Search all past sessions: `Searcher.search()` → `SearchReport`.

Read the query → bring the index up to date → candidates → drop what may not be shown, and count it → rank with the text
and the turns around it → group by conversation → mark what matched. If nothing is left: say why, and try wider.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Unpack

from herma.errors import HermaError, UsageError, checked
from herma.models.telemetry import COUNT, STORE, traced
from herma.safety.fold import without_noise
from herma.search.candidates import INDEXES, SCANS, Candidates, Filters, explanation, live_sessions, wider
from herma.search.expand import USUAL, propose_words, united
from herma.search.expand import summarize as summarized
from herma.search.match import Place, Unit, fold, legible, matches, named, snippet, units
from herma.search.query import (
    MOST_HITS,
    AnswerOptions,
    Dropped,
    Hit,
    Level,
    Mode,
    Query,
    SearchOptions,
    SearchReport,
    Sort,
    describe,
    edges,
    known_roles,
    no_roles,
    parse,
    several,
)
from herma.search.rank import (
    APART,
    FOREIGN,
    KEYWORDS,
    NEAREST,
    ONE_THING,
    Arranged,
    Candidate,
    by_cosine,
    fuse,
    near_enough,
    postprocess,
    rank,
)
from herma.text import HAS_CJK, NOT_ENGLISH
from herma.transcript.messages import text_of
from herma.transcript.rows import Head, MessageSpot, ShownMessage, TranscriptReader
from herma.types import Scope
from herma.worker import BackgroundCall

if TYPE_CHECKING:
    from herma.app import Herma
    from herma.index import Near
    from herma.index.sync import Index
    from herma.index.vectors import Vectors
    from herma.search.dates import Span
    from herma.search.rank import Reranker
    from herma.transcript.log import Transcripts
    from herma.types import Message, SessionInfo

# ── asking the vectors: search never waits long for a model, and says what it did without ──

FILTERED = 600
"""Nearest messages that are asked for if filters leave out most of them."""
AT_ONCE = 16
"""Questions of several searches that an embedder gets at a time; each has a thread that waits."""
_ENGLISH = re.compile("[A-Za-z]{3}")


class Meaning(NamedTuple):
    """The messages near in meaning, how far to trust them, how long embedding took, and notes for people."""

    near: tuple[Near, ...] = ()
    trust: float = 1.0
    took_ms: float = 0.0
    notes: tuple[str, ...] = ()
    among: int = 0
    """Number of vectors that were compared."""
    spread: float = 0.0
    """The standard deviation of how much nearer they are to the question than to each other."""


class PendingAnswer:
    """An answer that may still be on its way until a deadline."""

    def __init__(self, otherwise: Meaning, call: BackgroundCall[Meaning] | None = None, until: float = 0.0) -> None:
        self._answer = otherwise
        self._call = call
        self._until = until

    @property
    def waiting(self) -> bool:
        return self._call is not None and not self._call.done.is_set()

    def result(self) -> Meaning:
        """Wait for the answer until the deadline."""
        if self._call is not None:
            try:
                self._answer = self._call.answer(max(0.0, self._until - time.monotonic()))
            except TimeoutError:
                pass
            except HermaError as error:  # the home was closed meanwhile, or cannot be read: words may still be found
                self._answer = Meaning(notes=(f"vectors: {error}",))
            self._call = None
        return self._answer


class Asker:
    """Ask one vector index in the background of a search.

    An embedder that is too slow goes on; meanwhile searches are by words, and its answer serves the next one. Only a
    question that is overdue makes it slow, not that other searches ask at the same moment.
    """

    def __init__(self, vectors: Vectors, *, deadline: float) -> None:
        self._vectors = vectors
        self._deadline = deadline
        self._mutex = threading.Lock()
        self._open: list[tuple[BackgroundCall[Meaning], float]] = []

    def begin(self, query: Query, filters: Filters) -> PendingAnswer:
        """Ask, unless there is no embedder, nothing in plain language, or nothing that the model can read: what it
        calls near then is noise.
        """
        text = " ".join(query.plain.split())
        state = self._vectors.state() if text and query.any_of else None
        if state is None or not state.wanted:
            return PendingAnswer(Meaning(notes=(f"vectors: {state.trouble}",) if state and state.trouble else ()))
        if not state.is_multilingual and HAS_CJK.search(text) and not _ENGLISH.search(text):
            return PendingAnswer(Meaning())
        late = Meaning(
            notes=(f"vectors: the embedder did not answer within {self._deadline:g} s; words alone were searched.",)
        )
        with self._mutex:
            now = time.monotonic()
            self._open = [asked for asked in self._open if not asked[0].done.is_set()]
            if any(until <= now for _, until in self._open):
                return PendingAnswer(late)
            if len(self._open) >= AT_ONCE:
                crowded = f"vectors: {AT_ONCE} other searches are using the embedder; words alone were searched."
                return PendingAnswer(Meaning(notes=(crowded,)))
            trust = _trust(query, multilingual=state.is_multilingual)
            nearest = FILTERED if filters.narrow else NEAREST
            call = BackgroundCall("search vectors", lambda: self._ask(text, nearest, trust)).start()
            self._open.append((call, now + self._deadline))
            return PendingAnswer(late, call, now + self._deadline)

    def _ask(self, text: str, nearest: int, trust: float) -> Meaning:
        began = time.perf_counter()
        self._vectors.scores(text, ())  # embeds the question, which the index remembers
        took = (time.perf_counter() - began) * 1000
        found = self._vectors.apart(text, nearest, APART)
        return Meaning(found.hits, trust, round(took, 2), found.notes, found.rows, found.spread)


def _trust(query: Query, *, multilingual: bool) -> float:
    """Return how far meaning counts: less if the model knows the language less, or for one exact thing."""
    trust = ONE_THING if len(units(query)) == 1 else 1.0 if query.ignored else KEYWORDS
    foreign = not multilingual and any(word in NOT_ENGLISH for word in query.plain.casefold().split())
    return trust * FOREIGN if foreign or HAS_CJK.search(query.plain) else trust


# ── searching ──

_TITLES = 100
"""Conversations with a matching title that are examined if not all of them may be shown."""
_QUOTED = "\"'`“”„«» \n\t"
_WHOLE = 1_000_000
"""Characters of a hit that are read to mark its matches."""


@checked("text", "project", "source")
class Searcher:
    """Search the transcripts of one home."""

    def __init__(self, app: Herma, *, wait: float | None = None, rerank: bool = True) -> None:
        """`wait` is how many seconds the query may take to embed; None: as configured."""
        self._app = app
        self.reader = TranscriptReader(app.db)
        self.wait = app.settings.search.model_wait if wait is None else wait
        self._asker = Asker(app.index.vectors, deadline=self.wait)
        self._rerank = rerank
        self._shown: tuple[Sequence[Hit], Mapping[str, Sequence[SessionInfo]]] = ((), {})

    @traced("search_memory", lambda *_, **__: {STORE: "transcripts"}, lambda found: {COUNT: len(found.hits)})
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
        by vectors or by both; without an embedder it is by words.
        """
        self._app.ensure_open()
        began, now, mode = time.perf_counter(), self._app.clock(), mode or self._app.settings.search.mode
        if not 1 <= limit <= MOST_HITS:
            raise UsageError(f"limit must be from 1 to {MOST_HITS}, not {limit}.", hint="For example: limit=3.")
        query = _narrowed(parse(text, now), role, source, project, edges(since, before, now))
        filters = self._filters(query, scope, current_session, include_archived)
        wanted = AnswerOptions(limit, level, sort, explain, mode)
        sessions = self.reader.size()
        lag, pending = 0, PendingAnswer(Meaning())
        answer = _Pass(self, query, filters, wanted, lag, pending)
        if sessions:
            lag = self._app.index.catch_up(INDEXES)
            if mode != "words":
                pending = self._asker.begin(query, filters)
            answer = self._app.db.retrying(lambda: self._run(_Pass(self, query, filters, wanted, lag, pending)))
        meaning = pending.result()
        titled = any(hit.role == "session_title" for hit in answer.hits)
        if not answer.hits or not (answer.found.matched or titled or mode == "vectors"):
            answer = self._try_wider(answer, lag, sessions)
        self._shown = (answer.hits, answer.members)
        return SearchReport(
            query=text,
            hits=answer.hits,
            understood=describe(query),
            searched=_searched(sessions, lag),
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
        """Return what a query looks for, to mark it in what was found."""
        return units(parse(text, self._app.clock()))

    def in_context(self, hits: Sequence[Hit]) -> list[HitContext]:
        """Return each hit with the turns around it, and how its conversation began and ended."""
        self._app.ensure_open()
        last, members = self._shown
        return in_context(self.reader, hits, members if last is hits else {}) if hits else []

    @property
    def index(self) -> Index:
        return self._app.index

    @property
    def reranker(self) -> Reranker | None:
        return self._app.reranker if self._rerank else None

    def _run(self, answer: _Pass) -> _Pass:
        with self._snapshot(answer.pending):
            answer.run()
        return answer

    def _snapshot(self, pending: PendingAnswer) -> AbstractContextManager[None]:
        """Read everything for an answer at one moment, unless it waits for a model: writers must not wait for that."""
        return nullcontext() if pending.waiting or self.reranker is not None else self.reader.snapshot()

    def _filters(self, query: Query, scope: Scope | None, current: str | None, include_archived: bool) -> Filters:
        conversation, live = current, frozenset[str]()
        known = self.reader.sessions([current]).get(current) if current else None
        if known:
            conversation = known.conversation
            live = live_sessions(known.id, self._app.transcripts.conversation(known.id))
        return Filters(query, scope, conversation, live, include_archived)

    def _try_wider(self, empty: _Pass, lag: int, sessions: int) -> _Pass:
        """Try wider queries. `empty` has no hits, or only hits by meaning, which stay if similar words find nothing."""
        query, found = empty.query, empty.found
        partly = found.partly or lag > SCANS
        empty.notes.append(explanation(query, empty.dropped, found.matched, sessions, partly=partly))
        if not sessions:
            return empty
        if empty.hits:
            empty.notes.append("These are close in meaning.")
        if query.any_of and not found.matched:
            self.index.schedule_check()
        for attempt in wider(query, empty.filters, empty.dropped, self.index.vocabulary):
            answer = _Pass(self, attempt.query, attempt.filters, empty.wanted, lag, empty.pending)
            answer.run()
            if answer.found.matched and answer.hits:
                answer.dropped, answer.widened = empty.dropped, True
                answer.notes = [*empty.notes, attempt.note, *answer.notes]
                return answer
        return empty


def _narrowed(
    query: Query,
    role: str | Sequence[str] | None,
    source: str | Sequence[str] | None,
    project: str | Sequence[str] | None,
    dates: Sequence[Span],
) -> Query:
    """Return the query with the filters of the keyword arguments."""
    return replace(
        query,
        roles=(*query.roles, *known_roles(role)),
        sources=(*query.sources, *several(source)),
        projects=(*query.projects, *several(project)),
        dates=(*query.dates, *dates),
        notes=(*query.notes, *no_roles(role)),
    )


class _Pass:
    """One search for one reading of the query: what it found, and what happened on the way."""

    def __init__(
        self,
        searcher: Searcher,
        query: Query,
        filters: Filters,
        wanted: AnswerOptions,
        lag: int,
        pending: PendingAnswer,
    ) -> None:
        self._searcher = searcher
        self._reader = searcher.reader
        self.query, self.filters, self.wanted, self.pending = query, filters, wanted, pending
        self._lag = lag
        self.found = Candidates(self._reader, searcher.index, query, filters, wanted.limit)
        self._looked_for = self.found.looked_for
        self.hits: tuple[Hit, ...] = ()
        self.notes: list[str] = []
        self.dropped: tuple[Dropped, ...] = ()
        self.members: Mapping[str, Sequence[SessionInfo]] = {}
        """The sessions of the conversations that are shown, as far as they were read."""
        self.widened = False

    def run(self) -> None:
        found = self.found
        if not (self.wanted.mode == "vectors" and self.pending.result().near):
            found.collect(self._lag)  # meanwhile the question is embedded and compared
            if self.pending.waiting:
                found.read_ahead()
        meaning = self.pending.result()
        if meaning.near:
            found.add_near(meaning.near, meaning.spread)
        self.dropped, self.notes = found.dropped, list(found.notes)
        ranked = self._ranked(meaning)
        arranged = postprocess(ranked, self.query, self.wanted, found, self._searcher.reranker, self._searcher.wait)
        self.notes += arranged.notes
        self.hits = self._hits(arranged)
        if self.wanted.level == "session":
            self._add_titles()

    def _ranked(self, meaning: Meaning) -> list[Candidate]:
        found, looked_for = self.found, self._looked_for
        candidates = found.candidates()
        if self.wanted.mode == "vectors" and found.near:
            return by_cosine(candidates, found.cosines)
        ranked = fuse(rank(candidates, looked_for), found.near, meaning.trust)
        if not self.query.any_of:
            return ranked
        least = near_enough(meaning.among, alone=not found.matched or len(looked_for) == 1)
        shown = [
            one
            for one in ranked
            if one.score > 0
            and one.shown
            and (
                one.weights
                or one.beside
                or one.id in found.scores
                or one.id in found.unindexed
                or found.nearer.get(one.id, least) >= least
            )
        ]
        honest = [one for one in shown if not one.found or _has_any(one, looked_for)]
        if len(honest) < len(shown) and all(term.kind != "prefix" for term in self.query.any_of):
            self._searcher.index.schedule_check()
            self.notes.append(f"{len(shown) - len(honest)} matches do not contain the words: the index is checked.")
        return honest

    def _hits(self, arranged: Arranged) -> tuple[Hit, ...]:
        found = self.found
        cut = [one.id for one in arranged.chosen if one.cut]
        whole = self._reader.texts(cut, _WHOLE) if cut else {}
        sessions = self._sessions(arranged.chosen)
        hits = []
        for one in arranged.chosen:
            head = found.heads[one.id]
            if (session := sessions.get(head.session_id)) is None:  # purged a moment ago
                continue
            text = legible(whole[one.id]) if one.id in whole else one.text
            folded = fold(text) if one.cut else one.folded
            places = matches(text, folded, self._looked_for)
            words = list(dict.fromkeys(folded[start:end] for (start, end), _ in places))
            reasons = self._why(one, words, found.cosines.get(one.id))
            newer = arranged.outdated.get(one.id)
            if newer is not None:
                reasons += (f"is possibly outdated: message {newer} contradicts it",)
            hits.append(_hit(head, session, snippet(text, places), one.score, reasons, newer))
        return tuple(hits)

    def _why(self, one: Candidate, words: Sequence[str], cosine: float | None) -> tuple[str, ...]:
        said = ["passes the filters"]
        if self.query.any_of:
            said = [f"has {', '.join(words[:8])}"] if words else []
            if cosine is not None:
                said.append("is near in meaning")
            said = said or ["stands next to a match"]
        if any(span.covers(one.timestamp) for span in self.query.soft_dates):
            said.append("is from the named time")
        if self.wanted.explain:
            words_part = one.score - one.meaning
            near = f"meaning {one.meaning:.2f}" + (f" (cosine {cosine:.3f})" if cosine is not None else "")
            parts = (
                f"index {one.found:.2f}, beside {one.beside:.2f}, conversation {one.around:.2f}, bonus {one.bonus:.2f}"
            )
            said.append(f"words {words_part:.2f} ({parts}), {near}")
        return tuple(said)

    def _sessions(self, chosen: Sequence[Candidate]) -> Mapping[str, SessionInfo]:
        """Return the sessions that are shown; where conversations are shown, all of theirs."""
        if self.wanted.level != "session":
            return self._reader.sessions(sorted({self.found.heads[one.id].session_id for one in chosen}))
        self.members = self._reader.members([one.group for one in chosen]) if chosen else {}
        return {session.id: session for members in self.members.values() for session in members}

    def _add_titles(self) -> None:
        """Put conversations first whose title has all the words: with a message that has some of them, else with their
        title. If there are hits enough, only a conversation with exactly this title.
        """
        query, wanted, hits = self.query, self.wanted, self.hits
        words = [term.text for term in query.any_of if term.kind != "prefix"]
        title = query.text.strip(_QUOTED)
        if wanted.sort or query.roles or not words:
            return
        most = max(wanted.limit, _TITLES) if self.filters.narrow else wanted.limit
        if len(words) > 8 or query.all_of or len(hits) >= wanted.limit:
            sessions = self._reader.titled([title], most, exactly=True)
        else:
            sessions = sorted(self._reader.titled(words, most), key=lambda one: one[0].title != title)
        by_conversation = {one.conversation: one for one in hits if ">>>" in one.snippet}
        first: dict[str, Hit] = {}
        for session, message in sessions:
            head = Head(message or 0, session.id, "session_title", session.last_active)
            if self.filters.against(head, session) or session.conversation in first:
                continue
            name = session.title or ""
            why = f"the title {'is the query' if name == title else 'has all the words'}"
            if (shown := by_conversation.get(session.conversation)) is not None:
                first[session.conversation] = replace(shown, why=(*shown.why, why))
            else:
                line = snippet(name, matches(name, fold(name), self._looked_for))
                first[session.conversation] = _hit(head, session, line, 1.0, (why,))
        rest = [one for one in hits if one.conversation not in first]
        self.hits = tuple([*first.values(), *rest][: wanted.limit])


def _hit(
    head: Head, session: SessionInfo, line: str, score: float, why: tuple[str, ...], outdated_by: int | None = None
) -> Hit:
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
        outdated_by=outdated_by,
    )


def _has_any(one: Candidate, looked_for: Sequence[Unit]) -> bool:
    if one.cut or one.weights or any(unit.part in one.folded for unit in looked_for):
        return True
    return named(one.text, looked_for)


def _searched(sessions: int, lag: int) -> str:
    if not sessions:
        return "No conversation is stored yet."
    where = f"All messages and titles of {sessions:,} session{'s' if sessions != 1 else ''}"
    if lag > SCANS:
        where += f", except that of the newest {lag:,} messages only the last {SCANS:,} were read"
    return where + "."


# ── a match in its surroundings: the turns around it, and how the conversation began and ended ──

WINDOW = 5
"""Turns on each side of a match."""
BOOKEND = 3
"""Messages with text that begin and end a conversation."""
FULL, BRIEF = 4_000, 1_200
"""Characters of a message in the first hit, and in the others."""
LEAST = 120
"""Characters that a message keeps in any case."""


class ShownLine(NamedTuple):
    """A message as it is shown: `left_out` characters of its text are missing."""

    message: Message | ShownMessage
    text: str
    left_out: int = 0
    anchor: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """A window and its bookends. `before` and `after` count the neighbours on each side of the anchor."""

    messages: tuple[ShownLine, ...]
    start: tuple[ShownLine, ...] = ()
    end: tuple[ShownLine, ...] = ()
    before: int = 0
    after: int = 0
    anchor: Message | None = None
    """The whole message, if one message was asked for."""

    @property
    def shortened(self) -> bool:
        return any(line.left_out for line in (*self.messages, *self.start, *self.end))


class HitContext(NamedTuple):
    """A hit in its surroundings, and the sessions of its conversation, oldest first."""

    view: View
    members: Sequence[SessionInfo]


def around(transcripts: Transcripts, message_id: int, window: int) -> View | None:
    """Return a message with its neighbours, without rewound ones; None if there is no such message."""
    messages = transcripts.around(message_id, window)
    view = _view(message_id, messages)
    return replace(view, anchor=messages[view.before]) if view.messages else None


def in_context(
    reader: TranscriptReader, hits: Sequence[Hit], known: Mapping[str, Sequence[SessionInfo]], window: int = WINDOW
) -> list[HitContext]:
    """Return each hit with its neighbours, and with what user and assistant said first and last in the conversation.

    `known`: the sessions of conversations that were read already.
    """
    unread = [hit.conversation for hit in hits if hit.conversation not in known]
    members = {**known, **reader.members(unread)} if unread else known
    spots = []
    for hit in hits:
        here = hit.session_id
        parts = [one.id for one in members[hit.conversation] if one.message_count or one.id == here] or [here]
        spots.append(MessageSpot(hit.message_id, parts[0], parts[-1]))
    return [
        HitContext(_view(hit.message_id, found.messages, found.start, found.end), members[hit.conversation])
        for hit, found in zip(hits, reader.surroundings(spots, window, BOOKEND), strict=True)
    ]


def _view(
    anchor: int,
    messages: Sequence[Message | ShownMessage],
    start: Sequence[ShownMessage] = (),
    end: Sequence[ShownMessage] = (),
) -> View:
    place = next((at for at, message in enumerate(messages) if message.id == anchor), None)
    if place is None:
        return View(())
    shown = tuple(_line(message, message.id == anchor) for message in messages)
    return View(shown, lines(start), lines(end), before=place, after=len(shown) - place - 1)


def lines(messages: Sequence[Message | ShownMessage]) -> tuple[ShownLine, ...]:
    return tuple(map(_line, messages))


def _line(message: Message | ShownMessage, anchor: bool = False) -> ShownLine:
    return ShownLine(message, without_noise(text_of(message.content)), 0, anchor)


def from_offset(view: View, offset: int) -> View:
    """Return the view with the anchor's text from there on."""
    kept = tuple(line._replace(text=line.text[offset:]) if line.anchor else line for line in view.messages)
    return replace(view, messages=kept)


def fit(view: View, units: Sequence[Unit], each: int, total: int, own: int = 0) -> View:
    """Return the view in at most `total` characters, `each` for a message, `own` (or `each`) for the anchor."""
    anchor, own = next((line for line in view.messages if line.anchor), None), own or each
    left = total - min(len(anchor.text), own) if anchor else total
    others = [len(line.text) for line in (*view.messages, *view.start, *view.end) if not line.anchor]
    if sum(others) <= left and max(others, default=0) <= each and (anchor is None or len(anchor.text) <= own):
        return view
    share = _fair(others, each, left)

    def cut(line: ShownLine) -> ShownLine:
        return _shorten(line, own if line.anchor else share, units if line.anchor else ())

    return replace(
        view,
        messages=tuple(map(cut, view.messages)),
        start=tuple(map(cut, view.start)),
        end=tuple(map(cut, view.end)),
    )


def _shorten(line: ShownLine, most: int, units: Sequence[Unit]) -> ShownLine:
    """Keep at most so many characters: the beginning, or the part around the first match."""
    text = line.text
    if len(text) <= most:
        return line
    places: Sequence[tuple[Place, str]] = matches(text, fold(text), units) if units else []
    start = max(0, min(places[0][0][0] - most // 3, len(text) - most)) if places else 0
    kept = ("…" if start else "") + text[start : start + most] + ("…" if start + most < len(text) else "")
    return line._replace(text=kept, left_out=len(text) - most)


def _fair(lengths: Sequence[int], each: int, total: int) -> int:
    """Return the largest limit per message (at most `each`) with which all together stay within `total`."""
    left, waiting = total, sorted(lengths)
    for at, length in enumerate(waiting):
        share = left // (len(waiting) - at)
        if min(length, each) > share:
            return max(LEAST, min(each, share))
        left -= min(length, each)
    return each


# ── with a model, on request: other words to search for, and summaries of what was found ──


class AssistedSearch:
    """Search as a `Searcher` does, with two more options. A note says what the model could not do."""

    def __init__(self, app: Herma) -> None:
        self._app = app

    def search(
        self,
        text: str,
        *,
        expand: bool = False,
        summarize: bool = False,
        conversations: int = USUAL,
        **options: Unpack[SearchOptions],
    ) -> SearchReport:
        """`expand`: search for other words too, ranked below. `summarize`: summarize the first conversations found."""
        began, models = time.perf_counter(), self._app.models
        report = self._app.searcher.search(text, **options)
        if expand:
            report = self._expanded(report, text, options)
        if summarize and report.hits:
            model, looked_for = models.get("auxiliary", purpose="search_summary"), self._app.searcher.looked_for(text)
            if model is None:
                note = f"Nothing was summarized: {models.why_not('auxiliary')}"
                report = replace(report, notes=(*report.notes, note))
            else:
                summaries, notes = summarized(
                    model, self._app.transcripts, text, report.hits, looked_for, conversations=conversations
                )
                report = replace(report, summaries=summaries, notes=(*report.notes, *notes))
        return replace(report, took_ms=round((time.perf_counter() - began) * 1000, 2))

    def _expanded(self, report: SearchReport, text: str, options: SearchOptions) -> SearchReport:
        model = self._app.models.get("auxiliary", purpose="query_expansion")
        if model is None:
            note = f"No other words were tried: {self._app.models.why_not('auxiliary')}"
            return replace(report, notes=(*report.notes, note))
        words, note = propose_words(model, text)
        if not words:
            return replace(report, notes=(*report.notes, note))
        found = self._app.searcher.search(" ".join(words), **options)
        more = () if found.widened else found.hits
        limit, level = options.get("limit", 10), options.get("level", "session")
        hits = more if report.widened and more else united(report.hits, more, limit, by=level)
        said = f"Also searched for, as {model.name} proposed: {', '.join(words)}."
        widened = report.widened and not more
        return replace(report, hits=hits, also=words, widened=widened, notes=(*report.notes, said))
