"""Facts: follow memory, answer questions; rows."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias

import apsw

from herma.errors import UsageError
from herma.facts.extract import (
    LONGEST_VALUE,
    PERSONAL,
    USER,
    attribute_of,
    choice_of,
    folded,
    is_known,
    key_of,
    statements,
)
from herma.memory.entries import Place
from herma.safety.scan import scan
from herma.store.database import Database, insert_returning_id, queries
from herma.text import Late
from herma.types import TARGETS, Change, Scope, Target

# ---------- types.facts
#
# Keyed facts: one value of one attribute of one subject, from when to when.

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
    """Which curated file has the entry."""
    change: int | None = None
    session: str | None = None
    message: int | None = None
    forgotten: float | None = None

    @property
    def holds(self) -> bool:
        return self.until is None and self.forgotten is None


# ---------- ports.facts
#
# Where keyed facts are kept.


@dataclass(frozen=True, slots=True)
class FactStep:
    """What one change of a curated file does to its facts: entries that are gone, facts that are new.

    `brought_back` are entries that return because the change that took them out is undone: their facts hold again as
    if they had never gone.
    """

    at: float
    gone: tuple[str, ...] = ()
    brought_back: tuple[str, ...] = ()
    new: tuple[Fact, ...] = ()


class FactRows(Protocol):
    """Facts of all scopes. One that is superseded is still there: which value holds is decided by who reads."""

    def position(self, place: Place) -> int:
        """The last change of a curated file whose facts are here; 0 for none."""
        ...

    def follow(self, place: Place, since: int, steps: Sequence[FactStep], until: int) -> bool:
        """Do all of this in one step if the position is still `since`. → whether it was."""
        ...

    def add(self, fact: Fact) -> Fact: ...

    def select(
        self, scopes: Sequence[Scope] | None, *, subject: str | None = None, attribute: str | None = None
    ) -> Sequence[Fact]:
        """Facts of exactly these scopes, or all, oldest first: those whose entry is gone and forgotten ones too."""
        ...

    def forget(self, ids: Sequence[int], at: float | None) -> int:
        """Say that these are not wanted, or, with None, that they are after all. → how many."""
        ...

    def clear(self, place: Place | None) -> int:
        """Drop what was made from curated files, or from one: it is about to be made again. → how many.

        What is forgotten stays, so that it is not made again.
        """
        ...


# ---------- facts.follow
#
# How changes of a curated file become facts. Pure: the same history gives the same facts.

Entries = Callable[[str], Sequence[str]]


def steps_of(changes: Sequence[Change], entries: Entries) -> list[FactStep]:
    """What these changes of one file, oldest first, do to its facts."""
    return [step_of(change, entries) for change in changes]


def step_of(change: Change, entries: Entries) -> FactStep:
    before, after = list(entries(change.before)), list(entries(change.after))
    was, is_now = set(before), set(after)
    gone = tuple(entry for entry in before if entry not in is_now)
    fresh = [entry for entry in after if entry not in was]
    if change.undoes is not None:
        return FactStep(change.at, gone, tuple(fresh), tuple(_facts(change, fresh, undone=True)))
    return FactStep(change.at, gone, (), tuple(_facts(change, fresh, undone=False)))


def _facts(change: Change, fresh: Sequence[str], *, undone: bool) -> list[Fact]:
    """What new entries state. Of entries that an undo brings back, what they stated holds again by itself."""
    if undone:
        return []
    # what the scanner objects to is not shown to a model, so it answers nothing either
    clean = [entry for entry in fresh if not scan(entry[:4_000])]
    return [
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
        for entry in clean
        for said in statements(entry, subject_of(change))
    ]


def subject_of(change: Change) -> str:
    """What a bare label in this file is about."""
    if change.target == "user":
        return USER
    return "project" if change.scope.project else "home"


# ---------- facts.question
#
# Which fact a question asks for: "what is my time zone?" → the user's time zone. Pure and linear; no guessing.
#
# A question may be put in several ways ("which port does staging use?", "what's the port of staging", "staging's
# port?") and mean one of a few things; these are given in order, and the first that anything is known about counts.

LONGEST = 200
_AFTER = (
    r"(?:,?\s+(?:again|now|currently|right now|these days|today|at the moment|please|called|set to|by the way"
    r"|nochmal|eigentlich|jetzt|gerade|bitte))*"
)
_IS = r"(?:'s|\s+is|\s+are|s)"
_POLITE = Late(
    r"^(?:(?:hi|hey|hello|so|ok|okay|and|remind me(?: of)?|tell me|do you (?:know|remember)"
    r"|can you (?:tell me|remind me(?: of)?)|please|quick question|i forgot|sorry|sag mir|weißt du(?: noch)?|und|also"
    r"|请问|請問)[\s,:!.-]*(?<=[\s,:!.问問-]))+"
)
_WHAT = r"(?:what|which|who|when|where)"
_MINE = Late(rf"^{_WHAT}{_IS}\s+(?:my|our)\s+(?P<attribute>.{{1,60}}?){_AFTER}$")
_CALLED = Late(rf"^(?:what|who){_IS}\s+(?:my|our)\s+(?P<attribute>.{{1,60}}?)\s+(?:called|named){_AFTER}$")
_WHOSE = Late(rf"^{_WHAT}{_IS}\s+(?:the\s+)?(?P<who>[\w.-]{{2,30}})'s\s+(?P<attribute>.{{1,60}}?){_AFTER}$")
_THE = Late(rf"^{_WHAT}{_IS}\s+the\s+(?P<attribute>.{{1,60}}?){_AFTER}$")
_TOLD = Late(rf"^(?:what\s+)?(?:my|our)\s+(?P<attribute>.{{1,40}}?)(?:{_IS}(?:\s+{_WHAT})?)?{_AFTER}$")
_DAY = Late(rf"^(?:on\s+)?(?:what|which)\s+(?:day|date)\s+is\s+(?P<attribute>(?:my|our|the)\s+.{{1,50}}?){_AFTER}$")
_FAVORITE = Late(rf"^(?:what|which)\s+(?P<attribute>[\w -]{{1,40}}?)\s+is\s+my\s+(?P<how>favou?rite){_AFTER}$")
_DO = Late(
    rf"^(?:(?:in|on)\s+)?(?:what|which)\s+(?P<attribute>.{{1,50}}?)\s+(?:do|does|am|are)\s+"
    rf"(?:i|we|the project|the user)"
    rf"(?:\s+(?:use|have|prefer|like|run|work with|using|in|on|speak))?(?:\s+(?:most|for work|at work|here))?{_AFTER}$"
)
_DOES = Late(
    rf"^(?:(?:in|on)\s+)?(?:what|which)\s+(?P<attribute>[\w -]{{1,40}}?)\s+(?:does|do|is|are)\s+"
    rf"(?P<thing>(?:the\s+|my\s+|our\s+)?[\w./' -]{{2,40}}?)"
    rf"(?:\s+(?:use|run|listen|have)(?:\s+(?:on|at))?|\s+(?:on|running on|using|listening on)){_AFTER}$"
)
_USED_BY = Late(
    rf"^(?:what|which)\s+(?P<attribute>[\w -]{{1,40}}?)\s+is\s+used\s+(?:by|for|in)\s+"
    rf"(?P<thing>[\w./' -]{{2,40}}?){_AFTER}$"
)
_FOR = Late(
    rf"^what\s+(?:do|does|am|are)\s+(?:i|we|the project)\s+(?:use|using|run|prefer)\s+(?:for|as)\s+"
    rf"(?:the\s+|my\s+|our\s+|an?\s+)?(?P<attribute>.{{1,50}}?){_AFTER}$"
)
_CHOICE = Late(
    r"^(?:(?:do|does)\s+(?:i|we|the user)\s+(?:prefer|like|use|want)\s+|what\s+do\s+i\s+prefer,?\s+)?"
    r"(?P<one>[^\s,][^,]{0,40}?)\s+or\s+(?P<other>[^,]{1,40})$"
)
_BARE = Late(r"^(?:(?P<who>[\w.-]{2,30})'s\s+)?(?P<attribute>[\w./-]{2,30}(?:\s+(?:of\s+|for\s+)?[\w./-]{2,30}){0,3})$")
_OF = Late(r"^(?P<attribute>[\w -]{2,30}?)\s+(?:of|for)\s+(?:(?P<own>my|our)\s+)?(?P<who>[\w.-]{2,30})$")
_WORDS = """
is are was were do does did can could should would will may might have has had make makes run fix add show tell give go
get let use write explain please what which who when where why how help need want
"""
_VERBS = frozenset(_WORDS.split())
"""Whoever says one of these where a name is expected asks for something else."""
_FIXED: tuple[tuple[Late, str], ...] = (
    (
        Late(rf"^where\s+(?:do i live|am i based|am i located|am i living|is my home|do i reside){_AFTER}$"),
        "location",
    ),
    (Late(rf"^(?:what|which)\s+(?:city|town|country|place)\s+do i live in{_AFTER}$"), "location"),
    (Late(rf"^in\s+(?:what|which)\s+(?:city|town|country|place)\s+do i live{_AFTER}$"), "location"),
    (
        Late(
            rf"^where\s+do i work{_AFTER}$|^who\s+do i work for{_AFTER}$"
            r"|^(?:what|which)\s+company\s+do i work (?:for|at)$"
        ),
        "employer",
    ),
    (Late(rf"^what\s+do i do for (?:a living|work){_AFTER}$"), "job"),
    (Late(r"^when\s+was i born$|^when\s+do i have (?:my|a) birthday$"), "birthday"),
    (Late(r"^who\s+am i$|^what\s+am i called$"), "name"),
    (Late(r"^(?:in\s+)?(?:what|which)\s+time\s*zone\s+am i(?:\s+in)?$"), "time zone"),
    (Late(rf"^wo\s+(?:wohne|lebe)\s+ich{_AFTER}$|^in\s+welcher\s+stadt\s+(?:wohne|lebe)\s+ich$"), "location"),
    (Late(rf"^(?:wo|bei\s+wem)\s+arbeite\s+ich{_AFTER}$|^für\s+wen\s+arbeite\s+ich$"), "employer"),
    (Late(rf"^wann\s+(?:habe\s+ich\s+geburtstag|bin\s+ich\s+geboren){_AFTER}$"), "birthday"),
    (Late(r"^wie\s+heiße\s+ich$|^wer\s+bin\s+ich$"), "name"),
    (Late(r"^in\s+welcher\s+zeitzone\s+(?:bin|lebe|wohne|arbeite)\s+ich$"), "time zone"),
    (Late(r"^我(?:现在|現在|目前)?住在?(?:哪|哪里|哪裡|哪儿|什么地方|什麼地方)$"), "location"),
    (Late(r"^我(?:现在|現在|目前)?在(?:哪|哪里|哪裡|哪儿|哪家公司|什么公司|什麼公司)(?:工作|上班)$"), "employer"),
    (Late(r"^我叫(?:什么|什麼|啥)(?:名字)?$|^我是(?:谁|誰)$"), "name"),
    (
        Late(r"^我(?:什么时候|什麼時候|哪天|几号|幾號)过?過?生日$|^我的?生日(?:是)?(?:哪天|几号|幾號)$"),
        "birthday",
    ),
    (Late(r"^我(?:现在|現在|目前)?(?:在|用)(?:哪个|哪個|什么|什麼)(?:时区|時區)$"), "time zone"),
    (Late(r"^(?:私|僕|わたし)は?どこに住んで(?:いる|いますか|いるか|ますか|る)?$"), "location"),
    (Late(r"^(?:나|저|내가|제가)(?:는)?\s*어디(?:에)?\s*(?:살아|살아요|사나요|살지)$"), "location"),
)
_DE_MINE = Late(
    rf"^(?:was|wie|wer|wann|wo|welches|welche|welcher)\s+(?:ist|sind|lautet|heißt|war)\s+(?:mein|meine|unser|unsere)\s+"
    rf"(?P<attribute>.{{1,50}}?){_AFTER}$"
)
_DE_THE = Late(
    rf"^(?:was|wie|wer|wann|wo|welches|welche|welcher)\s+(?:ist|lautet)\s+(?:der|die|das)\s+(?P<attribute>.{{1,50}}?){_AFTER}$"
)
_DE_DOES = Late(
    r"^(?:auf\s+)?(?:welchem|welchen|welche|welcher|welches)\s+(?P<attribute>[\w-]{2,30})\s+"
    r"(?:läuft|nutzt|benutzt|verwendet|hat|hört)\s+(?:der\s+|die\s+|das\s+)?(?P<thing>[\w./ -]{2,40}?)$"
)
_ZH_HOW = r"(?:什么|什麼|啥|哪个|哪個|哪里|哪裡|哪一天|什么时候|什麼時候|多少|几号|幾號|几月几日|谁|誰)"
_ZH = Late(
    r"^(?:我|我们|我們)的(?P<attribute>[^\s的是]{1,12}?)(?:现在|現在|目前)?"
    rf"(?:是|在)?{_ZH_HOW}?(?:呢|来着|來著)?$"
)
_ZH_FAVORITE = Late(rf"^我(?:的)?(?P<attribute>最喜[欢歡]的[^\s的是]{{1,10}}?)(?:现在|現在)?是{_ZH_HOW}$")
_ZH_THING = Late(
    rf"^(?P<attribute>[^\s是我你他她它这那這]{{2,20}}?)(?:现在|現在|目前)?是{_ZH_HOW}(?:呢|来着|來著)?$"
    r"|^(?P<thing>[^\s是我你他她它这那這]{2,16}?)(?:用|使用|在)(?:的)?(?:哪个|哪個|什么|什麼|哪一个)(?P<what>[^\s的是]{1,8}?)$"
)
_JA = Late(
    r"^(?:私|僕|わたし)の(?P<attribute>[^\sは]{1,15})(?:は|って)?(?:何|なに|なん|どこ|いつ|いくつ)?(?:ですか|でしたか|だっけ|でしたっけ|か)?$"
)
_KO = Late(
    r"^(?:내|제|나의|저의)\s*(?P<attribute>\S{1,12}?)(?:은|는|이|가)?\s*(?:뭐야|뭐예요|무엇인가요|무엇입니까|뭔가요|뭐지|언제야|어디야|언제인가요|어디인가요)?$"
)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked for. `subject` is None where it may be the user's, the project's or the home's; "" where it is of
    anybody but the user. `others` is what else may be meant, if nothing is known about this.
    """

    attribute: str
    subject: str | None = USER
    others: tuple[Question, ...] = ()

    def readings(self) -> tuple[Question, ...]:
        return (self, *self.others)


