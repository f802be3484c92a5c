"""Entries that left the files (long tail): keep, find, recall, restore."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import apsw

from herma.errors import StoreError, UsageError
from herma.features import LOCAL_DEADLINE, Watcher
from herma.memory.entries import Moved, Place
from herma.prompt.tokens import estimate
from herma.safety.scan import scan
from herma.store.database import Database, insert_returning_id, parsed, queries
from herma.types import (
    DELIMITER,
    Add,
    Applied,
    Author,
    Category,
    CompletedTurn,
    Entry,
    Kept,
    MemoryOp,
    MemoryOutcome,
    Scope,
    SessionView,
    Staged,
    Target,
)

if TYPE_CHECKING:
    from herma.index.types import VectorIndex
    from herma.memory.store import MemoryStore
    from herma.memory.tidy import Tidying


# ---------- curated.relevance
#
# Whether an entry of the long tail helps with what the user says now. Pure.
#
# Precision before recall: what does not help costs tokens in every later call, so small talk recalls nothing, and one
# word in common is not enough.

_CHATTER = """
again alright amazing answer ask awesome bye chat cheer come cool day done everyth exactli fine glad go good great
happi hello help hey hi hmm idea just know let like look lot make mean mind morn much need nice night noth ok okai
pleas question realli right say see someth sorri sound start sure talk tell thank thing think thought todai try
understand use want wonder work wow ye yeah yep yes
"""
CHATTER = frozenset(_CHATTER.split())
"""Stems that people say whatever they are about."""
_SHARE = 0.3
"""Part of the question, or of the entry, that both must have in common."""
_FEW = 2
"""A question of so many words may be answered by an entry that has one of them."""
_SURE, _LIKELY, _CLEAR, _MARGIN = 0.84, 0.79, 0.77, 0.035
"""Cosines of e5: near enough by itself, with a word in common, and where it stands out by so much. A question and an
entry that have nothing to do with each other have some 0.72 to 0.77.
"""
KNOWN_MODEL = "e5-small"
"""Models differ in what a cosine means; of others it is not known, so that words decide and meaning only ranks."""
_NEARLY = 0.8
_UNRELATED, _SAME = 0.74, 0.86


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for an entry: the words it shares with the question, and how near it is in meaning."""

    shared: tuple[str, ...] = ()
    of_question: float = 0.0
    of_entry: float = 0.0
    cosine: float | None = None
    calibrated: bool = True
    """Whether it is known what the cosine means."""
    margin: float = 0.0
    """By how much it is nearer than most of the others."""

    @property
    def score(self) -> float:
        """Between 0 and 1."""
        words = (self.of_question + self.of_entry) / 2 * min(1.0, _weight(self.shared) / 2)
        if self.cosine is None:
            return words
        meaning = (self.cosine - _UNRELATED) / (_SAME - _UNRELATED) if self.calibrated else self.cosine / 2
        return max(words, min(1.0, max(0.0, meaning)))

    @property
    def why(self) -> tuple[str, ...]:
        said = [f"shares {', '.join(self.shared[:4])}"] if self.shared else []
        return (*said, *([f"near in meaning ({self.cosine:.2f})"] if self.cosine is not None else []))


def weigh(
    question: Sequence[str],
    entry: Sequence[str],
    cosine: float | None = None,
    *,
    calibrated: bool = True,
    margin: float = 0.0,
) -> Evidence:
    """What speaks for an entry with these terms, asked with those."""
    asked = _telling(question)
    said = set(entry)
    shared = tuple(term for term in asked if term in said)
    whole, own = _weight(asked), _weight(_telling(entry))
    got = _weight(shared)
    return Evidence(shared, got / whole if whole else 0.0, got / own if own else 0.0, cosine, calibrated, margin)


