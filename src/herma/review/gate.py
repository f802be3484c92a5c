"""What a review may write: durable, new, grounded, not from outside."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any, Literal, Protocol, TypeAlias

from herma.compression.summary import is_summary
from herma.errors import UsageError
from herma.facts.extract import USER, statements
from herma.memory.entries import apply, parse, unique
from herma.memory.store import Heard, MemoryStore
from herma.prompt.assemble import RULE
from herma.review.rows import LONGEST as ROWS_LONGEST
from herma.review.rows import Book, ReviewAction, ReviewWrites
from herma.safety.scan import scan
from herma.skills.library import SkillLibrary
from herma.skills.types import (
    CreateSkill,
    DeleteSkill,
    EditSkill,
    PatchSkill,
    SkillOp,
    SkillOutcome,
    SkillRefused,
    SkillStaged,
    SkillUnchanged,
    SkillWritten,
    WriteSkillFile,
)
from herma.text import NOT_ENGLISH, STOP_WORDS, stem
from herma.transcript.messages import text_of
from herma.types import (
    TARGETS,
    Add,
    Applied,
    Author,
    Blocked,
    Change,
    Duplicate,
    MemoryOp,
    MemoryOutcome,
    Message,
    Origin,
    Remove,
    Replace,
    Scope,
    SessionView,
    Staged,
    StoreStatus,
    Target,
)

# ---------- reflect.loss
#
# How much of a curated text a list of operations takes away, and how much of it may go in one pass. Pure.

MOST = 0.25
"""The part of a text that may change in one pass."""


@dataclass(frozen=True, slots=True)
class Loss:
    """More would go than may."""

    lost: int
    of: int
    most: float = MOST

    @property
    def sentence(self) -> str:
        share = 100 * self.lost / self.of if self.of else 0.0
        return (
            f"{self.lost:,} of {self.of:,} characters ({share:.0f} %) would change; one pass may change"
            f" {100 * self.most:.0f} %."
        )


def lost(before: Sequence[str], after: Sequence[str], successors: dict[str, str] | None = None) -> int:
    """Characters of the entries before that are nowhere after. An entry that was reworded loses what its successor does
    not say in the same words and order."""
    kept, heirs = set(after), successors or {}
    return sum(_missing(entry, heirs.get(entry, "")) for entry in before if entry not in kept)


def check_loss(
    before: Sequence[str], after: Sequence[str], successors: dict[str, str] | None = None, most: float = MOST
) -> Loss | None:
    """What goes too far; None when it may be done. Adding is never a loss, and an empty text has nothing to lose."""
    total = sum(map(len, before))
    gone = lost(before, after, successors)
    return Loss(gone, total, most) if gone > most * total else None


@dataclass(frozen=True, slots=True)
class Allowed:
    """Operations that can be carried out together, and those that cannot, with the reason."""

    operations: tuple[MemoryOp, ...]
    refused: tuple[tuple[MemoryOp, str, str], ...]
    """The operation, which check (`loss`, `no match`, `no room`), and a sentence."""


def within(entries: Sequence[str], ops: Sequence[MemoryOp], limit: int, target: Target, most: float = MOST) -> Allowed:
    """As many of these operations, in their order, as fit together, find their entries, and lose little enough."""
    chosen: list[MemoryOp] = []
    refused: list[tuple[MemoryOp, str, str]] = []
    ordered = sorted(ops, key=lambda op: isinstance(op, Add))  # what makes room goes first
    for op in ordered:
        result = apply(entries, [*chosen, op], limit, target)
        if not isinstance(result.outcome, Applied):
            refused.append((op, _kind(type(result.outcome).__name__), result.outcome.message))
            continue
        too_much = check_loss(entries, result.entries, _heirs(entries, [*chosen, op], limit, target), most)
        if too_much is not None:
            refused.append((op, "loss", too_much.sentence))
        else:
            chosen.append(op)
    return Allowed(tuple(chosen), tuple(refused))


def _heirs(entries: Sequence[str], ops: Sequence[MemoryOp], limit: int, target: Target) -> dict[str, str]:
    """Entry → what stands in its place, followed through several replacements."""
    if not any(isinstance(op, Replace) for op in ops):
        return {}
    direct = apply(entries, ops, limit, target).successors
    heirs: dict[str, str] = {}
    for entry in entries:
        now, seen = entry, {entry}
        while now in direct and direct[now] not in seen:
            now = direct[now]
            seen.add(now)
        if now != entry:
            heirs[entry] = now
    return heirs


def _missing(entry: str, successor: str) -> int:
    if not successor:
        return len(entry)
    from rapidfuzz.distance import LCSseq

    words = entry.split()
    if not words:
        return len(entry)
    kept = LCSseq.similarity(words, successor.split())
    return round(len(entry) * (1 - kept / len(words)))


def _kind(outcome: str) -> str:
    kinds = {"Duplicate": "known", "OverBudget": "no room", "NoMatch": "no match", "Ambiguous": "no match"}
    return kinds.get(outcome, "blocked")


# ---------- reflect.likeness
#
# Whether two short texts say the same thing in other words, or different things about the same. Pure.
#
# Numbers, names with digits in them and negations carry the meaning of a fact: texts that differ in one of them are
# never "the same", however alike they are otherwise.

Likeness: TypeAlias = Literal["same", "changed", "other"]
SAME, ABOUT = 86.0, 70.0
"""Likeness of the words that matter, 0 to 100: from which two texts say the same, or are about the same thing."""
COVERED = 0.8
"""Part of a text's words that another must have to say it already."""
LONGEST, _ENTRY, _FEW = 4_000, 800, 3
_LIKENESS_WORD = re.compile(r"[^\W_]+(?:[._/:@-][^\W_]+)*", re.UNICODE)
_SPACELESS = re.compile("[぀-ヿ㐀-䶿一-鿿가-힯]")
_NEGATIONS = frozenset(("no", "not", "never", "none", "nor", "without", "cannot", "nicht", "kein", "keine", "nie"))
_SHORT_NEGATION = re.compile(r"n't\b")
_SPACELESS_NEGATIONS = ("不", "没", "沒", "别", "ない", "ません", "않", "지 마")
_FILLING = frozenset(
    (
        *("user", "users", "user's", "agent", "assistant", "project", "fact", "note", "preference"),
        *("prefer", "prefers", "preferred", "wish", "wishes", "asked", "remember", "currently"),
    )
)
"""Words with which most entries begin: that two have them in common says nothing."""
_MEANINGFUL = frozenset(("like", "need", "needed", "want", "wants", "use", "used", "using", "find", "show", "help"))
"""Words that carry no content in a question, and do in a fact."""
_EMPTY = (STOP_WORDS - _MEANINGFUL) | _FILLING


