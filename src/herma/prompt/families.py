"""Models by name: whose tokenizer they have, and how much fits in their window.

The factors say how many tokens a family of tokenizers makes of the same text, next to o200k; they were measured with
the vocabularies themselves, except for Claude, whose vocabulary is not public and whose factors are set high.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

UNKNOWN_WINDOW = 32_768


@dataclass(frozen=True, slots=True)
class Family:
    """One family of tokenizers: tokens next to o200k, as factors."""

    name: str
    words: float = 1.0
    digits_at_once: int = 3
    scripts: Mapping[str, float] = field(default_factory=dict)
    """Script → factor. "latin" is for words with accents; "" is for every script that is not named."""


def _family(name: str, words: float, digits_at_once: int, **scripts: float) -> tuple[str, Family]:
    others = scripts.pop("others")
    return name, Family(name, words, digits_at_once, MappingProxyType({"": others, **scripts}))


FAMILIES: Mapping[str, Family] = MappingProxyType(
    dict(
        (
            ("o200k", Family("o200k")),
            _family(
                "cl100k", 1.04, 3, others=1.3, latin=1.17, han=1.52, kana=1.38, hangul=1.42, cyrillic=1.45, greek=2.2,
                arabic=2.0, hebrew=2.06, indic=2.83, thai=2.05, caucasian=4.25,
            ),
            _family(
                "qwen", 1.07, 1, others=1.02, latin=1.12, han=0.92, kana=0.93, hangul=1.12, cyrillic=1.25, greek=2.15,
                arabic=1.37, indic=2.55, thai=1.4, caucasian=2.35,
            ),
            _family(
                "deepseek", 1.07, 3, others=1.06, latin=1.18, han=0.84, kana=0.88, hangul=1.17, cyrillic=1.17,
                greek=1.25, arabic=1.22, hebrew=1.18, indic=1.5, caucasian=1.85,
            ),
            _family(
                "llama3", 1.04, 3, others=1.25, latin=1.12, han=1.05, kana=0.95, hangul=1.05, cyrillic=1.08, greek=1.05,
                arabic=1.12, hebrew=2.06, indic=2.1, thai=1.2, caucasian=4.25,
            ),
            _family(
                "kimi", 1.02, 3, others=1.1, latin=1.23, han=0.88, kana=1.0, hangul=1.3, cyrillic=1.3, greek=1.52,
                arabic=1.44, hebrew=1.4, indic=1.65, thai=1.82, caucasian=2.0,
            ),
            _family(
                "glm", 1.09, 3, others=1.25, latin=1.1, han=0.9, kana=0.95, hangul=1.3, cyrillic=1.05, greek=1.12,
                arabic=1.25, hebrew=2.06, indic=2.83, thai=2.05, caucasian=4.25,
            ),
            _family(
                "mistral", 1.2, 1, others=1.2, latin=1.08, han=1.2, kana=1.0, hangul=1.05, cyrillic=1.1, emoji=1.6,
            ),
            _family("gemini", 1.27, 1, others=1.2, latin=1.1, han=0.95, kana=0.85, emoji=1.0),
            _family("claude", 1.35, 3, others=1.5, latin=1.2, indic=2.0, caucasian=2.5),
            _family("unknown", 1.35, 1, others=1.6, latin=1.3, indic=2.8, caucasian=4.0, arabic=2.0, greek=2.2),
        )
    )
)  # fmt: skip

# A name begins with … → tokenizer family, context window in tokens. The longest beginning that fits counts.
_MODELS: tuple[tuple[str, str, int], ...] = (
    ("gpt-5", "o200k", 400_000),
    ("gpt-4.1", "o200k", 1_047_576),
    ("gpt-4.5", "o200k", 128_000),
    ("gpt-4o", "o200k", 128_000),
    ("chatgpt-4o", "o200k", 128_000),
    ("gpt-oss", "o200k", 131_072),
    ("o1", "o200k", 200_000),
    ("o1-mini", "o200k", 128_000),
    ("o3", "o200k", 200_000),
    ("o4", "o200k", 200_000),
    ("gpt-4-turbo", "cl100k", 128_000),
    ("gpt-4-1106", "cl100k", 128_000),
    ("gpt-4-0125", "cl100k", 128_000),
    ("gpt-4-32k", "cl100k", 32_768),
    ("gpt-4", "cl100k", 8_192),
    ("gpt-3.5", "cl100k", 16_385),
    ("claude", "claude", 200_000),
    ("claude-2", "claude", 100_000),
    ("claude-instant", "claude", 100_000),
    ("gemini", "gemini", 1_048_576),
    ("gemini-1.5-pro", "gemini", 2_097_152),
    ("gemma", "gemini", 8_192),
    ("gemma-3", "gemini", 131_072),
    ("gemma3", "gemini", 131_072),
    ("llama-3", "llama3", 8_192),
    ("llama3", "llama3", 8_192),
    ("llama-3.1", "llama3", 131_072),
    ("llama-3.2", "llama3", 131_072),
    ("llama-3.3", "llama3", 131_072),
    ("llama3.1", "llama3", 131_072),
    ("llama3.2", "llama3", 131_072),
    ("llama3.3", "llama3", 131_072),
    ("hermes-3", "llama3", 131_072),
    ("hermes-4", "llama3", 131_072),
    ("qwen", "qwen", 32_768),
    ("qwen2.5", "qwen", 32_768),
    ("qwen3", "qwen", 40_960),
    ("qwen3-coder", "qwen", 262_144),
    ("qwen-max", "qwen", 32_768),
    ("qwen-plus", "qwen", 131_072),
    ("qwq", "qwen", 32_768),
    ("deepseek", "deepseek", 131_072),
    ("kimi", "kimi", 131_072),
    ("moonshot", "kimi", 131_072),
    ("glm-4", "glm", 131_072),
    ("glm4", "glm", 131_072),
    ("glm-4.6", "glm", 200_000),
    ("mistral", "mistral", 32_768),
    ("mistral-large", "mistral", 131_072),
    ("mistral-medium", "mistral", 131_072),
    ("mistral-small", "mistral", 131_072),
    ("mistral-nemo", "mistral", 131_072),
    ("ministral", "mistral", 131_072),
    ("mixtral", "mistral", 32_768),
    ("codestral", "mistral", 262_144),
    ("devstral", "mistral", 131_072),
)


@dataclass(frozen=True, slots=True)
class Window:
    """How many tokens fit. `known` is false for a guess, and `note` then says so."""

    tokens: int
    known: bool = True
    note: str = ""


def family_of(model: str) -> str:
    """The tokenizer family of a model, "unknown" when its name says nothing."""
    found = _lookup(model)
    return found[1] if found else "unknown"


def window_of(model: str | None, configured: int | None = None) -> Window:
    """The context window: as configured, as known for the model's name, or a cautious guess that says it is one."""
    if configured:
        return Window(configured, note="as configured")
    found = _lookup(model or "")
    if found:
        return Window(found[2])
    who = f"the window of {model!r} is not known" if model else "no model is set"
    return Window(UNKNOWN_WINDOW, False, f"{who}: taken as {UNKNOWN_WINDOW:,} tokens")


@lru_cache(maxsize=256)
def _lookup(model: str) -> tuple[str, str, int] | None:
    """The table's row for a name such as `openai/gpt-4o-mini` or `us.anthropic.claude-sonnet-4-v1:0`."""
    name = model.lower().rsplit("/", 1)[-1]
    fitting = [row for row in _MODELS if re.search(rf"(?<![a-z0-9]){re.escape(row[0])}(?!\d)", name)]
    return max(fitting, key=lambda row: (name.startswith(row[0]), len(row[0])), default=None)
