"""Scores: words, meaning, date, speaker; one hit per conversation."""

from __future__ import annotations

import math
import re
import threading
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from herma.search.contradictions import Spoken, asks_for_the_past, latest_first, outdated
from herma.search.dates import Span
from herma.search.match import Unit, fold
from herma.search.query import Dropped, Query, Wanted
from herma.transcript.rows import Admitted, Head, Standing
from herma.types import Scope, SessionInfo

if TYPE_CHECKING:
    from herma.search.candidates import Gathered


# ---------- recall.rules
#
# Which messages may be shown. Each rule that leaves something out is counted, and comes with its remedy.

HIDDEN_SOURCES = frozenset(("subagent", "tool", "kanban"))
"""Sessions that no person held: their words come back in the session that started them."""
DEMOTED_SOURCES = frozenset(("cron",))
"""Shown after all others: what runs every hour says the same things every hour."""

REMEDIES = {
    "deleted": "herma sessions undelete brings a deleted session back.",
    "rewound": "They were taken back by a rewind; herma sessions show --hidden has them.",
    "archived": "Search with include_archived.",
    "hidden source": "Ask for them by source:, for example source:subagent.",
    "current conversation": "They are in the conversation at hand: look above.",
    "session": "Leave out session:.",
    "source": "Leave out source:.",
    "project": "Leave out project:.",
    "role": "Leave out role:.",
    "date": "Leave out the date, or name a longer time.",
}
OTHERS = frozenset(("another user", "another profile"))
"""What belongs to others is not even counted: the number would say whether they ever used a word."""
CHOSEN = ("date", "role", "source", "project", "session")
"""Rules that the query itself asked for, in the order in which they are given up when nothing is left."""


@dataclass(frozen=True, slots=True)
class Filters:
    """What is asked for, and by whom. `live` are the sessions whose messages the model has before it anyway."""

    roles: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    excluded: tuple[tuple[str, str], ...] = ()
    """What must not hold of any: a rule, and the value that is not wanted."""
    dates: tuple[Span, ...] = ()
    scope: Scope | None = None
    current: str | None = None
    live: frozenset[str] = frozenset()
    include_archived: bool = False

    @property
    def narrow(self) -> bool:
        """Whether much of what matches may be left out."""
        chosen = self.roles or self.sources or self.projects or self.sessions or self.dates or self.excluded
        return bool(chosen or self.scope or self.current)

    def against(self, head: Head, session: SessionInfo | Standing | None) -> str:
        """The first rule that keeps a message out, or nothing."""
        return self._withheld(head, session) or self._unwanted(head, session)

    def _withheld(self, head: Head, session: SessionInfo | Standing | None) -> str:
        if session is None:
            return "deleted"
        if self.scope and session.scope.user != self.scope.user:
            return "another user"
        if self.scope and self.scope.profile and session.scope.profile not in ("", self.scope.profile):
            return "another profile"
        if session.deleted is not None:
            return "deleted"
        if head.hidden == "rewound":
            return "rewound"
        if session.archived and not self.include_archived:
            return "archived"
        if session.source in HIDDEN_SOURCES and not _is_one(session.source, self.sources):
            return "hidden source"
        if session.conversation == self.current and not self.left(head):
            return "current conversation"
        return ""

    def _unwanted(self, head: Head, session: SessionInfo | Standing | None) -> str:
        if session is None:
            return ""
        if self.sessions and session.id not in self.sessions and session.conversation not in self.sessions:
            return "session"
        if self.sources and not _is_one(session.source, self.sources):
            return "source"
        if self.projects and not any(same_project(project, session.scope.project) for project in self.projects):
            return "project"
        if self.roles and head.role not in self.roles:
            return "role"
        if not all(span.covers(head.timestamp) for span in self.dates):
            return "date"
        return next((rule for rule, value in self.excluded if _has(rule, value, head, session)), "")

    def without(self, *rules: str) -> Filters:
        """The same, with rules given up that the query asked for."""
        return replace(
            self,
            dates=() if "date" in rules else self.dates,
            roles=() if "role" in rules else self.roles,
            sources=() if "source" in rules else self.sources,
            projects=() if "project" in rules else self.projects,
            sessions=() if "session" in rules else self.sessions,
            excluded=tuple(one for one in self.excluded if one[0] not in rules),
        )

    def admitted(self) -> Admitted:
        """Which messages may pass, as far as that is known without looking at them."""
        elsewhere = self.without("date", "role", "session")
        spans = [span for span in self.dates if not span.outside]

        def wanted(source: str, scope: Scope, archived: bool) -> bool:
            return not elsewhere.against(
                Head(0, "", "", 0.0, "compacted"), Standing("", source, scope, "", archived, None)
            )

        return Admitted(
            wanted,
            self.sessions,
            max((span.since for span in spans if span.since is not None), default=float("-inf")),
            min((span.before for span in spans if span.before is not None), default=float("inf")),
            self.roles,
        )

    def left(self, head: Head) -> bool:
        """Whether a message of the current conversation has left the model's context."""
        return head.hidden == "compacted" or head.session_id not in self.live