def read(text: str, stem: Callable[[str], str] = str) -> Question | None:
    """The fact that a text asks for; None for everything that is not plainly such a question."""
    if len(text) > LONGEST:
        return None
    asked = text.rstrip(" .!…。！").endswith(("?", "？"))
    said = _POLITE.sub("", folded(text).strip(" ?!.。？！…"), count=1)
    if not said:
        return None
    for pattern, attribute in _FIXED:
        if pattern.match(said):
            return Question(attribute)
    found = [one for one in _readings(said, asked, stem) if one.attribute]
    if not found:
        return None
    return Question(found[0].attribute, found[0].subject, tuple(found[1:]))


def _readings(said: str, asked: bool, stem: Callable[[str], str]) -> Iterator[Question]:
    """What a text may ask for, the likeliest first; the first way of asking that fits counts."""
    for way in (_of_a_choice, _of_somebody, _of_mine, _of_use, _of_the, _abroad, _bare):
        found = [Question(attribute_of(name, stem), whose) for name, whose in way(said, asked)]
        if way is _of_a_choice and found:
            choice = _CHOICE.match(said)
            yield Question(choice_of(choice["one"], choice["other"]) if choice else "")
            return
        if found:
            yield from found
            return


_Reading = tuple[str, str | None]


def _of_a_choice(said: str, asked: bool) -> Iterator[_Reading]:
    found = _CHOICE.match(said)
    if found and (said.startswith(("do ", "does ", "what do ")) or (asked and len(said.split()) < 6)):
        yield said, USER


