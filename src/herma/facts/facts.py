"""Answer exact questions from curated memory: `Facts` follows its history and keeps one value for each attribute.

Every question first reads what changed since the last one, so undo and edits by hand need no notice. Of several values
the newest holds; if it is unclear which one that is, there is no answer.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from herma.errors import HermaWarning, StoreError, UsageError, checked
from herma.facts.extract import (
    LONGEST_VALUE,
    PERSONAL,
    USER,
    attribute_of,
    choice_of,
    is_known,
    key_of,
    statements,
)
from herma.memory.archive import ArchiveRows
from herma.memory.entries import Place, join, parse, unique
from herma.memory.files import MemoryRows
from herma.memory.store import enabled_targets
from herma.safety.scan import scan
from herma.store.database import Database, DatabaseConnection
from herma.text import LazyPattern, folded
from herma.types import TARGETS, Change, Scope, Target

if TYPE_CHECKING:
    from herma.app import Herma

_FEW = 20
"""Changes that are read first; there are seldom more new ones."""
_SUBJECTS: dict[str | None, Sequence[str]] = {None: (USER, "project", "home"), "": ("project", "home")}
"""The owners whose facts a question without a name may ask for."""
FactSource: TypeAlias = Literal["curated", "review", "user"]


@dataclass(frozen=True, slots=True)
class Fact:
    """A statement that answers an exact question: whose, what, the value, since when, and where it was said.

    `until` is when a newer value took its place, or its entry was taken out; None while it holds.
    """

    subject: str
    attribute: str
    value: str
    valid_from: float
    scope: Scope
    id: int = 0
    until: float | None = None
    source: FactSource = "curated"
    text: str = ""
    """The entry, or the sentence, that says so."""
    target: Target | None = None
    """The curated file that has the entry."""
    change: int | None = None
    session: str | None = None
    message: int | None = None
    forgotten: float | None = None

    @property
    def holds(self) -> bool:
        return self.until is None and self.forgotten is None


Found: TypeAlias = list[Fact]


@checked("text")
class Facts:
    """`h.facts`: exact answers of one home."""

    def __init__(self, app: Herma) -> None:
        self._app = app
        self._rows = FactRows(app.db)
        self._history = MemoryRows(app.db)
        self._archive = ArchiveRows(app.db)
        self._enabled = enabled_targets(app.settings.memory)
        self._unwritten: list[tuple[Place, FactStep]] = []
        """Changes whose facts could not be stored, as on a read-only home: they are applied to what is read."""

    # ── asking ──

    def answer(self, text: str, scope: Scope | None = None) -> Fact | None:
        """Return the fact that a question plainly asks for; None if it asks for none, or the answer is not certain."""
        self._app.ensure_open()
        where = self._scoped(scope)
        for attribute, subject in read(text) if isinstance(text, str) else ():
            subjects = _SUBJECTS.get(subject, (folded(subject or ""),))
            if found := self._of(where, subjects, attribute):
                return self._holding(found, where)
        return None

    def asks(self, text: str) -> bool:
        """Return whether a text plainly asks for a fact, known or not. Reads nothing."""
        return isinstance(text, str) and bool(read(text))

    def get(self, attribute: str, *, subject: str = "", scope: Scope | None = None) -> Fact | None:
        """Return the current value of an attribute; the user's first if no subject is given."""
        self._app.ensure_open()
        subjects = (folded(subject),) if subject else _SUBJECTS[None]
        where = self._scoped(scope)
        return self._holding(self._of(where, subjects, attribute), where)

    def list(self, *, scope: Scope | None = None, subject: str = "") -> Found:
        """Return the facts that hold now, by subject and attribute."""
        self._app.ensure_open()
        where = self._scoped(scope)
        self._catch_up(self._seen_by(where))
        found = self._select(where, subject=folded(subject) or None)
        by_key: dict[tuple[str, str], Found] = defaultdict(list)
        for fact in found:
            by_key[fact.subject, key_of(fact.attribute)].append(fact)
        held = [self._holding(same, where) for same in by_key.values()]
        return sorted((one for one in held if one is not None), key=lambda fact: (fact.subject, fact.attribute))

    def history(self, attribute: str, *, subject: str = "", scope: Scope | None = None) -> Found:
        """Return every value that an attribute had, newest first; `until` is when the next one took its place."""
        self._app.ensure_open()
        where = self._scoped(scope)
        self._catch_up(self._seen_by(where))
        key = key_of(attribute)
        found = [one for one in self._select(where, subject=folded(subject) or None) if key_of(one.attribute) == key]
        ended = []
        for at, fact in enumerate(found):
            later = [one.valid_from for one in found[at + 1 :] if _key(one) == _key(fact) and one.value != fact.value]
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
        """Store a fact that a person or a review states. The newest value holds; older ones stay in the history."""
        self._app.ensure_open()
        where = self._scoped(scope)
        text = text.encode("utf-8", "replace").decode()
        name, whose = attribute_of(attribute), folded(subject)
        said = " ".join(value.split())
        if not name or not whose or not said:
            raise UsageError(
                "A fact has a subject, an attribute and a value.", hint='For example: "user", "time zone".'
            )
        if len(said) > LONGEST_VALUE:
            raise UsageError(f"A value has at most {LONGEST_VALUE} characters.", hint="Put longer notes into memory.")
        if scan(f"{whose} {name}: {said}") or scan(text):
            raise UsageError(
                "The scanner objects to this fact; nothing was stored.", hint="`scan(text)` lists its findings."
            )
        if source not in ("review", "user"):
            raise UsageError(
                f"Unknown source {source!r}.", hint="Use one of: user, review. Facts of memory follow its entries."
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
                self._app.clock(),
                place,
                source=source,
                text=text[:1_000],
                session=session,
                message=message,
            )
        )

    def forget(self, ids: Sequence[int]) -> Found:
        """Stop using these facts and older values of the same, even after a rebuild. → those that were known."""
        self._app.ensure_open()
        everything = self._stored(None)
        wanted = [one for one in everything if one.id in set(ids) and one.forgotten is None]
        older = [  # an outdated value must not take its place
            one
            for one in everything
            if one.holds and any(_key(one) == _key(other) and one.valid_from <= other.valid_from for other in wanted)
        ]
        self._rows.forget([one.id for one in (*wanted, *older)], self._app.clock())
        return wanted

    def unforget(self, ids: Sequence[int]) -> Found:
        """Undo `forget`. → the facts that answer again."""
        self._app.ensure_open()
        known = [one for one in self._stored(None) if one.id in set(ids) and one.forgotten is not None]
        self._rows.forget([one.id for one in known], None)
        return known

    def find(self, number: int) -> Fact | None:
        """Return one fact by its number, forgotten or not."""
        self._app.ensure_open()
        return next((one for one in self._stored(None) if one.id == number), None)

    def rebuild(self) -> int:
        """Rebuild the facts of curated memory from its whole history. → how many hold now."""
        self._app.ensure_open()
        self._rows.clear()
        self._catch_up(list(dict.fromkeys(Place.of(one.target, one.scope) for one in self._history.changes())))
        return sum(fact.holds for fact in self._stored(None))

    # ── inside ──

    def _of(self, where: Scope, subjects: Sequence[str], attribute: str) -> Found:
        """Return the facts with this attribute, in any words, of the first of these subjects that has one."""
        key = key_of(attribute)
        if not key:
            return []
        self._catch_up(self._seen_by(where))
        found = [one for one in self._select(where) if key_of(one.attribute) == key and _is_seen(one, where)]
        for subject in subjects:
            if said := [fact for fact in found if fact.subject == subject]:
                return said
        return []

    def _select(self, where: Scope, *, subject: str | None = None) -> Found:
        """Return what a scope sees. A file that is switched off says nothing until it is on again."""
        found = self._stored(_scopes(where), subject)
        return [fact for fact in found if fact.target is None or fact.target in self._enabled]

    def _holding(self, facts: Sequence[Fact], where: Scope) -> Fact | None:
        """Return the newest value of one key, the nearest scope first; None if two of the same moment disagree."""
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
        """Read the changes of these files since the last time."""
        self._unwritten.clear()
        for place in places:
            since = self._rows.position(place)
            changes = self._changes(place, since)
            if not changes:
                continue
            steps = [step_of(change) for change in changes]
            try:
                self._rows.follow(place, since, steps, changes[-1].id)
            except StoreError as exc:
                self._unwritten += [(place, step) for step in steps]
                message = f"The facts of the newest changes were not stored; nothing was written: {exc}"
                warnings.warn(message, HermaWarning, stacklevel=4)

    def _changes(self, place: Place, since: int) -> Sequence[Change]:
        """Return the changes of a file after one, oldest first. Asking for the history records edits by hand."""
        memory = self._app.memory
        newest = memory.history(place.target, scope=place.scope, limit=_FEW)
        if len(newest) == _FEW and newest[-1].id > since:
            newest = memory.history(place.target, scope=place.scope)
        return [self._with_archived(change) for change in reversed(newest) if change.id > since]

    def _with_archived(self, change: Change) -> Change:
        """Return the change as if entries that only moved to the archive to make room were still there."""
        moved = self._archive.moved_by(change.id)
        return replace(change, after=join([*unique(parse(change.after)), *moved])) if moved else change

    def _stored(self, scopes: Sequence[Scope] | None, subject: str | None = None) -> Found:
        """Return the stored facts, with the changes that could not be stored applied to them."""
        found = self._rows.select(scopes, subject=subject)
        for place, step in self._unwritten:
            found = [_after(fact, step) if _is_of(fact, place) else fact for fact in found]
            new = [replace(fact, target=place.target) for fact in step.new]
            found += [one for one in new if (scopes is None or one.scope in scopes) and subject in (None, one.subject)]
        return found

    def _scoped(self, scope: Scope | None) -> Scope:
        return replace(scope or Scope(), profile=self._app.settings.profile, chat="")

    def _seen_by(self, where: Scope) -> tuple[Place, ...]:
        """Return the files that a session of this scope sees."""
        places = dict.fromkeys([Place("memory", where.profile), *(Place.of(target, where) for target in TARGETS)])
        return tuple(place for place in places if place.target in self._enabled)


