"""Searcher.search() → SearchReport."""

from __future__ import annotations

import _thread
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Unpack

from herma.errors import HermaError
from herma.index.types import Near, TextIndex, VectorIndex
from herma.safety.scan import without_noise
from herma.search.candidates import INDEXES, SCANS, Gathered, Gatherer, explanation, wider
from herma.search.expand import USUAL, Expander, Summariser, united
from herma.search.match import Place, Unit, fold, legible, matches, named, snippet, units
from herma.search.query import (
    MOST_HITS,
    Dropped,
    Hit,
    Level,
    Mode,
    Query,
    SearchOptions,
    SearchReport,
    Sort,
    Wanted,
    check,
    check_filters,
    describe,
    edges,
    known_roles,
    no_roles,
    parse,
    several,
    unread,
)
from herma.search.rank import (
    FOREIGN,
    KEYWORDS,
    NEAREST,
    ONE_THING,
    STANDS_OUT,
    Arranged,
    Candidate,
    Filters,
    Reranker,
    arrange,
    by_cosine,
    fuse,
    live_sessions,
    rank,
    stands_out,
)
from herma.text import HAS_CJK, NOT_ENGLISH
from herma.transcript.log import Transcripts
from herma.transcript.messages import text_of
from herma.transcript.rows import Head, Shown, Spot, Surroundings, TranscriptReader
from herma.types import Message, Scope, SessionInfo

# ---------- recall.meaning
#
# Asking the index of vectors, within a deadline: search never waits long for a model, and says what it did without.

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


# ---------- recall.present
#
# How an answer is told: what was searched, and of every hit why it is here.


def searched(sessions: int, lag: int) -> str:
    if not sessions:
        return "Nothing is stored yet."
    where = f"All messages and titles of {sessions:,} session{'s' if sessions != 1 else ''}"
    if lag > SCANS:
        where += f", except that of the newest {lag:,} messages only the last {SCANS:,} were read"
    return where + "."


def why(
    one: Candidate,
    folded: str,
    places: Sequence[tuple[Place, str]],
    query: Query,
    *,
    cosine: float | None,
    explain: bool,
) -> tuple[str, ...]:
    words = list(dict.fromkeys(folded[start:end] for (start, end), _ in places))
    said = ["passes the filters"]
    if query.any_of:
        said = [f"has {', '.join(words[:8])}"] if words else []
        if cosine is not None:
            said.append("is near in meaning")
        said = said or ["stands next to a match"]
    if any(span.covers(one.timestamp) for span in query.soft_dates):
        said.append("is from the time that was named")
    if explain:
        words_part = one.score - one.meaning
        near = f"meaning {one.meaning:.2f}" + (f" (cosine {cosine:.3f})" if cosine is not None else "")
        parts = f"index {one.found:.2f}, beside {one.beside:.2f}, conversation {one.around:.2f}, bonus {one.bonus:.2f}"
        said.append(f"words {words_part:.2f} ({parts}), {near}")
    return tuple(said)


def hit(head: Head, session: SessionInfo, line: str, score: float, why: tuple[str, ...]) -> Hit:
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


# ---------- recall.window
#
# A match in its surroundings: the turns around it, and how the conversation began and ended. Bounded in characters.

WINDOW = 5
"""Turns on each side of a match."""
BOOKEND = 3
"""Messages with text that begin and end a conversation."""
FULL, BRIEF = 4_000, 1_200
"""Characters of a message in the first hit, and in the others."""
LEAST = 120
"""Characters that a message keeps however little room there is."""


class Line(NamedTuple):
    """A message as it is shown: its text perhaps shortened, in which case `left_out` characters are missing."""

    message: Message | Shown
    text: str
    left_out: int = 0
    anchor: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """A window and its bookends. `before` and `after` are the neighbours shown on each side of the anchor."""

    messages: tuple[Line, ...]
    start: tuple[Line, ...] = ()
    end: tuple[Line, ...] = ()
    before: int = 0
    after: int = 0
    anchor: Message | None = None
    """Where one message was asked for: all of it."""

    @property
    def shortened(self) -> bool:
        return any(line.left_out for line in (*self.messages, *self.start, *self.end))


def around(transcripts: Transcripts, message_id: int, window: int) -> View | None:
    """The message with its neighbours; rewound ones are never among them. None when there is no such message."""
    messages = transcripts.around(message_id, window)
    place = next((at for at, message in enumerate(messages) if message.id == message_id), None)
    if place is None:
        return None
    lines = tuple(_line(message, message.id == message_id) for message in messages)
    return View(lines, before=place, after=len(messages) - place - 1, anchor=messages[place])


@dataclass(frozen=True, slots=True)
class Context:
    """A hit in its surroundings, and the sessions of its conversation, oldest first."""

    view: View
    members: Sequence[SessionInfo] = ()


def in_context(
    reader: TranscriptReader, hits: Sequence[Hit], known: Mapping[str, Sequence[SessionInfo]], window: int = WINDOW
) -> list[Context]:
    """For each hit its neighbours, and what user and assistant said first and last in the whole conversation, outside
    of these. Everything is read at once for all of them. `known`: the sessions of conversations, if they were read.
    """
    unread = [hit.conversation for hit in hits if hit.conversation not in known]
    members = {**known, **reader.members(unread)} if unread else known
    spots = [Spot(hit.message_id, *_ends(hit.session_id, members[hit.conversation])) for hit in hits]
    return [
        Context(_view(hit.message_id, found), members[hit.conversation])
        for hit, found in zip(hits, reader.surroundings(spots, window, BOOKEND), strict=True)
    ]