def _of_somebody(said: str, asked: bool) -> Iterator[_Reading]:  # noqa: ARG001
    if found := _WHOSE.match(said):
        if found["who"] == "user":
            yield found["attribute"], USER
            return
        yield found["attribute"], found["who"]
        yield f"{found['who']} {found['attribute']}", ""


def _of_mine(said: str, asked: bool) -> Iterator[_Reading]:  # noqa: ARG001
    if found := _CALLED.match(said):
        yield f"{found['attribute']} name", None
        yield found["attribute"], None
    elif (found := _DAY.match(said)) or (found := _MINE.match(said)):
        yield found["attribute"], None
    elif found := _FAVORITE.match(said):
        yield f"{found['how']} {found['attribute']}", None
    elif (found := _TOLD.match(said)) and (
        is_known(found["attribute"]) or said.endswith(("what", "when", "where", "who"))
    ):
        yield found["attribute"], None


def _of_use(said: str, asked: bool) -> Iterator[_Reading]:  # noqa: ARG001
    if found := _FOR.match(said) or _DO.match(said):
        yield found["attribute"], None
    elif (found := _USED_BY.match(said) or _DOES.match(said)) and not _VERBS & {
        *found["attribute"].split(),
        *found["thing"].split(),
    }:
        yield f"{found['thing']} {found['attribute']}", None


