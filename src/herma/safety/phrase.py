"""A small language for phrases, so that the rules can be read aloud.

    !<ignore> .. <prior> .. <orders>        "forget everything in the earlier guidelines"
    do anything !now                        exactly these words
    (do not|never) tell the? !user|users    "never tell the user"

`a|b` is a choice, `(a b|c)` a choice with spaces, `<name>` a family of words (`vocabulary.py`), `word?` may be absent,
`_` is any one word, `stem*` any ending, `..` up to 30 characters between, `...` up to 80. Between words may stand a
space, a comma, a dash or an underscore. `!` marks the word that must occur before the phrase is tried at all.

Every repetition is bounded, so the time to match grows with the text and with nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import dedent

from herma.safety.vocabulary import FAMILIES

_BETWEEN = r"""[ ,;:/_"'*()-]{1,3}"""
_ANY_WORD = r"[\w'.-]{1,20}"
_GAPS = {"..": 30, "...": 80}
_CONTINUED = re.compile(r"\n +")
_BAR = re.compile(r" ?\| ?")
_CHOICE = re.compile(r"\|(?![^()]*\))")
_SPACE = re.compile(r" (?![^()]*\))")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression, and the words or pieces of text of which one must occur before it is worth trying."""

    triggers: tuple[str, ...]
    expression: str


def read_phrases(phrases: str) -> tuple[Pattern, ...]:
    """One pattern per line; a line that is indented further continues the one before."""
    whole = _CONTINUED.sub(" ", dedent(phrases).strip())
    return tuple(read_phrase(line) for line in whole.splitlines())


def read_phrase(phrase: str) -> Pattern:
    """The pattern for one phrase."""
    triggers: list[str] = []
    parts: list[str] = []
    apart = ""
    for token in _SPACE.split(_BAR.sub("|", " ".join(phrase.split()))):
        word = token.lstrip("!").removesuffix("?")
        if token.startswith("!"):
            triggers.extend(_longest_word(choice) for choice in _choices(word))
        if word in _GAPS:
            parts.append(rf"[^\n]{{0,{_GAPS[word]}}}?")
            apart = ""
        elif token.endswith("?"):
            parts.append(rf"(?:{apart}{_one_of(word)})?")
        else:
            parts.append(apart + _one_of(word))
        if word not in _GAPS:
            apart = _BETWEEN
    if not triggers:
        raise ValueError(f"no trigger marked in the phrase: {phrase!r}")
    return Pattern(tuple(triggers), "".join(parts))


def _one_of(word: str) -> str:
    if word == "_":
        return _ANY_WORD
    return r"\b(?:" + "|".join(_spell(choice) for choice in _choices(word)) + r")\b"


def _choices(word: str) -> Iterator[str]:
    for choice in _CHOICE.split(word):
        if choice.startswith("<"):
            yield from FAMILIES[choice.strip("<>")]
        elif choice.startswith("("):
            yield from choice.strip("()").split("|")
        else:
            yield choice


def _spell(choice: str) -> str:
    escaped = re.escape(choice).replace(r"\*", r"\w{0,10}").replace(r"\ ", _BETWEEN)
    return escaped.replace(r"\-", "[ -]?")


def _longest_word(choice: str) -> str:
    """The longest word of the choice: if that is not in the text, the choice cannot be either."""
    return max(re.split(r"[ '-]", choice), key=len)