def _scopes(where: Scope) -> Sequence[Scope]:
    """Return the scopes whose facts count, the nearest first: the project, the user, the home."""
    found = (Scope(where.profile, where.project), Scope(where.profile, user=where.user), Scope(where.profile))
    return tuple(dict.fromkeys(found))


def _key(fact: Fact) -> tuple[str, Scope, str]:
    return fact.subject, fact.scope, key_of(fact.attribute)


def _is_seen(fact: Fact, where: Scope) -> bool:
    """Return whether a fact holds for a scope: one about "the user" only for that user."""
    return fact.holds and (fact.subject != USER or fact.scope.user == where.user)


@dataclass(frozen=True, slots=True)
class FactStep:
    """The effect of one change of a curated file on its facts: entries that are gone, facts that are new.

    `brought_back` are entries that return because the change that took them out is undone: their facts hold again as
    if they had never gone.
    """

    at: float
    gone: tuple[str, ...] = ()
    brought_back: tuple[str, ...] = ()
    new: tuple[Fact, ...] = ()


def step_of(change: Change) -> FactStep:
    """Read what a change of a curated file does to its facts. Pure."""
    before, after = unique(parse(change.before)), unique(parse(change.after))
    gone = tuple(entry for entry in before if entry not in set(after))
    fresh = tuple(entry for entry in after if entry not in set(before))
    if change.undoes is not None:
        return FactStep(change.at, gone, brought_back=fresh)
    subject = USER if change.target == "user" else "project" if change.scope.project else "home"
    new = [
        Fact(
            said.subject,
            said.attribute,
            said.value,
            valid_from=change.at,
            scope=change.scope,
            text=entry,
            change=change.id,
            session=change.author.session,
            message=change.author.message,
        )
        for entry in fresh
        if not scan(entry[:4_000])  # no model is shown a blocked entry, so it answers nothing either
        for said in statements(entry, subject)
    ]
    return FactStep(change.at, gone, new=tuple(new))