def _of_the(said: str, asked: bool) -> Iterator[_Reading]:  # noqa: ARG001
    found = _THE.match(said)
    if found is None:
        return
    attribute = found["attribute"]
    # the name, the address: whose, nobody said
    yield attribute, "" if attribute_of(attribute) in PERSONAL else None
    if of := _OF.match(attribute):
        if of["own"]:
            if attribute_of(of["attribute"]) == "name":
                yield of["who"], None
        else:
            yield of["attribute"], of["who"]


def _abroad(said: str, asked: bool) -> Iterator[_Reading]:  # noqa: ARG001
    if found := _DE_MINE.match(said):
        yield found["attribute"], None
    elif found := _DE_DOES.match(said):
        yield f"{found['thing']} {found['attribute']}", None
    elif (found := _DE_THE.match(said)) and attribute_of(found["attribute"]) not in PERSONAL:
        yield found["attribute"], None
    elif said.isascii():
        return
    elif found := _ZH_FAVORITE.match(said):
        yield found["attribute"], None
    else:
        for pattern in (_ZH, _JA, _KO):
            if (found := pattern.match(said)) and is_known(found["attribute"]):
                yield found["attribute"], None
                return
        if found := _ZH_THING.match(said):
            yield found["attribute"] or f"{found['thing']}的{found['what']}", ""