def helps(evidence: Evidence, question: Sequence[str], others: Mapping[str, int], total: int) -> bool:
    """Whether to recall it. `others`: how many entries have each term."""
    asked = _telling(question)
    if not asked:
        return False
    cosine = evidence.cosine or 0.0 if evidence.calibrated else 0.0
    if cosine >= _SURE or (cosine >= _LIKELY and evidence.shared):
        return True
    if cosine >= _CLEAR and evidence.margin >= _MARGIN:
        return True
    enough = _weight(evidence.shared)
    if enough >= 2:
        return max(evidence.of_question, evidence.of_entry) >= _SHARE
    rare = all(others.get(term, 0) <= max(2, total // 20) for term in evidence.shared)
    return enough >= 1 and _weight(asked) <= _FEW and rare


def best_of(scores: Sequence[float]) -> int:
    """How many of these, best first, are nearly as good as the best: the rest only shares its words."""
    return sum(score >= _NEARLY * scores[0] for score in scores)


def says_something(question: Sequence[str]) -> bool:
    """Whether there is anything in it that could be looked for."""
    return bool(_telling(question))


def _telling(terms: Sequence[str]) -> list[str]:
    return [term for term in terms if term not in CHATTER]


def _weight(terms: Sequence[str]) -> float:
    """How many words these are: two characters of a script without spaces are half a word."""
    return sum(1.0 if term.isascii() or len(term) > 2 else 0.5 for term in terms)


# ---------- types.tail
#
# The long tail of curated memory: what was taken out of MEMORY.md and USER.md and is still kept.


@dataclass(frozen=True, slots=True)
class TailEntry:
    """One entry that was taken out. Times are seconds since 1970."""

    id: int
    text: str
    scope: Scope
    target: Target
    left: float
    """When it was taken out."""
    why: Kept
    reason: str
    change: int
    """The change that took it out: undoing it puts the entry back."""
    category: Category | None = None
    tags: tuple[str, ...] = ()
    uses: int = 0
    """In how many conversations it was recalled."""
    last_used: float | None = None
    proposed: float | None = None
    """When it was last proposed for the prompt."""
    forgotten: float | None = None

    @property
    def holds(self) -> bool:
        """Whether what it says is still taken to be true."""
        return self.why == "room" and self.forgotten is None


@dataclass(frozen=True, slots=True)
class TailHit:
    """An entry of the long tail that fits what was asked; `score` is between 0 and 1."""

    entry: TailEntry
    score: float
    why: tuple[str, ...] = ()


# ---------- ports.tail
#
# Where the long tail of curated memory is kept. What moves there is written with the change that takes it out.


class TailRows(Protocol):
    """Entries that are in no curated document any more and are still kept; whatever was undone is left out."""

    def select(self, place: Place | None) -> Sequence[TailEntry]:
        """Those of one document, or all, newest first; forgotten ones are among them."""
        ...

    def get(self, ids: Sequence[int]) -> dict[int, TailEntry]: ...

    def with_terms(self, terms: Sequence[str], most: int) -> Sequence[Sequence[int]]:
        """For each term the entries that have it, the newest `most`."""
        ...

    def kept(self, place: Place, texts: Collection[str]) -> set[str]:
        """Which of these texts are in the long tail of a document and still hold."""
        ...

    def used(self, ids: Sequence[int], conversation: str, at: float) -> None:
        """They were recalled in this conversation; each conversation counts once."""
        ...

    def mark(self, ids: Sequence[int], what: Literal["proposed", "forgotten"], at: float | None) -> None:
        """They were proposed for the prompt; or a person does not want them, or (None) does again."""
        ...

    def is_empty(self, places: Sequence[Place]) -> bool:
        """Whether nothing was ever moved out of these documents: cheap enough to be asked at every turn."""
        ...


@dataclass(frozen=True, slots=True)
class LastTidied:
    """When a curated document was last tidied, and the version that it had afterwards."""

    at: float
    version: str


class TidyRows(Protocol):
    """When curated documents were tidied."""

    def tidied(self, place: Place) -> LastTidied | None: ...

    def note_tidied(self, place: Place, at: float, version: str) -> None: ...


# ---------- curated.tail
#
# The long tail of curated memory: `h.memory.tail`.
#
# What tidying or the budget takes out of MEMORY.md and USER.md is kept here, found by words and by meaning, recalled
# where it helps, and can be put back. Nothing comes here that a person deleted.

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


# ---------- reflect.tail_watch
#
# How curated memory follows a session: what the long tail has for a turn, and tidying after the reply.
#
# A turn that begins stops tidying; nothing is tidied inside a turn.

HEADING = "Notes kept outside the prompt that may help here:"
TOKENS = 300
"""What one turn may take of the long tail."""
_MEANING = LOCAL_DEADLINE * 0.6
"""Seconds that comparing meanings may take; words alone answer in a few milliseconds."""
_WORKING = ("primary", "cron")
Submit = Callable[[str, Callable[[threading.Event], None], str], None]
"""Do this in the background: what it is, how, and on whose behalf."""


class CuratedWatcher(Watcher):
    """One per session."""

    name = "long tail"
    outside = False
    at_once = True  # words take a few milliseconds; meanings are compared aside, for as long as they may take

    def __init__(
        self,
        memory: Callable[[], MemoryStore],
        tidying: Callable[[], Tidying],
        submit: Submit,
        stop: Callable[[str], object],
        *,
        recalled: int = 3,
        uses: int = 3,
        meaning: Callable[[], bool] = lambda: True,
    ) -> None:
        """`recalled`: entries per turn at most; `uses`: conversations after which one is proposed for the prompt."""
        self._memory = memory
        self._tidying = tidying
        self._submit = submit
        self._stop = stop
        self._most = recalled
        self._uses = uses
        self._meaning = meaning
        self._fresh: list[int] = []
        """Recalled in this turn."""
        self._uncounted: list[int] = []
        """Recalled in turns that were completed; a new turn may have stopped the counting."""

    def turn_began(self, view: SessionView, text: str) -> str:
        self._stop(view.info.conversation)
        self._fresh = []
        if not self._most or view.circumstances.context not in _WORKING or self._memory().tail.is_empty(view.scope):
            return ""
        hits = self._recall(view, text)
        shown = within(hits, TOKENS)
        self._fresh = [hit.entry.id for hit in shown]
        return "\n".join([HEADING, *(f"- {_indented(hit.entry.text)}" for hit in shown)]) if shown else ""

    def turn_completed(self, view: SessionView, turn: CompletedTurn) -> None:  # noqa: ARG002
        if view.circumstances.context not in _WORKING:
            return
        self._uncounted += self._fresh
        self._fresh = []
        conversation, scope = view.info.conversation, view.scope

        def work(cancel: threading.Event) -> None:
            if recalled := list(self._uncounted):
                used = self._memory().tail.used(recalled, conversation)
                del self._uncounted[: len(recalled)]
                welcome_back(used, self._memory(), self._tidying().policy, self._uses)
            self._tidying().by_itself(scope, cancel)

        self._submit("tidying memory", work, conversation)

    def _recall(self, view: SessionView, text: str) -> Sequence[TailHit]:
        """By words and meaning; by words alone where meaning takes too long, as it does the first time."""
        tail, scope, known = self._memory().tail, view.scope, view.system_prompt
        if not self._meaning():
            return tail.recall(text, scope=scope, known=known, limit=self._most, meaning=False)
        found: list[Sequence[TailHit]] = []

        def compare() -> None:
            try:
                found.append(tail.recall(text, scope=scope, known=known, limit=self._most))
            except StoreError:
                return  # asked again by words, in the thread that may fail

        thread = threading.Thread(target=compare, name="herma: long tail", daemon=True)
        thread.start()
        thread.join(_MEANING)
        return found[0] if found else tail.recall(text, scope=scope, known=known, limit=self._most, meaning=False)


def within(hits: Sequence[TailHit], tokens: int) -> list[TailHit]:
    """The best that fit."""
    shown: list[TailHit] = []
    left = tokens - estimate(HEADING)
    for hit in hits:
        left -= estimate(hit.entry.text) + 2
        if left < 0:
            break
        shown.append(hit)
    return shown


def welcome_back(entries: Sequence[TailEntry], memory: MemoryStore, policy: str, uses: int) -> None:
    """What keeps being recalled belongs into the prompt again: put back where there is room and the settings let it,
    else proposed to a person, once.
    """
    from herma.memory.tidy import (
        BY_ITSELF,
        PREFIX,  # loaded when tidying is, after a reply
    )

    for entry in entries:
        if policy == "off" or not uses or entry.uses < uses or entry.proposed is not None or not entry.holds:
            continue
        reason = f"{PREFIX}recalled in {entry.uses} conversations"
        if policy == "apply" and _has_room(memory, entry):
            memory.tail.restore(entry.id, author=BY_ITSELF, reason=reason)
            memory.tail.proposed(entry)
            continue
        op = Add(entry.text, entry.category, entry.tags)
        outcome = memory.propose(entry.target, [op], scope=entry.scope, author=BY_ITSELF, reason=reason)
        if isinstance(outcome, Staged):  # else there is no room for it even then; it is tried again
            memory.tail.proposed(entry)


def _has_room(memory: MemoryStore, entry: TailEntry) -> bool:
    """Whether it fits without making the file so full that something would have to leave again."""
    from herma.memory.tidy import FULL

    status = next(one for one in memory.status(scope=entry.scope) if one.target == entry.target)
    return status.used + len(entry.text) + 3 <= FULL * status.limit


def _indented(entry: str) -> str:
    return entry.replace("\n", "\n  ")


# ---------- store.sqlite.tail
#
# The long tail of curated memory in `herma.db`: implements `TailRows` and `TidyRows`.


class SqliteTail:
    """Rows of the tables `curated_tail…` and `curated_tidied`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = queries("tail")

    # ── reading ──

    def select(self, place: Place | None) -> list[TailEntry]:
        if place is None:
            return self._entries("everything", {})
        return self._entries("of_place", _key(place))

    def get(self, ids: Sequence[int]) -> dict[int, TailEntry]:
        return {one.id: one for one in self._entries("get", {"ids": json.dumps(list(ids))})} if ids else {}

    def with_terms(self, terms: Sequence[str], most: int) -> list[list[int]]:
        def work(connection: apsw.Connection) -> list[list[int]]:
            found = []
            for term in terms:
                rows: Any = connection.execute(self._sql["with_term"], {"term": term, "most": most}).fetchall()
                found.append([row[0] for row in rows])
            return found

        return self._db.read(work, [[] for _ in terms])

    def kept(self, place: Place, texts: Collection[str]) -> set[str]:
        by_hash = {_hash(text): text for text in texts}
        rows = self._db.rows(self._sql["kept"], {**_key(place), "hashes": json.dumps(list(by_hash))})
        undone = self._undone() if rows else set()
        return {by_hash[hash_] for hash_, change, back in rows if _stands(change, back, undone)}

    def moved_by(self, change: int) -> list[str]:
        """Entries that a change moved here to make room."""
        return [text for (text,) in self._db.rows(self._sql["moved_by"], {"change": change})]

    def is_empty(self, places: Sequence[Place]) -> bool:
        return not any(self._db.rows(self._sql["any"], _key(place)) for place in places)

    def version(self) -> str:
        """Something that changes whenever a text may have come or gone."""
        rows = self._db.rows(self._sql["version"])
        return "/".join(map(str, rows[0])) if rows else "0"

    # ── writing ──

    def used(self, ids: Sequence[int], conversation: str, at: float) -> None:
        def work(connection: apsw.Connection) -> None:
            for number in ids:
                connection.execute(self._sql["use"], {"id": number, "conversation": conversation})
                connection.execute(self._sql["used"], {"id": number, "at": at})

        self._db.write(work)

    def mark(self, ids: Sequence[int], what: Literal["proposed", "forgotten"], at: float | None) -> None:
        bindings = {"ids": json.dumps(list(ids)), "at": at}
        self._db.write(lambda connection: connection.execute(self._sql[what], bindings) and None)

    # ── when documents were tidied ──

    def tidied(self, place: Place) -> LastTidied | None:
        rows = self._db.rows(self._sql["tidied"], _key(place))
        return LastTidied(*rows[0]) if rows else None

    def note_tidied(self, place: Place, at: float, version: str) -> None:
        bindings = {**_key(place), "at": at, "version": version}
        self._db.write(lambda connection: connection.execute(self._sql["note_tidied"], bindings) and None)

    # ── inside ──

    def _entries(self, name: str, bindings: Mapping[str, Any]) -> list[TailEntry]:
        """Rows that count, each text of a document once: the newest."""
        rows = self._db.rows(f"{self._sql['columns']} {self._sql[name]}", bindings)
        undone = self._undone() if rows else set()
        found: dict[tuple[Any, ...], TailEntry] = {}
        for row in sorted(rows, key=lambda row: -int(row[0])):
            if _stands(row[8], row[9], undone):
                found.setdefault(tuple(row[1:6]), _entry(row))
        return list(found.values())

    def _undone(self) -> set[int]:
        """Changes that were taken back and stay so. An undo is always newer than what it undoes."""
        undone: set[int] = set()
        for change, undo in reversed(self._db.rows(queries("curated")["undos"])):
            if undo not in undone:
                undone.add(change)
        return undone


def follow_change(
    connection: apsw.Connection, place: Place, change: int, at: float, after: str, moved: Sequence[Moved], *, undo: bool
) -> None:
    """What a change of a document does to its long tail, in the transaction that records it.

    An undo does nothing: what it takes back stands no longer, and that is looked up.
    """
    sql, key = queries("tail"), _key(place)
    if not undo:
        there = [_hash(entry) for entry in _entries_of(after)]
        connection.execute(sql["back"], {**key, "change": change, "hashes": json.dumps(there)})
    for one in moved:
        row = {**key, "hash": _hash(one.text), "text": one.text, "at": at, "why": one.why, "change": change}
        number = insert_returning_id(connection, sql["move"], row)
        connection.executemany(sql["add_term"], [(term, number) for term in one.terms])


def follow_void(connection: apsw.Connection, change: int) -> None:
    """A change turned out never to have happened."""
    sql = queries("tail")
    for name in ("void_terms", "void", "void_back"):
        connection.execute(sql[name], {"id": change})


def _entries_of(text: str) -> list[str]:
    """The entries of a document, near enough: what an editor did round them is taken off."""
    plain = text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
    return [entry for piece in plain.split(DELIMITER) if (entry := piece.strip())]


def _stands(change: int, back: int | None, undone: set[int]) -> bool:
    return change not in undone and (back is None or back in undone)


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _key(place: Place) -> dict[str, str]:
    return {"profile": place.profile, "project": place.project, "user": place.user, "target": place.target}


def _entry(row: Sequence[Any]) -> TailEntry:
    (id_, profile, project, user, target, text, at, why, change, _, uses, last_used, proposed, forgotten) = row[:14]
    reason, category, tags = row[14:]
    return TailEntry(
        id=id_,
        text=text,
        scope=Scope(profile, project, user),
        target=target,
        left=at,
        why=why,
        reason=reason or "",
        change=change,
        category=category,
        tags=tuple(parsed(tags)) if tags else (),
        uses=uses,
        last_used=last_used,
        proposed=proposed,
        forgotten=forgotten,
    )
