"""Count tokens, and divide the model's window.

Counts are exact where a model's vocabulary is installed, else estimated by the family of its tokenizer.

Tokenizers first split a text into pieces (a word with the space before it, up to three digits, a run of signs, white
space) and then break up each piece. The split is public and is done here; how many tokens a piece breaks into is
estimated from its length and its letters, with constants fitted to exact counts (`benchmarks/tokens.py` checks them on
other texts). Scripts without spaces are counted by the character. The estimate errs on the high side: a budget that is
too small costs a little room, one that is too large costs a failed call.

The window is divided into slots, each with a share. Contents that do not fit overflow; an `Overflow` says where they
can still be found.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_args

from herma.config import SHARES
from herma.errors import ConfigError
from herma.prompt.assemble import memory_of
from herma.text import LazyPattern
from herma.transcript.messages import as_sent

if TYPE_CHECKING:
    from herma.config import ContextSettings
    from herma.types import Content, Message


UNKNOWN_WINDOW = 32_768
Count: TypeAlias = Callable[[str], int]


class TokenCounter(Protocol):
    """Count the tokens that a text takes for one model, with its vocabulary or by estimate."""

    @property
    def name(self) -> str:
        """The vocabulary, or "estimate for FAMILY"."""

    @property
    def exact(self) -> bool:
        """Return whether this is the model's own count; an estimate errs on the high side."""

    def count(self, text: str) -> int: ...


def counter_for(model: str | None) -> TokenCounter:
    """Return the counter for a model, by its name; an unknown model is estimated on the safe side."""
    return counter_for_family(family_of(model or ""))


@cache
def counter_for_family(family: str) -> TokenCounter:
    """Return the counter for a family of tokenizers; look for its vocabulary once."""
    return exact_counter(family) or Estimate(family)


@dataclass(frozen=True, slots=True)
class Window:
    """The number of tokens that fit. `known` is false for a guess, and `note` then says so."""

    tokens: int
    known: bool = True
    note: str = ""


def window_of(model: str | None, configured: int | None = None) -> Window:
    """Return the context window: as configured, as known for the model's name, or a cautious guess."""
    if configured:
        return Window(configured, note="as configured")
    found = _lookup(model or "")
    if found:
        return Window(found[2])
    who = f"the window of {model!r} is not known" if model else "no model is set"
    return Window(UNKNOWN_WINDOW, False, f"{who}: taken as {UNKNOWN_WINDOW:,} tokens")


def family_of(model: str) -> str:
    """Return the tokenizer family of a model, "unknown" if its name says nothing."""
    found = _lookup(model)
    return found[1] if found else "unknown"


# The beginnings of model names by tokenizer family and context window. The longest beginning that fits counts.
_MODELS = """
o200k     128000  gpt-4.5 gpt-4o chatgpt-4o o1-mini
o200k     131072  gpt-oss
o200k     200000  o1 o3 o4
o200k     400000  gpt-5
o200k    1047576  gpt-4.1
cl100k      8192  gpt-4
cl100k     16385  gpt-3.5
cl100k     32768  gpt-4-32k
cl100k    128000  gpt-4-turbo gpt-4-1106 gpt-4-0125
claude    100000  claude-2 claude-instant
claude    200000  claude
gemini      8192  gemma
gemini    131072  gemma-3 gemma3
gemini   1048576  gemini
gemini   2097152  gemini-1.5-pro
llama3      8192  llama-3 llama3
llama3    131072  llama-3.1 llama-3.2 llama-3.3 llama3.1 llama3.2 llama3.3 hermes-3 hermes-4
qwen       32768  qwen qwen2.5 qwen-max
qwen       40960  qwen3
qwen      131072  qwen-plus qwq
qwen      262144  qwen3-coder
deepseek  131072  deepseek
kimi      131072  kimi moonshot
glm       131072  glm-4 glm4
glm       200000  glm-4.6
mistral    32768  mistral mixtral
mistral   131072  mistral-large mistral-medium mistral-small mistral-nemo ministral devstral
mistral   262144  codestral
"""


