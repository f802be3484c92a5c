"""How people name things in passing: js for JavaScript, NYC, k8s, twenty-five, 1.5k. Pure.

A model that writes such a thing out has made nothing up. Only whole words that a person said count, and none of those
that everybody says: "on" is no short form of Ontario.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

from herma.recall.stopwords import NOT_ENGLISH, STOP_WORDS

_TOKEN = re.compile(r"[^\W_]+")
_LONGEST = 32
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
        words = [word for word in _TOKEN.findall(folded)[:_MOST_WORDS] if len(word) <= _LONGEST]
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