def _is_one(source: str, sources: Sequence[str]) -> bool:
    return source in sources or any(source.casefold() == one.casefold() for one in sources)


def _has(rule: str, value: str, head: Head, session: SessionInfo | Standing) -> bool:
    match rule:
        case "source":
            return _is_one(session.source, (value,))
        case "project":
            return same_project(value, session.scope.project)
        case "role":
            return head.role == value
        case _:
            return value in (session.id, session.conversation)


def same_project(wanted: str, project: str) -> bool:
    """The project itself, its last name, or a folder above it."""
    wanted, project = wanted.rstrip("/").casefold(), project.rstrip("/").casefold()
    return project == wanted or project.startswith(wanted + "/") or project.rpartition("/")[2] == wanted


def live_sessions(current: str, members: Sequence[SessionInfo]) -> frozenset[str]:
    """The sessions of a conversation whose text is still before the model: back to the last compression.

    Sessions beside this line count as live too: they are the same conversation, told another way.
    """
    by_id = {member.id: member for member in members}
    left: set[str] = set()
    compressed = False
    seen: set[str] = set()
    at = by_id.get(current)
    while at is not None and at.id not in seen:
        seen.add(at.id)
        if compressed:
            left.add(at.id)
        compressed = compressed or at.reason == "compression"
        at = by_id.get(at.parent or "")
    return frozenset({current, *by_id} - left)


@dataclass(slots=True)
class Sifted:
    """What passed, in the given order, and how much each rule left out."""

    kept: list[Head] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)

    def report(self) -> tuple[Dropped, ...]:
        return tuple(Dropped(rule, count, REMEDIES[rule]) for rule, count in self.dropped.items())


def sift(heads: Iterable[Head], sessions: Mapping[str, Standing], filters: Filters) -> Sifted:
    sifted = Sifted()
    for head in heads:
        rule = filters.against(head, sessions.get(head.session_id))
        if not rule:
            sifted.kept.append(head)
        elif rule not in OTHERS:
            sifted.dropped[rule] = sifted.dropped.get(rule, 0) + 1
    return sifted


# ---------- recall.rank
#
# Ordering candidates: what the index says of each, plus evidence from the turns beside it and from its conversation.
#
# A turn rarely says everything: the question names the thing, the answer next to it has the fact. So a message is also
# worth part of what its neighbours are worth, and a little for every term that occurs anywhere in its conversation.
# The index scores a message as a whole; what each term is worth follows from these scores (`rarities`).

BESIDE = 0.5
"""Weight of a neighbouring turn. 0.4–0.5 is best on LoCoMo and BEAM, and neutral where there are no neighbours."""
NEAR = 0.2
"""Weight of the turn after the next: one more point on LoCoMo, none lost elsewhere."""
CONVERSATION = 0.3
"""Weight of terms that occur elsewhere in the conversation; from 0.5 on, long conversations swallow the list."""
NAMED_DATE, NAMED_PERIOD = 0.8, 0.4
"""What a message gains by being from the day or month that the query names; from "last month", which is more often the
time of what is told than that of telling it. 2.5 points on LoCoMo, 20 on questions by date, none lost elsewhere."""
COVERAGE = 0.05
"""What having all of the words adds to having one: neutral on every set up to here, harmful from 0.2 on."""
SPEAKER = {"user": 0.15, "tool": -0.1}
"""Facts are mostly told by the user and repeated by the assistant at length: 4 to 6 points on BEAM, none lost."""
_RANK_SATURATION, _RANK_LENGTH = 1.2, 0.75
_RIDGE = 0.05
_MOST_TIMES = 12
"""More occurrences of a word add next to nothing."""


