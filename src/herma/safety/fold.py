"""The text as the rules see it: plain lower-case letters, single spaces, nothing invisible.

Folding works character by character, so that any place in the folded text can be traced back to the original. The
trace is built only when a rule has matched; clean text never pays for it.

Line breaks: a break inside a sentence becomes a space, so that a phrase cannot hide by wrapping; a break before a
list item, a heading or an empty line stays a line break, so that two separate notes are not read as one sentence.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

# White space that is not already one plain space.
_SPACES = re.compile(r"[ \t\n\r\f\v](?:(?<! )|(?=[ \t\n\r\f\v]))[ \t\n\r\f\v]*")
_BREAKS = re.compile(r"\n+")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_ITEM_STARTS = frozenset("-*•#>§|+0123456789")


class _FoldTable(dict[int, str]):
    """What each character folds to, worked out on first sight."""

    def __init__(self, lookalikes: bool) -> None:
        super().__init__()
        self._lookalikes = lookalikes

    def __missing__(self, code: int) -> str:
        folded = "".join(self._one(char) for char in unicodedata.normalize("NFKC", chr(code)))
        self[code] = folded
        return folded

    def _one(self, char: str) -> str:
        if char.isascii():
            return char.lower()
        category = unicodedata.category(char)
        if category in ("Cf", "Mn", "Me", "Cc", "Co", "Cn"):
            return "" if category != "Mn" or ord(char) < 0x370 or 0xFE00 <= ord(char) <= 0xFE0F else char
        if category in ("Zs", "Zl", "Zp"):
            return "\n" if category == "Zp" else " "
        if char in "‘’‛`´":
            return "'"
        if char in "“”„‟":
            return '"'
        if char in "‐‑‒–—―−":
            return "-"
        base = unicodedata.normalize("NFD", char)[0]
        if base.isascii():
            return base.lower()
        if self._lookalikes:
            from herma.safety.lookalikes import LOOKALIKES

            return LOOKALIKES.get(char) or LOOKALIKES.get(base.lower(), char.lower())
        return char.lower()


@cache
def _table(lookalikes: bool) -> _FoldTable:
    return _FoldTable(lookalikes)


def _gap(match: re.Match[str]) -> str:
    """What a run of white space becomes: a line break where something new begins, else one space."""
    run = match.group()
    if "\n" not in run:
        return " "
    after = match.end()
    if run.count("\n") > 1 or after >= len(match.string) or match.string[after] in _ITEM_STARTS:
        return "\n"
    return " "


class Folded:
    """Folded text, and the way back to the original, which is worked out when it is first asked for."""

    def __init__(self, text: str, original: str, lookalikes: bool = False) -> None:
        self.text = text
        self._original = original
        self._lookalikes = lookalikes
        self._origins: list[int] | None = None

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Where `text[start:end]` stands in the original."""
        if self._origins is None:
            self._origins = _origins(self._original, self._lookalikes)
        last = self._origins[min(max(end - 1, start), len(self._origins) - 1)]
        return self._origins[start], last + 1


def fold(text: str, *, lookalikes: bool = False) -> Folded:
    """Fold `text`; with `lookalikes`, letters of other scripts become the Latin letters they resemble."""
    return Folded(_collapse(_translate(text, lookalikes)), text, lookalikes)


def _collapse(plain: str) -> str:
    """Make each run of white space one character. Most text has no runs but line breaks, which are quickly found."""
    if any(run in plain for run in ("  ", " \n", "\n ", "\t", "\r", "\f", "\v")):
        return _SPACES.sub(_gap, plain)
    return _BREAKS.sub(_gap, plain)


def _translate(text: str, lookalikes: bool) -> str:
    """Fold each character. Latin text with a few signs of its own is quicker done sign by sign."""
    if text.isascii():
        return text.lower()
    table = _table(lookalikes)
    signs = set(_NOT_ASCII.findall(text))
    if len(signs) > 12 or not all(table[ord(sign)].isascii() or table[ord(sign)] == sign for sign in signs):
        return text.translate(table)
    for sign in signs:
        text = text.replace(sign, table[ord(sign)])
    return text.lower()


def _origins(text: str, lookalikes: bool) -> list[int]:
    """For each character of the folded text, the offset of the original character it came from."""
    table = _table(lookalikes)
    pieces = [char.lower() if text.isascii() else table[ord(char)] for char in text]
    starts: list[int] = []
    for offset, piece in enumerate(pieces):
        starts.extend([offset] * len(piece))
    plain = "".join(pieces)
    origins: list[int] = []
    done = 0
    for run in _SPACES.finditer(plain):
        origins.extend(starts[done : run.start()])
        origins.append(starts[run.start()])
        done = run.end()
    origins.extend(starts[done:])
    return origins or [0]
