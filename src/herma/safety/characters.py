"""Characters that hide text from a reader, or pass for others.

What scripts need is let through: joiners between emoji and in Persian or Indic words, direction marks in Arabic and
Hebrew text, variation selectors, flags. What has no honest use in a note is reported.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import pairwise

from herma.safety.controls import code_point
from herma.safety.lookalikes import LOOKALIKES
from herma.types import Finding

_SUSPECT = re.compile(
    "[\u200b-\u200f\u061c\u180e\u2060-\u2064\u2066-\u206f\ufeff\u202a-\u202e\u115f\u1160\u3164\uffa0\ufff9-\ufffb"
    "\ufe00-\ufe0f\U000e0000-\U000e01ef\x80-\x84\x86-\x9f]"
)
# Runs of letters, without the scripts that write no spaces between words.
_WORD = re.compile("[^\\W\\d_\u0e00-\u0eff\u1780-\u17ff\u3000-\u9fff\uac00-\ud7a3]+")
_OVERRIDES = "\u202d\u202e"
_OPENERS = "\u202a\u202b\u2066\u2067\u2068"
_CLOSERS = "\u202c\u2069"
_JOINERS = "\u200c\u200d"
_MARKS = "\u200e\u200f\u061c"

# Scripts whose writing uses joiners, or marks word borders with a zero-width space.
_JOINING = re.compile(
    "[\u0600-\u08ff\u0900-\u0dff\u0e00-\u0eff\u0f00-\u109f\u1780-\u17ff\u1800-\u18af\u1a20-\u1aaf\u1b00-\u1c4f"
    "\ua800-\uaaff\ufb50-\ufdff\ufe70-\ufeff\U00010a00-\U00011fff\U0001e900-\U0001e95f]"
)
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]")
_FOREIGN = re.compile("[\u0370-\u03ff\u0400-\u052f\u0531-\u058f\u13a0-\u13ff\uff21-\uff5a\U0001d400-\U0001d7ff]")
_STYLED = re.compile("[\uff21-\uff3a\uff41-\uff5a\U0001d400-\U0001d7cb]")
_GREEK = re.compile("[\u0370-\u03ff]")
_GREEK_TRAPS = frozenset("ονιυΑΒΕΖΗΙΚΜΝΟΡΤΥΧ")


def find_hidden(text: str) -> Iterator[Finding]:
    """Invisible characters, direction overrides, tag characters and smuggled selectors."""
    for match in _SUSPECT.finditer(text):
        at, char = match.start(), match.group()
        if char in _OVERRIDES or char in _OPENERS or char in _CLOSERS:
            if not _direction_is_honest(text, at, char):
                yield Finding(
                    "bidi_control", (at, at + 1), "high", f"direction control {code_point(char)} reorders text"
                )
        elif "\U000e0000" <= char <= "\U000e007f":
            if not _in_flag(text, at):
                yield Finding("tag_character", (at, at + 1), "high", "invisible tag characters can carry hidden text")
        elif _is_selector(char):
            if at and _is_selector(text[at - 1]):
                yield Finding("invisible_character", (at, at + 1), "high", "repeated variation selectors hide data")
        elif not _has_a_use(text, at, char):
            yield Finding("invisible_character", (at, at + 1), "high", f"invisible character {code_point(char)}")


def _has_a_use(text: str, at: int, char: str) -> bool:
    before, after = text[max(0, at - 1) : at], text[at + 1 : at + 2]
    if char == "\ufeff":
        return at == 0
    if char in _JOINERS:
        return _joins(before) or _joins(after)
    if char == "\u200b":
        around = (text[max(0, at - 4) : at].rstrip(char)[-1:], text[at + 1 : at + 5].lstrip(char)[:1])
        return all(side.isalpha() and not side.isascii() for side in around)
    if char in _MARKS:
        return not (before.isascii() and after.isascii() and before.isalpha() and after.isalpha())
    return False


def _joins(char: str) -> bool:
    """Whether a joiner next to this character is part of ordinary writing."""
    if not char or char.isascii():
        return False
    return bool(_JOINING.match(char)) or _is_selector(char) or unicodedata.category(char) in ("So", "Sk", "Mn", "Mc")


def _is_selector(char: str) -> bool:
    return "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef"


def _in_flag(text: str, at: int) -> bool:
    """Whether the tag at `at` belongs to a flag: a black flag, up to eight tags, and the closing tag."""
    flag = text.rfind("\U0001f3f4", max(0, at - 8), at)
    close = text.find("\U000e007f", at, at + 8)
    return flag >= 0 <= close and all("\U000e0000" <= char <= "\U000e007f" for char in text[flag + 1 : close])


def _direction_is_honest(text: str, at: int, char: str) -> bool:
    """Balanced embeddings and isolates are honest around right-to-left text, and around numbers."""
    if char in _OVERRIDES:
        return False
    before = text[max(0, at - 400) : at].rsplit("\n", 1)[-1]
    line = before + text[at : at + 400].split("\n", 1)[0]
    opened = sum(line.count(mark) for mark in _OPENERS)
    closed = sum(line.count(mark) for mark in _CLOSERS)
    if opened != closed:
        return False
    return bool(_RIGHT_TO_LEFT.search(line)) or not any(letter.isalpha() for letter in line)


def find_lookalikes(text: str) -> Iterator[Finding]:
    """Words that mix Latin letters with letters of another script that pass for Latin ones."""
    if not _FOREIGN.search(text):
        return
    words = list(_WORD.finditer(text))
    native = any(_is_native(match.group()) for match in words)
    for match in words:
        word = match.group()
        if not word.isascii() and _FOREIGN.search(word) and _is_mixed(word, native):
            yield Finding("lookalike_letters", match.span(), "high", "letters of several scripts imitate one word")


def _is_native(word: str) -> bool:
    """A whole word of a foreign script, not merely made of look-alikes: the text is written in that script."""
    return all(_FOREIGN.match(char) and not _STYLED.match(char) for char in word) and any(
        char not in LOOKALIKES for char in word.lower()
    )


def _is_mixed(word: str, native: bool) -> bool:
    foreign = [bool(_FOREIGN.match(char)) for char in word]
    if all(foreign) or not any(char.isascii() for char in word):
        return False
    strangers = [char for char in word if _FOREIGN.match(char)]
    switches = sum(one != other for one, other in pairwise(foreign))
    if any(_STYLED.match(char) for char in strangers):
        return len(word) > 2
    if all(_GREEK.match(char) for char in strangers):
        # A Greek letter at either end is how units, genes and mathematics are written: μm, TNFα, Δt.
        return any(char in _GREEK_TRAPS for char in strangers) or (switches > 1 and len(word) > 3)
    if switches > 1:
        return True
    # "PDFка" is a Latin word with a Russian ending; a lone look-alike in otherwise Latin text is not.
    return not native and all(char in LOOKALIKES for char in strangers)
