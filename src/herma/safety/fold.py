"""Fold text for comparison, and drop machine noise that is never searched for. Both take linear time.

Folded text is plain lower-case letters with single spaces and nothing invisible. Each place in it can be traced back to
the original. A line break inside a sentence becomes a space, so that a phrase cannot hide by wrapping; a break before a
list item, a heading or an empty line stays, so that two notes are not read as one sentence.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

# Pairs of (foreign letters, the Latin letters they resemble), position by position. Lower case unless the capital
# resembles a different letter than its own lower case does.
_PAIRS = (
    # Cyrillic, with three Armenian and rarer letters that read the same way
    ("авекмнорстухіјѕԁԛԝһґԍѵьзпгцчєӏүћъҽոռҏԉ", "abekmhopctyxijsdqwhrgvb3nruuelyhbenupl"),
    ("АВЕКМНОРСТУХІЈЅԀԚԜҺЅѴЬЗ", "abekmhopctyxijsdqwhsvb3"),
    # Greek
    ("αβγεζηικνορτυχωϲϳσςθφμξψλδπ", "abyezniknopruxwcjooooueyadn"),
    ("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "abezhikmnoptyx"),
    # Armenian
    ("աեհոսցօզյքև", "wehnugoqjpl"),
    # Cherokee capitals
    ("ᎪᎬᎡᎢᎥᎩᎷᎻᎠᎳᎿᏚᏙᏟᏢᏦᏎᏴᏒᏔᏃ", "aertiymhdwhsvcpk4brwz"),
    # Latin letters outside ASCII that no decomposition reduces, as often used to dodge filters
    ("ıȷɑɡɩɪʟɴʀɢʙʜᴀᴄᴅᴇᴊᴋᴍᴏᴘᴛᴜᴠᴡᴢꜱꞮøđħłŧƒɓɗɦɩɨʋƅ", "ijagiilnrgbhacdejkmoptuvwzsiodhltfbdhiivb"),
)


LOOKALIKES = {char: latin for foreign, latins in _PAIRS for char, latin in zip(foreign, latins, strict=True)}
RESEMBLING = re.compile(f"[{''.join(LOOKALIKES)}]")


# White space that is not already one plain space.
_SPACES = re.compile(r"[ \t\n\r\f\v](?:(?<! )|(?=[ \t\n\r\f\v]))[ \t\n\r\f\v]*")
_BREAKS = re.compile(r"\n+")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_ITEM_STARTS = frozenset("-*•#>§|+0123456789")


class _FoldTable(dict[int, str]):
    """A table from each character to its folded form, filled on first use."""

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
            return LOOKALIKES.get(char) or LOOKALIKES.get(base.lower(), char.lower())
        return char.lower()


@cache
def _table(lookalikes: bool) -> _FoldTable:
    return _FoldTable(lookalikes)


def _gap(match: re.Match[str]) -> str:
    """Return what a run of white space becomes: a line break where something new begins, else one space."""
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
        """Return where `text[start:end]` stands in the original."""
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
    """Return, for each character of the folded text, the offset of the original character it came from."""
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


# Noise: terminal colours, data addresses, base64, hex dumps. One pass each.

_TERMINAL = re.compile(
    r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]?"  # colours and cursor
    r"|[\]PX^_][^\x07\x1b]*+(?:\x07|\x1b\\)?"  # window titles, links
    r"|[ -/]*+[0-~])?"
)
_ADDRESS = re.compile(r"data:[\w.+/;=-]{0,120};base64,[A-Za-z0-9+/=_%-]*+", re.IGNORECASE)
_RUN = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{60,}+={0,2}")
_DUMP = re.compile(r"(?<![0-9A-Za-z])(?:[0-9A-Fa-f]{2}(?:[0-9A-Fa-f]{2})?+[ :,]{1,2}+){16,}+")
_BLOCK = 24
"""Of 47 characters in a row, 24 are a whole block; the shortest run has 60, the shortest dump 48."""
_OF_DUMPS = "0123456789ABCDEFabcdef :,"
_SHORTEST_RUN = 60
_SAMPLED = 6
_SAMPLES_OF_DUMPS = re.compile(f"[{_OF_DUMPS}]{{8}}")
"""Every sixth of 48 characters in a row are eight."""
_HEX = re.compile(r"[0-9A-Fa-f]+")
_SEPARATOR = re.compile(r"[+/_-]")
_DIGEST = 64
"""Hex up to this length may be a digest that a user looks for."""
_TURN = re.compile(r"[a-z](?=[A-Z0-9])|[A-Z](?=[0-9])|[0-9](?=[A-Za-z])")
"""Places where one kind of character follows another, except after the capital at the beginning of a word."""
_MANY_TURNS = 0.3
"""Of 100 characters of base64 about 42 are such places; of names and paths, even in capitals and numbers, far fewer."""
_ENDLESS = 1000
_PIECE = 20
"""No word that long has a meaning, unless it is a path: then its pieces are shorter than this on average."""


def without_noise(text: str) -> str:
    """Return the text with a space for each piece of noise. Takes time in proportion to its length."""
    if "\x1b" in text:
        text = _TERMINAL.sub(" ", text)
    if ";base64," in text or ";BASE64," in text:
        text = _ADDRESS.sub(" ", text)
    if not _may_have_runs(text):
        return text
    text = _RUN.sub(_unless_a_name, text)
    return _DUMP.sub(" ", text)


def _may_have_runs(text: str) -> bool:
    """Return whether it is worth looking closer. Prose has a space in every stretch as long as a run, and of samples of
    it there are never so many in a row that may be of a dump.
    """
    at, last, space_before = 0, len(text) - _SHORTEST_RUN, text.rfind
    while at <= last:
        at = space_before(" ", at, at + _SHORTEST_RUN) + 1
        if not at:
            return _has_blocks(text)
    return _SAMPLES_OF_DUMPS.search(text[::_SAMPLED]) is not None and _has_blocks(text)


def _has_blocks(text: str) -> bool:
    """Return whether a block has no space or no letter, as one of each run and each dump has."""
    for at in range(0, len(text) - _BLOCK + 1, _BLOCK):
        block = text[at : at + _BLOCK]
        if (" " not in block and block.isascii()) or not block.strip(_OF_DUMPS):
            return True
    return False


def _unless_a_name(match: re.Match[str]) -> str:
    """Keep a long run that may have a meaning: a path, a long name, a digest, a line of dashes."""
    run = match[0]
    if _HEX.fullmatch(run):
        return run if len(run) <= _DIGEST else " "
    if len(_TURN.findall(run)) > _MANY_TURNS * len(run):
        return " "
    return " " if len(run) >= _ENDLESS and len(run) >= _PIECE * (1 + len(_SEPARATOR.findall(run))) else run
