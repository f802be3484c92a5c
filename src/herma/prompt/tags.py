"""How a fence tag can be spelt: the grammar that `scrub`, `sanitize` and `fence` share.

A tag is `<`, an optional `/`, the name, and a boundary. Models, editors and JSON encoders vary it, so it is read unit
by unit: a unit is one character or one escape (`&lt;`, `&#60;`, `%3C`, `\\u003c`, `\\/`), folded to the ASCII sign it
stands for. White space and invisible characters between units do not count. A `<` occurs only as the first unit of a
tag, so a failed attempt never has to be read again: reading is linear by construction.
"""

from __future__ import annotations

import re
import unicodedata
from enum import Enum
from functools import cache, lru_cache
from typing import NamedTuple

from herma.safety.fold import fold

TAG = "memory-context"

_OPENERS = "<＜﹤‹〈\u2329⟨❮❰⧼˂ᐸ"
_CLOSERS = ">＞﹥›〉\u232a⟩❯❱⧽˃ᐳ"
_SLASHES = "/／⁄∕⧸╱"
_DASHES = "-‐‑‒–—―−﹣－ー_＿"
# Letters of the name whose imitations the general table reads as other letters, or does not know.
_LETTERS = {
    "τ": "t",
    "Τ": "t",
    "т": "t",
    "м": "m",
    "ⅿ": "m",
    "г": "r",
    "ʏ": "y",
    "ү": "y",
    "ϲ": "c",
    "×": "x",
    "ո": "n",
}

# Without ASCII, ignoring case would take the long ſ for an s, and the Kelvin sign for a k.
_FLAGS = re.IGNORECASE | re.ASCII
_NAMES = {"lt": "<", "gt": ">", "sol": "/", "hyphen": "-", "dash": "-", "lowbar": "-", "nbsp": " "}
_ESCAPE = (
    rf"&(?:amp;){{0,2}}+(?:#x(?P<hex>[0-9a-f]{{1,7}}+)|#(?P<dec>[0-9]{{1,7}}+)|(?P<name>{'|'.join(_NAMES)}));?+"
    r"|%(?P<percent>[0-7][0-9a-f])"
    r"|\\u(?P<u>[0-9a-f]{4})|\\x(?P<x>[0-9a-f]{2})|\\(?P<slash>/)"
)


def _beginnings(*words: str) -> str:
    """Every beginning of these words, themselves included, the longest first."""
    found = {word[:end] for word in words for end in range(1, len(word) + 1)}
    return "|".join(sorted(found, key=lambda word: (-len(word), word)))


STARTERS = f"{_OPENERS}&%\\\\"
_LESS_THAN = (
    rf"(?<=[{_OPENERS}])"
    r"|(?<=&)(?:amp;){0,2}+(?:#x0{0,5}+3c(?![0-9a-f])|#0{0,5}+60(?![0-9])|lt);?+"
    r"|(?<=%)3c|(?<=\\)(?:u003c|x3c)"
)
_HALF_LESS_THAN = (
    rf"(?<=&)(?:amp;){{0,2}}+(?:#x0{{0,5}}+3?+|#0{{0,5}}+6?+|{_beginnings('amp', 'l')})?+"
    r"|(?<=%)3?+|(?<=\\)(?:u(?:0(?:0(?:3)?+)?+)?+|x3?+)?+"
)
_HALF_ESCAPE = (
    rf"(?:&(?:amp;){{0,2}}+(?:#x[0-9a-f]{{0,7}}+|#[0-9]{{0,7}}+|{_beginnings('amp', *_NAMES)})?+"
    r"|%[0-7]?+|\\(?:u[0-9a-f]{0,3}+|x[0-9a-f]?+)?+)"
)
_OPENER = rf"[{STARTERS}](?:{_LESS_THAN})"
# An opener that may still grow: half of one, or a whole one that may get its `;` or turn out to be a longer number.
_GROWING = rf"(?:[&%\\](?:{_HALF_LESS_THAN})\Z|&(?:amp;){{0,2}}+(?:#x0{{0,5}}+3c|#0{{0,5}}+60|lt)\Z)"
# What may follow the `<` of a tag; anything else of ASCII cannot, and most `<` are done with here.
_SPECIAL = r"<&%\\\x00-\x1f\x7f-\U0010ffff"
_PLAUSIBLE = rf"(?![\s/]*+(?:[^\s/m{_SPECIAL}]|m[^e{_SPECIAL}]))"
_BEFORE = rf"(?:{_HALF_LESS_THAN})(?={_OPENER}{_PLAUSIBLE})"


class Patterns(NamedTuple):
    """The patterns that take long to compile; most texts hold no sign that could begin a tag and need none of them."""

    escape: re.Pattern[str]
    unfinished: re.Pattern[str]
    """The beginning of an escape, at the very end of what has arrived."""
    half_before_opener: re.Pattern[str]
    """The beginning of an escape, with a `<` where its end should be."""
    opener: re.Pattern[str]
    """A unit that stands for `<`, unless what follows shows at once that it begins no tag; or half of one."""
    opener_or_half: re.Pattern[str]


