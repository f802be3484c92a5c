"""A small language for phrases, so that the rules can be read aloud.

    <ignore> .. <prior> .. <orders>         "forget everything in the earlier guidelines"
    do anything now                         exactly these words
    (do not|never) tell the? user|users     "never tell the user"

`a|b` is a choice, `(a b|c)` a choice with spaces, `<name>` a family of words (`vocabulary.py`), `word?` may be absent,
`_` is any one word, `..` up to 30 characters between, `...` up to 80. Between words may stand up to three
characters that are not letters.

Every repetition is bounded, so the time to match grows with the text and with nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from textwrap import dedent

from herma.safety.vocabulary import FAMILIES

_BETWEEN = r"(?:(?![.!?] )[^\w\n]|_){1,3}"
_START = r"(?<![a-z0-9])"
_END = r"(?![a-z0-9])"
_ANY_WORD = r"[\w'.-]{1,20}"
_GAPS = {"..": 30, "...": 80}
_CONTINUED = re.compile(r"\n +")
_BAR = re.compile(r" ?\| ?")
_SPACE = re.compile(r" (?![^()]*\))")
_WORD = re.compile(r"[a-z]+")


def lines(phrases: str) -> list[str]:
    """The phrases of a block: one a line; a line that is indented further continues the one before."""
    return _CONTINUED.sub(" ", dedent(phrases).strip()).splitlines()


def needs(phrase: str) -> list[frozenset[str]]:
    """What a text must hold for the phrase to match: of each set, one word."""
    return [
        frozenset(_longest_word(choice) for choice in _choices(word))
        for word, optional in _tokens(phrase)
        if not optional and word not in _GAPS and word != "_"
    ]


def expression(phrase: str) -> str:
    """The regular expression of a phrase. It leaves the word border before its first word to the caller: a pattern
    that starts with letters is searched for much faster than one that starts with a border."""
    parts: list[str] = []
    apart = ""
    for word, optional in _tokens(phrase):
        if word in _GAPS:
            parts.append(rf"[^\n]{{0,{_GAPS[word]}}}?")
            apart = _START
            continue
        one = _ANY_WORD if word == "_" else "(?:" + "|".join(map(_spell, _choices(word))) + f"){_END}"
        parts.append(f"(?:{apart}{one})?" if optional else apart + one)
        apart = r"(?:[^\w\n]|_){0,3}" + _START if optional and apart == _START else _BETWEEN
    return "".join(parts)


def _tokens(phrase: str) -> Iterator[tuple[str, bool]]:
    """Each word of the phrase, and whether it may be absent."""
    for token in _SPACE.split(_BAR.sub("|", " ".join(phrase.split()))):
        yield token.removesuffix("?"), token.endswith("?")


@cache
def _choices(word: str) -> tuple[str, ...]:
    found: list[str] = []
    for choice in word.strip("()").split("|"):
        found.extend(FAMILIES[choice.strip("<>")] if choice.startswith("<") else [choice])
    return tuple(found)


def _spell(choice: str) -> str:
    return re.escape(choice).replace(r"\ ", _BETWEEN).replace(r"\-", "[ -]?")


@cache
def _longest_word(choice: str) -> str:
    """The longest a-z word of the choice: if that is not in the text, the choice cannot be either."""
    words: list[str] = _WORD.findall(choice)
    return max(words, key=len)