def _ends(here: str, members: Sequence[SessionInfo]) -> tuple[str, str]:
    """The sessions in which a conversation begins and ends; those without messages say nothing."""
    parts = [member.id for member in members if member.message_count or member.id == here] or [here]
    return parts[0], parts[-1]


def _view(anchor: int, found: Surroundings) -> View:
    place = next((at for at, message in enumerate(found.messages) if message.id == anchor), None)
    if place is None:
        return View(())
    messages = tuple(_line(message, message.id == anchor) for message in found.messages)
    return View(messages, lines(found.start), lines(found.end), before=place, after=len(messages) - place - 1)


def lines(messages: Sequence[Message | Shown]) -> tuple[Line, ...]:
    return tuple(map(_line, messages))


def fit(view: View, units: Sequence[Unit], each: int, total: int, own: int = 0) -> View:
    """The view within so many characters a message and in all; the anchor keeps its own room (`each`, if it is not
    said), the rest share.
    """
    anchor, own = next((line for line in view.messages if line.anchor), None), own or each
    left = total - min(len(anchor.text), own) if anchor else total
    others = [len(line.text) for line in (*view.messages, *view.start, *view.end) if not line.anchor]
    if sum(others) <= left and max(others, default=0) <= each and (anchor is None or len(anchor.text) <= own):
        return view
    share = _fair(others, each, left)

    def cut(line: Line) -> Line:
        return shorten(line, own if line.anchor else share, units if line.anchor else ())

    return replace(
        view,
        messages=tuple(map(cut, view.messages)),
        start=tuple(map(cut, view.start)),
        end=tuple(map(cut, view.end)),
    )


def from_offset(view: View, offset: int) -> View:
    """The view with the anchor's text from there on."""
    lines = tuple(line._replace(text=line.text[offset:]) if line.anchor else line for line in view.messages)
    return replace(view, messages=lines)


def shorten(line: Line, most: int, units: Sequence[Unit] = ()) -> Line:
    """At most so many characters: the beginning, or the part round the first match."""
    text = line.text
    if len(text) <= most:
        return line
    places = matches(text, fold(text), units) if units else []
    start = max(0, min(places[0][0][0] - most // 3, len(text) - most)) if places else 0
    kept = ("…" if start else "") + text[start : start + most] + ("…" if start + most < len(text) else "")
    return line._replace(text=kept, left_out=len(text) - most)


def _fair(lengths: Sequence[int], each: int, total: int) -> int:
    """The largest limit per message (at most `each`) with which all of them together stay within `total`."""
    left, waiting = total, sorted(lengths)
    for at, length in enumerate(waiting):
        share = left // (len(waiting) - at)
        if min(length, each) > share:
            return max(LEAST, min(each, share))
        left -= min(length, each)
    return each


def _line(message: Message | Shown, anchor: bool = False) -> Line:
    return Line(message, without_noise(text_of(message.content)), 0, anchor)


# ---------- recall.search
#
# Search over all past sessions → `SearchReport`.
#
# Read the query → bring the index up to date → candidates → drop what may not be shown, and count it → rank with the
# real text and the turns around it → group by conversation → mark what matched. When nothing is left: say why, and try
# wider.

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


# ---------- recall.assisted
#
# Search with a model at its side: other words to search for, and summaries of what was found. Both on request only.
#
# What was found without the model is there in any case; what the model could not do is said in a note.

_USUAL_LIMIT = 10


class AssistedSearch:
    """Search as a `Searcher` does it, with two options more."""

    def __init__(self, searcher: Searcher, expander: Expander, summariser: Summariser) -> None:
        self._searcher = searcher
        self._expander = expander
        self._summariser = summariser

    def search(
        self,
        text: str,
        *,
        expand: bool = False,
        summarize: bool = False,
        conversations: int = USUAL,
        **options: Unpack[SearchOptions],
    ) -> SearchReport:
        """`expand`: search for other words too, ranked below. `summarize`: sum up the first conversations found."""
        began = time.perf_counter()
        report = self._searcher.search(text, **options)
        looked_for = self._searcher.looked_for(text)
        if expand:
            report = self._expanded(report, text, options)
        if summarize and report.hits:
            made = self._summariser.summarise(text, report.hits, looked_for, conversations=conversations)
            report = replace(report, summaries=made.summaries, notes=(*report.notes, *made.notes))
        return replace(report, took_ms=round((time.perf_counter() - began) * 1000, 2))

    def _expanded(self, report: SearchReport, text: str, options: SearchOptions) -> SearchReport:
        other = self._expander.alternatives(text)
        if not other.words:
            return replace(report, notes=(*report.notes, other.note))
        found = self._searcher.search(" ".join(other.words), **options)
        limit, level = options.get("limit", _USUAL_LIMIT), options.get("level", "session")
        more = () if found.widened else found.hits
        hits = more if report.widened and more else united(report.hits, more, limit, by=level)
        said = f"Searched too, as {other.model} proposed: {', '.join(other.words)}."
        return replace(
            report, hits=hits, also=other.words, widened=report.widened and not more, notes=(*report.notes, said)
        )
