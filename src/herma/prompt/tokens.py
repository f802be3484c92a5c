"""How many tokens a text takes, without a vocabulary.

Tokenizers first split a text into pieces (a word with the space before it, up to three digits, a run of signs, white
space) and then break each piece up. The split is public and is done here; how many tokens a piece breaks into is
estimated from its length and its looks, with constants fitted to exact counts (`benchmarks/tokens.py` checks them on
texts they were not fitted to). Scripts without spaces are counted by the character. The result errs on the high side:
a budget that turns out too small costs a little room, one that is too large costs a failed call.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache, lru_cache

from herma.prompt.families import FAMILIES, Family

_LATIN = "a-zß-öø-ɏɐ-ʯḀ-ỿ"
_WORD = rf"[^\r\n\w]?(?:[A-ZÀ-ÖØ-Þ]*[{_LATIN}]+|[A-ZÀ-ÖØ-Þ]+)(?:'(?:[sdmt]|ll|ve|re)\b)?"
_PIECES = re.compile(rf"{_WORD}| ?[!-/:-@\[-`{{-~]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+(?=[!-~])|[\x00-\x08\x0e-\x1b\x7f]")
_DIGITS = re.compile(r"\d{1,3}")
_DIGIT = re.compile(r"\d")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_LATIN_LETTER = re.compile(r"[A-Za-z\u00c0-\u024f\u1e00-\u1eff]")
_LATIN_RUNS = re.compile(r"[\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02af\u1e00-\u1eff]+")
# First letter → the letters that commonly follow it. Other pairs are where tokenizers break a word up.
_FOLLOWERS = {
    "a": "bcdfgiklmnprstuvy", "b": "aeilorsu", "c": "acehiklortu", "d": "adeiorsu", "e": "abcdefgiklmnpqrstuvwxz",
    "f": "aefiloru", "g": "aehilnorsu", "h": "aeiort", "i": "abcdefgklmnoprstvz", "j": "aeo", "k": "aeiostu",
    "l": "adeilostuy", "m": "abeimopsu", "n": "acdefgiklnostuvy", "o": "abcdfgiklmnoprstuvw", "p": "aehiloprstuy",
    "q": "u", "r": "acdegiklmnorstuvyz", "s": "acehiklopstuy", "t": "acehilorstuy", "u": "abcdegilmnprst", "v": "aeio",
    "w": "aehio", "x": "ipt", "y": "apst", "z": "ae",
}  # fmt: skip
_COMMON_PAIRS = frozenset(first + second for first, followers in _FOLLOWERS.items() for second in followers)

# How a word is written (lower, Title, UPPER, miXed) and what stands before it (space, nothing, sign) →
# tokens for the word, per letter, per letter after the eighth, per uncommon pair, per letter outside ASCII.
_WORDS: dict[tuple[str, str], tuple[float, float, float, float, float]] = {
    ("lower", " "): (0.82, 0.038, 0.130, 0.36, 0.40),
    ("lower", ""): (0.92, 0.029, 0.245, 0.37, 0.95),
    ("lower", "."): (0.97, 0.050, 0.140, 0.49, 0.95),
    ("title", " "): (0.64, 0.119, 0.038, 0.36, 0.63),
    ("title", ""): (0.88, 0.080, 0.111, 0.53, 0.74),
    ("title", "."): (1.46, 0.092, 0.095, 0.51, 0.84),
    ("upper", " "): (0.65, 0.103, 0.0, 0.23, 0.5),
    ("upper", ""): (0.47, 0.233, 0.0, 0.37, 0.5),
    ("upper", "."): (1.19, 0.224, 0.284, 0.38, 0.5),
    ("mixed", " "): (0.45, 0.228, 0.0, 0.08, 0.3),
    ("mixed", ""): (0.66, 0.374, 0.0, 0.18, 0.3),
    ("mixed", "."): (1.50, 0.346, 0.397, 0.20, 0.3),
}
# Chinese characters that mostly share a token with a neighbour.
_COMMON_HAN = re.compile(
    "[的一是了我不在有人这他们来个上中大到说和你地要出就时以可下生会也子得着那过年家对自后能之发成起天里去好多没为如都看前日"
    "來們個說時會為這過對後發裡沒國样学想什么很吧吗呢给跟把被让]"
)
_COMMON_HAN_COST, _USUAL_HAN_COST, _OTHER_HAN_COST = 0.48, 1.05, 1.55


@dataclass(frozen=True, slots=True)
class Script:
    """Letters that are not Latin: tokens per run of them, per run that does not follow a space, and per character."""

    name: str
    runs: re.Pattern[str]
    per_run: float
    per_bare_run: float
    per_character: float


def _script(name: str, ranges: str, per_run: float, per_bare_run: float, per_character: float) -> Script:
    return Script(name, re.compile(f" ?[{ranges}]+"), per_run, per_bare_run, per_character)


SCRIPTS = (
    _script("kana", r"\u3040-\u30ff\u31f0-\u31ff", 0.14, 0.14, 0.70),
    _script("hangul", r"\uac00-\ud7af\u1100-\u11ff\u3130-\u318f", 0.55, 1.05, 0.56),
    _script("cyrillic", r"\u0400-\u052f", 0.60, 1.20, 0.23),
    _script("greek", r"\u0370-\u03ff\u1f00-\u1fff", 0.35, 0.90, 0.41),
    _script("arabic", r"\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufefe", 0.38, 0.95, 0.31),
    _script("hebrew", r"\u0590-\u05ff", 0.23, 0.70, 0.46),
    _script("indic", r"\u0900-\u0dff", 0.34, 0.80, 0.41),
    _script("thai", r"\u0e00-\u0eff", 0.60, 0.90, 0.40),
    _script("caucasian", r"\u0530-\u058f\u10a0-\u10ff", 0.50, 1.00, 0.38),
    _script("signs", r"\u0080-\u00bf\u00d7\u00f7\u2000-\u206f\u3000-\u303f\uff00-\uffef", 0.35, 0.35, 0.75),
    _script("symbols", r"\u2100-\u2bff\ufe00-\ufe0f", 0.4, 0.4, 1.1),
    _script("emoji", r"\U0001f000-\U0001faff", 0.2, 0.2, 1.81),
)
# Letters whose languages the vocabularies know less well: their other words are broken up more, too.
_LESS_KNOWN = re.compile(r"[\u0100-\u024f]")
_VIETNAMESE = re.compile(r"[\u1ea0-\u1ef9]")
_NORDIC = re.compile("[äöåÄÖÅæøÆØ]")
_UKRAINIAN = re.compile("[іїєґўІЇЄҐЎ]")
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+")
_RARE = 2.4
"""A character of any other script: nearly its bytes."""


MARGIN = 1.07
"""On top of everything: what keeps all but a few texts from being underestimated."""


def estimate(text: str, family: str = "o200k") -> int:
    """Tokens of `text`, rather too many than too few. An unknown family is counted like the dearest known ones."""
    if not text:
        return 0
    kind = FAMILIES.get(family) or FAMILIES["unknown"]
    total = sum(map(_piece, _PIECES.findall(text))) * kind.words
    if not text.isascii():
        total = total * _strangeness(text, kind) + _scripts(text, kind)
    total += len((_DIGITS if kind.digits_at_once == 3 else _DIGIT).findall(text))
    return math.ceil(total * MARGIN)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimate as a `TokenCounter`."""

    family: str = "o200k"
    exact: bool = False

    @property
    def name(self) -> str:
        return f"estimate for {self.family}"

    def count(self, text: str) -> int:
        return estimate(text, self.family)


