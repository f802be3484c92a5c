"""Keep the entries that left MEMORY.md and USER.md: find them, recall them where they help, put them back.

Entries come here when tidying or an agent makes room, when they expire, or when a newer entry says otherwise. An entry
that a person deleted does not come here. Precision goes before recall: an entry that does not help costs tokens in
every later call, so small talk recalls nothing, and one word in common is not enough.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from herma.episodes.build import terms_of
from herma.errors import StoreError, UsageError, checked
from herma.features import LOCAL_DEADLINE, Feature
from herma.index import Embeddable, Embeddables
from herma.memory.entries import Moved, Place, hash_of, parse
from herma.prompt.tokens import estimate
from herma.safety.scan import scan
from herma.store.database import Database, DatabaseConnection, parsed
from herma.types import (
    Add,
    Applied,
    Author,
    Category,
    CompletedTurn,
    Kept,
    MemoryOutcome,
    Origin,
    Scope,
    SessionView,
    Staged,
    Target,
    Who,
)
from herma.worker import BackgroundCall

if TYPE_CHECKING:
    from herma.app import Herma

KIND = "tail"
"""The kind of archived entries in the vector index, under a name that stored vectors have."""
TERMS = 60
"""Words of a text that count."""
HEADING = "Notes kept outside the prompt that may help here:"
TOKENS = 300
"""Tokens that one turn may take of the archive."""
_WORD = re.compile(r"\w+")
_POSTINGS = 500
_CANDIDATES = 60
_ENOUGH = 4
"""Entries that must be compared for the usual cosine to be known."""
_MEANING = LOCAL_DEADLINE * 0.6
"""Seconds that comparing meanings may take; words alone answer in a few milliseconds."""
_WORKING = ("primary", "cron")


def archive_terms(text: str) -> Sequence[str]:
    """Return the terms by which an archived entry is found: stems of words that say something."""
    return terms_of(text, TERMS)


def archive_texts(app: Herma) -> Embeddables:
    """Embed the archived entries that are not forgotten."""
    rows = ArchiveRows(app.db)

    def texts() -> Iterator[Embeddable]:
        for one in rows.select(None):
            if one.forgotten is None:
                yield Embeddable(str(one.id), one.text, _vector_scope(Place.of(one.target, one.scope)))

    return Embeddables(KIND, rows.version, texts)


@dataclass(frozen=True, slots=True)
class ArchivedEntry:
    """One entry that was taken out of a file. Times are seconds since 1970."""

    id: int
    text: str
    scope: Scope
    target: Target
    left: float
    """When it left the file."""
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
        """Return whether it still holds."""
        return self.why == "room" and self.forgotten is None


@dataclass(frozen=True, slots=True)
class ArchiveHit:
    """An archived entry that matches a text; `score` is between 0 and 1."""

    entry: ArchivedEntry
    score: float
    why: tuple[str, ...] = ()


Found: TypeAlias = list[ArchivedEntry]
Hits: TypeAlias = list[ArchiveHit]


@checked("text", "known", "reason")
class Archive:
    """The archives of all documents of one home."""

    def __init__(self, app: Herma) -> None:
        self._app = app
        self._rows = ArchiveRows(app.db)

    def list(self, target: Target | None = None, *, scope: Scope | None = None, forgotten: bool = False) -> Found:
        """Return the archived entries of this scope's files, newest first, or those that a person had forgotten."""
        self._app.ensure_open()
        places = [place for place in self._app.memory.places(scope) if target in (None, place.target)]
        found = [one for place in places for one in self._rows.select(place)]
        return [one for one in found if (one.forgotten is not None) == forgotten]

    def get(self, number: int) -> ArchivedEntry | None:
        """Return one entry by its number, whatever its scope, forgotten or not."""
        self._app.ensure_open()
        return self._rows.get([number]).get(number)

    def search(self, text: str, *, scope: Scope | None = None, limit: int = 10) -> Hits:
        """Return the entries that match a text, the nearest first: by words and, with an embedder, by meaning."""
        self._app.ensure_open()
        weighed = self._weighed(text, self._app.memory.shown_places(scope), meaning=True)
        found = [(entry, evidence) for entry, evidence in weighed if evidence.score > 0][: max(limit, 0)]
        return [ArchiveHit(entry, evidence.score, _reasons(entry, evidence)) for entry, evidence in found]

    def recall(
        self, text: str, *, scope: Scope | None = None, known: str = "", limit: int = 3, meaning: bool = True
    ) -> Hits:
        """Return only entries that help with what the user says. `known` is what the model has been shown already.

        Entries that no longer hold, that were forgotten or that the scanner blocks are never among them.
        """
        self._app.ensure_open()
        question = archive_terms(text)
        if not says_something(question):
            return []
        lists = self._rows.with_terms(question, _POSTINGS)
        counts = {term: len(ids) for term, ids in zip(question, lists, strict=True)}
        total = len({number for ids in lists for number in ids})
        found = []
        for entry, evidence in self._weighed(text, self._app.memory.shown_places(scope), meaning=meaning):
            if not entry.holds or entry.text in known or scan(entry.text):
                continue
            if helps(evidence, question, counts, total):
                found.append(ArchiveHit(entry, evidence.score, _reasons(entry, evidence)))
        return [hit for hit in found if hit.score >= _NEARLY * found[0].score][:limit]  # the rest only shares words

    def is_empty(self, scope: Scope | None = None) -> bool:
        """Return whether a session of this scope has nothing to recall. Cheap enough for every turn."""
        return self._rows.is_empty(self._app.memory.shown_places(scope))

    def kept(self, place: Place, texts: Collection[str]) -> set[str]:
        """Return which of these texts are in the archive of a document and still hold."""
        return self._rows.kept(place, texts)

    # ── using ──

    def used(self, entries: Iterable[int], conversation: str) -> Found:
        """Record that they were recalled in this conversation, which counts once. Return them as they are now."""
        self._app.ensure_open()
        ids = list(entries)
        if not ids:
            return []
        self._rows.used(ids, conversation, self._app.clock())
        return list(self._rows.get(ids).values())

    def proposed(self, entry: ArchivedEntry) -> None:
        """Record that it was proposed for the prompt, which happens once."""
        self._rows.mark([entry.id], "proposed", self._app.clock())

    def restore(self, number: int, *, author: Author | None = None, reason: str = "") -> MemoryOutcome:
        """Put an entry back into its file, with what is known about it. Undoing that change takes it out again."""
        entry = self._find(number)
        if entry.forgotten is not None:
            raise UsageError(f"Entry {number} is forgotten.", hint=f"herma memory archive forget --undo {number}")
        memory, place = self._app.memory, Place.of(entry.target, entry.scope)
        known = memory.known_entry(place, entry.text)
        outcome = memory.apply(
            entry.target,
            Add(entry.text, entry.category, entry.tags),
            scope=entry.scope,
            author=author or Author(),
            reason=reason or f"put back from the archive ({number})",
        )
        if isinstance(outcome, Applied) and known is not None:
            again = replace(known, confirmed=self._app.clock(), change=outcome.change)
            memory.annotate(entry.target, [again], scope=entry.scope)
        return outcome

    def forget(self, numbers: Sequence[int]) -> Found:
        """Stop finding and recalling these entries. Return those that were there; `unforget` takes it back."""
        return self._mark(numbers, self._app.clock())

    def unforget(self, numbers: Sequence[int]) -> Found:
        """Find and recall forgotten entries again. Return those that were forgotten."""
        return self._mark(numbers, None)

    # ── steps ──

    def _mark(self, numbers: Sequence[int], at: float | None) -> Found:
        found = [self._find(number) for number in dict.fromkeys(numbers)]  # an unknown one is said before any is marked
        changed = [one for one in found if (one.forgotten is None) != (at is None)]
        self._rows.mark([one.id for one in changed], "forgotten", at)
        return changed

    def _find(self, number: int) -> ArchivedEntry:
        found = self.get(number)
        if found is None:
            raise UsageError(
                f"There is no entry {number} in the archive.", hint="`herma memory archive list` shows the archive."
            )
        return found

    def _weighed(
        self, text: str, places: Sequence[Place], *, meaning: bool
    ) -> Sequence[tuple[ArchivedEntry, ArchiveEvidence]]:
        """Return entries of these documents that share a word or are near in meaning, best first."""
        question = archive_terms(text)
        votes: dict[int, int] = {}
        for ids in self._rows.with_terms(question, _POSTINGS):
            for number in ids:
                votes[number] = votes.get(number, 0) + 1
        best = sorted(votes, key=lambda number: (-votes[number], -number))[:_CANDIDATES]
        cosines = self._near(text, places) if meaning and says_something(question) else {}
        seen = set(places)
        usual = sorted(cosines.values())[len(cosines) // 2] if len(cosines) >= _ENOUGH else 1.0
        weighed = []
        for one in self._rows.get(list(dict.fromkeys([*best, *cosines]))).values():
            if one.forgotten is None and Place.of(one.target, one.scope) in seen:
                cosine = cosines.get(one.id)
                weighed.append((one, weigh(question, archive_terms(one.text), cosine, (cosine or 0.0) - usual)))
        return sorted(weighed, key=lambda pair: (-pair[1].score, -pair[0].id))

    def _near(self, text: str, places: Sequence[Place]) -> dict[int, float]:
        """Return the nearest entries with their cosines; none with a model whose cosines mean something else."""
        vectors = self._app.index.vectors
        state = vectors.state()
        if not state.ready or not state.model.startswith(KNOWN_MODEL):
            return {}
        found = vectors.near(text, 20, kinds=(KIND,), scopes=[_vector_scope(place) for place in places])
        return {int(hit.key): hit.score for hit in found.hits if hit.key.isdigit()}


def _vector_scope(place: Place) -> str:
    return f"{place.profile}\0{place.target}\0{place.project}\0{place.user}"


def _reasons(entry: ArchivedEntry, evidence: ArchiveEvidence) -> tuple[str, ...]:
    """Return the reasons with the words as they stand in the entry, not their stems."""
    words = {term: word for word in reversed(_WORD.findall(entry.text)) for term in archive_terms(word)}
    return evidence._replace(shared=tuple(words.get(term, term) for term in evidence.shared)).why


class ArchiveRecall(Feature):
    """Recall archived entries for the turns of one session, and propose those that keep being recalled."""

    name = "archive"
    outside = False
    at_once = True  # words take a few milliseconds; meanings are compared in a thread with a deadline

    def __init__(self, app: Herma) -> None:
        self._app = app
        self._most = app.settings.memory.tail_recall
        self._fresh: list[int] = []
        """Recalled in this turn."""
        self._uncounted: list[int] = []
        """Recalled in turns that were completed; a busy store may have stopped the counting."""

    @classmethod
    def attach(cls, app: Herma, view: SessionView, *, preview: bool) -> Sequence[Feature]:  # noqa: ARG003
        options = app.settings.memory
        return () if preview or not (options.memory_enabled or options.user_profile_enabled) else [cls(app)]

    def turn_began(self, view: SessionView, text: str) -> str:
        self._fresh = []
        archive = self._app.memory.archive
        if not self._most or view.environment.context not in _WORKING or archive.is_empty(view.scope):
            return ""
        left = TOKENS - estimate(HEADING)
        lines = [HEADING]
        for hit in self._recall(view, text):
            left -= estimate(hit.entry.text) + 2
            if left < 0:
                break
            self._fresh.append(hit.entry.id)
            lines.append("- " + hit.entry.text.replace("\n", "\n  "))
        return "\n".join(lines) if self._fresh else ""

    def turn_completed(self, view: SessionView, turn: CompletedTurn) -> None:  # noqa: ARG002
        if view.environment.context not in _WORKING:
            return
        self._uncounted += self._fresh
        self._fresh = []
        if recalled := list(self._uncounted):
            used = self._app.memory.archive.used(recalled, view.info.conversation)
            del self._uncounted[: len(recalled)]
            self._propose_again(used)

    def _recall(self, view: SessionView, text: str) -> Sequence[ArchiveHit]:
        """Recall by words and meaning, or by words alone if meaning takes too long, as it does the first time."""
        archive, scope, known = self._app.memory.archive, view.scope, view.system_prompt
        by_meaning = BackgroundCall(
            "archive", lambda: archive.recall(text, scope=scope, known=known, limit=self._most)
        ).start()
        try:
            return by_meaning.answer(_MEANING)
        except (TimeoutError, StoreError):
            return archive.recall(text, scope=scope, known=known, limit=self._most, meaning=False)

    def _propose_again(self, entries: Sequence[ArchivedEntry]) -> None:
        """Propose entries for the prompt that enough conversations recalled, each once."""
        options, memory = self._app.settings.memory, self._app.memory
        enough = 0 if options.tidy == "off" else options.tail_uses
        for entry in entries:
            if not enough or entry.uses < enough or entry.proposed is not None or not entry.holds:
                continue
            outcome = memory.propose(
                entry.target,
                Add(entry.text, entry.category, entry.tags),
                scope=entry.scope,
                author=Author(Who.TIDY, Origin.AGENT_CONCLUDED),
                reason=f"tidy: recalled in {entry.uses} conversations",
            )
            if isinstance(outcome, Staged):  # else there is no room for it; it is tried again
                memory.archive.proposed(entry)


# ── whether an entry helps with what the user says (pure) ────────────────────────────────────────────────────────────

_CHATTER = """
again alright amazing answer ask awesome bye chat cheer come cool day done everyth exactli fine glad go good great
happi hello help hey hi hmm idea just know let like look lot make mean mind morn much need nice night noth ok okai
pleas question realli right say see someth sorri sound start sure talk tell thank thing think thought todai try
understand use want wonder work wow ye yeah yep yes
"""
CHATTER = frozenset(_CHATTER.split())
"""Stems that say nothing about a topic."""
_SHARE = 0.3
"""Share of the question, or of the entry, that both must have in common."""
_FEW = 2
"""In a question of so many words, one shared word is enough."""
_SURE, _LIKELY, _CLEAR, _MARGIN = 0.84, 0.79, 0.77, 0.035
"""Cosines of e5: near enough alone, with a shared word, and with that margin over the usual cosine. An unrelated
question and entry have about 0.72 to 0.77.
"""
KNOWN_MODEL = "e5-small"
"""The model that these cosines are known for; with others, words alone decide."""
_NEARLY = 0.8
_UNRELATED, _SAME = 0.74, 0.86


class ArchiveEvidence(NamedTuple):
    """Why an entry may help: the words it shares with the question, and how near it is in meaning."""

    shared: tuple[str, ...] = ()
    of_question: float = 0.0
    of_entry: float = 0.0
    cosine: float | None = None
    margin: float = 0.0
    """Excess of its similarity over the median entry."""

    @property
    def score(self) -> float:
        """A score between 0 and 1."""
        words = (self.of_question + self.of_entry) / 2 * min(1.0, _weight(self.shared) / 2)
        if self.cosine is None:
            return words
        return max(words, min(1.0, (self.cosine - _UNRELATED) / (_SAME - _UNRELATED)))

    @property
    def why(self) -> tuple[str, ...]:
        said = [f"shares {', '.join(self.shared[:4])}"] if self.shared else []
        return (*said, *([f"near in meaning ({self.cosine:.2f})"] if self.cosine is not None else []))


def weigh(
    question: Sequence[str], entry: Sequence[str], cosine: float | None = None, margin: float = 0.0
) -> ArchiveEvidence:
    """Compare the terms of a question and of an entry."""
    asked = _telling(question)
    said = set(entry)
    shared = tuple(term for term in asked if term in said)
    whole, own = _weight(asked), _weight(_telling(entry))
    got = _weight(shared)
    return ArchiveEvidence(shared, got / whole if whole else 0.0, got / own if own else 0.0, cosine, margin)


def helps(evidence: ArchiveEvidence, question: Sequence[str], others: Mapping[str, int], total: int) -> bool:
    """Return whether to recall an entry. `others`: how many entries have each term."""
    asked = _telling(question)
    if not asked:
        return False
    cosine = evidence.cosine or 0.0
    if cosine >= _SURE or (cosine >= _LIKELY and evidence.shared):
        return True
    if cosine >= _CLEAR and evidence.margin >= _MARGIN:
        return True
    enough = _weight(evidence.shared)
    if enough >= 2:
        return max(evidence.of_question, evidence.of_entry) >= _SHARE
    rare = all(others.get(term, 0) <= max(2, total // 20) for term in evidence.shared)
    return enough >= 1 and _weight(asked) <= _FEW and rare


def says_something(question: Sequence[str]) -> bool:
    """Return whether a question has anything to look for."""
    return bool(_telling(question))


def _telling(terms: Sequence[str]) -> list[str]:
    return [term for term in terms if term not in CHATTER]


def _weight(terms: Sequence[str]) -> float:
    """Count words: two characters of a script without spaces are half a word."""
    return sum(1.0 if term.isascii() or len(term) > 2 else 0.5 for term in terms)


class ArchiveRows:
    """The tables `curated_tail…`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = database.queries("memory.archive")

    # ── reading ──

    def select(self, place: Place | None) -> list[ArchivedEntry]:
        """Return the entries of one document, or all, newest first, forgotten ones among them."""
        return self._entries("everything", {}) if place is None else self._entries("of_place", place.key)

    def get(self, ids: Sequence[int]) -> dict[int, ArchivedEntry]:
        return {one.id: one for one in self._entries("get", {"ids": list(ids)})} if ids else {}

    def with_terms(self, terms: Sequence[str], most: int) -> list[list[int]]:
        """Return for each term the newest `most` entries that have it."""

        def work(connection: DatabaseConnection) -> list[list[Any]]:
            found = (connection.rows(self._sql["with_term"], {"term": term, "most": most}) for term in terms)
            return [[row[0] for row in rows] for rows in found]

        return self._db.read(work, [[] for _ in terms])

    def kept(self, place: Place, texts: Collection[str]) -> set[str]:
        """Return which of these texts are in the archive of a document and still hold."""
        by_hash = {hash_of(text): text for text in texts}
        rows = self._db.rows(self._sql["kept"], {**place.key, "hashes": list(by_hash)})
        undone = standing_undos(self._db) if rows else {}
        return {by_hash[hash_] for hash_, change, back in rows if _stands(change, back, undone)}

    def moved_by(self, change: int) -> list[str]:
        """Return the entries that a change archived to make room."""
        return [text for (text,) in self._db.rows(self._sql["moved_by"], {"change": change})]

    def is_empty(self, places: Sequence[Place]) -> bool:
        """Return whether nothing was ever archived from these documents."""
        return not any(self._db.rows(self._sql["any"], place.key) for place in places)

    def version(self) -> str:
        """Return a value that changes whenever a text may have come or gone."""
        rows = self._db.rows(self._sql["version"])
        return "/".join(map(str, rows[0])) if rows else "0"

    # ── writing ──

    def used(self, ids: Sequence[int], conversation: str, at: float) -> None:
        """Count a use of these entries; each conversation counts once."""

        def work(connection: DatabaseConnection) -> None:
            for number in ids:
                connection.run(self._sql["use"], {"id": number, "conversation": conversation})
                connection.run(self._sql["used"], {"id": number, "at": at})

        self._db.write(work)

    def mark(self, ids: Sequence[int], what: Literal["proposed", "forgotten"], at: float | None) -> None:
        """Set when these entries were proposed or forgotten; None clears it."""
        self._db.run(self._sql[what], {"ids": list(ids), "at": at})

    def _entries(self, name: str, bindings: Mapping[str, Any]) -> list[ArchivedEntry]:
        """Return the rows that stand, each text of a document once: the newest."""
        rows = self._db.rows(f"{self._sql['columns']} {self._sql[name]}", bindings)
        undone = standing_undos(self._db) if rows else {}
        found: dict[tuple[Any, ...], ArchivedEntry] = {}
        for row in sorted(rows, key=lambda row: -int(row[0])):
            if _stands(row[8], row[9], undone):
                found.setdefault(tuple(row[1:6]), _entry(row))
        return list(found.values())


def standing_undos(database: Database) -> dict[int, int]:
    """Return the changes that are undone, each with its undo. An undo is always newer than what it undoes."""
    standing: dict[int, int] = {}
    for change, undo in reversed(database.rows(database.queries("memory.files")["undos"])):
        if undo not in standing:
            standing.setdefault(change, undo)
    return standing


def follow_change(
    connection: DatabaseConnection,
    place: Place,
    change: int,
    at: float,
    after: str,
    moved: Sequence[Moved],
    *,
    undo: bool,
) -> None:
    """Archive and bring back what a change does, in the transaction that records it.

    An undo does nothing here: which changes stand is looked up (`standing_undos`).
    """
    sql, key = connection.queries("memory.archive"), place.key
    if not undo:
        there = [hash_of(entry) for entry in parse(after)]
        connection.run(sql["back"], {**key, "change": change, "hashes": there})
    for one in moved:
        row = {**key, "hash": hash_of(one.text), "text": one.text, "at": at, "why": one.why, "change": change}
        number = connection.insert(sql["move"], row)
        connection.run_many(sql["add_term"], [(term, number) for term in one.terms])


def follow_void(connection: DatabaseConnection, change: int) -> None:
    """Undo `follow_change` for a change that never happened."""
    sql = connection.queries("memory.archive")
    for name in ("void_terms", "void", "void_back"):
        connection.run(sql[name], {"id": change})


def _stands(change: int, back: int | None, undone: Collection[int]) -> bool:
    return change not in undone and (back is None or back in undone)


def _entry(row: Sequence[Any]) -> ArchivedEntry:
    id_, profile, project, user, target, text, at, why, change, _, uses, last, proposed, forgotten, *more = row
    reason, category, tags = more
    kept = (category, tuple(parsed(tags)) if tags else (), uses, last, proposed, forgotten)
    return ArchivedEntry(id_, text, Scope(profile, project, user), target, at, why, reason or "", change, *kept)
