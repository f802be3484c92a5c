"""Trying the rules on folded text, and only those whose words are all there.

A phrase needs a word for each of its parts; it is tried only on a line that holds them all. So ordinary notes cost a
few set operations, and hardly any expression is ever compiled. No pattern reaches across a line break of folded text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from herma.safety import phrase
from herma.safety.rule import Rule
from herma.safety.rules import RULES

_ONLY_LETTERS = bytes(code if chr(code).islower() or code == 10 else 32 for code in range(128)) + b" " * 128


class Line(NamedTuple):
    """One line of folded text: where it starts, what it says, and its a-z words."""

    start: int
    text: str
    words: set[str]


class Page(NamedTuple):
    """Folded text, taken apart once for all who look at it."""

    text: str
    lines: list[Line]
    words: set[str]


def read(plain: str) -> Page:
    """Take folded text apart. Blanking out all but letters and splitting is much quicker than finding words."""
    letters = plain.encode("ascii", "replace").translate(_ONLY_LETTERS).decode("ascii")
    lines: list[Line] = []
    start = 0
    for text, words in zip(plain.split("\n"), letters.split("\n"), strict=True):
        lines.append(Line(start, text, set(words.split())))
        start += len(text) + 1
    return Page(plain, lines, set().union(*[line.words for line in lines]))


class _Candidate(NamedTuple):
    """A phrase or an expression, to be tried on a line that meets all its `needs` and has a piece of `also`.

    Searching is much faster for an expression that starts with letters than for one that starts with a word border, so
    `at_border` says that the border is to be checked here.
    """

    rule: Rule
    source: str
    is_phrase: bool
    at_border: bool
    needs: frozenset[int]
    also: tuple[str, ...] = ()

    def spans(self, line: str) -> Iterator[tuple[int, int]]:
        expression = _compiled(self.source, self.is_phrase)
        match = expression.search(line)
        while match:
            start, end = match.span()
            inside_word = self.at_border and start and line[start - 1].isalnum()
            if not inside_word:
                yield start, end
            match = expression.search(line, start + 1 if inside_word else max(end, start + 1))


def match_rules(page: Page) -> Iterator[tuple[Rule, int, int]]:
    """Each match of each rule: the rule, start and end."""
    index = _index()
    pieces = index.pieces_in(page.text)
    met_by_line = [index.met_by(line, pieces) for line in page.lines]
    met_somewhere = set().union(*met_by_line)
    candidates = index.possible(met_somewhere)
    for line, met in zip(page.lines, met_by_line, strict=True):
        for candidate in [one for one in candidates if one.needs <= met]:
            if not candidate.also or any(piece in line.text for piece in candidate.also):
                for start, end in candidate.spans(line.text):
                    yield candidate.rule, line.start + start, line.start + end


class _Index:
    """All candidates. A need is a number; it is met by any of several words, or by any of several pieces of text."""

    def __init__(self) -> None:
        self.candidates: list[_Candidate] = []
        self._numbers: dict[frozenset[str], int] = {}
        self._by_word: dict[str, set[int]] = {}
        self._by_piece: dict[str, set[int]] = {}
        for rule in RULES:
            for line in phrase.lines(rule.phrases):
                needs = frozenset(self._number(need) for need in phrase.needs(line))
                self.candidates.append(_Candidate(rule, line, is_phrase=True, at_border=True, needs=needs))
            for pattern in rule.patterns:
                needs = frozenset((self._number(pattern.triggers),))
                for expression in pattern.expressions:
                    source = expression.removeprefix(r"\b")
                    self.candidates.append(_Candidate(rule, source, False, source != expression, needs, pattern.also))
        self._words = frozenset(self._by_word)
        sizes = {number: len(need) for need, number in self._numbers.items()}
        self._by_need: dict[int, list[int]] = {}
        for place, candidate in enumerate(self.candidates):
            self._by_need.setdefault(min(candidate.needs, key=lambda need: sizes[need]), []).append(place)

    def possible(self, met: set[int]) -> list[_Candidate]:
        """The candidates whose needs are all met; each is filed under its most particular need: few are looked at."""
        places = sorted(place for need in met & self._by_need.keys() for place in self._by_need[need])
        return [self.candidates[place] for place in places if self.candidates[place].needs <= met]

    def pieces_in(self, text: str) -> list[str]:
        """The pieces that occur at all. They are of other scripts than ASCII, so most texts have none."""
        return [] if text.isascii() else [piece for piece in self._by_piece if piece in text]

    def met_by(self, line: Line, pieces: list[str]) -> set[int]:
        """The needs that a line meets."""
        met: set[int] = set()
        for word in line.words & self._words:
            met |= self._by_word[word]
        for piece in pieces:
            if piece in line.text:
                met |= self._by_piece[piece]
        return met

    def _number(self, need: frozenset[str]) -> int:
        if need not in self._numbers:
            number = self._numbers[need] = len(self._numbers)
            for one in need:
                table = self._by_word if one.isascii() and one.isalpha() else self._by_piece
                table.setdefault(one, set()).add(number)
        return self._numbers[need]


@cache
def _index() -> _Index:
    return _Index()


@cache
def _compiled(source: str, is_phrase: bool) -> re.Pattern[str]:
    return re.compile(phrase.expression(source) if is_phrase else source)
