"""Holographic: facts with trust, entities and vectors, in one local file.

Facts are in `memory_store.db` of the home, in the tables of Hermes Agent's provider of this name. Each fact has a
vector of a holographic reduced representation (HRR): phases, in which its text and its entities are bound to their
roles and added up. Questions about entities are answered by comparing phases; numpy does that. Without numpy, facts
are found by their words and entities only.

A bank is the sum of all vectors of a category. It is kept as a sum, so that a new fact costs one addition.
"""

from __future__ import annotations

import hashlib
import math
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import apsw

from herma.errors import ProviderError, install_command
from herma.providers.bundled import (
    BundledProvider,
    Json,
    ToolProblem,
    field,
    fraction,
    listed,
    text,
    texts,
    tool,
    transcript,
    whole,
)
from herma.text import HAS_CJK, stem, stemmed_terms, terms_with_words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Phases = NDArray[np.float64]

SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (
    fact_id INTEGER PRIMARY KEY AUTOINCREMENT, content TEXT NOT NULL UNIQUE, category TEXT DEFAULT 'general',
    tags TEXT DEFAULT '', trust_score REAL DEFAULT 0.5, retrieval_count INTEGER DEFAULT 0,
    helpful_count INTEGER DEFAULT 0, created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
    updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, hrr_vector BLOB);
