"""Porter's stems: the form in which the index knows English words (and does little to others).

The algorithm of 1980, as FTS5 runs it, so that a word found by the index is found again in the text of the message.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

_STEP_2 = (
    *(("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("logi", "log")),
    *(("bli", "ble"), ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize")),
    *(("ation", "ate"), ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful")),
    *(("ousness", "ous"), ("aliti", "al"), ("iviti", "ive"), ("biliti", "ble")),
)
_STEP_3 = (("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""))
_STEP_4 = (
    *("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "sion", "tion"),
    *("ou", "ism", "ate", "iti", "ous", "ive", "ize"),
)


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """The stem of a folded word."""
    if not 3 <= len(word) <= 64:
        return word
    word = _plural(word)
    word = _past(word)
    if word.endswith("y") and _vowel(word[:-1]):
        word = word[:-1] + "i"
    for suffixes in (_STEP_2, _STEP_3):
        for suffix, instead in suffixes:
            if word.endswith(suffix):
                if _measure(word[: -len(suffix)]) > 0:
                    word = word[: -len(suffix)] + instead
                break
    word = _ending(word)
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _short(word[:-1])):
            word = word[:-1]
    if word.endswith("ll") and _measure(word[:-1]) > 1:
        word = word[:-1]
    return word


def _plural(word: str) -> str:
    if not word.endswith("s"):
        return word
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word if word.endswith("ss") else word[:-1]


def _past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        if word.endswith(suffix):
            left = word[: -len(suffix)]
            return _mended(left) if _vowel(left) else word
    return word


def _mended(left: str) -> str:
    """hopping → hop, filing → file: what a cut suffix leaves behind."""
    if left.endswith(("at", "bl", "iz")):
        return left + "e"
    if len(left) > 1 and left[-1] == left[-2] and left[-1] not in "aeioulsz":
        return left[:-1]
    return left + "e" if _measure(left) == 1 and _short(left) else left


def _ending(word: str) -> str:
    for suffix in sorted(_STEP_4, key=len, reverse=True):
        if word.endswith(suffix):
            cut = 3 if suffix in ("sion", "tion") else len(suffix)
            return word[:-cut] if _measure(word[:-cut]) > 1 else word
    return word


def _consonant(word: str, at: int) -> bool:
    if word[at] in "aeiou":
        return False
    return word[at] != "y" or at == 0 or not _consonant(word, at - 1)


def _vowel(word: str) -> bool:
    return any(not _consonant(word, at) for at in range(len(word)))


def _measure(word: str) -> int:
    """How many times vowels are followed by consonants."""
    kinds = [_consonant(word, at) for at in range(len(word))]
    return sum(not before and now for before, now in pairwise(kinds))


def _short(word: str) -> bool:
    """Ends consonant, vowel, consonant other than w, x, y."""
    return (
        len(word) > 2
        and _consonant(word, len(word) - 1)
        and not _consonant(word, len(word) - 2)
        and _consonant(word, len(word) - 3)
        and word[-1] not in "wxy"
    )
