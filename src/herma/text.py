"""Process words: question frames, stems, stop words, punctuation, terms, and numbers with their nouns."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from itertools import pairwise


class LazyPattern:
    """A pattern that is compiled when it is first used, because most programs use few of a module's patterns."""

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self._source = pattern, flags

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(*self._source)

    def match(self, text: str, start: int = 0) -> re.Match[str] | None:
        return self._compiled.match(text, start)

    def search(self, text: str) -> re.Match[str] | None:
        return self._compiled.search(text)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        return self._compiled.fullmatch(text)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        return self._compiled.finditer(text)

    def findall(self, text: str) -> list[str]:
        return self._compiled.findall(text)

    def split(self, text: str, maxsplit: int = 0) -> list[str]:
        return self._compiled.split(text, maxsplit=maxsplit)

    def sub(self, new: str | Callable[[re.Match[str]], str], text: str, count: int = 0) -> str:
        return self._compiled.sub(new, text, count=count)


# ── questions about conversations: words around the topic, which occur in many messages ──

_TALKS = r"(?:conversations?|chats?|sessions?|discussions?|messages|interactions)"
_ALIKE = r"(?:aspects?|topics?|things?|points?|kinds?|types?|ways?)"
_SPOKE = r"(?:brought up|talked about|discussed|mentioned|raised|covered|touched on|asked about|told you about)"
_SPEAK = r"(?:bring up|talk(?:ed)? about|discuss(?:ed)?|mention(?:ed)?|raised?|cover(?:ed)?|say|said|tell|told|asked)"
_SHORT = r"(?:clear|comprehensive|complete|detailed|brief|short|full|thorough|concise|quick)"
_WHERE = r"(?:throughout|across|during|over|in|from|between|based on|according to)"
_FRAMES = (
    r"\bmention only(?: and only)? (?:\w{1,12} )?(?:items?|things?|points?|topics?|events?|aspects?)\b",
    r"\b(?:list|give me|tell me|show me|walk me through|what (?:is|was)) the (?:chronological )?order of\b",
    r"\b(?:list |walk me through )?the (?:chronological )?order (?:in which|that|of (?:how|when))\b",
    r"\bin (?:chronological |the right |the correct )?order\b(?! (?:to|for|of|that))",
    rf"\b(?:i|we|you) (?:have |had )?{_SPOKE}\b",
    rf"\b(?:did|have|had) (?:i|we|you) {_SPEAK}\b",
    rf"\b{_WHERE}(?: the course of)?(?: all)?(?: of)? (?:our|my|these|the|those)(?: \w{{1,16}})? {_TALKS}\b",
    rf"\bin (?:an?|any|one)(?: \w{{1,16}})? {_TALKS}\b",
    rf"\b(?:an? |the )?(?:{_SHORT} )?(?:summary|overview|recap|rundown) of\b",
    r"\b(?:summari[sz]e|recap)\b",
    rf"\b(?:different|various|several|all(?: of)? the) {_ALIKE} (?:of|related to|about)\b",
)
_FRAME = LazyPattern("|".join(_FRAMES), re.IGNORECASE)


def unframed(text: str) -> str:
    """Return a question without the words that frame its topic: "can you list the order in which I brought up …"."""
    return _FRAME.sub(" ", text)


# ── Porter's stems, as FTS5 makes them: a word found by the index is found again in the message ──

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
    """Return the stem of a folded word."""
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
    """Correct the rest after a cut suffix: hopping → hop, filing → file."""
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
    """Count how often vowels are followed by consonants."""
    kinds = [_consonant(word, at) for at in range(len(word))]
    return sum(not before and now for before, now in pairwise(kinds))


def _short(word: str) -> bool:
    """Return whether the word ends with consonant, vowel, and a consonant other than w, x, y."""
    return (
        len(word) > 2
        and _consonant(word, len(word) - 1)
        and not _consonant(word, len(word) - 2)
        and _consonant(word, len(word) - 3)
        and word[-1] not in "wxy"
    )