def may_begin(text: str) -> bool:
    """Whether a tag can begin anywhere in a text. Single characters are looked for much faster than one of a set."""
    if text.isascii():
        return "<" in text or "&" in text or "%" in text or "\\" in text
    return STARTER.search(text) is not None


@cache
def patterns() -> Patterns:
    """Compiled when first needed."""
    # Looking behind spares a plain `<`, by far the most frequent, what only escapes can be.
    escaped = rf"(?:{_LESS_THAN}){_PLAUSIBLE}|(?P<half>(?:{_HALF_LESS_THAN})(?:\Z|{_GROWING}))|{_BEFORE}"
    sources = (
        _ESCAPE,
        rf"{_HALF_ESCAPE}(?:\Z|{_GROWING})",
        rf"{_HALF_ESCAPE}(?={_OPENER})",
        rf"[{STARTERS}](?:(?:{_LESS_THAN}){_PLAUSIBLE}|{_BEFORE})",
        rf"[{STARTERS}](?:(?<=[{_OPENERS}]){_PLAUSIBLE}|(?<=[&%\\])(?:{escaped}))",
    )
    return Patterns(*(re.compile(source, _FLAGS) for source in sources))


STARTER = re.compile(f"[{STARTERS}]")
FILLER = re.compile(r"\s+")
PLAIN = re.compile(r"(?P<lead>[\s/]*+)memory[\s_-]*+context", _FLAGS)
"""The head after its `<` in plain ASCII and in one piece: nearly every real tag. Stepping through it finds the same."""
PLAIN_HEAD = re.compile(rf"{PLAIN.pattern}(?=[\s/<>])", _FLAGS)
HALF_PLAIN = re.compile(
    rf"<[\s/]{{0,8}}+(?:{_beginnings('memory')})?+(?:(?<=y)[\s_-]?+(?:{_beginnings('context')})?+)?+\Z", _FLAGS
)
"""The beginning of such a head, at the very end of what has arrived. Short, so that it may be read again."""
PLAIN_REST = re.compile(r"[!-$'-.0-;=?-\[\]-~]+")
"""Inside an opening tag: plain signs that neither end it nor matter."""


class Step(Enum):
    """What one more unit says about an attempt to read a tag."""

    MORE = 0
    NO = 1
    TAG = 2


@lru_cache(maxsize=4096)
def folded(char: str) -> str:
    """The ASCII sign a character stands for in a tag; " " for white space, "" for what cannot be seen."""
    if char in _OPENERS:
        return "<"
    if char in _CLOSERS:
        return ">"
    if char in _SLASHES:
        return "/"
    if char in _DASHES:
        return "-"
    if char.isspace():
        return " "
    if char in _LETTERS:
        return _LETTERS[char]
    if unicodedata.category(char) in ("Cf", "Mn", "Me", "Cc"):
        return ""
    plain = fold(char, lookalikes=True).text
    return plain if len(plain) == 1 and plain not in "<>" else "?"


def unit_at(text: str, at: int) -> tuple[str, int]:
    """The unit that begins at `at`. → the sign it stands for, and where it ends."""
    if text[at] in "&%\\":
        match = patterns().escape.match(text, at)
        if match is not None:
            return _sign(match), match.end()
    return folded(text[at]), at + 1


def _sign(match: re.Match[str]) -> str:
    kind = match.lastgroup or ""
    value = match.group(kind)
    if kind == "name":
        return _NAMES[value.lower()]
    if kind == "slash":
        return "/"
    code = int(value, 10 if kind == "dec" else 16)
    return folded(chr(code)) if code <= 0x10FFFF else "?"


class Attempt:
    """Reads the head of one tag after its `<`. `closing` is known as soon as the name begins."""

    __slots__ = ("_at", "closing")

    _NAME = "memorycontext"
    _JOINT = len("memory")

    def __init__(self) -> None:
        self.closing = False
        self._at = 0

    @property
    def named(self) -> bool:
        """Whether the whole name has been read."""
        return self._at == len(self._NAME)

    def step(self, sign: str) -> Step:
        """Take one more unit. TAG: the unit before this one completed a tag's head; this one is its boundary."""
        at = self._at
        if sign == "":
            return Step.MORE
        if at == len(self._NAME):
            return Step.TAG if sign in " />" or sign == "<" else Step.NO
        if sign == self._NAME[at]:
            self._at = at + 1
            return Step.MORE
        if at == 0 and sign in " /":
            self.closing = self.closing or sign == "/"
            return Step.MORE
        if at == self._JOINT and sign in " -":
            return Step.MORE
        return Step.NO