def _bare(said: str, asked: bool) -> Iterator[_Reading]:
    """A name with a question mark and nothing else: "staging port?"."""
    found = _BARE.match(said) if asked and said.isascii() else None
    if found is None or set(said.replace("'s", "").split()) & _VERBS:
        return
    if found["who"]:
        yield found["attribute"], found["who"]
        yield f"{found['who']} {found['attribute']}", ""
    elif len(found["attribute"].split()) > 1:
        yield found["attribute"], ""


# ---------- facts.keeper
#
# Keyed facts as everybody uses them: `h.facts`.
#
# They follow the history of curated memory: every question first reads what changed since the last one, so that an undo
# or an edit by hand needs nobody to tell. Of several values the newest holds; where that cannot be told, nothing is
# answered.

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


# ---------- store.sqlite.facts
#
# Keyed facts in `herma.db`: implements `FactRows`.


class SqliteFacts:
    """Rows of the table `facts`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = queries("facts")

    def position(self, place: Place) -> int:
        rows = self._db.rows(self._sql["position"], _key(place))
        return int(rows[0][0]) if rows else 0

    def follow(self, place: Place, since: int, steps: Sequence[FactStep], until: int) -> bool:
        key = _key(place)

        def work(connection: apsw.Connection) -> bool:
            found: Any = connection.execute(self._sql["position"], key).fetchone()
            if (found[0] if found else 0) != since:
                return False  # another process was quicker, and has done it
            for step in steps:
                if step.gone:
                    connection.execute(self._sql["gone"], {**key, "at": step.at, "texts": json.dumps(step.gone)})
                for text in step.brought_back:
                    connection.execute(self._sql["back"], {**key, "text": text})
                for fact in step.new:
                    self._insert(connection, fact, place.target)
            connection.execute(self._sql["move"], {**key, "until": until})
            return True

        return self._db.write(work)

    def add(self, fact: Fact) -> Fact:
        number = self._db.write(lambda connection: self._insert(connection, fact, ""))
        return next(one for one in self.select([fact.scope], subject=fact.subject) if one.id == number)

    def select(
        self, scopes: Sequence[Scope] | None, *, subject: str | None = None, attribute: str | None = None
    ) -> list[Fact]:
        wanted = {"subject": subject, "attribute": attribute}
        if scopes is None:
            return self._facts("everything", wanted)
        found = []
        for scope in dict.fromkeys(Scope(one.profile, one.project, one.user) for one in scopes):
            place = {"profile": scope.profile, "project": scope.project, "user": scope.user}
            found += self._facts("of_key", {**wanted, **place})
        return sorted(found, key=lambda fact: (fact.valid_from, fact.id))

    def forget(self, ids: Sequence[int], at: float | None) -> int:
        def work(connection: apsw.Connection) -> int:
            connection.execute(self._sql["forget"], {"ids": json.dumps(list(ids)), "at": at})
            return int(connection.changes())

        return self._db.write(work)

    def clear(self, place: Place | None) -> int:
        key = {**_key(place or Place("memory")), "everywhere": place is None}

        def work(connection: apsw.Connection) -> int:
            connection.execute(self._sql["clear"], key)
            gone = int(connection.changes())
            connection.execute(self._sql["clear_forgotten"], key)
            connection.execute(self._sql["unread"], key)
            return gone

        return self._db.write(work)

    def _insert(self, connection: apsw.Connection, fact: Fact, target: str) -> int:
        bindings = {
            "profile": fact.scope.profile,
            "project": fact.scope.project,
            "user": fact.scope.user,
            "subject": fact.subject,
            "attribute": fact.attribute,
            "value": fact.value,
            "valid_from": fact.valid_from,
            "until": fact.until,
            "source": fact.source,
            "text": fact.text,
            "target": target,
            "change": fact.change,
            "session": fact.session,
            "message": fact.message,
        }
        unwanted: Any = None
        if fact.source == "curated":
            unwanted = connection.execute(self._sql["unwanted"], bindings).fetchone()
        forgotten = unwanted[0] if unwanted else fact.forgotten
        return insert_returning_id(connection, self._sql["insert"], {**bindings, "forgotten": forgotten})

    def _facts(self, name: str, bindings: dict[str, Any]) -> list[Fact]:
        return [_fact(row) for row in self._db.rows(f"{self._sql['columns']} {self._sql[name]}", bindings)]


def _key(place: Place) -> dict[str, str]:
    return {"profile": place.profile, "project": place.project, "user": place.user, "target": place.target}


def _fact(row: Sequence[Any]) -> Fact:
    (id_, profile, project, user, subject, attribute, value, valid_from, until, source) = row[:10]
    text, target, change, session, message, forgotten = row[10:]
    return Fact(
        subject=subject,
        attribute=attribute,
        value=value,
        valid_from=valid_from,
        scope=Scope(profile, project, user),
        id=id_,
        until=until,
        source=source,
        text=text,
        target=target or None,
        change=change,
        session=session,
        message=message,
        forgotten=forgotten,
    )
