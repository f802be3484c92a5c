"""Texts into the numbers of a BERT vocabulary: the uncased WordPiece that BERT-like models were trained with.

Two steps. `words` folds a text (decompose, drop accents and control characters, lower case) and cuts it at white
space, around every punctuation mark and around every Chinese character. Each word is then covered from the left by
the longest entries of the vocabulary, the later ones written `##…`; a word that cannot be covered is `[UNK]`.
"""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from herma.errors import EmbedderError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

LONGEST_WORD = 100  # characters; anything longer is no word of the vocabulary, and would take long to find out
REMEMBERED_WORDS = 50_000
SPECIAL = ("[CLS]", "[SEP]", "[UNK]")
_CHARACTERS_PER_TOKEN = 64  # of a text that is cut anyway, more than this much per wanted token is never looked at
# The blocks that BERT treats as written without spaces. Kana and Hangul are not among them.
_IDEOGRAPHS = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)


_DROPPED = frozenset({"Cc", "Cf", "Co", "Cs", "Mn"})  # what Unicode has not assigned yet stays, as part of a word


class _Folded(dict[int, str]):
    """What stands for a character in a folded text, worked out when it is first met; for `str.translate`."""

    def __missing__(self, code: int) -> str:
        self[code] = folded = _fold(code)
        return folded


def _fold(code: int) -> str:
    character = chr(code)
    if character.isspace() and code not in range(0x1C, 0x20) and code != 0x85:
        return " "
    category = unicodedata.category(character)
    if category in _DROPPED or code == 0xFFFD:
        return ""
    if any(first <= code <= last for first, last in _IDEOGRAPHS) or category[0] == "P" or _is_ascii_mark(code):
        return f" {character} "
    return character.lower()


def _is_ascii_mark(code: int) -> bool:
    """BERT takes +, $, ~ and the like for punctuation, but only in ASCII."""
    return 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126


_FOLDED = _Folded()


def words(text: str) -> list[str]:
    """The words of a text, folded; punctuation marks and Chinese characters are words of their own."""
    if not text.isascii():
        text = unicodedata.normalize("NFD", text)
    return text.translate(_FOLDED).split()


@dataclass(slots=True)
class WordPiece:
    """A vocabulary, and the words that were looked up in it."""

    vocabulary: Mapping[str, int]
    _longest: int = field(init=False)
    _known: dict[str, tuple[int, ...]] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        missing = [name for name in SPECIAL if name not in self.vocabulary]
        if missing:
            raise EmbedderError(f"This is no BERT vocabulary: it has no {', '.join(missing)}.")
        self._longest = max(len(piece) for piece in self.vocabulary)

    def encode(self, text: str, at_most: int) -> list[int]:
        """The numbers of a text between `[CLS]` and `[SEP]`, no more than `at_most` in all; the rest is cut off."""
        room = at_most - 2
        numbers = [self.vocabulary["[CLS]"]]
        known = self._known
        for word in words(text[: room * _CHARACTERS_PER_TOKEN]):
            pieces = known.get(word)
            numbers += self._look_up(word) if pieces is None else pieces
            if len(numbers) > room:
                del numbers[room + 1 :]
                break
        numbers.append(self.vocabulary["[SEP]"])
        return numbers

    def _look_up(self, word: str) -> tuple[int, ...]:
        pieces = self._cover(word)
        if len(self._known) >= REMEMBERED_WORDS:
            self._known.clear()  # simpler than forgetting the least used, and as quick: common words are back at once
        self._known[word] = pieces
        return pieces

    def _cover(self, word: str) -> tuple[int, ...]:
        vocabulary = self.vocabulary
        unknown = (vocabulary["[UNK]"],)
        if len(word) > LONGEST_WORD:
            return unknown
        pieces: list[int] = []
        start, prefix = 0, ""
        while start < len(word):
            for end in range(min(len(word), start + self._longest), start, -1):
                number = vocabulary.get(prefix + word[start:end])
                if number is not None:
                    pieces.append(number)
                    start, prefix = end, "##"
                    break
            else:
                return unknown
        return tuple(pieces)


def read_vocabulary(path: Path) -> WordPiece:
    """From a `vocab.txt` (one entry per line) or the WordPiece part of a `tokenizer.json`."""
    try:
        text = path.read_text("utf-8")
        entries = _from_json(json.loads(text)) if path.suffix == ".json" else _from_lines(text.split("\n"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as exc:
        raise EmbedderError(f"The vocabulary {path} cannot be read: {exc}.") from exc
    return WordPiece(entries)


def _from_lines(lines: Sequence[str]) -> dict[str, int]:
    return {line.rstrip("\r"): number for number, line in enumerate(lines) if line}


def _from_json(tokenizer: Any) -> dict[str, int]:
    model: Any = tokenizer.get("model") if isinstance(tokenizer, dict) else None
    vocabulary = model.get("vocab") if isinstance(model, dict) and model.get("type") in (None, "WordPiece") else None
    if not isinstance(vocabulary, dict):
        raise EmbedderError(
            "This tokenizer.json is not of the WordPiece kind, the only one that is understood here.",
            hint="Models with other tokenizers can be used through an endpoint: `embedding.model: endpoint`.",
        )
    return vocabulary
