"""Keyed facts as everybody uses them: `h.facts`.

They follow the history of curated memory: every question first reads what changed since the last one, so that an undo
or an edit by hand needs nobody to tell. Of several values the newest holds; where that cannot be told, nothing is
answered.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from herma.errors import UsageError
from herma.facts.attributes import attribute_of, folded, key_of
from herma.facts.extract import LONGEST_VALUE, USER
from herma.facts.follow import Entries, steps_of
from herma.facts.question import read
from herma.ports.curated import Place
from herma.ports.facts import FactRows
from herma.safety.scan import scan
from herma.types import TARGETS, Change, Fact, FactSource, Scope, Target

Found: TypeAlias = list[Fact]
Places: TypeAlias = tuple[Place, ...]
Changes: TypeAlias = Callable[[Place, int], Sequence[Change]]
"""What happened to a curated file after a change, oldest first; edits by hand are recorded on the way."""


_SUBJECTS: Mapping[str | None, Sequence[str]] = {None: (USER, "project", "home"), "": ("project", "home")}
"""Of whom a question may be that names nobody."""


class Facts:
    """Exact answers of one home."""

    def __init__(
        self,
        rows: FactRows,
        changes: Changes,
        places: Callable[[], Iterable[Place]],
        entries: Entries,
        *,
        enabled: Sequence[Target] = TARGETS,
        profile: str = "",
        stem: Callable[[str], str] = str,
        clock: Callable[[], float] = time.time,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        self._rows = rows
        self._changes = changes
        self._places = places
        self._entries = entries
        self._enabled = tuple(enabled)
        self._profile = profile
        self._stem = stem
        self._clock = clock
        self._alive = alive

    # ── asking ──

    def answer(self, text: str, scope: Scope | None = None) -> Fact | None:
        """The fact that a question plainly asks for; None when it asks for none, or when the answer is not certain."""
        self._alive()
        question = read(text) if isinstance(text, str) else None
        if question is None:
            return None
        where = self._scoped(scope)
        for reading in question.readings():
            subjects = _SUBJECTS.get(reading.subject, (folded(reading.subject or ""),))
            found = self._of(where, subjects, reading.attribute)
            if found:
                return self._holding(found, where)
        return None

    def asks(self, text: str) -> bool:
        """Whether a text plainly asks for a fact, known or not. Reads nothing."""
        return isinstance(text, str) and read(text) is not None

    def get(self, attribute: str, *, subject: str = "", scope: Scope | None = None) -> Fact | None:
        """The value that holds, by the name of the attribute; of the user first where no subject is given."""
        self._alive()
        subjects = (folded(subject),) if subject else _SUBJECTS[None]
        where = self._scoped(scope)
        return self._holding(self._of(where, subjects, attribute), where)

    def list(self, *, scope: Scope | None = None, subject: str = "") -> Found:
        """What holds now, by subject and attribute."""
        self._alive()
        where = self._scoped(scope)
        self._catch_up(self._seen_by(where))
        found = self._select(where, subject=folded(subject) or None)
        held = [self._holding(same, where) for same in self._by_key(found).values()]
        return sorted((one for one in held if one is not None), key=lambda fact: (fact.subject, fact.attribute))

    def history(self, attribute: str, *, subject: str = "", scope: Scope | None = None) -> Found:
        """Every value it ever had, newest first; `until` is when the next one took its place."""
        self._alive()
        where = self._scoped(scope)
        self._catch_up(self._seen_by(where))
        key = key_of(attribute, self._stem)
        found = [one for one in self._select(where, subject=folded(subject) or None) if self._has(one, key)]
        ended = []
        for at, fact in enumerate(found):
            later = [one.valid_from for one in found[at + 1 :] if self._same(one, fact) and one.value != fact.value]
            ends = [moment for moment in (fact.until, *later[:1]) if moment is not None]
            ended.append(replace(fact, until=min(ends)) if ends else fact)
        return ended[::-1]

    # ── stating ──

    def state(
        self,
        subject: str,
        attribute: str,
        value: str,
        *,
        source: FactSource = "user",
        scope: Scope | None = None,
        text: str = "",
        session: str | None = None,
        message: int | None = None,
    ) -> Fact:
        """Keep a fact that a person or a review states. The newest value holds; the older stays in the history."""
        self._alive()
        where = self._scoped(scope)
        name, whose = attribute_of(attribute), folded(subject)
        said = " ".join(value.split())
        if not name or not whose or not said:
            raise UsageError(
                "A fact has a subject, an attribute and a value.", hint='For example: "user", "time zone".'
            )
        if len(said) > LONGEST_VALUE:
            raise UsageError(
                f"A value has at most {LONGEST_VALUE} characters.", hint="Longer notes belong into memory."
            )
        if scan(f"{whose} {name}: {said}") or scan(text):
            raise UsageError(
                "The scanner objects to this fact.", hint="`herma doctor` and `scan` say what it objects to."
            )
        if source not in ("review", "user"):
            raise UsageError(
                f"{source!r} is no source to state from.", hint="Facts of curated memory follow its entries."
            )
        of_project = whose in ("project", "home")
        place = Scope(where.profile, where.project if of_project else "", "" if of_project else where.user)
        known = self._holding(self._of(place, (whose,), name), place)
        if known is not None and folded(known.value) == folded(said) and known.scope == place:
            return known
        return self._rows.add(
            Fact(
                whose,
                name,
                said,
                self._clock(),
                place,
                source=source,
                text=text[:1_000],
                session=session,
                message=message,
            )
        )

    def forget(self, ids: Sequence[int]) -> Found:
        """These, and older values of the same, answer no more, also after a rebuild. → those that were known."""
        self._alive()
        everything = self._rows.select(None)
        wanted = [one for one in everything if one.id in set(ids) and one.forgotten is None]
        older = [  # an outdated value must not take its place
            one
            for one in everything
            if one.holds and any(self._same(one, other) and one.valid_from <= other.valid_from for other in wanted)
        ]
        self._rows.forget([one.id for one in (*wanted, *older)], self._clock())
        return wanted

    def unforget(self, ids: Sequence[int]) -> Found:
        """Take that back. → those that answer again."""
        self._alive()
        known = [one for one in self._rows.select(None) if one.id in set(ids) and one.forgotten is not None]
        self._rows.forget([one.id for one in known], None)
        return known

    def find(self, number: int) -> Fact | None:
        """One fact by its number, forgotten or not."""
        self._alive()
        return next((one for one in self._rows.select(None) if one.id == number), None)

    def rebuild(self) -> int:
        """Make the facts of curated memory anew, from its whole history. → how many hold now."""
        self._alive()
        self._rows.clear(None)
        self._catch_up(list(self._places()))
        return sum(fact.holds for fact in self._rows.select(None))

    # ── inside ──

    def _of(self, where: Scope, subjects: Sequence[str], attribute: str) -> Found:
        """What is said of the first of these subjects of which anything is said, by this attribute in any words."""
        key = key_of(attribute, self._stem)
        if not key:
            return []
        self._catch_up(self._seen_by(where))
        found = [fact for fact in self._select(where) if self._has(fact, key) and _is_seen(fact, where)]
        for subject in subjects:
            if said := [fact for fact in found if fact.subject == subject]:
                return said
        return []

    def _has(self, fact: Fact, key: str) -> bool:
        """Facts that were kept as stems are known by these."""
        return key in (key_of(fact.attribute, self._stem), " ".join(sorted(fact.attribute.split())))

    def _same(self, one: Fact, other: Fact) -> bool:
        if (one.subject, one.scope) != (other.subject, other.scope):
            return False
        return self._has(one, key_of(other.attribute, self._stem))

    def _by_key(self, facts: Sequence[Fact]) -> dict[tuple[str, str], Found]:
        found: dict[tuple[str, str], Found] = defaultdict(list)
        for fact in facts:
            found[fact.subject, key_of(fact.attribute, self._stem)].append(fact)
        return found

    def _select(self, where: Scope, *, subject: str | None = None) -> Found:
        """What a scope sees. A file that is switched off says nothing here either, until it is on again."""
        found = self._rows.select(_scopes(where), subject=subject)
        return [fact for fact in found if fact.target is None or fact.target in self._enabled]

    def _holding(self, facts: Sequence[Fact], where: Scope) -> Fact | None:
        """Of facts of one key the newest value, the nearest scope first; None where two of one moment disagree."""
        for scope in _scopes(where):
            here = [one for one in facts if one.scope == scope and _is_seen(one, where)]
            if not here:
                continue
            newest = max(one.valid_from for one in here)
            latest = [one for one in here if one.valid_from == newest]
            values = {folded(one.value) for one in latest}
            return latest[-1] if len(values) == 1 else None
        return None

    def _catch_up(self, places: Iterable[Place]) -> None:
        """Read what happened to these files since the last time."""
        for place in places:
            since = self._rows.position(place)
            changes = self._changes(place, since)
            if changes:
                steps = steps_of(changes, self._entries)
                self._rows.follow(place, since, steps, changes[-1].id)

    def _scoped(self, scope: Scope | None) -> Scope:
        return replace(scope or Scope(), profile=self._profile, chat="")

    def _seen_by(self, where: Scope) -> Places:
        """The files that a session of this scope sees."""
        places = dict.fromkeys([Place("memory", where.profile), *(Place.of(target, where) for target in TARGETS)])
        return tuple(place for place in places if place.target in self._enabled)


def _scopes(where: Scope) -> Sequence[Scope]:
    """Whose facts count, the nearest first: the project's, the user's, the home's."""
    found = (Scope(where.profile, where.project), Scope(where.profile, user=where.user), Scope(where.profile))
    return tuple(dict.fromkeys(found))


def _is_seen(fact: Fact, where: Scope) -> bool:
    """What is said of "the user" somewhere is about that user, and nobody else's business."""
    return fact.holds and (fact.subject != USER or fact.scope.user == where.user)