CREATE TABLE IF NOT EXISTS entities (
    entity_id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, entity_type TEXT DEFAULT 'unknown',
    aliases TEXT DEFAULT '', created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE IF NOT EXISTS fact_entities (
    fact_id INTEGER REFERENCES facts(fact_id), entity_id INTEGER REFERENCES entities(entity_id),
    PRIMARY KEY (fact_id, entity_id));
CREATE INDEX IF NOT EXISTS idx_entities_name ON entities(name);
CREATE INDEX IF NOT EXISTS idx_facts_category ON facts(category);
CREATE VIRTUAL TABLE IF NOT EXISTS facts_fts USING fts5(content, tags, content=facts, content_rowid=fact_id);
CREATE TRIGGER IF NOT EXISTS facts_ai AFTER INSERT ON facts BEGIN
    INSERT INTO facts_fts(rowid, content, tags) VALUES (new.fact_id, new.content, new.tags); END;
CREATE TRIGGER IF NOT EXISTS facts_ad AFTER DELETE ON facts BEGIN
    INSERT INTO facts_fts(facts_fts, rowid, content, tags) VALUES ('delete', old.fact_id, old.content, old.tags); END;
CREATE TRIGGER IF NOT EXISTS facts_au AFTER UPDATE OF content, tags ON facts BEGIN
    INSERT INTO facts_fts(facts_fts, rowid, content, tags) VALUES ('delete', old.fact_id, old.content, old.tags);
    INSERT INTO facts_fts(rowid, content, tags) VALUES (new.fact_id, new.content, new.tags); END;
CREATE TABLE IF NOT EXISTS bank_sums (
    category TEXT PRIMARY KEY, dim INTEGER NOT NULL, facts INTEGER NOT NULL, total BLOB NOT NULL);
"""
COLUMNS = "fact_id, content, category, tags, trust_score, retrieval_count, helpful_count, created_at, updated_at"
ROLE_CONTENT, ROLE_ENTITY = "__hrr_role_content__", "__hrr_role_entity__"
HELPFUL, UNHELPFUL = 0.05, -0.10
OVERLAP = CONTRADICTS = 0.3
"""Part of their entities that two facts must share, and the score from which they contradict each other."""
NEWEST = 500
"""Facts that are compared with each other for contradictions: the newest."""
LONGEST = 10_000
RECALLED, ROOM = 5, 2_000
"""Facts and characters that a turn may get."""
_QUOTED = re.compile(r"\"([^\"\n]{2,60})\"|(?<!\w)'([^'\n]{2,60})'(?!\w)")
_NAME = re.compile(r"\b[A-ZÀ-Þ][\w’-]*(?: (?:(?:of|the|de|von|van|la) )?[A-ZÀ-Þ][\w’-]*)+")
_ALIAS = re.compile(r"\b(\w[\w ]{0,40}?),? (?:aka|a\.k\.a\.|also known as) (\w[\w ]{0,40}\w)", re.IGNORECASE)
_SAID = re.compile(
    r"^(?:I|we|my|our)\b.{0,40}?\b(?:prefer|like|love|hate|use|want|need|always|never|am|are|is|live|work|decided)\b",
    re.IGNORECASE,
)


# ── vectors ──


@lru_cache(maxsize=20_000)
def atom(word: str, dim: int) -> Phases:
    """Return the phases of a word: the same in every program and on every machine."""
    import numpy as np

    blocks = (hashlib.sha256(f"{word}:{at}".encode()).digest() for at in range(math.ceil(dim / 16)))
    made = np.frombuffer(b"".join(blocks), "<u2")[:dim] * (2 * math.pi / 65_536)
    made.flags.writeable = False  # every caller gets the same array
    return made


def bundle(vectors: Sequence[Phases]) -> Phases:
    """Return the phases that are like each of the vectors."""
    import numpy as np

    return np.angle(sum(np.exp(1j * each) for each in vectors)) % (2 * math.pi)  # type: ignore[no-any-return]


def bind(one: Phases, other: Phases) -> Phases:
    """Return the phases that stand for the pair, and are like neither."""
    return (one + other) % (2 * math.pi)


def unbind(pair: Phases, one: Phases) -> Phases:
    """Return the other of a pair."""
    return (pair - one) % (2 * math.pi)


def similarity(one: Phases, other: Phases) -> float:
    """Return how alike two vectors are: 1 the same, about 0 unrelated."""
    import numpy as np

    return float(np.cos(one - other).mean())


def encode_text(content: str, dim: int) -> Phases:
    """Return the phases of a text: of all its words."""
    return bundle([atom(word, dim) for word in dict.fromkeys(stemmed_terms(content)) or [content.strip().lower()]])


def encode_fact(content: str, names: Sequence[str], dim: int) -> Phases:
    """Return the phases of a fact: its text and its entities, each bound to its role."""
    roles = [bind(encode_text(content, dim), atom(ROLE_CONTENT, dim))]
    return bundle([*roles, *(bind(atom(name.casefold(), dim), atom(ROLE_ENTITY, dim)) for name in names)])


def entities_in(content: str) -> dict[str, str]:
    """Return the names in a text, and for each its alias or nothing."""
    found: dict[str, str] = {}
    for match in _ALIAS.finditer(content):
        found[match[1].strip()] = match[2].strip()
    for match in _NAME.finditer(content):
        found.setdefault(match[0], "")
    for match in _QUOTED.finditer(content):
        found.setdefault((match[1] or match[2]).strip(), "")
    aliases = {alias.casefold() for alias in found.values() if alias}
    return {name: alias for name, alias in found.items() if name.casefold() not in aliases}


class VectorTable:
    """The vectors of all facts as cosines and sines, so that one product compares a vector with all."""

    def __init__(self, dim: int) -> None:
        import numpy as np

        self.ids: list[int] = []
        self._at: dict[int, int] = {}
        self._dim = dim
        self._rows = np.empty((256, 2 * dim), np.float32)

    def put(self, fact_id: int, phases: Phases) -> None:
        """Set the vector of a fact."""
        import numpy as np

        at = self._at.setdefault(fact_id, len(self.ids))
        if at == len(self.ids):
            self.ids.append(fact_id)
            if at == len(self._rows):
                self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
        self._rows[at, : self._dim], self._rows[at, self._dim :] = np.cos(phases), np.sin(phases)

    def drop(self, fact_id: int) -> None:
        """Remove the vector of a fact; the last one takes its place."""
        at = self._at.pop(fact_id, None)
        if at is not None:
            last = self.ids.pop()
            if last != fact_id:
                self._rows[at] = self._rows[len(self.ids)]
                self.ids[at], self._at[last] = last, at

    def similar(self, phases: Phases) -> list[float]:
        """Return how alike each vector is, in the order of `ids`."""
        import numpy as np

        asked = np.concatenate([np.cos(phases), np.sin(phases)]).astype(np.float32)
        return (self._rows[: len(self.ids)] @ asked / self._dim).tolist()  # type: ignore[no-any-return]


# ── the store ──


class FactStore:
    """Facts of one file. One object serves all sessions of a process; its methods may be called from any thread."""

    def __init__(self, path: Path, dim: int = 1024) -> None:
        self.path, self.dim, self.users = path, dim, 0
        self._lock = threading.RLock()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._db: Any = apsw.Connection(str(path))
            path.chmod(0o600)
            self._db.set_busy_timeout(5_000)
            self._db.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL")
            with self._transaction():
                self._db.execute(SCHEMA)
        except (apsw.Error, OSError) as exc:
            raise ProviderError(f"{path} cannot be opened: {exc}") from exc
        self._vectors: VectorTable | None = None
        self._seen = -1
        if find_spec("numpy"):
            self.vectors()

    def close(self) -> None:
        """Close it, once no session of the process uses it any more."""
        with _OPENING:
            self.users -= 1
            if self.users <= 0:
                if _STORES.get(self.path) is self:
                    del _STORES[self.path]
                with self._lock:
                    self._db.close()

    @contextmanager
    def _write(self) -> Iterator[Any]:
        """Lock, refresh, and commit what the block does; undo it if it fails."""
        with self._lock:
            self.vectors()
            try:
                with self._transaction():
                    yield self._db
            except BaseException:
                self._vectors, self._seen = None, -1  # it may have vectors that were not committed
                raise

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Take the write lock before anything is read, so that no other process writes in between."""
        if self._db.in_transaction:
            yield
            return
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def vectors(self) -> VectorTable | None:
        """Return the vectors, with what other programs have changed; `None` without numpy."""
        if not find_spec("numpy"):
            return None
        with self._lock:
            seen = self._db.pragma("data_version")
            if self._vectors is None or seen != self._seen:
                with self._transaction():
                    self._check_banks()
                self._vectors = table = VectorTable(self.dim)
                import numpy as np

                for fact_id, blob in self._db.execute("SELECT fact_id, hrr_vector FROM facts"):
                    table.put(fact_id, np.frombuffer(blob, np.float32).astype(np.float64))
                self._seen = self._db.pragma("data_version")
            return self._vectors

    def _check_banks(self) -> None:
        """Make vectors and sums for categories in which another program has added or removed facts."""
        kept = {row[0]: row[1:] for row in self._db.execute("SELECT category, facts, dim FROM bank_sums")}
        sized = {
            row[0]: row[1:]
            for row in self._db.execute(
                "SELECT category, count(*), coalesce(min(length(hrr_vector)), 0) FROM facts GROUP BY 1"
            )
        }
        for category in kept.keys() | sized.keys():
            count, least = sized.get(category, (0, 0))
            if kept.get(category) != (count, self.dim) or (count and least != 4 * self.dim):
                self.rebuild_bank(category)

    def rebuild_bank(self, category: str) -> None:
        """Rebuild the vectors and the sum of a category."""
        import numpy as np

        total = np.zeros(self.dim, np.complex128)
        rows = self._db.execute("SELECT fact_id, content FROM facts WHERE category IS ?", (category,)).fetchall()
        for fact_id, content in rows:
            phases = encode_fact(content, self._names_of(fact_id), self.dim)
            total += np.exp(1j * phases)
            self._db.execute("UPDATE facts SET hrr_vector=? WHERE fact_id=?", (_packed(phases), fact_id))
        self._put_bank(category, total, len(rows))

    def _put_bank(self, category: str, total: Any, count: int) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO bank_sums(category, dim, facts, total) VALUES (?, ?, ?, ?)",
            (category, self.dim, count, total.tobytes()),
        )

    def bank(self, category: str) -> tuple[Any, int]:
        """Return the sum of a category's vectors, and how many they are."""
        import numpy as np

        row = self._db.execute("SELECT total, facts FROM bank_sums WHERE category=?", (category,)).fetchone()
        return (np.frombuffer(row[0], np.complex128), row[1]) if row else (np.zeros(self.dim, np.complex128), 0)

    def _count_in(self, category: str, phases: Phases, sign: int) -> None:
        import numpy as np

        total, count = self.bank(category)
        self._put_bank(category, total + sign * np.exp(1j * phases), count + sign)

    def _vector_of(self, fact_id: int) -> Phases:
        import numpy as np

        blob = self._db.execute("SELECT hrr_vector FROM facts WHERE fact_id=?", (fact_id,)).fetchone()[0]
        return np.frombuffer(blob, np.float32).astype(np.float64)

    # ── changes ──

    def add(
        self, content: str, category: str = "general", tags: str = "", trust: float = 0.5, names: Sequence[str] = ()
    ) -> tuple[int, bool]:
        """Store a fact → its id, and whether it is new."""
        with self._write() as db:
            row = db.execute("SELECT fact_id FROM facts WHERE content=?", (content,)).fetchone()
            if row:
                return row[0], False
            values = (content, category, tags, min(max(trust, 0.0), 1.0))
            db.execute("INSERT INTO facts(content, category, tags, trust_score) VALUES (?, ?, ?, ?)", values)
            fact_id = db.last_insert_rowid()
            self._link(fact_id, content, names)
            self._encode(fact_id, content, category)
            return fact_id, True

    def update(self, fact_id: int, changes: Mapping[str, Any], trust_delta: float = 0.0) -> bool:
        """Change a fact → whether there is one. Changed text gets new entities and a new vector."""
        with self._write() as db:
            fact = self.fact(fact_id)
            if fact is None:
                return False
            new = {**fact, **changes}
            same = db.execute(
                "SELECT fact_id FROM facts WHERE content=? AND fact_id<>?", (new["content"], fact_id)
            ).fetchone()
            if same:
                raise ToolProblem(f"Fact {same[0]} has the same content. Nothing was changed.")
            moved = (new["content"], new["category"]) != (fact["content"], fact["category"])
            if moved and self._vectors is not None:
                self._count_in(fact["category"], self._vector_of(fact_id), -1)
            db.execute(
                "UPDATE facts SET content=?, category=?, tags=?, trust_score=min(max(trust_score + ?, 0.0), 1.0),"
                " updated_at=CURRENT_TIMESTAMP WHERE fact_id=?",
                (new["content"], new["category"], new["tags"], trust_delta, fact_id),
            )
            if new["content"] != fact["content"]:
                db.execute("DELETE FROM fact_entities WHERE fact_id=?", (fact_id,))
                self._link(fact_id, new["content"], ())
            if moved:
                self._encode(fact_id, new["content"], new["category"])
            return True

    def remove(self, fact_id: int) -> bool:
        """Delete a fact → whether there was one."""
        with self._write() as db:
            fact = self.fact(fact_id)
            if fact is None:
                return False
            if self._vectors is not None:
                self._count_in(fact["category"], self._vector_of(fact_id), -1)
                self._vectors.drop(fact_id)
            db.execute("DELETE FROM fact_entities WHERE fact_id=?", (fact_id,))
            db.execute("DELETE FROM facts WHERE fact_id=?", (fact_id,))
            return True

    def rate(self, fact_id: int, delta: float) -> Json:
        """Change the trust in a fact by feedback."""
        with self._write() as db:
            fact = self.fact(fact_id)
            if fact is None:
                raise ToolProblem(f"There is no fact {fact_id}.")
            db.execute(
                "UPDATE facts SET trust_score=min(max(trust_score + ?, 0.0), 1.0), helpful_count=helpful_count + ?,"
                " updated_at=CURRENT_TIMESTAMP WHERE fact_id=?",
                (delta, int(delta > 0), fact_id),
            )
            new = self.fact(fact_id) or {}
        trust = {"fact_id": fact_id, "old_trust": fact["trust_score"], "new_trust": new["trust_score"]}
        return {**trust, "helpful_count": new["helpful_count"]}

    def _link(self, fact_id: int, content: str, names: Sequence[str]) -> None:
        for name, alias in {**dict.fromkeys(names, ""), **entities_in(content)}.items():
            row = self._db.execute(
                "SELECT entity_id FROM entities WHERE lower(name)=lower(?) OR instr(',' || lower(aliases) || ',',"
                " ',' || lower(?) || ',')",
                (name, name),
            ).fetchone()
            if row is None:
                self._db.execute("INSERT INTO entities(name, aliases) VALUES (?, ?)", (name, alias))
                row = (self._db.last_insert_rowid(),)
            elif alias:
                self._db.execute(
                    "UPDATE entities SET aliases=trim(aliases || ',' || ?, ',') WHERE entity_id=?"
                    " AND NOT instr(',' || lower(aliases) || ',', ',' || lower(?) || ',')",
                    (alias, row[0], alias),
                )
            self._db.execute("INSERT OR IGNORE INTO fact_entities VALUES (?, ?)", (fact_id, row[0]))

    def _encode(self, fact_id: int, content: str, category: str) -> None:
        if self._vectors is None:
            return
        import numpy as np

        exact = encode_fact(content, self._names_of(fact_id), self.dim)
        phases = exact.astype(np.float32).astype(np.float64)  # as it is stored: taking it out again leaves nothing
        self._db.execute("UPDATE facts SET hrr_vector=? WHERE fact_id=?", (_packed(phases), fact_id))
        self._count_in(category, phases, 1)
        self._vectors.put(fact_id, phases)

    # ── questions ──

    def _names_of(self, fact_id: int) -> list[str]:
        sql = "SELECT name FROM entities JOIN fact_entities USING (entity_id) WHERE fact_id=? ORDER BY entity_id"
        return [row[0] for row in self._db.execute(sql, (fact_id,))]

    def canonical(self, name: str) -> str:
        """Return the name under which an entity is stored, which `name` may be an alias of."""
        row = self._db.execute(
            "SELECT name FROM entities WHERE lower(name)=lower(?1) OR instr(',' || lower(aliases) || ',',"
            " ',' || lower(?1) || ',') LIMIT 1",
            (name,),
        ).fetchone()
        return str(row[0]) if row else name

    def fact(self, fact_id: int) -> Json | None:
        """Return a fact by its id."""
        return next(iter(self.facts("WHERE fact_id=?", (fact_id,))), None)

    def facts(self, clause: str, values: Sequence[Any] = ()) -> list[Json]:
        """Return facts; `clause` is SQL."""
        names = COLUMNS.split(", ")
        with self._lock:
            rows = self._db.execute(f"SELECT {COLUMNS} FROM facts {clause}", values).fetchall()
        return [dict(zip(names, row, strict=True)) for row in rows]

    def count(self) -> int:
        with self._lock:
            return int(self._db.execute("SELECT count(*) FROM facts").fetchone()[0])

    def listed(self, category: str, min_trust: float, limit: int) -> list[Json]:
        """Return facts, the most trusted first."""
        where = "WHERE (?1='' OR category=?1) AND trust_score>=?2 ORDER BY trust_score DESC, fact_id DESC LIMIT ?3"
        return self.facts(where, (category, min_trust, limit))

    def candidates(self, query: str, category: str, min_trust: float, limit: int) -> dict[int, float]:
        """Return facts that have a word of the query, with a score from 0 to 1."""
        found: dict[int, float] = {}
        words = [word for _, word in terms_with_words(query)]
        plain = list(dict.fromkeys(word for word in words if not HAS_CJK.search(word)))[:40]
        pairs = list(dict.fromkeys(word for word in words if HAS_CJK.search(word)))[:40]
        clause = "AND (?2='' OR category=?2) AND trust_score>=?3"
        with self._lock:
            if plain:
                match = " OR ".join(f'"{word}" OR "{stem(word)}"*' for word in map(str.casefold, plain))
                sql = (
                    "SELECT fact_id, bm25(facts_fts) FROM facts_fts JOIN facts ON fact_id=facts_fts.rowid"
                    f" WHERE facts_fts MATCH ?1 {clause} ORDER BY 2 LIMIT ?4"
                )
                rows = self._db.execute(sql, (match, category, min_trust, limit)).fetchall()
                best = min((row[1] for row in rows), default=0.0) or 1.0
                found = {row[0]: max(row[1] / best, 0.0) for row in rows}
            if pairs:
                score = " + ".join("(instr(content, ?) > 0)" for _ in pairs)
                sql = (
                    f"SELECT fact_id, {score} FROM facts WHERE trust_score>=? AND (?='' OR category=?)"
                    f" AND {score} > 0 ORDER BY 2 DESC LIMIT ?"
                )
                bound = (*pairs, min_trust, category, category, *pairs, limit)
                for fact_id, hits in self._db.execute(sql, bound):
                    found[fact_id] = max(found.get(fact_id, 0.0), hits / len(pairs))
        return found

    def alike(self, *asked: Phases) -> list[dict[int, float]]:
        """Return for each vector how alike all facts are."""
        with self._lock:
            table = self.vectors()
            if table is None:
                return [{} for _ in asked]
            ids = list(table.ids)
            found = [table.similar(each) for each in asked]
        return [dict(zip(ids, each, strict=True)) for each in found]

    def linked(self, name: str) -> set[int]:
        """Return the facts that name an entity."""
        sql = "SELECT fact_id FROM fact_entities JOIN entities USING (entity_id) WHERE lower(name)=lower(?)"
        with self._lock:
            return {row[0] for row in self._db.execute(sql, (self.canonical(name),))}

    def about(self, name: str, *, also_text: bool) -> dict[int, float]:
        """Return facts about an entity, with how clearly they are: as an entity, or in their text as well."""
        linked = self.linked(name)
        if not find_spec("numpy"):
            words = self.candidates(name, "", 0.0, 10_000) if also_text else {}
            return {**words, **dict.fromkeys(linked, 1.0)}
        noise = 3 / math.sqrt(2 * self.dim)
        entity = bind(atom(self.canonical(name).casefold(), self.dim), atom(ROLE_ENTITY, self.dim))
        asked = [entity]
        if also_text:
            asked.append(bind(encode_text(name, self.dim), atom(ROLE_CONTENT, self.dim)))
        found: dict[int, float] = {}
        for alike in self.alike(*asked):
            for fact_id, close in alike.items():
                if close > noise or fact_id in linked:
                    found[fact_id] = max(found.get(fact_id, 0.0), close, 0.01)
        return found

    def used(self, ids: Iterable[int]) -> None:
        """Count that facts were shown."""
        with self._write() as db:
            db.executemany(
                "UPDATE facts SET retrieval_count=retrieval_count+1 WHERE fact_id=?", [(one,) for one in ids]
            )

    def contradictions(self, category: str, limit: int) -> list[Json]:
        """Return pairs of the newest facts that share entities and say something different."""
        newest = self.facts(
            "WHERE (?1='' OR category=?1) ORDER BY updated_at DESC, fact_id DESC LIMIT ?2", (category, NEWEST)
        )
        with self._lock:
            names = {one["fact_id"]: frozenset(self._names_of(one["fact_id"])) for one in newest}
        sharing: dict[str, list[int]] = {}
        for at, one in enumerate(newest):
            for name in names[one["fact_id"]]:
                sharing.setdefault(name, []).append(at)
        pairs = {pair for places in sharing.values() for pair in combinations(places, 2)}
        found: list[Json] = []
        for first, second in pairs:
            a, b = newest[first], newest[second]
            mine, other = names[a["fact_id"]], names[b["fact_id"]]
            overlap = len(mine & other) / len(mine | other)
            if overlap < OVERLAP:
                continue
            alike = self._alike(a["content"], b["content"])
            score = overlap * (1 - (alike + 1) / 2)
            if score >= CONTRADICTS:
                found.append(
                    {
                        "fact_a": a,
                        "fact_b": b,
                        "contradiction_score": round(score, 3),
                        "similarity": round(alike, 3),
                        "shared_entities": sorted(mine & other),
                    }
                )
        return sorted(found, key=lambda one: -one["contradiction_score"])[:limit]

    def _alike(self, one: str, other: str) -> float:
        if find_spec("numpy"):
            return similarity(_encoded(one, self.dim), _encoded(other, self.dim))
        return 2 * jaccard(one, other) - 1


