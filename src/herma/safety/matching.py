"""Trying the rules on folded text, and only those whose words are all there.

An index finds the candidates by one telling word each; a candidate is then tried only on a line that holds a word for
each of its parts. So ordinary notes cost a few set operations, and hardly any expression is ever compiled. No pattern
reaches across a line break of folded text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from herma.safety import phrase
from herma.safety.rule import Rule
from herma.safety.rules import RULES

WORDS = re.compile(r"[a-z]+")


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """A phrase or an expression, to be tried if the text has a word of each of `needs` and a piece of `also`.

    Searching is much faster for an expression that starts with letters than for one that starts with a word border, so
    `at_border` says that the border is to be checked here.
    """

    rule: Rule
    source: str
    is_phrase: bool
    at_border: bool
    needs: tuple[frozenset[str], ...] = ()
    also: tuple[str, ...] = ()

    def is_worth_trying(self, line: str, words: set[str]) -> bool:
        if any(map(words.isdisjoint, self.needs)):
            return False
        return not self.also or any(piece in line for piece in self.also)

    def spans(self, line: str) -> Iterator[tuple[int, int]]:
        expression = _compiled(self.source, self.is_phrase)
        match = expression.search(line)
        while match:
            start, end = match.span()
            inside_word = self.at_border and start and line[start - 1].isalnum()
            if not inside_word:
                yield start, end
            match = expression.search(line, start + 1 if inside_word else max(end, start + 1))


@dataclass(frozen=True, slots=True)
class _Index:
    by_word: dict[str, list[_Candidate]] = field(default_factory=dict)
    by_piece: dict[str, list[_Candidate]] = field(default_factory=dict)
    by_foreign_piece: dict[str, list[_Candidate]] = field(default_factory=dict)

    def add(self, trigger: str, candidate: _Candidate) -> None:
        if not trigger.isascii():
            table = self.by_foreign_piece
        else:
            table = self.by_word if trigger.isalpha() else self.by_piece
        table.setdefault(trigger, []).append(candidate)


def match_rules(plain: str, words: set[str]) -> Iterator[tuple[Rule, int, int]]:
    """Each match of each rule: the rule, start and end. `words` are the a-z words of `plain`."""
    candidates = _candidates(plain, words)
    if not candidates:
        return
    offset = 0
    for line in plain.split("\n"):
        here = set(WORDS.findall(line))
        for candidate in candidates:
            if candidate.is_worth_trying(line, here):
                for start, end in candidate.spans(line):
                    yield candidate.rule, offset + start, offset + end
        offset += len(line) + 1


def _candidates(plain: str, words: set[str]) -> list[_Candidate]:
    index = _index()
    wanted: dict[_Candidate, None] = {}
    for word in words & index.by_word.keys():
        wanted.update(dict.fromkeys(index.by_word[word]))
    tables = (index.by_piece,) if plain.isascii() else (index.by_piece, index.by_foreign_piece)
    for table in tables:
        for piece, candidates in table.items():
            if piece in plain:
                wanted.update(dict.fromkeys(candidates))
    return [candidate for candidate in wanted if candidate.is_worth_trying(plain, words)]


@cache
def _compiled(source: str, is_phrase: bool) -> re.Pattern[str]:
    return re.compile(phrase.expression(source) if is_phrase else source)


@cache
def _index() -> _Index:
    index = _Index()
    for rule in RULES:
        for line in phrase.lines(rule.phrases):
            needs = phrase.needs(line)
            candidate = _Candidate(rule, line, is_phrase=True, at_border=True, needs=tuple(needs))
            for trigger in needs[0]:
                index.add(trigger, candidate)
        for one in rule.patterns:
            for expression in one.expressions:
                source = expression.removeprefix(r"\b")
                needs = (
                    [one.triggers] if all(map(str.isalpha, one.triggers)) and "".join(one.triggers).isascii() else []
                )
                candidate = _Candidate(rule, source, False, source != expression, tuple(needs), one.also)
                for trigger in one.triggers:
                    index.add(trigger, candidate)
    return index