@lru_cache(maxsize=256)
def _lookup(model: str) -> tuple[str, str, int] | None:
    """Return beginning, family and window for a name as `openai/gpt-4o-mini` or `us.anthropic.claude-sonnet-4-v1:0`."""
    name = model.lower().rsplit("/", 1)[-1]
    rows = [line.split() for line in _MODELS.strip().splitlines()]
    every = [(start, family, int(window)) for family, window, *starts in rows for start in starts]
    fitting = [row for row in every if re.search(rf"(?<![a-z0-9]){re.escape(row[0])}(?!\d)", name)]
    return max(fitting, key=lambda row: (name.startswith(row[0]), len(row[0])), default=None)


@dataclass(frozen=True, slots=True)
class Family:
    """The token counts of a family of tokenizers, as factors on the count of o200k.

    `scripts` has a factor per script: "latin" is for words with accents, "" for every script that is not named. The
    factors were measured with the vocabularies, except Claude's, which is not public: its factors are set high.
    """

    words: float = 1.0
    digits_at_once: int = 3
    scripts: Mapping[str, float] = field(default_factory=dict)


def _family(words: float, digits_at_once: int, others: float, **scripts: float) -> Family:
    return Family(words, digits_at_once, {"": others, **scripts})


FAMILIES: Mapping[str, Family] = {
    "o200k": Family(),
    "cl100k": _family(
        1.04, 3, 1.3, latin=1.17, han=1.52, kana=1.38, hangul=1.42, cyrillic=1.45, greek=2.2, arabic=2.0, hebrew=2.06,
        indic=2.83, thai=2.05, caucasian=4.25,
    ),
    "qwen": _family(
        1.07, 1, 1.02, latin=1.12, han=0.92, kana=0.93, hangul=1.12, cyrillic=1.25, greek=2.15, arabic=1.37, indic=2.55,
        thai=1.4, caucasian=2.35,
    ),
    "deepseek": _family(
        1.07, 3, 1.06, latin=1.18, han=0.84, kana=0.88, hangul=1.17, cyrillic=1.17, greek=1.25, arabic=1.22,
        hebrew=1.18, indic=1.5, caucasian=1.85,
    ),
    "llama3": _family(
        1.04, 3, 1.25, latin=1.12, han=1.05, kana=0.95, hangul=1.05, cyrillic=1.08, greek=1.05, arabic=1.12,
        hebrew=2.06, indic=2.1, thai=1.2, caucasian=4.25,
    ),
    "kimi": _family(
        1.02, 3, 1.1, latin=1.23, han=0.88, kana=1.0, hangul=1.3, cyrillic=1.3, greek=1.52, arabic=1.44, hebrew=1.4,
        indic=1.65, thai=1.82, caucasian=2.0,
    ),
    "glm": _family(
        1.09, 3, 1.25, latin=1.1, han=0.9, kana=0.95, hangul=1.3, cyrillic=1.05, greek=1.12, arabic=1.25, hebrew=2.06,
        indic=2.83, thai=2.05, caucasian=4.25,
    ),
    "mistral": _family(1.2, 1, 1.2, latin=1.08, han=1.2, kana=1.0, hangul=1.05, cyrillic=1.1, emoji=1.6),
    "gemini": _family(1.27, 1, 1.2, latin=1.1, han=0.95, kana=0.85, emoji=1.0),
    "claude": _family(1.35, 3, 1.5, latin=1.2, indic=2.0, caucasian=2.5),
    "unknown": _family(1.35, 1, 1.6, latin=1.3, indic=2.8, caucasian=4.0, arabic=2.0, greek=2.2),
}  # fmt: skip

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
_EVERYDAY = (
    "的一是了我不在有人这他们来个上中大到说和你地要出就时以可下生会也子得着那过年家对自后能之发成起天里去好多没为如都看前日"
    "來們個說時會為這過對後發裡沒國样学想什么很吧吗呢给跟把被让"
)
_COMMON_HAN = LazyPattern(f"[{_EVERYDAY}]")
_COMMON_HAN_COST, _USUAL_HAN_COST, _OTHER_HAN_COST = 0.48, 1.05, 1.55
# Letters that are not Latin: tokens per run of them, per run that does not follow a space, and per character.
_SCRIPTS: Mapping[str, tuple[LazyPattern, float, float, float]] = {
    name: (LazyPattern(f" ?[{ranges}]+"), per_run, per_bare_run, per_character)
    for name, ranges, per_run, per_bare_run, per_character in (
        ("kana", r"\u3040-\u30ff\u31f0-\u31ff", 0.14, 0.14, 0.70),
        ("hangul", r"\uac00-\ud7af\u1100-\u11ff\u3130-\u318f", 0.55, 1.05, 0.56),
        ("cyrillic", r"\u0400-\u052f", 0.60, 1.20, 0.23),
        ("greek", r"\u0370-\u03ff\u1f00-\u1fff", 0.35, 0.90, 0.41),
        ("arabic", r"\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufefe", 0.38, 0.95, 0.31),
        ("hebrew", r"\u0590-\u05ff", 0.23, 0.70, 0.46),
        ("indic", r"\u0900-\u0dff", 0.34, 0.80, 0.41),
        ("thai", r"\u0e00-\u0eff", 0.60, 0.90, 0.40),
        ("caucasian", r"\u0530-\u058f\u10a0-\u10ff", 0.50, 1.00, 0.38),
        ("signs", r"\u0080-\u00bf\u00d7\u00f7\u2000-\u206f\u3000-\u303f\uff00-\uffef", 0.35, 0.35, 0.75),
        ("symbols", r"\u2100-\u2bff\ufe00-\ufe0f", 0.4, 0.4, 1.1),
        ("emoji", r"\U0001f000-\U0001faff", 0.2, 0.2, 1.81),
    )
}
# Letters whose languages the vocabularies know less well: their other words are broken up more, too.
_LESS_KNOWN = LazyPattern(r"[\u0100-\u024f]")
_VIETNAMESE = LazyPattern(r"[\u1ea0-\u1ef9]")
_NORDIC = LazyPattern("[äöåÄÖÅæøÆØ]")
_UKRAINIAN = LazyPattern("[іїєґўІЇЄҐЎ]")
_HAN = LazyPattern(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+")
_RARE = 2.4
"""A character of any other script: nearly its bytes."""
MARGIN = 1.07
"""A factor on every estimate, which keeps nearly all texts from being underestimated."""
_COUNTED_MOST, _SAMPLES = 512_000, 64
"""The characters of one text that are counted, and the stretches they are taken from in a longer text. Counting takes a
second per million characters of random letters, as in base64.
"""


def estimate(text: str, family: str = "o200k") -> int:
    """Estimate the tokens of `text`, erring on the high side. An unknown family counts like the dearest known."""
    if not text:
        return 0
    if len(text) > _COUNTED_MOST:  # count stretches at even distances
        size = _COUNTED_MOST // _SAMPLES
        starts = [(len(text) - size) * number // (_SAMPLES - 1) for number in range(_SAMPLES)]
        counted = sum(estimate(text[start : start + size], family) for start in starts)
        return math.ceil(counted * len(text) / (size * _SAMPLES))
    kind = FAMILIES.get(family) or FAMILIES["unknown"]
    total = sum(map(_piece, _PIECES.findall(text))) * kind.words
    if not text.isascii():
        total = total * _strangeness(text, kind) + _scripts(text, kind)
    total += len((_DIGITS if kind.digits_at_once == 3 else _DIGIT).findall(text))
    return math.ceil(total * MARGIN)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Implement `TokenCounter` by estimate."""

    family: str = "o200k"
    exact: bool = False

    @property
    def name(self) -> str:
        return f"estimate for {self.family}"

    def count(self, text: str) -> int:
        return estimate(text, self.family)


def _strangeness(text: str, family: Family) -> float:
    """Return a factor for Latin words in languages other than English, from the share of accented letters."""
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
    for script, (pattern, per_run, per_bare_run, per_character) in _SCRIPTS.items():
        runs = pattern.findall(text)
        if runs:
            spaced = sum(run[0] == " " for run in runs)
            characters = sum(map(len, runs)) - spaced
            other -= characters
            cost = per_run * spaced + per_bare_run * (len(runs) - spaced) + per_character * characters
            if script == "cyrillic" and _UKRAINIAN.search(text):
                cost *= 1.2
            total += cost * family.scripts.get(script, usual)
    han = "".join(_HAN.findall(text)) if other > 0 else ""
    if han:
        other -= len(han)
        total += _han(han) * family.scripts.get("han", usual)
    return total + max(0, other) * _RARE


def _han(text: str) -> float:
    """Estimate Chinese characters: few tokens for everyday ones, more outside GB 2312's first level."""
    common = len(_COMMON_HAN.findall(text))
    beyond = len(_beyond_usual().findall(text))
    usual = len(text) - common - beyond
    return common * _COMMON_HAN_COST + usual * _USUAL_HAN_COST + beyond * _OTHER_HAN_COST


@cache
def _beyond_usual() -> re.Pattern[str]:
    rows = b"".join(bytes((row, cell)) for row in range(0xB0, 0xD8) for cell in range(0xA1, 0xFF))
    return re.compile(f"[^{rows.decode('gb2312', 'ignore')}{_EVERYDAY}]")


@lru_cache(maxsize=32_768)
def _piece(piece: str) -> float:
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


PER_MESSAGE = 4
"""Tokens around one message: its role and its borders."""
PER_CALL = 8
"""Tokens around one tool call, or one tool definition."""
PER_IMAGE = 1_600
"""Tokens of an image: about what a large one costs with most providers."""
PER_FILE = 3_000
"""Tokens of a document or a recording."""

_IMAGES = frozenset({"image", "image_url", "input_image"})
_TEXTS = ("text", "thinking", "refusal", "input_text", "output_text")


def count_message(message: Mapping[str, Any], count: Count = estimate) -> int:
    """Count one OpenAI-style message: content or parts, tool calls, reasoning, and the wrapping."""
    total = PER_MESSAGE + count_content(message.get("content"), count)
    for call in message.get("tool_calls") or ():
        total += PER_CALL + count_call(call, count)
    for key in ("reasoning", "reasoning_content", "name", "tool_call_id"):
        value = message.get(key)
        if isinstance(value, str):
            total += count(value)
    return total


def count_messages(messages: Iterable[Mapping[str, Any]], count: Count = estimate) -> int:
    return sum(count_message(message, count) for message in messages)


def count_content(content: Any, count: Count = estimate) -> int:
    """Count a content value: text, or a list of parts. The bytes of images and files are not counted as text."""
    if content is None:
        return 0
    if isinstance(content, str):
        return count(content)
    return sum(count(part) if isinstance(part, str) else _count_part(part, count) for part in content)


def _count_part(part: Any, count: Count) -> int:
    if not isinstance(part, Mapping):
        return count(str(part))
    kind = part.get("type")
    if kind in _IMAGES:
        return PER_IMAGE
    for key in _TEXTS:
        if isinstance(part.get(key), str):
            return count(part[key])
    if kind == "tool_result":
        return PER_CALL + count_content(part.get("content"), count)
    if kind == "tool_use":
        return PER_CALL + count(plain_json([part.get("name"), part.get("input")]))
    return PER_FILE


def count_call(call: Mapping[str, Any], count: Count = estimate) -> int:
    """Count one tool call: id, name and arguments."""
    function = call.get("function")
    function = function if isinstance(function, Mapping) else call
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else plain_json(arguments)
    return count(str(function.get("name") or "")) + count(text) + count(str(call.get("id") or ""))


def count_tools(tools: Iterable[Mapping[str, Any]], count: Count = estimate) -> int:
    """Count tool definitions, as they are sent with every request."""
    return sum(PER_CALL + count(plain_json(tool)) for tool in tools)


def plain_json(value: Any) -> str:
    """Return canonical JSON: sorted keys, no spaces. Two messages are equal if this is."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)


# Tokenizer family → vocabulary in the optional package `herma[tokens]`. Claude, Gemini and Mistral have none.
_VOCABULARIES = {
    "o200k": "o200k_base",
    "cl100k": "cl100k_base",
    "qwen": "qwen3",
    "deepseek": "deepseek_v3",
    "llama3": "llama3",
    "kimi": "kimi_k2",
    "glm": "glm4",
}


@dataclass(frozen=True, slots=True)
class Exact:
    """Implement `TokenCounter` with a model's own vocabulary."""

    name: str
    tokens: Callable[[str], int] = field(repr=False, compare=False)
    exact: bool = True

    def count(self, text: str) -> int:
        """Count the tokens of `text`; half a surrogate pair, which no tokenizer accepts, as a replacement character."""
        if not text:
            return 0
        try:
            return self.tokens(text)
        except UnicodeEncodeError:
            return self.tokens(text.encode("utf-8", "replace").decode())


def exact_counter(family: str) -> TokenCounter | None:
    """Return a counter with the vocabulary of this family, if the optional package has it."""
    vocabulary = _VOCABULARIES.get(family)
    if vocabulary is None:
        return None
    try:
        encode = import_module("splintr").Tokenizer.from_pretrained(vocabulary).encode_ordinary
    except (ImportError, ValueError, OSError, RuntimeError):
        return None  # no package, or a version of it without this vocabulary
    return Exact(f"{vocabulary} (splintr)", lambda text: len(encode(text)))


Slot: TypeAlias = Literal["system", "memory", "conversation", "tools", "reply"]
SLOTS: tuple[Slot, ...] = get_args(Slot)
LABELS: Mapping[Slot, str] = {
    "system": "system prompt",
    "memory": "injected memory",
    "conversation": "conversation",
    "tools": "tool results",
    "reply": "reply",
}
WHERE: Mapping[Slot, str] = {
    "system": "cut; project files and skills are named with how to read them",
    "memory": "left in memory; session_search and the memory files have it",
    "conversation": "compressed; the transcript has every message",
    "tools": "shortened; the transcript has the full results",
    "reply": "not requested; the model's answer is limited to its slot",
}
"""The place of a slot's overflow, unless the caller names another."""
PROFILES: Mapping[str, Mapping[Slot, float]] = {
    "default": {"system": 8, "memory": 12, "conversation": 30, "tools": 35, "reply": 15},
    "coding": {"system": 10, "memory": 8, "conversation": 22, "tools": 45, "reply": 15},
    "chat": {"system": 8, "memory": 20, "conversation": 47, "tools": 10, "reply": 15},
}
"""Percent of the window per slot."""
FIXED = 5_000
"""Tokens that the system prompt and the tool definitions get in any window, up to a quarter of it. Their size does not
depend on the window, so a share of a small window would not hold them. The slot for tool results gives up the room.
"""
BORROWED = "more than its share, borrowed from the free part of the window; nothing was cut"


@dataclass(frozen=True, slots=True)
class Use:
    """One slot: its room, and the tokens in it. `used` may exceed `room`; the difference has overflowed."""

    slot: Slot
    room: int
    used: int = 0

    @property
    def free(self) -> int:
        return max(0, self.room - self.used)

    @property
    def over(self) -> int:
        return max(0, self.used - self.room)


@dataclass(frozen=True, slots=True)
class Overflow:
    """Tokens that did not fit into their slot, and where they went."""

    slot: Slot
    tokens: int
    where: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A window with what is in it."""

    window: int
    uses: tuple[Use, ...]
    overflows: tuple[Overflow, ...] = ()
    note: str = ""

    def __getitem__(self, slot: Slot) -> Use:
        return next(use for use in self.uses if use.slot == slot)

    @property
    def used(self) -> int:
        return sum(use.used for use in self.uses)

    @property
    def free(self) -> int:
        """Tokens left in the whole window; a slot that overflows borrows from the others."""
        return max(0, self.window - self.used)

    def values(self) -> dict[str, object]:
        """Return the plan as plain values, for JSON."""
        return {
            "window": self.window,
            "used": self.used,
            "free": self.free,
            "slots": {
                use.slot: {"name": LABELS[use.slot], "room": use.room, "used": use.used, "over": use.over}
                for use in self.uses
            },
            "overflows": [{"slot": one.slot, "tokens": one.tokens, "where": one.where} for one in self.overflows],
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class WorkingMemory:
    """The window of one model, divided. The system prompt gets at least `least` tokens, taken from tool results."""

    window: int
    shares: Mapping[Slot, float] = field(default_factory=lambda: PROFILES["default"])
    note: str = ""
    least: int = 0

    def room(self, slot: Slot) -> int:
        """Return the tokens that a slot may hold."""
        return self.plan()[slot].room

    def plan(self, usage: Mapping[Slot, int] | None = None, where: Mapping[Slot, str] | None = None) -> Plan:
        """Enter the use of each slot. Overflow goes to `where`, or to the slot's usual place."""
        if self.window <= 0:
            raise ConfigError(f"context.window must be greater than 0, got {self.window:,}.")
        usage, goes = usage or {}, {**WHERE, **(where or {})}
        rooms = {slot: int(self.window * self.shares.get(slot, 0.0) / 100) for slot in SLOTS}
        taken = max(0, min(self.least - rooms["system"], self.window // 4 - rooms["system"], rooms["tools"]))
        rooms |= {"system": rooms["system"] + taken, "tools": rooms["tools"] - taken}
        uses = tuple(Use(slot, rooms[slot], max(0, usage.get(slot, 0))) for slot in SLOTS)
        overflows = tuple(Overflow(use.slot, use.over, goes[use.slot]) for use in uses if use.over)
        return Plan(self.window, uses, overflows, self.note)


@dataclass(frozen=True, slots=True)
class Budget:
    """The configured division of windows. A share of 0 means that of the profile; a window of 0 the
    model's.
    """

    window: int = 0
    profile: str = "default"
    shares: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, settings: ContextSettings) -> Budget:
        """Read the section `context` of the configuration."""
        return cls(settings.window, settings.profile, dict(SHARES.read(settings.shares)))

    def of(self, model: str | None) -> WorkingMemory:
        """Return the divided window of a model: as configured, else as known for the model's name."""
        window = window_of(model, self.window)
        changes = {slot: share for slot, share in self.shares.items() if share}
        least = 0 if "system" in changes else FIXED  # a share that the user set is kept
        return WorkingMemory(window.tokens, shares_of(self.profile, changes), window.note, least)


def shares_of(profile: str = "default", changes: Mapping[str, float] | None = None) -> Mapping[Slot, float]:
    """Return the shares of a profile with some of them changed. Raise `ConfigError` for what cannot be."""
    if profile not in PROFILES:
        raise ConfigError(f"{profile!r} is not a budget profile.", hint=f"Use one of: {', '.join(PROFILES)}.")
    shares: dict[Slot, float] = dict(PROFILES[profile])
    for name, share in (changes or {}).items():
        slot = next((slot for slot in SLOTS if slot == name), None)
        if slot is None:
            raise ConfigError(f"{name!r} is not a slot of the window.", hint=f"Use one of: {', '.join(SLOTS)}.")
        if not 0 <= share <= 100:  # also refuses what is not a number
            raise ConfigError(f"The share of {LABELS[slot]} must be between 0 and 100 percent, not {share:g}.")
        shares[slot] = share
    total = sum(shares.values())
    if total > 100.0001:
        parts = ", ".join(f"{slot} {share:g}" for slot, share in shares.items())
        raise ConfigError(
            f"The shares of the window add up to {total:g} percent ({parts}); 100 is the maximum.",
            hint="Lower one of them in the setting context.shares.",
        )
    return MappingProxyType(shares)


def hold(
    budget: WorkingMemory,
    counter: TokenCounter,
    system_prompt: str,
    tools: Sequence[Mapping[str, Any]],
    history: Sequence[Message],
    hidden: Sequence[Message] = (),
) -> Plan:
    """Return the window with a conversation in it. `hidden` are messages that a summary replaced."""
    count = counter.count
    memory = memory_of(system_prompt)
    usage: dict[Slot, int] = {
        "system": PER_MESSAGE + count(system_prompt.replace(memory, "", 1)) + count_tools(tools, count),
        "memory": count(memory),
        "conversation": 0,
        "tools": 0,
    }
    left_out = 0
    for message in history:
        tokens = message.tokens if message.tokens is not None else count_message(as_sent(message), count)
        if message.role == "tool":
            usage["tools"] += tokens
            if message.sent is not None:
                left_out += max(0, count_content(message.content, count) - count_content(message.sent, count))
            continue
        injected = count(injected_in(message.content, message.sent))
        usage["memory"] += injected
        usage["conversation"] += max(0, tokens - injected)
    exactly = "exact" if counter.exact else "estimated, erring on the high side"
    note = "; ".join(filter(None, [budget.note, f"tokens are {exactly} ({counter.name})"]))
    plan = replace(budget, note=note).plan(usage, where=dict.fromkeys(SLOTS, BORROWED))
    compressed = sum(message.tokens or count_message(as_sent(message), count) for message in hidden)
    gone = [Overflow("tools", left_out, WHERE["tools"]), Overflow("conversation", compressed, WHERE["conversation"])]
    return replace(plan, overflows=(*plan.overflows, *(one for one in gone if one.tokens)))


def injected_in(content: Content, sent: Content) -> str:
    """Return what was added to a message when it was sent."""
    if isinstance(content, str) and isinstance(sent, str) and sent.startswith(content):
        return sent[len(content) :]
    if isinstance(content, list) and isinstance(sent, list) and len(sent) > len(content):
        return "\n".join(str(part.get("text", "")) for part in sent[len(content) :])
    return str(sent) if content is None and isinstance(sent, str) else ""


def draw(plan: Plan, width: int = 72) -> str:
    """Draw the window as a bar with numbers, for `herma context show`."""
    inner, whole = max(10, width - 2), max(plan.window, plan.used)
    letters = {slot: label[0].upper() for slot, label in LABELS.items()} | {"memory": "M"}
    cells = [use.used and max(1, round(inner * min(use.used, plan.window) / whole)) for use in plan.uses]
    while sum(cells) > inner:
        cells[cells.index(max(cells))] -= 1
    bar = "".join(letters[use.slot] * count for use, count in zip(plan.uses, cells, strict=True))
    lines = [f"[{bar.ljust(inner, '·')}]"]
    name, digits = max(map(len, LABELS.values())), len(f"{whole:,}")
    for use in plan.uses:
        percent = f"{100 * use.used / use.room:.0f}%" if use.room else "—"
        over = f"  {use.over:,} over" if use.over else ""
        label = f"{letters[use.slot]} {LABELS[use.slot]:{name}}"
        lines.append(f"{label}  {use.used:>{digits},} of {use.room:>{digits},}  {percent:>5}{over}")
    lines.append(f"  {'window':{name}}  {plan.used:>{digits},} of {plan.window:>{digits},}  {plan.free:,} free")
    lines += [f"  {LABELS[gone.slot]}: {gone.tokens:,} tokens {gone.where}" for gone in plan.overflows]
    return "\n".join([*lines, *([f"  {plan.note}"] if plan.note else [])])
