"""How text becomes words: pure, linear, and the same for messages and for queries, so that the two always meet.

The index itself folds case and diacritics and stems (FTS5: `porter unicode61`). What it cannot do is done here, before:

    東京都庁             東京 京都 都庁 庁        scripts without spaces: pairs of characters, the last one on its own
    getCompressionTip    get Compression Tip     identifiers: their parts, in place
                         + getcompressiontip     … and as one name, whichever way they were joined
    C#  C++  .NET        c c net + csharp cplusplus dotnet

Text and names are kept apart, so that a phrase is found whatever identifiers stand in it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from herma.late import Late

LONGEST_WORD = 128
"""Of a longer run of letters and digits only the beginning is kept: nobody types it, and it is not language."""
LONGEST_NAME = 48
MOST_TURNS = 3
"""A word that changes between letters and digits more often is a hash or a key: it stays whole."""

_PAIRED = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0edf"  # Thai, Lao
    "\u1000-\u109f\uaa60-\uaa7f\u1780-\u17d3\u17d7\u17dc\u17dd"  # Burmese, Khmer
    "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb"  # Korean
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"  # Japanese
    "\u3105-\u312f\u31a0-\u31bf\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese
)
_RUN = Late(f"[{_PAIRED}]+")
_RUN_AT_END = Late(f"[{_PAIRED}]+\\Z")
_UNSTORABLE = Late("[\x00\ud800-\udfff]")
_TOO_LONG = Late(rf"(\w{{{LONGEST_WORD}}})\w+")
_SEAM = re.compile(  # where an identifier can be taken apart; begins with a set of characters, which is searched fast
    r"[0-9A-Z_-](?:"
    r"(?<=[a-z][A-Z])|(?<=[A-Z])(?=[A-Z][a-z])"  # getTip, HTTPServer
    r"|(?<=[A-Za-z][0-9])|(?<=[0-9])(?=[A-Za-z])"  # python3, 3d
    r"|(?<=[A-Za-z0-9][_-])(?=[_-]*[A-Za-z0-9])"  # snake_case, kebab-case, 2026-03-05
    r")"
)
_IDENTIFIER = re.compile(r"[A-Za-z0-9]+(?:[_-]+[A-Za-z0-9]+)*")
_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_TURN = re.compile(r"(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])")
_JOINT = re.compile(r"[_-]+")
_SIGNED = Late(r"(?<![A-Za-z0-9_])(?:([A-Za-z])(#|\+\+)(?![#+])|(\.)net(?![A-Za-z0-9_]))", re.IGNORECASE)
_SIGNS = {"#": "sharp", "++": "plusplus"}


@dataclass(frozen=True, slots=True)
class Prepared:
    """Text as the index takes it, and the names of what was taken apart in it, each once, in order."""

    text: str
    names: tuple[str, ...] = ()


def prepare(text: str) -> Prepared:
    """What the index keeps of a message, and what it looks for in place of the words of a query."""
    text = clean(text)
    names = dict.fromkeys(_signed(text))
    done, pieces = 0, []
    seam = _SEAM.search(text)
    while seam:
        start = seam.start()
        while start > done and text[start - 1] in _LETTERS:
            start -= 1
        identifier = _IDENTIFIER.search(text, start)
        if identifier is None:
            break
        parts, name = _taken_apart(identifier[0])
        pieces += [text[done : identifier.start()], parts]
        if name:
            names[name] = None
        done = identifier.end()
        seam = _SEAM.search(text, done)
    return Prepared("".join([*pieces, text[done:]]), tuple(names))


def clean(text: str) -> str:
    """One way of writing for every character, nothing that cannot be stored, no endless words, pairs where needed."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _UNSTORABLE.sub(" ", text))
        text = _RUN.sub(lambda match: _pairs(match[0]), text)
    elif "\0" in text:
        text = text.replace("\0", " ")
    if len(text) > LONGEST_WORD and max(map(len, text.split()), default=0) > LONGEST_WORD:
        text = _TOO_LONG.sub(r"\1", text)
    return text


def sought(text: str) -> tuple[str, bool]:
    """`text` of a query, to be found also where more follows. → its words, and whether the last is only a beginning."""
    if text.isascii() and text[-1:].isalnum():
        return prepare(text).text.rstrip(), False
    text = unicodedata.normalize("NFKC", _UNSTORABLE.sub(" ", text))
    end = len(text)
    while end and unicodedata.category(text[end - 1])[0] not in "LMN":
        end -= 1
    text = text[:end]
    words = prepare(text).text.rstrip()
    if not (run := _RUN_AT_END.search(text)):
        return words, False
    if len(run[0]) == 1:
        return words, True
    return words[: -1 - len(run[0][-1])].rstrip(), False


def loosened(word: str) -> tuple[str, ...]:
    """What else to look for in place of a word that nothing divides though it may be a sentence: pairs of characters
    of the scripts without spaces, and what stands between them. Nothing for other words.
    """
    if word.isascii():
        return ()
    word = unicodedata.normalize("NFKC", _UNSTORABLE.sub(" ", word))
    found: dict[str, None] = {}
    end = 0
    for run in _RUN.finditer(word):
        found[word[end : run.start()]] = None
        found.update((word[i : i + 2], None) for i in range(run.start(), run.end() - 1))
        end = run.end()
    if not end:
        return ()
    found[word[end:]] = None
    return tuple(part for part in found if part not in ("", word))


def _pairs(run: str) -> str:
    return " " + " ".join([run[i : i + 2] for i in range(len(run))]) + " "


def _signed(text: str) -> Iterator[str]:
    """The names of `C#`, `C++` and `.NET`."""
    if "#" in text or "++" in text or ".n" in text or ".N" in text:
        for match in _SIGNED.finditer(text):
            letter, sign, dot = match.groups()
            yield "dotnet" if dot else letter.lower() + _SIGNS[sign]


@lru_cache(maxsize=16_384)
def _taken_apart(word: str) -> tuple[str, str]:
    """The parts of one identifier with spaces between, and its name: the same parts squeezed together."""
    parts = [piece for part in _JOINT.split(word) for piece in _pieces(part)]
    name = _JOINT.sub("", word).lower()
    return " ".join(parts), name if len(parts) > 1 and len(name) <= LONGEST_NAME else ""


def _pieces(part: str) -> list[str]:
    turns = _TURN.split(part)
    return [piece for turn in turns for piece in _CAMEL.split(turn)] if len(turns) <= MOST_TURNS else [part]
