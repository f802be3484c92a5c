"""Texts as terms: what routing compares. Pure; stems and stop-words are given, because search owns them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_CJK = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_MOST = 60_000
_MOST_PHRASE = 4_000


@dataclass(frozen=True)
class Terms:
    """How a text becomes a list of terms: words by their stems, CJK by pairs of characters."""

    stem: Callable[[str], str]
    stop_words: Collection[str]

    def of(self, text: str) -> list[str]:
        return [term for term, _ in self.with_words(text)]

    def phrase(self, text: str) -> tuple[str, ...]:
        """All words in their order, stop-words too, by their stems."""
        return tuple(self._stemmed(match[0].casefold()) for match in _WORD.finditer(text[:_MOST_PHRASE]))

    def with_words(self, text: str) -> list[tuple[str, str]]:
        """Each term with the word it stands for."""
        found: list[tuple[str, str]] = []
        for match in _WORD.finditer(text[:_MOST]):
            parts = _CAMEL.split(match[0])
            for part in [match[0], *parts] if len(parts) > 1 else parts:  # `SkillOpt` is `skillopt` to some
                word = part.casefold().replace("’", "'")
                if _CJK.search(word):
                    found += [(pair, pair) for pair in _pairs(word)]
                elif word not in self.stop_words and (len(word) > 1 or word.isdigit()):
                    found.append((self._stemmed(word.removesuffix("'s")), part))
        return found

    def _stemmed(self, word: str) -> str:
        return _cached_stem(self.stem, word)


@lru_cache(maxsize=65_536)
def _cached_stem(stem: Callable[[str], str], word: str) -> str:
    return stem(word)


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(max(1, len(run) - 1))]