@dataclass(frozen=True, slots=True)
class Gist:
    """What a text comes down to."""

    words: tuple[str, ...]
    values: frozenset[str]
    """What has a digit in it."""
    negated: bool
    stated: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """What it states plainly: whose and which attribute → its value."""

    @property
    def text(self) -> str:
        return " ".join(self.words)


@lru_cache(maxsize=2048)
def gist(text: str) -> Gist:
    """The words that matter, as stems in their order; a script without spaces character by character."""
    folded = text[:LONGEST].casefold().replace("’", "'")
    found = [word for word in _LIKENESS_WORD.findall(folded) if word not in _EMPTY]
    words = tuple(stem(word) for word in _spread(found))
    values = frozenset(word for word in found if any(mark.isdigit() for mark in word))
    said = set(re.findall(r"[\w']+", folded))
    negated = bool(said & _NEGATIONS) or bool(_SHORT_NEGATION.search(folded))
    negated = negated or any(mark in folded for mark in _SPACELESS_NEGATIONS)
    plain = statements(text, USER, stem) if len(text) <= _ENTRY else ()
    stated = {(one.subject, one.attribute): one.value for one in plain}
    return Gist(words, values, negated, stated)


def gist_words(text: str) -> tuple[str, ...]:
    """Only the words of it."""
    return tuple(stem(word) for word in _spread(_LIKENESS_WORD.findall(text[:LONGEST].casefold())))


def likeness(new: str, known: str) -> Likeness:
    """How a new text stands to a known one: it says the same, or something else about the same, or neither."""
    return _compare(gist(new), gist(known))


def restates(new: str, known: str) -> bool:
    """Whether both state the same attribute of the same, with another value: "my size is 43", "my size is 44"."""
    return _restates(gist(new), gist(known))


def _restates(new: Gist, known: Gist) -> bool:
    return any(
        named in known.stated and not set(gist_words(value)) <= set(gist_words(known.stated[named]))
        for named, value in new.stated.items()
    )


def _compare(new: Gist, known: Gist) -> Likeness:
    from rapidfuzz import fuzz

    if _restates(new, known):
        return "changed"
    if not new.words or not known.words:
        return "same" if new == known else "other"
    alike = fuzz.token_sort_ratio(new.text, known.text)
    covered = coverage(new.words, known.words)
    if new.negated != known.negated or not new.values <= known.values:
        bare = [word for word in new.words if not any(mark.isdigit() for mark in word)]
        about = max(alike, 100 * coverage(bare, known.words) if len(bare) > 1 else 0.0)
        return "changed" if about >= ABOUT and (new.values or new.negated != known.negated) else "other"
    if alike >= SAME or (covered >= COVERED and (len(new.words) > 1 or len(known.words) <= _FEW)):
        return "same"
    return "other"


def nearest(new: str, known: Iterable[str]) -> tuple[Likeness, str]:
    """The known text that says the same or, failing that, something else about the same; and which it is."""
    wanted = gist(new)
    changed = ""
    for text in known:
        found = _compare(wanted, gist(text))
        if found == "same":
            return "same", text
        if found == "changed" and not changed:
            changed = text
    return ("changed", changed) if changed else ("other", "")


def coverage(words: Collection[str], among: Collection[str]) -> float:
    """The part of these words that are among others; 1 where there are none."""
    there = set(among)
    return sum(word in there for word in words) / len(words) if words else 1.0


def _spread(words: Iterable[str]) -> Iterable[str]:
    for word in words:
        if _SPACELESS.search(word):
            yield from word
        else:
            yield word


# ---------- reflect.short_forms
#
# How people name things in passing: js for JavaScript, NYC, k8s, twenty-five, 1.5k. Pure.
#
# A model that writes such a thing out has made nothing up. Only whole words that a person said count, and none of those
# that everybody says: "on" is no short form of Ontario.

_TOKEN = re.compile(r"[^\W_]+")
_SHORT_FORMS_LONGEST = 32
_MOST_WORDS = 20_000
_NUMERONYM = re.compile(r"([a-z])(\d{1,2})([a-z])")
_CAMEL = re.compile(r"[A-Z][a-z]+|[A-Z]+(?![a-z])")
_VOWELS = frozenset("aeiou")
_THOUSANDS = re.compile(r"(?<![\d.,])(\d{1,4})(?:[.,](\d))? ?(k|thousand|tausend|mille|mil)\b")
_SHORTEST, _LONGEST_SKELETON = 2, 4
_NUMBER_WORDS: dict[str, tuple[str, int]] = {}
"""Beginnings or parts of words that say a number: the digits they may stand for, and how many places they fill."""
for _digits, _places, _stems in (
    ("0", 1, "zero null 零"),
    ("1", 1, "one eins einund un uno 一"),
    ("2", 1, "two zwei deux dos 二 两 兩"),
    ("3", 1, "three drei trois tres 三"),
    ("4", 1, "four vier quatre cuatro 四"),
    ("5", 1, "five fünf cinq cinco 五"),
    ("6", 1, "six sechs seis 六"),
    ("7", 1, "seven sieben sept siete 七"),
    ("8", 1, "eight acht huit ocho 八"),
    ("9", 1, "nine neun neuf nueve 九"),
    ("1", 2, "ten zehn dix diez 十"),
    ("12", 2, "twelve zwölf douze doce dozen dutzend"),
    ("1", 2, "eleven elf onze once"),
    ("13", 2, "thirteen dreizehn treize trece"),
    ("14", 2, "fourteen vierzehn quatorze catorce"),
    ("15", 2, "fifteen fünfzehn quinze quince"),
    ("16", 2, "sixteen sechzehn seize"),
    ("17", 2, "seventeen siebzehn"),
    ("18", 2, "eighteen achtzehn"),
    ("19", 2, "nineteen neunzehn"),
    ("2", 2, "twenty zwanzig vingt veinte veinti"),
    ("3", 2, "thirty dreißig trente treinta"),
    ("4", 2, "forty vierzig quarante cuarenta"),
    ("5", 2, "fifty fünfzig cinquante cincuenta"),
    ("6", 2, "sixty sechzig soixante sesenta"),
    ("7", 2, "seventy siebzig setenta"),
    ("8", 2, "eighty achtzig ochenta"),
    ("9", 2, "ninety neunzig noventa"),
    ("5", 2, "half halb"),
    ("25", 2, "quarter viertel"),
    ("1", 3, "hundred hundert cent cien ciento 百"),
    ("1", 4, "thousand tausend mille mil 千"),
):
    _NUMBER_WORDS |= dict.fromkeys(map(str.casefold, _stems.split()), (_digits, _places))
