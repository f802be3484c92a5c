"""Trying the rules on folded text, and only those whose trigger words are there."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from herma.safety.rule import Rule, compiled
from herma.safety.rules import RULES


class _Candidate(NamedTuple):
    rule: Rule
    expression: str


class _Index(NamedTuple):
    """Which patterns a trigger calls for: a-z words are looked up whole, other triggers as pieces of text."""

    by_word: dict[str, list[_Candidate]]
    by_piece: dict[str, list[_Candidate]]


def match_rules(plain: str, words: set[str]) -> Iterator[tuple[Rule, int, int]]:
    """Each match of each rule: the rule, start and end. `words` are the a-z words of `plain`."""
    index = _index()
    wanted: dict[_Candidate, None] = {}
    for word in words & index.by_word.keys():
        wanted.update(dict.fromkeys(index.by_word[word]))
    for piece, candidates in index.by_piece.items():
        if piece in plain:
            wanted.update(dict.fromkeys(candidates))
    for rule, expression in wanted:
        for match in compiled(expression).finditer(plain):
            yield rule, match.start(), match.end()


@cache
def _index() -> _Index:
    index = _Index({}, {})
    for rule in RULES:
        for triggers, expression in ((one.triggers, one.expression) for one in rule.all_patterns()):
            for trigger in triggers:
                whole = trigger.isascii() and trigger.isalpha()
                table = index.by_word if whole else index.by_piece
                table.setdefault(trigger.rstrip("*"), []).append(_Candidate(rule, expression))
    return index