# ── stop words: dropped from queries, never from the index, because phrases need them ──
#
# Lists are short for languages whose function words are content words elsewhere ("die", "son", "come").

_ENGLISH = """
a about above after again ago all also am an and any anybody anyone anything anyway are aren't around as at away back
be because been before being below between both but by came can can't cannot come could couldn't did didn't do does
doesn't doing don't done down during each either else ever every everything few find for from further get gets getting
give given go goes going gone gonna got had hadn't has hasn't have haven't having he he'd he'll he's hello help her
here here's hers herself hey hi him himself his how how's however i i'd i'll i'm i've if in into is isn't it it'd
it'll it's its itself just kind know last later let let's like likely ll look lot make many may maybe me mean might
mine more most much must my myself need needed never no nor not now of off oh ok okay on once one only onto or other
our ours ourselves out over own per please pls put quite rather re really recall remember remind s said same say says
see shall she she'd she'll she's should shouldn't show since so some somebody someone something sort such sure t take
tell than thank thanks that that's thats the their theirs them themselves then there there's these they they'd they'll
they're they've thing things think this those though through to together told too toward towards under until up upon
us use used using ve very want wanted wants was wasn't way we we'd we'll we're we've well went were weren't what
what'd what're what's whats when when's where where's whether which while who who'd who's whom whose why why's will
with within without won't would would've wouldn't yeah yes yet you you'd you'll you're you've your yours yourself
"""
_GERMAN = """
aber als auch auf aus bei bin bist da damit dann das dass dein deine dem den denn der des dich dir doch du durch ein
eine einem einen einer eines er es euch euer für gab gegen gibt habe haben hat hatte hatten ich ihm ihn ihr ihre im
ist ja jede jeder jetzt kann kannst kein keine können könnte machen mal mein meine mich mir mit nach nein nicht noch
nur ob oder ohne sehr sein seine sich sie sind so soll sollte und uns unser unter vom von vor wann warum was weil
welche welchen welcher welches wenn wer werden weshalb wie wieder wieso wir wird wirst wo wohin worüber wurde wurden
zu zum zur zwischen über
"""
_FRENCH = """
ai as au aux avais avait avec avez avons c'est ce ces cet cette comment dans de des du elle elles en est est-ce et eu
il ils je j'ai la le les leur lequel laquelle lui ma mais me mes moi mon ne nos notre nous on ont ou où par pas pour
pourquoi quand que quel quelle quelles quels qu'est-ce qui quoi sa sans se ses si sont sur ta te tes toi ton tu un une
vos votre vous à été être
"""
_SPANISH = """
al algo como con cuando cuándo cuál cuáles cómo de del dónde el ella ellas ellos en era es esa ese eso esta este esto
está están fue ha hay he la las le les lo los me mi mis muy más no nos nosotros para pero por porque que quién quiénes
qué se ser si sin sobre son su sus sí también te tiene tu tus un una unas uno unos y ya yo él
"""

_CONTENT_ELSEWHERE = {"den", "era", "hat", "pour", "son", "ton"}
STOP_WORDS = frozenset(f"{_ENGLISH} {_GERMAN} {_FRENCH} {_SPANISH}".split()) - _CONTENT_ELSEWHERE
"""Function words of four languages, without those that are content words in another one."""

NOT_ENGLISH = STOP_WORDS - frozenset(_ENGLISH.split()) - {"die", "es", "en", "la", "no", "me", "de", "son"}
"""Words that do not occur in an English question."""

NAMES = frozenset(("Go", "May", "Will", "Mark", "Back"))
"""Names, if they are capitalised inside a sentence."""