def _strangeness(text: str, family: Family) -> float:
    """A factor for Latin words in languages other than English, from the share of the letters they add."""
    letters = len(_LATIN_LETTER.findall(text))
    accented = sum(map(len, _LATIN_RUNS.findall(text)))
    if accented * 200 < letters or not accented:
        return 1.0
    factor = family.scripts.get("latin", 1.0)
    if _VIETNAMESE.search(text):
        return factor
    nordic = len(_NORDIC.findall(text)) / letters
    return factor * (1.0 + min(0.45, 4.5 * len(_LESS_KNOWN.findall(text)) / letters + 10 * max(0.0, nordic - 0.02)))


def _scripts(text: str, family: Family) -> float:
    other = len(_NOT_ASCII.findall(text)) - sum(map(len, _LATIN_RUNS.findall(text)))
    usual = family.scripts.get("", 1.0)
    total = 0.0
    for script in SCRIPTS:
        runs = script.runs.findall(text)
        if runs:
            spaced = sum(run[0] == " " for run in runs)
            characters = sum(map(len, runs)) - spaced
            other -= characters
            cost = script.per_run * spaced + script.per_bare_run * (len(runs) - spaced)
            cost += script.per_character * characters
            if script.name == "cyrillic" and _UKRAINIAN.search(text):
                cost *= 1.2
            total += cost * family.scripts.get(script.name, usual)
    han = "".join(_HAN.findall(text)) if other > 0 else ""
    if han:
        other -= len(han)
        total += _han(han) * family.scripts.get("han", usual)
    return total + max(0, other) * _RARE


def _han(text: str) -> float:
    """Tokens of Chinese characters: few for those of everyday words, more outside of GB 2312's first level."""
    common = len(_COMMON_HAN.findall(text))
    beyond = len(_beyond_usual().findall(text))
    usual = len(text) - common - beyond
    return common * _COMMON_HAN_COST + usual * _USUAL_HAN_COST + beyond * _OTHER_HAN_COST


@cache
def _beyond_usual() -> re.Pattern[str]:
    rows = b"".join(bytes((row, cell)) for row in range(0xB0, 0xD8) for cell in range(0xA1, 0xFF))
    return re.compile(f"[^{rows.decode('gb2312', 'ignore')}{_COMMON_HAN.pattern[1:-1]}]")


@lru_cache(maxsize=32_768)
def _piece(piece: str) -> float:
    """Tokens of one piece."""
    if piece.isspace():
        return 1.0 + 0.01 * (len(piece) - 1)
    lead = "" if piece[0].isalpha() else " " if piece[0] == " " else "."
    word = piece[1:] if lead else piece
    if not word[:1].isalpha():
        changes = sum(map(str.__ne__, piece, piece[1:]))
        return 1.0 + 0.04 * min(changes, 2) + 0.6 * max(0, changes - 2) + 0.05 * (len(piece) - 1 - changes)
    return _word(word.partition("'")[0], lead)


def _word(word: str, lead: str) -> float:
    case = "lower" if word.islower() else "title" if word.istitle() else "upper" if word.isupper() else "mixed"
    base, each, late, uncommon, accented = _WORDS[case, lead]
    cost = base + each * len(word) + late * max(0, len(word) - 8)
    plain = word.lower()
    pairs = map(str.__add__, plain, plain[1:])
    if plain.isascii():
        cost += uncommon * sum(pair not in _COMMON_PAIRS for pair in pairs)
    else:
        cost += accented * len(_NOT_ASCII.findall(plain))
        cost += uncommon * sum(pair.isascii() and pair not in _COMMON_PAIRS for pair in pairs)
    return max(1.0, cost)