_BY_LENGTH = sorted(_NUMBER_WORDS, key=len, reverse=True)
_COMPOUND = re.compile(f"(?:und|{'|'.join(_BY_LENGTH)})+")
_WITHIN = re.compile("|".join(_BY_LENGTH))
_BETWEEN = frozenset(("and", "a", "und", "et", "y", "point", "komma"))


class ShortForms:
    """What a person said, as words that may stand for longer ones."""

    def __init__(self, said: Iterable[str]) -> None:
        self._heard: set[str] = set()
        self._counted: set[tuple[frozenset[str], int]] = set()
        self._thousands: set[str] = set()
        self.foreign = False
        """Whether any of it is in a language or script in which names are written otherwise than in English."""
        for text in said:
            self._listen(text)

    def _listen(self, text: str) -> None:
        folded = text.casefold()
        words = [word for word in _TOKEN.findall(folded)[:_MOST_WORDS] if len(word) <= _SHORT_FORMS_LONGEST]
        self.foreign = self.foreign or is_foreign(words)
        self._heard.update(words)
        self._counted.update(numbers(words))
        for whole, tenth, _ in _THOUSANDS.findall(folded):
            self._thousands.add(str(int(whole) * 1_000 + int(tenth or 0) * 100))

    def names(self, name: Sequence[str]) -> bool:
        """Whether a name of one or several words was said in short."""
        parts = [plain(part) for word in name for part in (_CAMEL.findall(word) or [word])]
        begins = parts[0][:1]
        return any(
            stands_for(word, parts, several=len(name) > 1)
            for word in (plain(each) for each in self._heard if each not in STOP_WORDS)
            if word.startswith(begins)
        )

    def counts(self, number: str) -> bool:
        """Whether a number was said in words, or as so many thousands."""
        bare = re.sub(r"[^\d]", "", number)
        if bare in self._thousands:
            return True
        needed = set(bare) - {"0"}
        return bool(needed) and any(needed <= digits and len(bare) <= places for digits, places in self._counted)


def numbers(words: Sequence[str]) -> Iterator[tuple[frozenset[str], int]]:
    """Numbers that were said in words: the digits that they may have, and how many."""
    digits: set[str] = set()
    places = 0
    for word in (*words, ""):
        if _COMPOUND.fullmatch(word) and word not in _BETWEEN:
            for part in _WITHIN.findall(word):
                digits.update(_NUMBER_WORDS[part][0])
                places += _NUMBER_WORDS[part][1]
        elif word not in _BETWEEN and places:
            yield frozenset(digits), places
            digits, places = set(), 0


def stands_for(short: str, parts: Sequence[str], *, several: bool = False) -> bool:
    """Whether a word is short for a name: its first letters, those of its parts, its consonants, or k8s.

    A name of `several` words was named with all of them: who said Anna has not said Anna Smith.
    """
    whole = "".join(parts)
    counted = _NUMERONYM.fullmatch(short)
    if counted:
        first, between, last = counted.groups()
        return len(whole) == int(between) + 2 and whole.startswith(first) and whole.endswith(last)
    short = short.rstrip("0123456789")
    if len(short) < _SHORTEST or short[0] != whole[:1]:
        return False
    if len(parts) > 1 and _of_parts(short, parts):
        return True
    if several:
        return False
    skeleton = _VOWELS.isdisjoint(short[1:]) and len(short) <= _LONGEST_SKELETON
    ends = short[-1] == whole[-1] and 2 * len(short) >= len(whole)
    return whole.startswith(short) or ((skeleton or ends) and _within(short, whole))


def _of_parts(short: str, parts: Sequence[str]) -> bool:
    """Whether it is made of the beginnings of all parts, in their order: semver, vscode, usd."""
    reached = {0}
    for part in parts:
        reached = {
            at + length
            for at in reached
            for length in range(1, min(len(part), len(short) - at) + 1)
            if short.startswith(part[:length], at)
        }
    return len(short) in reached


def _within(short: str, whole: str) -> bool:
    """Whether its letters come in the other, in this order."""
    letters = iter(whole)
    return all(letter in letters for letter in short)


def is_foreign(words: Sequence[str]) -> bool:
    """Whether words are rather of another language than of English."""
    known = sum(word in STOP_WORDS and word not in NOT_ENGLISH for word in words)
    other = sum(not word.isascii() or (word in NOT_ENGLISH and len(word) > 1) for word in words)
    return other > 0 and other >= known


def plain(text: str) -> str:
    """Small letters without marks: ü is u, ß is ss."""
    if text.isascii():
        return text.casefold()
    taken_apart = unicodedata.normalize("NFKD", text.casefold())
    return "".join(mark for mark in taken_apart if not unicodedata.combining(mark))