_CHINESE = """
请问 請問 什么 什麼 甚麼 是什么 是什麼 为什么 為什麼 怎么 怎麼 怎么样 怎麼樣 怎样 怎樣 哪个 哪個 哪些 哪里 哪裡
哪一 多少 是不是 有没有 有沒有 是否 如何 何时 何時 吗 嗎 呢 吧 啊 告诉我 告訴我 关于 關於
"""
_JAPANESE = """
ですか ますか でしょうか でしたか ましたか 何ですか とは何 どのような どのように どんな どこ いつ
について 教えて ください という
"""
_KOREAN = "무엇 입니까 인가요 인가 무슨 어떤 어떻게 언제 어디 누가 누구 얼마나 알려줘"
CJK_FILLERS = tuple(sorted(f"{_CHINESE} {_JAPANESE} {_KOREAN}".split(), key=len, reverse=True))
"""Pieces that are cut out of runs of Chinese, Japanese and Korean, longest first. Single particles (的, は) stay."""


# ── punctuation ──

CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\uff66-\uff9f\U00020000-\U0003ffff"
HAS_CJK = LazyPattern(f"[{CJK}]")
_LEFT = "([{<)]}>'`,;:!?…¿¡*=|&~^。，、！？；：（）【】「」『』《》〈〉"
RIGHT = "([{<)]}>'`@%$,.;:!?…*=|&~^/\\-。，、！？；：（）【】「」『』《》〈〉"
_ELISION = re.compile(r"^(?:qu|[cdjlmnst])'(?=\w{3})", re.IGNORECASE)


def strip(word: str) -> str:
    """Return a word without the punctuation around it; `C#`, `C++`, `.env` and `@me` keep theirs."""
    word = word.rstrip(RIGHT).lstrip(_LEFT)
    word = _ELISION.sub("", word.removesuffix("'s"))
    return word if any(letter.isalnum() or ord(letter) > 0x2000 for letter in word) else ""


# ── terms, for comparing texts ──

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_TERMS_CJK = LazyPattern("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_MOST = 60_000
_MOST_PHRASE = 4_000


def stemmed_terms(text: str) -> list[str]:
    """Split a text into the stems of its words, without stop words, and pairs of CJK characters."""
    return [term for term, _ in terms_with_words(text)]


def terms_with_words(text: str) -> list[tuple[str, str]]:
    """Return each term with its word."""
    found: list[tuple[str, str]] = []
    for match in _WORD.finditer(text[:_MOST]):
        parts = _CAMEL.split(match[0])
        for part in [match[0], *parts] if len(parts) > 1 else parts:  # `SkillOpt` is also found as `skillopt`
            word = part.casefold().replace("’", "'")
            if _TERMS_CJK.search(word):
                found += [(pair, pair) for pair in _pairs(word)]
            elif word not in STOP_WORDS and (len(word) > 1 or word.isdigit()):
                found.append((_cached_stem(word.removesuffix("'s")), part))
    return found


def stemmed_words(text: str) -> tuple[str, ...]:
    """Return the stems of all words in order, stop words included."""
    return tuple(_cached_stem(match[0].casefold()) for match in _WORD.finditer(text[:_MOST_PHRASE]))


_cached_stem = lru_cache(maxsize=65_536)(stem)


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(max(1, len(run) - 1))]


def folded(text: str) -> str:
    """Return the text in lower case, with one kind of apostrophe and single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).replace("’", "'").casefold().split())


# ── numbers in words ──


def count(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 session`, `2 sessions`, `2 entries`."""
    if not many:
        many = f"{one[:-1]}ies" if one.endswith("ry") else f"{one}s"
    return f"{number:,} {one if number == 1 else many}"


def size(number: float) -> str:
    """Return bytes in words: `640 bytes`, `12.4 MB`."""
    if number < 1000:
        return count(int(number), "byte")
    for unit in ("kB", "MB", "GB"):
        number /= 1000
        if number < 1000:
            return f"{number:.1f} {unit}"
    return f"{number / 1000:.1f} TB"