_encoded = lru_cache(maxsize=2 * NEWEST)(encode_text)


def _packed(phases: Phases) -> bytes:
    return phases.astype("<f4").tobytes()


def jaccard(one: str, other: str) -> float:
    """Return the part of the terms of two texts that both have."""
    a, b = set(stemmed_terms(one)), set(stemmed_terms(other))
    return len(a & b) / len(a | b) if a | b else 0.0


_STORES: dict[Path, FactStore] = {}
_OPENING = threading.Lock()


def opened(path: Path, dim: int) -> FactStore:
    """Return the store of a file; all sessions of the process share it."""
    with _OPENING:
        store = _STORES.get(path)
        if store is None or store.dim != dim:
            store = _STORES[path] = FactStore(path, dim)
        store.users += 1
        return store


# ── the provider ──

ACTIONS = ("add", "search", "probe", "related", "reason", "contradict", "update", "remove", "list")
CATEGORIES = ("user_pref", "project", "tool", "general")


class Holographic(BundledProvider):
    """Facts in a local file."""

    name = "holographic"
    file = "holographic.json"
    about = "Fact memory\nA local store of single facts with a trust score. Rate facts that helped or were wrong."
    budget = f"{RECALLED} facts, {ROOM:,} characters"
    shown = ("hrr_dim", "default_trust", "auto_extract")
    section = ("plugins", "hermes-memory-store")
    fields: ClassVar[Sequence[Json]] = (
        field("auto_extract", False, "store sentences of the user such as “I prefer …” when a session ends"),
        field("default_trust", 0.5, "trust in a new fact", minimum=0.0, maximum=1.0),
    )
    advanced: ClassVar[Sequence[Json]] = (
        field("db_path", "", "file of the facts; empty: memory_store.db in the home"),
        field("min_trust_threshold", 0.3, "facts below are not recalled", minimum=0.0, maximum=1.0),
        field("temporal_decay_half_life", 0, "days in which a fact loses half its weight; 0: never"),
        field("hrr_dim", 1024, "numbers in a vector", minimum=64, maximum=16_384),
        field("hrr_weight", 0.3, "weight of vectors in a search", minimum=0.0, maximum=1.0),
    )

    @property
    def store(self) -> FactStore:
        return self.client  # type: ignore[no-any-return]

    def connect(self) -> FactStore:
        path = Path(self.values["db_path"]).expanduser() if self.values["db_path"] else Path("memory_store.db")
        return opened((self.home / path).resolve(), self.values["hrr_dim"])

    def backup_paths(self) -> list[str]:
        path = Path(self.load_settings()["db_path"] or ".").expanduser()
        return [str(path)] if path.is_absolute() else []

    def get_status_config(self, config: Mapping[str, Any]) -> Json:
        vectors = "yes" if find_spec("numpy") else f"no: numpy is not installed ({install_command('local')})"
        return {**super().get_status_config(config), "vectors": vectors}

    def recall(self, query: str) -> str:
        found = self.search(query[:LONGEST], "", self.values["min_trust_threshold"], RECALLED)
        return listed((f"[fact {one['fact_id']}] {one['content']}" for one in found), ROOM)

    def search(self, query: str, category: str, min_trust: float, limit: int) -> list[Json]:
        """Return facts by words, vectors, trust and age."""
        words = self.store.candidates(query, category, min_trust, limit * 3)
        if not words:
            return []
        vectors = bool(find_spec("numpy"))
        close: dict[int, float] = {}
        if vectors:
            dim = self.store.dim
            (close,) = self.store.alike(bind(encode_text(query, dim), atom(ROLE_CONTENT, dim)))
        weight = self.values["hrr_weight"] if vectors else 0.0
        by_words, by_overlap = (0.4, 0.3) if vectors else (0.6, 0.4)
        marks = ", ".join("?" for _ in words)
        found = self.store.facts(f"WHERE fact_id IN ({marks})", list(words))
        for one in found:
            alike = (close.get(one["fact_id"], 0.0) + 1) / 2
            overlap = jaccard(query, f"{one['content']} {one['tags']}")
            score = by_words * words[one["fact_id"]] + by_overlap * overlap + weight * alike
            one["score"] = round(score * one["trust_score"] * self._decay(one), 4)
        return sorted(found, key=lambda one: -one["score"])[:limit]

    def _decay(self, fact: Json) -> float:
        days = self.values["temporal_decay_half_life"]
        if days <= 0:
            return 1.0
        written = datetime.fromisoformat(str(fact["updated_at"])).replace(tzinfo=UTC).timestamp()
        return float(0.5 ** (max(time.time() - written, 0.0) / 86_400 / days))

    @tool(
        "Facts that stay over sessions. add a fact; search by words; probe: all about an entity; related: facts"
        " that touch it; reason: facts about several entities at once; contradict: facts that may disagree; update,"
        " remove, list.",
        action=text("What to do.", *ACTIONS),
        content=text("The fact, one sentence (add, update)."),
        query=text("Words to look for (search)."),
        entity=text("A name (probe, related)."),
        entities=texts("Names (reason; also add)."),
        fact_id=whole("The fact (update, remove)."),
        category=text("Its kind.", *CATEGORIES),
        tags=text("Words, comma separated."),
        trust_delta=fraction("Change of trust (update)."),
        min_trust=fraction("Leave out facts below."),
        limit=whole("At most so many.", 10, 1, 100),
    )
    def fact_store(self, action: str, limit: int, **given: Any) -> Json:
        needed = {"add": "content", "search": "query", "probe": "entity", "related": "entity", "reason": "entities"}
        needed |= {"update": "fact_id", "remove": "fact_id"}
        if action in needed and not given.get(needed[action]):
            raise ToolProblem(f"{needed[action]} is required for {action}.")
        if len(given.get("content", "")) > LONGEST:
            raise ToolProblem(f"A fact may have {LONGEST:,} characters.")
        if action in ("add", "update", "remove"):
            return self._change(action, given)
        category = given.get("category", "")
        least = float(given["min_trust"] if "min_trust" in given else self.values["min_trust_threshold"])
        if action == "list":
            facts = self.store.listed(category, given.get("min_trust", 0.0), limit)
            return {"facts": facts, "count": len(facts)}
        if action == "contradict":
            found = self.store.contradictions(category, limit)
        elif action == "search":
            found = self.search(given["query"], category, least, limit)
            self.store.used(one["fact_id"] for one in found)
        else:
            names = given["entities"] if action == "reason" else [given["entity"]]
            found = self._about(names, category, least, limit, also_text=action != "probe")
        answer: Json = {"results": found, "count": len(found)}
        if action == "probe" and category and find_spec("numpy"):
            answer["bank_similarity"] = self._in_bank(given["entity"], category)
        return answer

    @tool(
        "Rate a fact that was used: helpful raises its trust, unhelpful lowers it.",
        action=text("The rating.", "helpful", "unhelpful"),
        fact_id=whole("The fact."),
    )
    def fact_feedback(self, action: str, fact_id: int) -> Json:
        return self.store.rate(fact_id, HELPFUL if action == "helpful" else UNHELPFUL)

    def _change(self, action: str, given: Json) -> Json:
        if action == "remove":
            return {"removed": self.store.remove(given["fact_id"])}
        if action == "update":
            changes: Json = {key: given[key] for key in ("content", "category", "tags") if key in given}
            return {"updated": self.store.update(given["fact_id"], changes, given.get("trust_delta", 0.0))}
        category, tags = given.get("category", "general"), given.get("tags", "")
        names = given.get("entities", [])
        fact_id, new = self.store.add(given["content"], category, tags, self.values["default_trust"], names)
        return {"fact_id": fact_id, "status": "added" if new else "exists"}

    def _about(
        self, names: Sequence[str], category: str, min_trust: float, limit: int, *, also_text: bool
    ) -> list[Json]:
        """Return facts about all of the names, the clearest and most trusted first."""
        each = [self.store.about(name, also_text=also_text) for name in names]
        shared = set.intersection(*(set(one) for one in each))
        score = {fact_id: min(one[fact_id] for one in each) for fact_id in shared}
        best = sorted(score, key=lambda fact_id: -score[fact_id])[:1_000]
        marks = ", ".join("?" for _ in best)
        found = self.store.facts(
            f"WHERE fact_id IN ({marks}) AND (?='' OR category=?) AND trust_score>=?",
            [*best, category, category, min_trust],
        )
        for one in found:
            one["score"] = round(score[one["fact_id"]] * one["trust_score"] * self._decay(one), 4)
        return sorted(found, key=lambda one: -one["score"])[:limit]

    def _in_bank(self, name: str, category: str) -> float:
        """Return how clearly a category as a whole knows an entity."""
        import numpy as np

        total, count = self.store.bank(category)
        if not count:
            return 0.0
        entity = bind(atom(self.store.canonical(name).casefold(), self.store.dim), atom(ROLE_ENTITY, self.store.dim))
        return round(similarity(np.angle(total), entity), 4)

    # ── what happens ──

    def mirror(self, action: str, target: str, content: str, old: str) -> None:
        tag, content = f"herma:{target}", content[:LONGEST]
        category = "user_pref" if target == "user" else "general"
        mirrored = self.store.facts("WHERE tags=? AND instr(content, ?) LIMIT 2", (tag, old)) if old else []
        fact_id = mirrored[0]["fact_id"] if len(mirrored) == 1 else None
        if action == "remove" and fact_id is not None:
            self.store.remove(fact_id)
        elif action == "replace" and fact_id is not None and content:
            if self.store.facts("WHERE content=? AND fact_id<>?", (content, fact_id)):
                self.store.remove(fact_id)
            else:
                self.store.update(fact_id, {"content": content})
        elif action != "remove" and content:
            self.store.add(content, category, tag, self.values["default_trust"])

    def on_session_end(self, messages: Sequence[Mapping[str, Any]]) -> None:
        if not self.values.get("auto_extract"):
            return
        for message in transcript(messages):
            if message["role"] == "user":
                for sentence in re.split(r"(?<=[.!?。！？])\s+|\n", message["content"]):
                    if 10 <= len(sentence) <= 300 and not sentence.endswith("?") and _SAID.match(sentence):
                        self.store.add(sentence, "user_pref", "extracted", self.values["default_trust"])
