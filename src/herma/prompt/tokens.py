"""Token counting: estimate, exact, per message; model windows."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

# ---------- prompt.families
#
# Models by name: whose tokenizer they have, and how much fits in their window.
#
# The factors say how many tokens a family of tokenizers makes of the same text, next to o200k; they were measured with
# the vocabularies themselves, except for Claude, whose vocabulary is not public and whose factors are set high.

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


# ---------- prompt.tokens
#
# How many tokens a text takes, without a vocabulary.
#
# Tokenizers first split a text into pieces (a word with the space before it, up to three digits, a run of signs, white
# space) and then break each piece up. The split is public and is done here; how many tokens a piece breaks into is
# estimated from its length and its looks, with constants fitted to exact counts (`benchmarks/tokens.py` checks them on
# texts they were not fitted to). Scripts without spaces are counted by the character. The result errs on the high side:
# a budget that turns out too small costs a little room, one that is too large costs a failed call.

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


# ---------- prompt.weight
#
# What a message weighs: its text, and what wraps it.

Count: TypeAlias = Callable[[str], int]

PER_MESSAGE = 4
"""What wraps one message: its role and its borders."""
PER_CALL = 8
"""What wraps one tool call, or one tool definition."""
PER_IMAGE = 1_600
"""An image, flat: about what a large one costs with most providers. Its size in pixels is not known here."""
PER_FILE = 3_000
"""A document or a recording, flat."""

_IMAGES = frozenset({"image", "image_url", "input_image"})
_TEXTS = ("text", "thinking", "refusal", "input_text", "output_text")


def count_message(message: Mapping[str, Any], count: Count = estimate) -> int:
    """Tokens of one OpenAI-style message: content or parts, tool calls, reasoning, and the wrapping."""
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
    """Tokens of a content value: text, or a list of parts. Bytes of images and files are never counted as text."""
    if content is None:
        return 0
    if isinstance(content, str):
        return count(content)
    if isinstance(content, Mapping):
        return _count_part(content, count)
    if isinstance(content, Iterable):
        return sum(count(part) if isinstance(part, str) else _count_part(part, count) for part in content)
    return count(str(content))


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
    """Tokens of one tool call: id, name and arguments."""
    function = call.get("function")
    function = function if isinstance(function, Mapping) else call
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else plain_json(arguments)
    return count(str(function.get("name") or "")) + count(text) + count(str(call.get("id") or ""))


def count_tools(tools: Iterable[Mapping[str, Any]], count: Count = estimate) -> int:
    """Tokens of tool definitions, as they are sent with every request."""
    return sum(PER_CALL + count(plain_json(tool)) for tool in tools)


def plain_json(value: Any) -> str:
    """Canonical JSON: sorted keys, no spaces, letters as they are. What equality of messages means."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)


# ---------- ports.tokens
#
# Counting tokens.


class TokenCounter(Protocol):
    """How many tokens a text takes for one model, with its vocabulary or by estimate."""

    @property
    def name(self) -> str:
        """What counts: a vocabulary, or "estimate for …"."""

    @property
    def exact(self) -> bool:
        """Whether this is the model's own count; an estimate is rather too high than too low."""

    def count(self, text: str) -> int: ...


# ---------- models.tokens
#
# Exact token counts, where a vocabulary is at hand.
#
# The vocabularies come with optional packages (`pip install 'herma[tokens]'`) and are loaded on first use. Nothing is
# ever fetched from the network.

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


# ---------- counting
#
# The best way to count a model's tokens: exactly, where its vocabulary is at hand, else by the calibrated estimate.


def counter_for(model: str | None) -> TokenCounter:
    """The counter for a model, by its name; an unknown one is estimated on the safe side."""
    return counter_for_family(family_of(model or ""))


@cache
def counter_for_family(family: str) -> TokenCounter:
    """The counter for a family of tokenizers. Looks for the optional packages once."""
    return exact_counter(family) or Estimate(family)
