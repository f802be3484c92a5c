"""A claim, and when a later one says otherwise. Pure.

The thing is a set of stems, so that "the port of staging" and "the staging port" are one; what is said of it has a
kind (a time, a number, a name), and only claims of one kind can disagree: that a meeting is in room 4 does not deny
that it is on Friday.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from herma.facts.attributes import attribute_of, is_known, names
from herma.facts.naming import HOW
from herma.recall.claims import words as vocabulary
from herma.recall.stem import stem

Kind = Literal["when", "number", "name"]
Relation = Literal["is", "at", "use", "any"]
"""How the thing and what is said of it belong together; `any` where something changed to it."""
Words = frozenset[str]
NONE: Words = frozenset()
SINGLE_WORDS = vocabulary.SINGLE | vocabulary.LIVING | frozenset(name.split()[-1] for name in names())
"""One of these is in whatever claims something that has one value, in English."""
_WHEN = re.compile(
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?|(?:jan|febr)uary|march|april|may|june|july|august|(?:sept|nov|dec)ember|october"
    r"|\d{1,2}:\d\d|(?:\d{1,2})?(?:am|pm)|noon|midnight|hourly|daily|weekly|monthly|every|tomorrow|morning|evening|afternoon"
    r"|\d{4}-\d\d-\d\d|o'clock|(?:mon|diens|donners|frei|sams|sonn)tags?|mittwochs?|uhr|januar|februar|marz|mai|juni|juli|oktober|dezember"
)
_NUMBER = re.compile(
    r"[€$£~#]?\d[\d.,:%/-]*[a-z%]{0,4}|(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|hundred"
    r"|ein|zwei|drei|vier|funf|sechs|sieben|acht|neun|zehn)"
)
_DIGITS = re.compile(r"\d[\d.,]*\d|\d")
_VERSIONED = re.compile(r"v?\d{1,4}(?:\.\d{1,4}){0,3}")


_DOING = {
    "locat": ("live", "based", "living", "wohne", "lebe", "住", "搬"),
    "employ": ("work", "arbeite", "工作", "上班"),
}
_DOING["job"] = _DOING["employ"]


@dataclass(frozen=True, slots=True)
class Claim:
    """What a thing is said to be. `new`: that it was not so before; `weak`: of the past, for the day or besides others,
    so it makes nothing else outdated; `single`: it can be but one; `former`: what it is said to be no longer.
    """

    thing: Words
    value: Words
    kind: Kind = "name"
    relation: Relation = "is"
    new: bool = False
    weak: bool = False
    single: bool = False
    former: Words = NONE


def says_otherwise(later: Claim, earlier: Claim) -> bool:
    """Whether the later claim makes the earlier one outdated."""
    if later.weak:
        return False
    if later.former and _same(later.former, earlier.value) and (not later.thing or _about_the_same(later, earlier)):
        return not later.value or not _same(later.value, earlier.value)
    if not later.value or not earlier.value or not _about_the_same(later, earlier) or later.kind != earlier.kind:
        return False
    if not (later.new or (later.single and earlier.single)) or not _comparable(later, earlier):
        return False
    return not _same(later.value, earlier.value)


def says_the_same(later: Claim, earlier: Claim) -> bool:
    """Whether the later claim repeats the earlier one."""
    return (later.kind, later.thing) == (earlier.kind, earlier.thing) and _same(later.value, earlier.value)


def _about_the_same(one: Claim, other: Claim) -> bool:
    return bool(one.thing) and one.thing == other.thing


def _comparable(one: Claim, other: Claim) -> bool:
    if one.kind != "name" or "any" in (one.relation, other.relation):
        return True
    return one.relation == other.relation or {one.relation, other.relation} == {"is", "use"}


def _same(one: Words, other: Words) -> bool:
    """Whether two values may be the same: one says more than the other."""
    return one <= other or other <= one


def key_of(words: Sequence[str], kind: Kind = "name") -> Words:
    """The thing that these words name, whatever their order and number."""
    named = [vocabulary.ONE_NAME.get(word, word) for word in _bare(words)]
    known = attribute_of(" ".join(named), str) if named and is_known(" ".join(named)) else ""
    left = {stem(word) for word in (known.split() if known else named) if word not in vocabulary.SMALL}
    if kind == "when":
        left = left - {stem(word) for word in vocabulary.TIMES} or left
    fewer = left - {stem(word) for word in vocabulary.CLASSES}
    return frozenset(fewer or left)


def is_single(words: Sequence[str], *, own: bool) -> bool:
    """Whether what these words name has one value at a time. `own`: somebody said "my" or "our"."""
    named = [vocabulary.ONE_NAME.get(word, word) for word in _bare(words)]
    if not named:
        return False
    if named[0] == "favorite" and own:
        return not named[-1].endswith("s") or len(named) < 2
    if own and is_known(" ".join(named)):
        return True
    return bool(vocabulary.SINGLE & set(named)) and (own or len(named) > 1)


def signs_of(thing: Words) -> tuple[tuple[str, ...], ...]:
    """For each word of a thing, pieces one of which is in any text that names it."""
    return tuple(_pieces(word) for word in thing if not word.startswith("@"))


@lru_cache(maxsize=4_096)
def _pieces(word: str) -> tuple[str, ...]:
    others = [short for short, long in vocabulary.ONE_NAME.items() if stem(long) == word]
    known = [name for name, kept in names().items() if word in map(stem, kept.split())]
    return tuple(
        dict.fromkeys(
            (
                word[: max(2, min(4, len(word) - 1))] if word.isascii() else word[:2],
                *others,
                *known,
                *_DOING.get(word, ()),
            )
        )
    )


def value_of(words: Sequence[str], *, versions: bool = True) -> tuple[Words, Kind, tuple[str, ...]]:
    """What is said of a thing: its words, their kind, and what they add to the thing ("port 5433": "port"). No words
    where it says how the thing is, and not what.
    """
    named = _bare(words)
    if not named or len(named) > 7:
        return NONE, "name", ()
    if named[0] == "port" and len(named) > 1 and named[1].isdigit():
        return frozenset((named[1],)), "number", ("port",)
    if versions and len(named) == 2 and _has_versions(named[0]) and _VERSIONED.fullmatch(named[1]):
        return frozenset((named[1].lstrip("v"),)), "number", (named[0],)
    if any(_WHEN.fullmatch(word) for word in named[:4]):
        return frozenset(word for word in named if word not in vocabulary.SMALL), "when", ()
    if _NUMBER.fullmatch(named[0]):
        digits = frozenset(_DIGITS.findall(" ".join(named))) or frozenset(named[:1])
        return digits, "number", ()
    if _tells_how(words, named):
        return NONE, "name", ()
    return frozenset(word for word in named if word not in vocabulary.SMALL), "name", ()


def _has_versions(name: str) -> bool:
    """Whether a number after this name may be its version, and is not the third floor, or May."""
    if len(name) < 3 or not name.isalpha() or _WHEN.fullmatch(name):
        return False
    return name not in ("version", "room", "floor", "gate", "level")


def _tells_how(words: Sequence[str], named: Sequence[str]) -> bool:
    first = named[0]
    if first in HOW or (first.endswith("ly") and len(named) > 1):
        return True
    given = bool(words) and words[0] in vocabulary.ARTICLES
    return not given and len(first) > 4 and first.endswith(("ing", "ed"))


def _bare(words: Sequence[str]) -> list[str]:
    at = 0
    while at < len(words) and words[at] in vocabulary.ARTICLES:
        at += 1
    return [word for word in words[at:] if word not in vocabulary.ARTICLES]