@dataclass(slots=True)
class Candidate:
    """A message that may be shown, with what ranking needs of it. `found` is the index's score, 0 beside a match."""

    id: int
    group: str
    folded: str
    found: float = 0.0
    timestamp: float = 0.0
    bonus: float = 0.0
    before: int | None = None
    after: int | None = None
    shown: bool = True
    text: str = ""
    cut: bool = False
    """Whether there is more text than ranking reads."""
    times: dict[str, int] | None = None
    """How often each unit occurs in it, once that was counted."""
    weights: dict[str, float] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)
    told: float = 0.0
    """The sum of `values`."""
    own: float = 0.0
    beside: float = 0.0
    around: float = 0.0
    meaning: float = 0.0
    score: float = 0.0


def rank(candidates: Sequence[Candidate], units: Sequence[Unit]) -> list[Candidate]:
    """Score every candidate; best first, newest first among equals. Scores are relative: the best match alone is 1."""
    if not candidates:
        return []
    weigh(candidates, units)
    worth = rarities(candidates)
    for one in candidates:
        if one.weights:
            one.values = {name: weight * worth[name] for name, weight in one.weights.items()}
            one.told = sum(one.values.values())
        one.own = one.found or one.told
    by_id = {one.id: one for one in candidates}
    around = _conversations(candidates)
    best = max(one.own for one in candidates) or 1.0
    for one in candidates:
        before, after = by_id.get(one.before or 0), by_id.get(one.after or 0)
        if before or after:
            further = by_id.get(before.before or 0) if before else None, by_id.get(after.after or 0) if after else None
            one.beside = (BESIDE * _both(before, after) + NEAR * _both(*further)) / best
        one.around = CONVERSATION * around[one.group] / best
        covered = COVERAGE * len(one.weights) / len(units) if one.weights else 0.0
        one.score = one.own / best + one.beside + one.around + covered + one.bonus
    return sorted(candidates, key=lambda one: (-one.score, -one.timestamp, -one.id))


def look_for(candidates: Sequence[Candidate], units: Sequence[Unit]) -> None:
    """How often each unit occurs in each candidate, where that is not known yet."""
    for one in candidates:
        if one.times is None:
            folded = one.folded
            one.times = {
                unit.name: times
                for unit in units
                if unit.part in folded and (times := len(unit.find(folded, _MOST_TIMES)))
            }


def weigh(candidates: Sequence[Candidate], units: Sequence[Unit]) -> None:
    """BM25's weight of each unit in each candidate, without its rarity."""
    look_for(candidates, units)
    average = max(1.0, sum(len(one.folded) for one in candidates) / len(candidates))
    for one in candidates:
        if one.times:
            norm = _RANK_SATURATION * (1 - _RANK_LENGTH + _RANK_LENGTH * len(one.folded) / average)
            for name, times in one.times.items():
                one.weights[name] = times * (_RANK_SATURATION + 1) / (times + norm)