def _is_of(fact: Fact, place: Place) -> bool:
    return fact.source == "curated" and fact.target == place.target and fact.scope == place.scope


def _after(fact: Fact, step: FactStep) -> Fact:
    if fact.until is None and fact.text in step.gone:
        return replace(fact, until=step.at)
    return replace(fact, until=None) if fact.text in step.brought_back else fact


class FactRows:
    """Read and write the tables `facts` and `facts_read`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = database.queries("facts.facts")

    def position(self, place: Place) -> int:
        """Return the last change of a curated file whose facts are stored; 0 for none."""
        rows = self._db.rows(self._sql["position"], place.key)
        return int(rows[0][0]) if rows else 0

    def follow(self, place: Place, since: int, steps: Sequence[FactStep], until: int) -> None:
        """Store these steps in one transaction, if the position is still `since`."""
        key = place.key

        def work(connection: DatabaseConnection) -> None:
            found: Any = connection.row(self._sql["position"], key)
            if (found[0] if found else 0) != since:
                return  # another process was quicker, and has done it
            for step in steps:
                if step.gone:
                    connection.run(self._sql["gone"], {**key, "at": step.at, "texts": list(step.gone)})
                for text in step.brought_back:
                    connection.run(self._sql["back"], {**key, "text": text})
                for fact in step.new:
                    self._insert(connection, fact, place.target)
            connection.run(self._sql["move"], {**key, "until": until})

        self._db.write(work)

    def add(self, fact: Fact) -> Fact:
        number = self._db.write(lambda connection: self._insert(connection, fact, ""))
        return next(one for one in self.select([fact.scope], subject=fact.subject) if one.id == number)

    def select(self, scopes: Sequence[Scope] | None, *, subject: str | None = None) -> list[Fact]:
        """Return the facts of these scopes, or all, oldest first, outdated and forgotten ones among them."""
        wanted = {"subject": subject}
        if scopes is None:
            return self._facts("everything", wanted)
        found = []
        for scope in dict.fromkeys(Scope(one.profile, one.project, one.user) for one in scopes):
            place = {"profile": scope.profile, "project": scope.project, "user": scope.user}
            found += self._facts("of_key", {**wanted, **place})
        return sorted(found, key=lambda fact: (fact.valid_from, fact.id))

    def forget(self, ids: Sequence[int], at: float | None) -> None:
        """Mark facts as forgotten; with None, as not forgotten."""
        self._db.run(self._sql["forget"], {"ids": list(ids), "at": at})

    def clear(self) -> None:
        """Drop the facts of curated files before a rebuild. Forgotten ones stay, so that they are not made again."""

        def work(connection: DatabaseConnection) -> None:
            for name in ("clear", "clear_forgotten", "unread"):
                connection.run(self._sql[name])

        self._db.write(work)

    def _insert(self, connection: DatabaseConnection, fact: Fact, target: str) -> int:
        place = {"profile": fact.scope.profile, "project": fact.scope.project, "user": fact.scope.user}
        bindings = {**{name: getattr(fact, name) for name in _COLUMNS.split()[4:]}, **place, "target": target}
        unwanted: Any = None
        if fact.source == "curated":
            unwanted = connection.row(self._sql["unwanted"], bindings)
        forgotten = unwanted[0] if unwanted else fact.forgotten
        return connection.insert(self._sql["insert"], {**bindings, "forgotten": forgotten})

    def _facts(self, name: str, bindings: dict[str, Any]) -> list[Fact]:
        return [_fact(row) for row in self._db.rows(f"{self._sql['columns']} {self._sql[name]}", bindings)]


_COLUMNS = """
id profile project user subject attribute value valid_from until source text target change session message forgotten
"""


def _fact(row: Sequence[Any]) -> Fact:
    found = dict(zip(_COLUMNS.split(), row, strict=True))
    scope = Scope(found.pop("profile"), found.pop("project"), found.pop("user"))
    return Fact(**{**found, "scope": scope, "target": found["target"] or None})


# ── which fact a question asks for; pure and linear, English and Chinese ─────────────────────────────────────────────

LONGEST = 200
_AFTER = r"(?:,?\s+(?:again|now|currently|right now|these days|today|at the moment|please|called|set to|by the way))*$"
_IS = r"(?:'s|\s+is|\s+are|s)"
_POLITE = LazyPattern(
    r"^(?:(?:hi|hey|hello|so|ok|okay|and|remind me(?: of)?|tell me|do you (?:know|remember)"
    r"|can you (?:tell me|remind me(?: of)?)|please|quick question|i forgot|sorry"
    r"|请问|請問)[\s,:!.-]*(?<=[\s,:!.问問-]))+"
)
_WHAT = r"(?:what|which|who|when|where)"
_ZH_NOW = r"(?:现在|現在|目前)?"
_ZH_WHAT = r"(?:什么|什麼|啥|哪个|哪個|哪里|哪裡|哪一天|什么时候|什麼時候|多少|几号|幾號|几月几日|谁|誰)"
_FIXED: tuple[tuple[str, LazyPattern], ...] = (
    (
        "location",
        LazyPattern(
            rf"^where\s+(?:do i live|am i based|am i located|am i living|is my home|do i reside){_AFTER}"
            rf"|^(?:what|which)\s+(?:city|town|country|place)\s+do i live in{_AFTER}"
            rf"|^in\s+(?:what|which)\s+(?:city|town|country|place)\s+do i live{_AFTER}"
            rf"|^我{_ZH_NOW}住在?(?:哪|哪里|哪裡|哪儿|什么地方|什麼地方)$"
        ),
    ),
    (
        "employer",
        LazyPattern(
            rf"^where\s+do i work{_AFTER}|^who\s+do i work for{_AFTER}"
            r"|^(?:what|which)\s+company\s+do i work (?:for|at)$"
            rf"|^我{_ZH_NOW}在(?:哪|哪里|哪裡|哪儿|哪家公司|什么公司|什麼公司)(?:工作|上班)$"
        ),
    ),
    ("job", LazyPattern(rf"^what\s+do i do for (?:a living|work){_AFTER}")),
    (
        "birthday",
        LazyPattern(
            r"^when\s+was i born$|^when\s+do i have (?:my|a) birthday$"
            r"|^我(?:什么时候|什麼時候|哪天|几号|幾號)过?過?生日$|^我的?生日(?:是)?(?:哪天|几号|幾號)$"
        ),
    ),
    ("name", LazyPattern(r"^who\s+am i$|^what\s+am i called$|^我叫(?:什么|什麼|啥)(?:名字)?$|^我是(?:谁|誰)$")),
    (
        "time zone",
        LazyPattern(
            r"^(?:in\s+)?(?:what|which)\s+time\s*zone\s+am i(?:\s+in)?$"
            rf"|^我{_ZH_NOW}(?:在|用)(?:哪个|哪個|什么|什麼)(?:时区|時區)$"
        ),
    ),
)
"""Questions for an attribute of the user that they do not name."""
_CHOICE = LazyPattern(
    r"^(?:(?:do|does)\s+(?:i|we|the user)\s+(?:prefer|like|use|want)\s+|what\s+do\s+i\s+prefer,?\s+)?"
    r"(?P<one>[^\s,][^,]{0,40}?)\s+or\s+(?P<other>[^,]{1,40})$"
)
_WHOSE = LazyPattern(rf"^{_WHAT}{_IS}\s+(?:the\s+)?(?P<who>[\w.-]{{2,30}})'s\s+(?P<attribute>.{{1,60}}?){_AFTER}")
_MINE = LazyPattern(rf"^(?:what\s+)?(?:my|our)\s+(?P<attribute>.{{1,40}}?)(?:{_IS}(?:\s+{_WHAT})?)?{_AFTER}")
_OURS: tuple[tuple[LazyPattern, tuple[str, ...]], ...] = (
    (
        LazyPattern(rf"^(?:what|who){_IS}\s+(?:my|our)\s+(?P<attribute>.{{1,60}}?)\s+(?:called|named){_AFTER}"),
        ("{attribute} name", "{attribute}"),
    ),
    (
        LazyPattern(
            rf"^(?:on\s+)?(?:what|which)\s+(?:day|date)\s+is\s+(?P<attribute>(?:my|our|the)\s+.{{1,50}}?){_AFTER}"
        ),
        ("{attribute}",),
    ),
    (LazyPattern(rf"^{_WHAT}{_IS}\s+(?:my|our)\s+(?P<attribute>.{{1,60}}?){_AFTER}"), ("{attribute}",)),
    (
        LazyPattern(rf"^(?:what|which)\s+(?P<attribute>[\w -]{{1,40}}?)\s+is\s+my\s+(?P<how>favou?rite){_AFTER}"),
        ("{how} {attribute}",),
    ),
    (
        LazyPattern(
            rf"^what\s+(?:do|does|am|are)\s+(?:i|we|the project)\s+(?:use|using|run|prefer)\s+(?:for|as)\s+"
            rf"(?:the\s+|my\s+|our\s+|an?\s+)?(?P<attribute>.{{1,50}}?){_AFTER}"
        ),
        ("{attribute}",),
    ),
    (
        LazyPattern(
            rf"^(?:(?:in|on)\s+)?(?:what|which)\s+(?P<attribute>.{{1,50}}?)\s+(?:do|does|am|are)\s+"
            rf"(?:i|we|the project|the user)"
            rf"(?:\s+(?:use|have|prefer|like|run|work with|using|in|on|speak))?(?:\s+(?:most|for work|at work|here))?"
            rf"{_AFTER}"
        ),
        ("{attribute}",),
    ),
)
"""Questions for something of the user, the project or the home, with the attributes that they may mean."""
_OF_THING = (
    LazyPattern(
        rf"^(?:what|which)\s+(?P<attribute>[\w -]{{1,40}}?)\s+is\s+used\s+(?:by|for|in)\s+"
        rf"(?P<thing>[\w./' -]{{2,40}}?){_AFTER}"
    ),
    LazyPattern(
        rf"^(?:(?:in|on)\s+)?(?:what|which)\s+(?P<attribute>[\w -]{{1,40}}?)\s+(?:does|do|is|are)\s+"
        rf"(?P<thing>(?:the\s+|my\s+|our\s+)?[\w./' -]{{2,40}}?)"
        rf"(?:\s+(?:use|run|listen|have)(?:\s+(?:on|at))?|\s+(?:on|running on|using|listening on)){_AFTER}"
    ),
)
_THE = LazyPattern(rf"^{_WHAT}{_IS}\s+the\s+(?P<attribute>.{{1,60}}?){_AFTER}")
_OF = LazyPattern(r"^(?P<attribute>[\w -]{2,30}?)\s+(?:of|for)\s+(?:(?P<own>my|our)\s+)?(?P<who>[\w.-]{2,30})$")
_BARE = LazyPattern(
    r"^(?:(?P<who>[\w.-]{2,30})'s\s+)?(?P<attribute>[\w./-]{2,30}(?:\s+(?:of\s+|for\s+)?[\w./-]{2,30}){0,3})$"
)
_ZH_FAVORITE = LazyPattern(rf"^我(?:的)?(?P<attribute>最喜[欢歡]的[^\s的是]{{1,10}}?)(?:现在|現在)?是{_ZH_WHAT}$")
_ZH_MINE = LazyPattern(
    rf"^(?:我|我们|我們)的(?P<attribute>[^\s的是]{{1,12}}?){_ZH_NOW}(?:是|在)?{_ZH_WHAT}?(?:呢|来着|來著)?$"
)
_ZH_THING = LazyPattern(
    rf"^(?P<attribute>[^\s是我你他她它这那這]{{2,20}}?){_ZH_NOW}是{_ZH_WHAT}(?:呢|来着|來著)?$"
    r"|^(?P<thing>[^\s是我你他她它这那這]{2,16}?)(?:用|使用|在)(?:的)?(?:哪个|哪個|什么|什麼|哪一个)(?P<what>[^\s的是]{1,8}?)$"
)
_WORDS = """
is are was were do does did can could should would will may might have has had make makes run fix add show tell give go
get let use write explain please what which who when where why how help need want
"""
_VERBS = frozenset(_WORDS.split())
"""A text with one of these where a name is expected asks for something else."""


class FactQuestion(NamedTuple):
    """One reading of a question. `subject` is None for the user, the project or the home; "" for all but the user."""

    attribute: str
    subject: str | None = USER


def read(text: str) -> tuple[FactQuestion, ...]:
    """Return the facts that a text may ask for, the likeliest first; none if it is not plainly such a question."""
    if len(text) > LONGEST:
        return ()
    asked = text.rstrip(" .!…。！").endswith(("?", "？"))
    said = _POLITE.sub("", folded(text).strip(" ?!.。？！…"), count=1)
    for attribute, pattern in _FIXED if said else ():
        if pattern.match(said):
            return (FactQuestion(attribute),)
    found = (FactQuestion(attribute_of(name), subject) for name, subject in _readings(said, asked=asked))
    return tuple(one for one in found if one.attribute)


_Reading = tuple[str, str | None]


def _readings(said: str, *, asked: bool) -> list[_Reading]:
    """Return the names asked for, and whose; the first way of asking that matches counts."""
    found = _CHOICE.match(said)
    if found and (said.startswith(("do ", "does ", "what do ")) or (asked and len(said.split()) < 6)):
        return [(choice_of(found["one"], found["other"]), USER)]
    if found := _WHOSE.match(said):
        return _of_person(found["who"], found["attribute"])
    for pattern, names in _OURS[:4]:
        if found := pattern.match(said):
            return [(name.format_map(found.groupdict()), None) for name in names]
    found = _MINE.match(said)
    if found and (is_known(found["attribute"]) or said.endswith(("what", "when", "where", "who"))):
        return [(found["attribute"], None)]
    for pattern, names in _OURS[4:]:
        if found := pattern.match(said):
            return [(name.format_map(found.groupdict()), None) for name in names]
    for pattern in _OF_THING:
        if (found := pattern.match(said)) and _VERBS.isdisjoint([*found["attribute"].split(), *found["thing"].split()]):
            return [(f"{found['thing']} {found['attribute']}", None)]
    if found := _THE.match(said):
        return _of_the(found["attribute"])
    if not said.isascii():
        return _in_chinese(said)
    found = _BARE.match(said) if asked else None  # "staging port?"
    if found is None or not _VERBS.isdisjoint(said.replace("'s", "").split()):
        return []
    if found["who"]:
        return _of_person(found["who"], found["attribute"])
    return [(found["attribute"], "")] if len(found["attribute"].split()) > 1 else []


def _of_person(who: str, attribute: str) -> list[_Reading]:
    """Return the readings of "Anna's birthday", "staging's port": hers, or else a thing's."""
    return [(attribute, USER)] if who == USER else [(attribute, who), (f"{who} {attribute}", "")]


def _of_the(attribute: str) -> list[_Reading]:
    """Return the readings of "the …"; "the name" is never the user's own."""
    found: list[_Reading] = [(attribute, "" if attribute_of(attribute) in PERSONAL else None)]
    of = _OF.match(attribute)
    if of and not of["own"]:
        found.append((of["attribute"], of["who"]))
    elif of and attribute_of(of["attribute"]) == "name":
        found.append((of["who"], None))
    return found


def _in_chinese(said: str) -> list[_Reading]:
    if found := _ZH_FAVORITE.match(said):
        return [(found["attribute"], None)]
    if (found := _ZH_MINE.match(said)) and is_known(found["attribute"]):
        return [(found["attribute"], None)]
    if found := _ZH_THING.match(said):
        return [(found["attribute"] or f"{found['thing']}的{found['what']}", "")]
    return []
