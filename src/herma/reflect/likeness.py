"""Whether two short texts say the same thing in other words, or different things about the same. Pure.

Numbers, names with digits in them and negations carry the meaning of a fact: texts that differ in one of them are
never "the same", however alike they are otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, TypeAlias

from herma.facts.extract import USER, statements
from herma.recall.stem import stem
from herma.recall.stopwords import STOP_WORDS

Likeness: TypeAlias = Literal["same", "changed", "other"]
SAME, ABOUT = 86.0, 70.0
"""Likeness of the words that matter, 0 to 100: from which two texts say the same, or are about the same thing."""
COVERED = 0.8
"""Part of a text's words that another must have to say it already."""
LONGEST, _ENTRY, _FEW = 4_000, 800, 3
_WORD = re.compile(r"[^\W_]+(?:[._/:@-][^\W_]+)*", re.UNICODE)
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
    found = [word for word in _WORD.findall(folded) if word not in _EMPTY]
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
    return tuple(stem(word) for word in _spread(_WORD.findall(text[:LONGEST].casefold())))


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