def rarities(candidates: Sequence[Candidate]) -> dict[str, float]:
    """What each unit is worth, so that weights times worth come nearest to the scores of the index (least squares).

    The ridge draws units that occur in few candidates towards the common mean.
    """
    scored = [one for one in candidates if one.found > 0 and one.weights]
    names = sorted({name for one in candidates for name in one.weights})
    if not scored:
        return dict.fromkeys(names, 1.0)
    total = sum(sum(one.weights.values()) for one in scored)
    mean = sum(one.found for one in scored) / total
    place = {name: at for at, name in enumerate(names)}
    matrix = [[0.0] * len(names) for _ in names]
    right = [_RIDGE * mean] * len(names)
    for at in range(len(names)):
        matrix[at][at] = _RIDGE
    for one in scored:
        items = [(place[name], weight) for name, weight in one.weights.items()]
        for row, weight in items:
            right[row] += weight * one.found
            line = matrix[row]
            for column, other in items:
                line[column] += weight * other
    return {name: max(value, 0.05 * mean) for name, value in zip(names, _solve(matrix, right), strict=True)}


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gauss, without pivoting: the matrix is symmetric and positive definite."""
    size = len(right)
    for at in range(size):
        line = matrix[at]
        for row in range(at + 1, size):
            factor = matrix[row][at] / line[at]
            if factor:
                below = matrix[row]
                for column in range(at, size):
                    below[column] -= factor * line[column]
                right[row] -= factor * right[at]
    solution = [0.0] * size
    for at in range(size - 1, -1, -1):
        rest = sum(matrix[at][column] * solution[column] for column in range(at + 1, size))
        solution[at] = (right[at] - rest) / matrix[at][at]
    return solution


def _conversations(candidates: Sequence[Candidate]) -> dict[str, float]:
    """For each conversation: its best match, and for every unit what others of its messages have beyond that."""
    members: dict[str, list[Candidate]] = defaultdict(list)
    for one in candidates:
        members[one.group].append(one)
    around = {}
    for group, ones in members.items():
        best = ones[0] if len(ones) == 1 else max(ones, key=lambda one: one.own)
        around[group] = best.own + _together(ones) - best.told
    return around


def _both(one: Candidate | None, other: Candidate | None) -> float:
    """`_together` of two that may not be there: mostly at most one of them has any of the units."""
    if one is None or not one.values:
        return other.told if other is not None else 0.0
    if other is None or not other.values:
        return one.told
    return _together((one, other))


def _together(ones: Sequence[Candidate]) -> float:
    """The sum over units of the most that each is worth in any of these."""
    if len(ones) < 2:
        return ones[0].told if ones else 0.0
    most = dict(ones[0].values)
    for one in ones[1:]:
        for name, value in one.values.items():
            if value > most.get(name, 0.0):
                most[name] = value
    return sum(most.values())


# ---------- recall.characters
#
# Single Chinese characters as evidence beside pairs of them. Pure, linear.
#
# The index knows text without spaces as pairs of characters. That finds words of two characters,
# and misses what says the same with other endings or in other company: 流れる物 and 流体, 继承 and 继任. A
# character alone says less than a pair, but what shares several rare ones is more often about the
# same thing.

ALONE = 0.5
"""What a character counts for, where a pair counts 1. From 0.3 to 0.8 four to seven more of a thousand questions are
answered first, in Chinese and in Japanese, in both halves of each."""
_CHARACTERS_SATURATION, _CHARACTERS_LENGTH = 0.6, 0.75
_READ = 2_000
_MOST = 32
"""Characters that are looked for."""
_CHARACTER = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


def sought(query: Query) -> list[str]:
    """The characters of a question, each once; none where one pair is all there is."""
    text = unicodedata.normalize("NFKC", "".join(term.text for term in query.any_of))
    found = list(dict.fromkeys(_CHARACTER.findall(text)))[:_MOST]
    return found if len(found) > 2 else []


def gains(characters: Sequence[str], candidates: Sequence[Candidate]) -> dict[int, float]:
    """What each candidate gains by them, or loses to those that have more: the best match by pairs alone was 1, and the
    best by both is 1 again, so that all that is not about words counts as much as before.
    """
    best = max((one.own for one in candidates), default=0.0)
    if not characters or best <= 0:
        return {}
    texts = [one.folded[:_READ] for one in candidates]
    average = max(1.0, sum(map(len, texts)) / len(texts))
    norms = [
        _CHARACTERS_SATURATION * (1 - _CHARACTERS_LENGTH + _CHARACTERS_LENGTH * len(text) / average) for text in texts
    ]
    found = dict.fromkeys((one.id for one in candidates), 0.0)
    for character in characters:
        times = [text.count(character) for text in texts]
        having = len(times) - times.count(0)
        rarity = math.log(1 + (len(times) - having + 0.5) / (having + 0.5))
        for one, count, norm in zip(candidates, times, norms, strict=True):
            if count:
                found[one.id] += ALONE * rarity * count * (_CHARACTERS_SATURATION + 1) / (count + norm)
    most = max(one.own + found[one.id] for one in candidates)
    return {one.id: (one.own + found[one.id]) / most - one.own / best for one in candidates}


# ---------- recall.fuse
#
# Words and meaning together. Pure.
#
# What the index of words says and what the index of vectors says are both made relative to their best, weighed and
# added, so neither has to be good for the other to be heard. Places in two lists are not added up: where one list is
# much the weaker, that loses more than it finds. The weights were chosen across sets of English conversations, each
# time without the set or conversation that was then asked (docs/explanation/search-quality.md); the figures change
# little between half and twice of each.

NEAREST = 60
"""So many messages are near; all others are equally far."""
MEANING = 0.8
"""Weight of being the nearest, where having the best words is worth 1."""
BESIDE_NEAR = 0.15
"""Part of that for standing beside a near one; little, because what is embedded has the end of what came before."""
AMONG_NEAR = 0.15
"""Part of that for being in the same conversation."""
LEAST_SPREAD = 0.06
"""Cosines that lie closer together than this say nothing about which is nearer: few messages, or many alike."""
STANDS_OUT = 0.03
"""How far the nearest must be from the last of the near to be shown where no message has any of the words: half of the
random strings and greetings that were tried stay below, four in five real questions are above."""
LEAST_COMPARED = 8
"""Of fewer, how far apart they are says nothing: one is always nearest."""
FOREIGN = 0.5
"""How far meaning is trusted in Chinese, Japanese and Korean, or by an English model in another European language."""
KEYWORDS = 0.4
"""How far it is trusted where words are put side by side with nothing between: whoever does that means the words."""
ONE_THING = 0.5
"""How far it is trusted where one single thing is looked for."""
HEARD = {"assistant": 0.7}
"""An answer repeats what was asked, at length and in several parts, each of which may be near."""
FREE, CROWDED = 4, 0.03
"""Messages of a conversation that come as they are, and what each further one has to be better by."""


def shares(near: Sequence[tuple[int, float]]) -> dict[int, float]:
    """Cosines, best first → how near each message is: 1 for the nearest, 0 for the last of `NEAREST`."""
    kept = near[:NEAREST]
    if not kept:
        return {}
    best = kept[0][1]
    floor = min(kept[-1][1], best - LEAST_SPREAD)
    return {id_: (cosine - floor) / (best - floor) for id_, cosine in kept}


def stands_out(cosines: Collection[float], least: float = 0.0) -> bool:
    """Whether anything is nearer than everything is to everything. `least` is what is unrelated at most, where that is
    known of the model: then only what is nearer came here, and it is enough where it did not fill the list.
    """
    if not cosines or max(cosines) < least:
        return False
    if least and len(cosines) < NEAREST:
        return True
    return len(cosines) >= LEAST_COMPARED and max(cosines) - min(cosines) >= STANDS_OUT


def fuse(ranked: Sequence[Candidate], near: Mapping[int, float], trust: float = 1.0) -> list[Candidate]:
    """Add what meaning is worth to candidates that are scored by words; best first again."""
    if not near:
        return list(ranked)
    around: dict[str, float] = defaultdict(float)
    for one in ranked:
        around[one.group] = max(around[one.group], near.get(one.id, 0.0))
    for one in ranked:
        beside = max(near.get(one.before or 0, 0.0), near.get(one.after or 0, 0.0))
        own = near.get(one.id, 0.0)
        one.meaning = trust * MEANING * (own + BESIDE_NEAR * beside + AMONG_NEAR * around[one.group])
        one.score += one.meaning
    return sorted(ranked, key=lambda one: (-one.score, -one.timestamp, -one.id))


def by_cosine(candidates: Sequence[Candidate], cosines: Mapping[int, float]) -> list[Candidate]:
    """Those that are near, nearest first, words or not."""
    near = [one for one in candidates if one.id in cosines and one.shown]
    for one in near:
        one.score = one.meaning = cosines[one.id]
    return sorted(near, key=lambda one: (-one.score, -one.timestamp, -one.id))


def spread_out(ranked: Sequence[Candidate], limit: int) -> list[Candidate]:
    """The best `limit`, where every further message of one conversation counts a little less. Then the rest."""
    left, chosen = list(ranked), []
    taken: dict[str, int] = defaultdict(int)
    for _ in range(min(limit, len(left))):
        best = max(range(min(len(left), 3 * limit)), key=lambda at: (_worth(left[at], taken), -at))
        one = left.pop(best)
        taken[one.group] += 1
        chosen.append(one)
    return chosen + left


def _worth(one: Candidate, taken: Mapping[str, int]) -> float:
    return one.score - CROWDED * max(0, taken[one.group] - FREE + 1)


# ---------- recall.teller
#
# Who would have told what is asked, and how that sounds. Pure, linear.
#
# What somebody did is mostly told by themselves, and in the first person: "What did Ann paint?" is answered by what Ann
# said of herself, less by what she was told or asked. And what happened when is told with a time. By their words alone
# such messages look like all the others about the same thing, and there are many more of those.

BY_THEMSELVES = 0.6
"""What a message gains by being said by somebody whom the question names: six points of the first places on LoCoMo, on
conversations that were not learnt from; nothing elsewhere, where nobody is named."""
OF_ONESELF = 0.3
"""What a user's message gains by speaking of oneself, where the question is about somebody: four points there, one on
BEAM."""
WITH_A_TIME = 0.3
"""What a message gains by naming a time, where the question is when: two points there."""
_LONGEST_NAME = 32
_TELLER_BEGINNING = 500
"""Characters that are looked at: who goes on for longer speaks of much else."""
_SELVES = (
    *(" i ", " i'", " i’", " my ", " we ", " we'", " we’", " our ", " ich ", " mein", " wir ", " unser"),
    *(" je ", " j'", " j’", " mon ", " ma ", " mes ", " nous ", " yo ", " mi ", " mis "),
)
_FAR_SELVES = ("我", "私", "僕", "俺", "저는", "나는", "우리")
_TIMES = (
    *("yesterday", "today", "tonight", "tomorrow", " ago", " last ", " next ", " week", " month", " year", " morning"),
    *(" since ", " recently", " monday", " tuesday", " wednesday", " thursday", " friday", " saturday", " sunday"),
    *(" january", " february", " march", " april", " may", " june", " july", " august", " september", " october"),
    *(" november", " december", " 19", " 20", " gestern", " heute", " letzte", " aujourd", " dernier", " ayer"),
)
_FAR_TIMES = ("昨", "今天", "今日", "去年", "今年", "上周", "上週", "先週", "先月", "年", "月", "어제", "오늘", "작년")
_WHEN = re.compile(
    r"^\W{0,8}(?:when|wann|quand|cuándo)\b|\b(?:what|which) (?:date|day|month|year|time)\b|\bhow long ago\b"
    r"|什么时候|什麼時候|何时|何時|哪天|哪一天|哪年|いつ|언제",
    re.IGNORECASE,
)
_SOMEBODY = re.compile(
    r"\b(?:[Ii]|[Mm]e|[Mm]y|[Mm]ine|[Ww]e|us|[Oo]ur|[Hh]e|him|[Hh]is|[Ss]he|[Hh]er|[Ii]ch|[Mm]eine?|[Ww]ir|[Jj]e|[Mm]on)\b"
    r"|\w\W{1,4}[A-Z]|我|私の|私は"
)
"""A pronoun, or a name: a capital that begins no sentence."""
_WORD = re.compile(r"[^\W_]+")


def teller_gains(question: str, candidates: Sequence[Candidate], roles: Mapping[int, str]) -> dict[int, float]:
    """What each candidate gains, by its id; those that gain nothing are not in it."""
    asks_when, about_somebody = _WHEN.search(question) is not None, _SOMEBODY.search(question) is not None
    speakers = _speakers(candidates, fold(question))
    if not (asks_when or about_somebody or speakers):
        return {}
    found = {}
    for one in candidates:
        gain = BY_THEMSELVES if one.id in speakers else 0.0
        beginning = " " + one.folded[:_TELLER_BEGINNING] if asks_when or about_somebody else ""
        if about_somebody and roles.get(one.id) == "user" and _has_any(beginning, _SELVES, _FAR_SELVES):
            gain += OF_ONESELF
        if asks_when and _has_any(beginning, _TIMES, _FAR_TIMES):
            gain += WITH_A_TIME
        if gain:
            found[one.id] = gain
    return found


def _has_any(text: str, words: Sequence[str], far: Sequence[str]) -> bool:
    """`far`: those of other scripts, which most texts need not be searched for."""
    for word in words:  # a loop: `any` takes twice as long, and this is asked of hundreds of messages
        if word in text:
            return True
    return not text.isascii() and any(word in text for word in far)


def _speakers(candidates: Sequence[Candidate], question: str) -> Collection[int]:
    """Messages that begin with a name and a colon, where the question has that name and the conversation has others
    that begin so: "note:" stands alone.
    """
    said = [(one.id, one.group, name) for one in candidates if (name := _speaker(one.folded))]
    if not said:
        return ()
    words = set(_WORD.findall(question))
    asked = {
        name: bool(words & set(_WORD.findall(name)) if name.isascii() else name in question)
        for name in {name for _, _, name in said}
    }
    times = Counter((group, name) for _, group, name in said if asked[name])
    return {id_ for id_, group, name in said if times[group, name] > 1}


def _speaker(folded: str) -> str:
    """`ann` of "ann: i was there"; empty where nobody is named."""
    end = folded.find(":", 0, _LONGEST_NAME)
    if end < 0 and not folded[:_LONGEST_NAME].isascii():
        end = folded.find("：", 0, _LONGEST_NAME)
    name = folded[:end] if end > 1 else ""
    return name if name and name.replace(" ", "").isalpha() and name.count(" ") < 3 else ""


# ---------- recall.rerank
#
# An optional second opinion on the first few hits, from whoever can read question and text together.
#
# None comes with Herma. A program that has one hands it over (`h.reranker = …`), and it is asked within a deadline;
# what it does wrong leaves the order as it was, and the report says so.

RERANKED = 20
"""Hits that are shown to it."""
READS = 2_000
"""Characters of each that it is given."""


class Reranker(Protocol):
    """Says how well each text answers the question. Only the order of its numbers matters."""

    def scores(self, question: str, texts: Sequence[str]) -> Sequence[float]: ...


@dataclass(frozen=True, slots=True)
class Opinion:
    """The order it would have, as places in what it was given; or none, and why."""

    order: tuple[int, ...] = ()
    note: str = ""


class _Asked(threading.Thread):
    def __init__(self, reranker: Reranker, question: str, texts: Sequence[str]) -> None:
        super().__init__(name="herma-rerank", daemon=True)
        self._question = question
        self._texts = texts
        self._reranker = reranker
        self.scores: Sequence[float] = ()
        self.trouble = ""

    def run(self) -> None:
        try:
            self.scores = [float(score) for score in self._reranker.scores(self._question, self._texts)]
        except Exception as error:  # noqa: BLE001  a guest may raise anything
            self.trouble = " ".join(str(error).split())[:200] or type(error).__name__


def opinion(reranker: Reranker, question: str, texts: Sequence[str], deadline: float) -> Opinion:
    """Ask, for at most `deadline` seconds. Texts that it finds equally good stay in the order they had."""
    asked = _Asked(reranker, question, [text[:READS] for text in texts])
    asked.start()
    asked.join(deadline)
    if asked.is_alive():
        return Opinion(note=f"rerank: no answer within {deadline:g} s; the order is that of the search.")
    if asked.trouble:
        return Opinion(note=f"rerank: it failed ({asked.trouble}); the order is that of the search.")
    scores = asked.scores
    if len(scores) != len(texts) or not all(map(math.isfinite, scores)):
        return Opinion(note="rerank: it did not give one number for each text; the order is that of the search.")
    return Opinion(order=tuple(sorted(range(len(texts)), key=lambda at: -scores[at])))


# ---------- recall.arrange
#
# From a ranking to what is shown: a second opinion, the later of two claims first, no crowd, one of a conversation.

LEAST_POOL = 20
"""Of so many, later claims are looked for, and twice as many as are wanted."""

LOOKED_AT, READ_CLOSELY = 150, 100
"""Of so many it is asked who told them, and of so many which characters they have: what is further down hardly comes
among the first ten by that."""


@dataclass(slots=True)
class Arranged:
    """What is shown, best first. `outdated`: messages that another one, later, says otherwise than."""

    chosen: list[Candidate]
    outdated: dict[int, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def arrange(
    ranked: Sequence[Candidate],
    query: Query,
    wanted: Wanted,
    found: Gathered,
    reranker: Reranker | None = None,
    deadline: float = 1.0,
) -> Arranged:
    result = Arranged(list(ranked))
    if query.any_of and not wanted.sort:
        if wanted.mode != "vectors":
            result.chosen = _by_more(ranked, query, found)
        if reranker is not None:
            _rerank(result, query, reranker, deadline)
        elif wanted.level == "message" and wanted.mode != "vectors":
            result.chosen = spread_out(result.chosen, wanted.limit)
        _latest_first(result, query, wanted, found)
    elif wanted.sort:
        newest = wanted.sort == "newest"
        result.chosen = sorted(result.chosen, key=lambda one: (one.timestamp, one.id), reverse=newest)
    if wanted.level == "session":
        result.chosen = _one_each(result.chosen)
    result.chosen = _demoted(result.chosen, found)[: wanted.limit]
    return result


def _by_more(ranked: Sequence[Candidate], query: Query, found: Gathered) -> list[Candidate]:
    """With what speaks for a message beside its words: who told it, and single characters."""
    first = ranked[:LOOKED_AT]
    more = [gains(sought(query), first[:READ_CLOSELY])]
    if query.ignored:  # a sentence, no bare words
        more.append(teller_gains(query.plain, first, {one.id: found.heads[one.id].role for one in first}))
    for one in first:
        gain = sum(gains.get(one.id, 0.0) for gains in more)
        one.bonus += gain
        one.score += gain
    return sorted(ranked, key=lambda one: (-one.score, -one.timestamp, -one.id))


def _rerank(result: Arranged, query: Query, reranker: Reranker, deadline: float) -> None:
    first = result.chosen[:RERANKED]
    said = opinion(reranker, query.plain or query.text, [one.text for one in first], deadline)
    if said.note:
        result.notes.append(said.note)
    else:
        result.chosen[:RERANKED] = [first[at] for at in said.order]


def _latest_first(result: Arranged, query: Query, wanted: Wanted, found: Gathered) -> None:
    pool = result.chosen[: max(LEAST_POOL, 2 * wanted.limit)]
    heads = found.heads
    spoken = [
        Spoken(
            one.id, one.folded, one.timestamp, found.sessions[heads[one.id].session_id].scope.user, heads[one.id].role
        )
        for one in pool
        if heads[one.id].role in ("user", "assistant")
    ]
    result.outdated = outdated(spoken)
    if result.outdated and not asks_for_the_past(query.text):
        by_id = {one.id: one for one in pool}
        order = latest_first([one.id for one in pool], result.outdated)
        result.chosen[: len(pool)] = [by_id[id_] for id_ in order]


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


# ---------- recall.manner
#
# How something is said or asked, as far as that says what matters: for all times, preferred, at present. Pure.
#
# "Always answer with metric units" is short, names little of what it is about, and matters whenever that comes up. By
# its words alone it loses to every message that dwells on the subject.

STANDING = 0.3
"""What an instruction for all times is worth: ten points on BEAM's questions about such, none lost elsewhere."""
PREFERENCE = 0.1
"""What a preference is worth."""
RECENT = 0.15
"""What the newest of the candidates gains over the oldest where the present is asked for; nothing elsewhere."""
_SHORT = 400
"""Characters of an instruction; what goes on for longer is about something else too."""
_MANNER_BEGINNING = 600
_HINTS = ("prefer", "rather", "always", "never", "like", "want you", "bevorzug", "préf", "prefie")
_FAR_HINTS = ("喜", "好き", "好", "좋")
"""A search for a few letters is many times faster than one for a pattern, and most messages have none of them."""
_STANDING = re.compile(
    r"\W*(?:always|never|from now on|whenever|please (?:always|never|remember)|remember (?:to|that)|when i ask"
    r"|immer wenn|ab jetzt|ab sofort|toujours|dorénavant|siempre|a partir de ahora)\b"
    r"|\W*(?:从现在|從現在|今后|今後|以后|以後|每次|永远|永遠|务必|務必|请记住|請記住|必ず|これから|今後は|앞으로|항상)",
)
_PREFERENCE = re.compile(
    r"\b(?:i (?:really |much )?prefer|my preference|i'd prefer|i would prefer|i'd rather|i (?:always|never)"
    r"|i like to|i don't like|i want you to|ich bevorzuge|je préfère|prefiero)\b"
    r"|我更喜欢|我更喜歡|我比较喜欢|我比較喜歡|我偏好|我不喜欢|我不喜歡|方が好き|ほうが好き|더 좋아",
)
_PRESENT = re.compile(
    r"\b(?:current(?:ly)?|now|latest|newest|most recent(?:ly)?|these days|nowadays|at the moment|up to date|still"
    r"|aktuell\w*|derzeit|jetzt|actuellement|actualmente|ahora)\b"
    r"|目前|現在|现在|最新|最近|如今|今の|今は|지금|현재|요즘",
    re.IGNORECASE,
)


def asks_for_the_present(question: str) -> bool:
    return _PRESENT.search(question) is not None


def lasting(folded: str) -> float:
    """What a user's message gains by how it is said. `folded` is lower case, with plain apostrophes or curly ones."""
    beginning = folded[:_MANNER_BEGINNING]
    if len(folded) < _SHORT and _STANDING.match(beginning):
        return STANDING
    if not any(hint in beginning for hint in _HINTS) and (
        beginning.isascii() or not any(hint in beginning for hint in _FAR_HINTS)
    ):
        return 0.0
    return PREFERENCE if _PREFERENCE.search(beginning.replace("’", "'")) else 0.0