# ---------- reflect.grounds
#
# Whether what a model states rests on anything: names, numbers and paths that nobody named are made up. Pure.
#
# Other words for what was said are fine, and so is another language; only what can hardly be said in other words is
# looked for. A weak model invents such things, or repeats the question that it was asked. Who says "js" has named
# JavaScript, though, and who writes in another language may have named anything in it.

_GROUNDS_LONGEST = 4_000
_GROUNDS_WORD = re.compile(r"[^\W_]++(?:[._/:@'’-][^\W_]++)*+")
_OFTEN = re.compile(r"\d{1,2}|(?:19|20)\d\d|\d{4}-\d\d(?:-\d\d)?|\d{1,2}:\d\d(?::\d\d)?|\d{1,3}(?:st|nd|rd|th|s)?")
"""Small numbers, years, days and times: a model may count, or say in digits what was said in words."""
_SMALL = 12
_NAME = re.compile(r"[A-Z][a-zà-öø-ÿ]{2,}+|[A-Z][a-z]++[A-Z]\w++")
_ENDS = (".", "!", "?", ":", ";", "—", "–", "(", '"', "“", "‘", "-", "*", "•", "/")
_ENGLISH = frozenset(("the", "is", "are", "of", "to", "with", "and", "for", "has", "uses", "user", "user's"))
_NOT_NAMES = frozenset(
    (
        *("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
        *("january", "february", "march", "april", "may", "june", "july", "august", "september", "october"),
        *("november", "december", "english", "markdown", "user", "agent", "assistant", "internet"),
    )
)
_NUMBER = re.compile(r"\d+(?:[.,'’:]\d+)*+")
_RUN = re.compile(r"[A-Z]\w*+(?: (?:of )?[A-Z]\w*+)++")
"""Several words that make one name."""
_STEM = 5
_SHORTEST_ECHO = 12
_MARKS = re.compile(r"[\W_]+")


class Grounds:
    """Everything that was said, by whomever, as one text without blanks: what is looked for is short.

    What the user `said` of it is also heard for short forms, and for numbers in words.
    """

    def __init__(self, texts: Iterable[str], said: Iterable[str] = ()) -> None:
        self._dense = "\n".join(_dense(text) for text in texts)
        self._said = ShortForms(said)

    def has(self, anchor: str) -> bool:
        """Whether it was named; of a long word the beginning will do, as in Postgres and PostgreSQL."""
        wanted = _dense(anchor)
        if wanted in self._dense or (wanted.isalpha() and len(wanted) > _STEM and wanted[:_STEM] in self._dense):
            return True
        if any(mark.isdigit() for mark in wanted):
            return _NUMBER.fullmatch(wanted) is not None and self._said.counts(wanted)
        return self._said.foreign or self._said.names([anchor])

    def missing(self, text: str) -> str:
        """The first thing in a statement that nobody named; "" where there is none."""
        absent = [anchor for anchor in anchors(text) if not self.has(anchor)]
        if absent:
            runs = [run for run in _RUN.findall(text[:_GROUNDS_LONGEST]) if self._said.names(run.split())]
            absent = [anchor for anchor in absent if not any(anchor in run.split() for run in runs)]
        return next(iter(absent), "")


def anchors(text: str) -> list[str]:
    """What in a statement can hardly be said in other words: names, and whatever has digits in it."""
    text = text[:_GROUNDS_LONGEST]
    english = not _ENGLISH.isdisjoint(text.casefold().split())  # elsewhere all nouns may be written large
    found: dict[str, None] = {}
    before = "."
    for match in _GROUNDS_WORD.finditer(text):
        word = match.group()
        begins = before.endswith(_ENDS) or not before
        before = text[match.end() : match.end() + 2].strip() or word
        if any(mark.isdigit() for mark in word):
            if not _is_common(word):
                found[word] = None
        elif english and not begins:
            name = re.sub(r"['’]s$", "", word)
            if _NAME.fullmatch(name) and name.casefold() not in _NOT_NAMES:
                found[name] = None
    return list(found)


def _is_common(word: str) -> bool:
    if not _OFTEN.fullmatch(word):
        return False
    return not word.isdigit() or len(word) == 4 or int(word) <= _SMALL


def is_echo(text: str) -> bool:
    """Whether a text only repeats what the model was asked, as one that fills in a form with the form's own words."""
    plain = _plain(text[:_GROUNDS_LONGEST])
    return len(plain) >= _SHORTEST_ECHO and plain in _asked()


@cache
def _asked() -> str:
    from herma.review.proposal import every_task

    return " ".join(_plain(task) for task in every_task())


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _dense(text: str) -> str:
    """Letters and digits alone: UTF-8 is utf8, and 12,500 is 12500."""
    return _MARKS.sub("", plain(text))


# ---------- reflect.tombstones
#
# What was taken out of curated memory, read off its history: it does not come back by itself. Pure.

TOMBSTONES_MOST = 500
"""Newest ones that are looked at."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """An entry that was there once."""

    text: str
    at: float
    by: str


def tombstones(changes: Iterable[Change], entries_of: Callable[[str], Sequence[str]]) -> list[Tombstone]:
    """What is gone, the newest first. `changes` come in any order, and all of one document."""
    gone: dict[str, Tombstone] = {}
    for change in sorted(changes, key=lambda one: one.id):
        before, after = entries_of(change.before), entries_of(change.after)
        for text in after:
            gone.pop(text, None)
        kept = set(after)
        for text in before:
            if text not in kept:
                gone.pop(text, None)  # so that the newest stand last
                gone[text] = Tombstone(text, change.at, str(change.author.who))
    return list(reversed(gone.values()))[:TOMBSTONES_MOST]


def buried(text: str, stones: Iterable[Tombstone], said: Sequence[Message]) -> Tombstone | None:
    """The tombstone that a text would bring back, unless the user said it again since.

    `said` are the user's messages. That an entry was corrected does not bury the correction: texts that differ in a
    number, a name with digits or a negation are different facts.
    """
    for stone in stones:
        if likeness(text, stone.text) == "same" and not said_again(text, stone.at, said):
            return stone
    return None


def said_again(text: str, since: float, said: Iterable[Message]) -> bool:
    """Whether one message of the user's that is newer has most of its words, and every value in it."""
    wanted = gist(text)
    for message in said:
        if message.timestamp <= since or not isinstance(message.content, str):
            continue
        heard = gist(message.content)
        if wanted.values <= heard.values and coverage(wanted.words, heard.words) >= COVERED:
            return True
    return False


# ---------- reflect.precision
#
# Whether something is worth keeping for good: durable, new, not taken out before, and nobody else's words. Pure.
#
# Precision before recall: what is in doubt is not kept. A fact that matters comes up again; one that should not have
# been kept is shown in every session until somebody notices.

Reason: TypeAlias = Literal[
    "status",
    "one-off",
    "temporary",
    "transient",
    "too long",
    "too short",
    "known",
    "changed",
    "removed",
    "outside",
    "echo",
    "unfounded",
]
PRECISION_LONGEST, SHORTEST = 600, 12
SAYS = {
    "status": "it says how far some work is, which is over soon",
    "one-off": "it is about one day or one event",
    "temporary": "it holds for this conversation only",
    "transient": "it is a failure that passes, and says nothing about how to avoid it",
    "too long": f"it is longer than {PRECISION_LONGEST} characters; say it in a sentence or two",
    "too short": "it says too little to be understood later",
    "known": "it is there already, in these or other words",
    "changed": "an entry says something else about the same; correct that one with replace",
    "removed": "it was taken out of memory, and nobody has said it again since",
    "outside": "it repeats what a tool, a page or another memory said, not the user",
    "echo": "it repeats the question that was asked",
    "unfounded": "it names something that nobody has named in this conversation",
}
"""Each reason in words that fit after "Not saved: "."""


def _any(*words: str, also: str = "") -> re.Pattern[str]:
    """One of these words or phrases, or of the words of scripts without spaces."""
    return re.compile(rf"\b(?:{'|'.join(words)})\b" + (f"|{also}" if also else ""))


_DAYS = "monday|tuesday|wednesday|thursday|friday|saturday|sunday"
_ALWAYS = _any(
    *("every", "each", "always", "never", "usually", "generally", "by default", "birthday", "anniversary", "born"),
    *("daily", "nightly", "weekly", "immer", "jeden"),
    also="每|总是|生日|毎|誕生日|매일|생일",
)
_STATUS = _any(
    *(r"(?:pr|pull request|mr|issue|ticket|bug) ?#?\d{1,7}", "commit [0-9a-f]{7,40}", "todo", "wip", "in progress"),
    r"next steps?",
    r"(?:is|are|was|were|been|now|all|just) (?:now |just |all )?"
    r"(?:done|finished|completed?|merged|deployed|fixed|passing)",
    r"(?:tests?|build|ci) (?:now )?(?:pass(?:es|ed)?|fails?|failed|is green|are green)",
    r"(?:is|are|was|were) (?:currently |now |just |still )?"
    r"(?:working on|debugging|fixing|implementing|refactoring|migrating|waiting)",
    r"(?:has|have) (?:just |now |already )?(?:finished|completed|merged|deployed|pushed)",
    r"(?:we|i|the (?:user|agent|assistant)) (?:just |finally )?"
    r"(?:fixed|finished|completed|merged|deployed|pushed|ran)",
    *(r"current(?:ly)? (?:task|working|status|step)", "progress so far", "so far we"),
    also="正在|进行中|已完成|作業中|進行中|진행 중",
)
_ONE_OFF = _any(
    *("today", "tomorrow", "yesterday", "tonight", "this (?:morning|afternoon|evening|week|weekend|month|sprint)"),
    f"(?:next|last) (?:week|weekend|month|{_DAYS})",
    *("right now", "at the moment", "at present", "for now", "heute", "morgen früh", "gestern"),
    also="今天|明天|昨天|本周|下周|今日|明日|昨日|오늘|내일|어제",
)
_EVENT = _any(
    *("meeting", "appointment", "call", "flight", "interview", "deadline", "due", "demo", "reservation", "exam"),
    *("delivery", "visit"),
)
_MOMENT = _any(
    *(r"\d{4}-\d{2}-\d{2}", r"\d{1,2}[:.]\d{2} ?(?:am|pm|h|uhr)?", r"\d{1,2} ?(?:am|pm)"),
    *(f"(?:on|by|until) (?:{_DAYS})", r"(?:on|by) the \d{1,2}(?:st|nd|rd|th)"),
)
_TEMPORARY = _any(
    *("pretend", "role-?play", "roleplaying", "in character", "acting as", "act as", "speak(?:ing)? like"),
    *("talk like", "persona of", "only this once", "just this once", "just for now", "(?:only|just) this time"),
    r"(?:for|in|during) (?:this|the current|the present) "
    r"(?:session|conversation|chat|task|reply|answer|exercise|game|story)",
    *("temporar(?:y|ily)", "hypothetical(?:ly)?"),
    also="假装|扮演|暂时|本次对话|一時的|ふりを|임시",
)
_FAILURE = _any(
    *(
        "failed",
        "fails",
        "failing",
        "timed out",
        "(?:an?|any|with|hits?) time-?outs?",
        "is down",
        "was down",
        "crashed",
        "unreachable",
    ),
    *("could not", "couldn't", "cannot connect", "not (?:working|available|responding|found)", "broken"),
    *(r"returned (?:an? )?(?:error|[45]\d\d)", "rate.?limit(?:ed)?", "doesn't work", "does not work"),
)
_LESSON = _any(
    *("unless", "because", "when", "if", "instead", "requires?", "needs?", "must", "without", "use", "fix(?:ed)? by"),
    *("solved by", "remedy", "work ?around", "behind", "so that"),
)


_ADDRESS = re.compile(r"(?:https?|ftp|ssh|git)://[^\s\"'<>“”]{3,200}|[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}")


@dataclass(frozen=True, slots=True)
class Known:
    """What there is to compare with: entries that stand or wait, entries that are gone, and what the user said."""

    entries: Sequence[str] = ()
    gone: Sequence[Tombstone] = ()
    said: Sequence[Message] = ()
    outside: Sequence[str] = ()
    """What tools, pages and other memories said in this conversation."""
    grounds: Grounds | None = None
    """Everything that was said in it, by whomever; without it, nobody asks what a statement rests on."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a text is not kept; `entry` is the one that stands in its way."""

    reason: Reason
    entry: str = ""

    @property
    def sentence(self) -> str:
        about = f": “{self.entry[:120]}”" if self.entry else ""
        return f"Not saved: {SAYS[self.reason]}{about}."


def judge(text: str, known: Known, *, about_user: bool = False, replacing: str = "") -> Refusal | None:
    """Why this should not be kept; None if it should. `replacing` is the entry whose place it takes."""
    if is_echo(text):
        return Refusal("echo")
    lasting = durable(text)
    if lasting is not None:
        return Refusal(lasting)
    like, entry = nearest(text, [one for one in known.entries if one != replacing])
    if like == "same":
        return Refusal("known", entry)
    if like == "changed" and not replacing:
        return Refusal("changed", entry)
    stone = buried(text, known.gone, known.said)
    if stone is not None:
        return Refusal("removed", stone.text)
    if (about_user and from_outside(text, known)) or addresses_from_outside(text, known):
        return Refusal("outside")
    invented = known.grounds.missing(text) if known.grounds is not None else ""
    if invented and invented not in replacing:
        return Refusal("unfounded", invented)
    return None


def durable(text: str) -> Reason | None:
    """Why a text will not hold for long; None if nothing says so."""
    if len(text) > PRECISION_LONGEST:
        return "too long"
    folded = " ".join(text.casefold().replace("’", "'").split())
    if len(folded) < SHORTEST and folded.isascii():
        return "too short"
    if _TEMPORARY.search(folded):
        return "temporary"
    if _ALWAYS.search(folded):  # a habit may name days and states
        return None
    if _STATUS.search(folded):
        return "status"
    if _ONE_OFF.search(folded) or (_EVENT.search(folded) and _MOMENT.search(folded)):
        return "one-off"
    if _FAILURE.search(folded) and not _LESSON.search(folded):
        return "transient"
    return None


def from_outside(text: str, known: Known) -> bool:
    """Whether a statement about the user rests on what others said: its words are theirs rather than the user's."""
    words = gist(text).words
    if len(words) < 3 or not known.outside:
        return False
    theirs = max((coverage(words, gist(each).words) for each in known.outside), default=0.0)
    if theirs < 0.6:
        return False
    own = max((coverage(words, gist(_text(message)).words) for message in known.said), default=0.0)
    return own < theirs


def addresses_from_outside(text: str, known: Known) -> bool:
    """Whether it names a web or mail address that others named, and the user did not: what poisoned pages do."""
    named = {address.rstrip(".,;:)") for address in _ADDRESS.findall(text.casefold())}
    own = [_text(message).casefold() for message in known.said]
    others = [each.casefold() for each in known.outside]
    return any(
        any(address in each for each in others) and not any(address in each for each in own) for address in named
    )


def _text(message: Message) -> str:
    return message.content if isinstance(message.content, str) else ""


# ---------- reflect.gate
#
# Memory and skills as a review may change them: every write is judged first, by code and not by the prompt.
#
# What is refused is counted with its reason, and the model is told why. What belongs to a person, because they wrote
# it, is changed by nobody but a person: a review can only propose it.

KnownOf: TypeAlias = Callable[[Target, Scope], Known]


class Propose(Protocol):
    """Keeps a write for a person's decision."""

    def __call__(
        self,
        target: Target,
        ops: Sequence[MemoryOp],
        scope: Scope,
        author: Author,
        reason: str = "",
        *,
        although_full: bool = False,
    ) -> MemoryOutcome: ...


class GatedMemory:
    """Curated memory for one review."""

    def __init__(
        self, store: MemoryStore, propose: Propose, known: KnownOf, book: Book, *, writes: ReviewWrites = "apply"
    ) -> None:
        self._store = store
        self._propose = propose
        self._known = known
        self._book = book
        self._writes = writes
        self._at_first: dict[tuple[Target, Scope], list[str]] = {}

    def entries(self, target: Target, *, scope: Scope | None = None) -> list[str]:
        return self._store.entries(target, scope=scope)

    def status(self, *, scope: Scope | None = None) -> list[StoreStatus]:
        return self._store.status(scope=scope)

    def apply(
        self, target: Target, ops: Sequence[MemoryOp], *, scope: Scope | None, author: Author, reason: str = ""
    ) -> MemoryOutcome:
        """Judge every operation; then all of them are written or proposed as one change, or none."""
        where = scope or Scope()
        for op in ops:
            refused = self.objection(target, op, where, author)
            if refused is not None:
                why, sentence = refused
                self._book.refuse(_named(op), why, sentence, text=_content(op), target=target)
                return self._blocked(target, where, sentence)
        too_much = self._loss(target, ops, where)
        if too_much:
            for op in ops:
                self._book.refuse(_named(op), "loss", too_much, text=_content(op), target=target)
            return self._blocked(target, where, f"Not done: {too_much}")
        return self.write(target, ops, where, author, reason)

    def objection(
        self, target: Target, op: MemoryOp, scope: Scope, author: Author, besides: Sequence[str] = ()
    ) -> tuple[str, str] | None:
        """Why this operation should not be carried out: in one word and in a sentence; None if it may.

        `besides` are entries that are about to be written with it.
        """
        if isinstance(op, Remove):
            return None
        findings = scan(op.content)
        if findings:
            return "scanned", f"Not saved: the scanner objects ({findings[0].rule}: {findings[0].why})."
        if not author.origin.trusted:
            return "outside", f"Not saved: {SAYS['outside']}."
        named = op.old_text if isinstance(op, Replace) else None
        replaced = next((e for e in self.entries(target, scope=scope) if named and named in e), "")
        known = self._known(target, scope)
        known = replace(known, entries=[*known.entries, *besides])
        refusal = judge(op.content, known, about_user=target == "user", replacing=replaced)
        return None if refusal is None else (refusal.reason, refusal.sentence)

    def write(
        self, target: Target, ops: Sequence[MemoryOp], scope: Scope, author: Author, reason: str = ""
    ) -> MemoryOutcome:
        """Write or propose what was judged, and note it."""
        if self._writes == "stage" or self.touching_a_persons(target, ops, scope):
            outcome = self._propose(target, ops, scope, author, reason or "proposed by a review")
        else:
            outcome = self._store.apply(target, ops, scope=scope, author=author, reason=reason)
        for op in ops:
            self._book.note(action_of(op, target, outcome))
        return outcome

    def touching_a_persons(self, target: Target, ops: Sequence[MemoryOp], scope: Scope) -> list[MemoryOp]:
        """The operations by which an entry would go or change that a person wrote; what nobody recorded was written
        by hand."""
        entries = [] if all(isinstance(op, Add) for op in ops) else self._store.describe(target, scope=scope)
        theirs = [entry.text for entry in entries if entry.origin is not Origin.AGENT_CONCLUDED]
        return [op for op in ops if not isinstance(op, Add) and any(op.old_text in text for text in theirs)]

    def _loss(self, target: Target, ops: Sequence[MemoryOp], scope: Scope) -> str:
        """Whether too much of what was there when this review began would be gone."""
        now = self.entries(target, scope=scope)
        first = self._at_first.setdefault((target, scope), now)
        if all(isinstance(op, Add) for op in ops):
            return ""
        result = apply(now, ops, self._status(target, scope).limit, target)
        too_much = check_loss(first, result.entries, result.successors) if isinstance(result.outcome, Applied) else None
        return too_much.sentence if too_much else ""

    def _status(self, target: Target, scope: Scope) -> StoreStatus:
        return self._store.status(scope=scope)[TARGETS.index(target)]

    def _blocked(self, target: Target, scope: Scope, sentence: str) -> Blocked:
        size = self._status(target, scope)
        return Blocked(message=sentence, target=target, entry_count=size.entry_count, used=size.used, limit=size.limit)


def action_of(op: MemoryOp, target: Target, outcome: MemoryOutcome) -> ReviewAction:
    """What came of an operation, for the log."""
    made = ReviewAction(_named(op), "refused", _content(op)[:ROWS_LONGEST], target)
    match outcome:
        case Applied():
            return replace(made, result="applied", change=outcome.change)
        case Staged():
            return replace(made, result="staged", pending=outcome.pending, said=outcome.message)
        case Duplicate():
            return replace(made, result="known")
        case _:
            return replace(made, why=type(outcome).__name__.lower(), said=outcome.message)


@dataclass(slots=True)
class GatedSkills:
    """The skill library for one review. What it has not read in this review, it does not change."""

    library: SkillLibrary
    book: Book
    writes: ReviewWrites = "stage"
    read: set[tuple[str, str]] = field(default_factory=set)

    def viewed(self, name: str, file: str) -> None:
        """A file of a skill was shown to the model."""
        self.read.add((name.rpartition("/")[2].casefold(), file or "SKILL.md"))

    def apply(self, op: SkillOp, *, author: Author) -> SkillOutcome:
        refused = self._objection(op)
        if refused is not None:
            outcome: SkillOutcome = refused
        elif self.writes == "stage":
            outcome = self.library.propose(op, author=author, reason="proposed by a review")
        else:
            outcome = self.library.apply(op, author=author, reason="review")
        self.book.note(skill_action(op, outcome))
        return outcome

    def _objection(self, op: SkillOp) -> SkillRefused | None:
        if isinstance(op, DeleteSkill) and not op.absorbed_into:
            message = "A review archives a skill only when another one takes over: say which in absorbed_into."
            return SkillRefused(name=op.name, kind="invalid", message=message)
        if isinstance(op, CreateSkill):
            return None
        file = op.file if isinstance(op, PatchSkill | WriteSkillFile) else getattr(op, "file", "SKILL.md")
        if (op.name.rpartition("/")[2].casefold(), file or "SKILL.md") in self.read or self._new_file(op):
            return None
        message = f"Read {file} of {op.name} with skill_view first; what was not read is not changed."
        return SkillRefused(name=op.name, kind="invalid", message=message)

    def _new_file(self, op: SkillOp) -> bool:
        """Whether a file is written that is not there yet: nothing can be lost."""
        if not isinstance(op, WriteSkillFile):
            return False
        skill = self.library.resolve(op.name)
        return not isinstance(skill, SkillRefused) and self.library.read_file(skill.path, op.file) is None


def skill_action(op: SkillOp, outcome: SkillOutcome) -> ReviewAction:
    """What came of an operation on a skill, for the log."""
    what = f"skill {_VERBS.get(type(op), 'change')}"
    made = ReviewAction(what, "refused", op.name[:ROWS_LONGEST], "skill")
    match outcome:
        case SkillWritten():
            return replace(made, result="applied", change=outcome.change)
        case SkillStaged():
            return replace(made, result="staged", pending=outcome.pending, said=outcome.message)
        case SkillUnchanged():
            return replace(made, result="known")
        case SkillRefused():
            return replace(made, why=outcome.kind, said=outcome.message)


_VERBS: dict[type, str] = {
    CreateSkill: "create",
    EditSkill: "edit",
    PatchSkill: "patch",
    DeleteSkill: "archive",
    WriteSkillFile: "write",
}


def _named(op: MemoryOp) -> str:
    return f"memory {type(op).__name__.lower()}"


def _content(op: MemoryOp) -> str:
    return op.old_text if isinstance(op, Remove) else op.content


# ---------- reflect.ear
#
# Who said what in one conversation, so that what the model repeats is known by its speaker.


class Found(Protocol):
    """Something that was recalled for a turn, and whether others said it."""

    @property
    def text(self) -> str: ...

    @property
    def outside(self) -> bool: ...


class Ear:
    """Hears the user and the tools; what our own memory tool answers is known already, other tools are outside."""

    def __init__(self) -> None:
        self.heard = Heard()
        self._asked: dict[str, str] = {}

    def listen(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._asked |= {str(call.get("id")): str(_function(call).get("name")) for call in message.tool_calls}
            text = text_of(message.content)
            if is_summary(text):  # it repeats the user and everybody else alike
                self.heard.add(text, Origin.TOOL_OUTPUT)
            elif message.role == "user":
                self.heard.add(text, Origin.USER_SAID)
            elif message.role == "tool" and self._asked.get(message.tool_call_id or "") != "memory":
                self.heard.add(text, Origin.TOOL_OUTPUT)

    def recalled(self, given: str, found: Sequence[Found]) -> str:
        """What the caller and others recall for a turn, as one text; what is others' words is heard as such."""
        for text in [given, *(one.text for one in found if one.outside)]:
            if text:
                self.heard.add(text, Origin.TOOL_OUTPUT)
        return "\n\n".join(filter(None, [given, *(one.text for one in found)]))

    def told(self, text: object, origin: Origin) -> None:
        """Somebody says that the model was shown this."""
        if not isinstance(text, str):
            raise UsageError(f"What was heard is text, not {type(text).__name__}.", hint="Give it as a string.")
        try:
            self.heard.add(text, Origin(origin))
        except ValueError as exc:
            known = ", ".join(each.value for each in Origin)
            raise UsageError(f"{origin!r} is no origin.", hint=f"There are {known}.") from exc


def _function(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function = call.get("function")
    return function if isinstance(function, Mapping) else {}


# ---------- reflect.hearing
#
# What a conversation rests on: who said what in it, and what there is to compare a new entry with.

_PIECE, _PIECES = 2_000, 100
_CHANGES = 400
"""Newest changes of a document in which removed entries are looked for."""
_MEMORY_BEGINS = f"\n\n{RULE}\n"
_MEMORY_ENDS = "\n\nThis conversation began on "


@dataclass(frozen=True, slots=True)
class Overheard:
    """Who said what: for repetitions to the letter, and as texts."""

    by: Heard
    outside: tuple[str, ...]
    said: tuple[Message, ...]
    grounds: Grounds | None = None
    """Everything that stood in it."""


def listen(view: SessionView, entries: Sequence[str]) -> Overheard:
    """Everything that was heard in a conversation. What memory itself says is nobody's word: it is known already."""
    ear = Ear()
    ear.listen(view.messages)
    tools = [text_of(one.content) for one in view.messages if one.role == "tool" and one.tool_name != "memory"]
    injected = [_without(text, entries) for text in (*_injected(view), *_said_in_prompt(view))]
    for text in injected:
        ear.heard.add(text, Origin.TOOL_OUTPUT)
    pieces = [text[at : at + _PIECE] for text in (*tools, *injected) for at in range(0, len(text), _PIECE)]
    said = tuple(one for one in view.messages if one.role == "user")
    grounds = Grounds(_everything(view, entries), [text_of(one.content) for one in said])
    return Overheard(ear.heard, tuple(pieces[-_PIECES:]), said, grounds)


def _everything(view: SessionView, entries: Sequence[str]) -> Iterator[str]:
    """Whatever the model had before it: the prompt, what was said and sent, its calls and their results."""
    yield view.system_prompt
    yield from entries
    for message in view.messages:
        yield text_of(message.content)
        if message.sent is not None:
            yield text_of(message.sent)
        for call in message.tool_calls:
            yield str(call.get("function", ""))


def _injected(view: SessionView) -> list[str]:
    """What others recalled into the user's messages."""
    found = []
    for message in view.messages:
        content, sent = text_of(message.content), text_of(message.sent)
        if message.role == "user" and sent.startswith(content) and len(sent) > len(content):
            found.append(sent[len(content) :])
    return found


def _said_in_prompt(view: SessionView) -> list[str]:
    """The part of the prompt that is memory: earlier work, and what external memories say."""
    start = view.system_prompt.find(_MEMORY_BEGINS)
    end = view.system_prompt.rfind(_MEMORY_ENDS)
    return [view.system_prompt[start:end]] if 0 <= start < end else []


def _without(text: str, entries: Sequence[str]) -> str:
    for entry in entries:
        text = text.replace(entry, " ")
    return text


def standing(store: MemoryStore, target: Target, scope: Scope) -> list[str]:
    """The entries of a document; none where it is switched off."""
    try:
        return store.entries(target, scope=scope)
    except UsageError:
        return []


class Shelf:
    """Curated memory as a session of this scope knows it: what stands, what waits, what is gone."""

    def __init__(self, store: MemoryStore, elsewhere: Callable[[Target, Scope], Sequence[str]] = lambda *_: ()) -> None:
        self._store = store
        self._elsewhere = elsewhere

    def entries(self, scope: Scope) -> list[str]:
        """Of every document that such a session is shown."""
        places = [("memory", replace(scope, project="")), ("user", scope)]
        if scope.project:
            places.append(("memory", scope))
        return unique(entry for target, where in places for entry in standing(self._store, target, where))  # type: ignore[arg-type]

    def known(self, heard: Overheard) -> Callable[[Target, Scope], Known]:
        """What a new entry has to be compared with."""

        def of(target: Target, scope: Scope) -> Known:
            standing = [*self.entries(scope), *self._waiting(target), *self._elsewhere(target, scope)]
            return Known(standing, self._gone(target, scope), heard.said, heard.outside, heard.grounds)

        return of

    def _waiting(self, target: Target) -> list[str]:
        pending = [one for one in self._store.pending() if one.target == target]
        return [op.content for one in pending for op in one.operations if not isinstance(op, Remove)]

    def _gone(self, target: Target, scope: Scope) -> list[Tombstone]:
        found: list[Tombstone] = []
        for where in dict.fromkeys((scope, replace(scope, project=""))):
            changes = self._store.history(target, scope=where, limit=_CHANGES)
            found += tombstones(changes, lambda text: unique(parse(text)))
        return found

    def enabled(self, scope: Scope) -> list[Target]:
        """Which documents there are."""
        on: list[Target] = []
        for target in TARGETS:
            try:
                self._store.entries(target, scope=scope)
            except UsageError:
                continue
            on.append(target)
        return on
