"""Folding, stemming, stop words, CJK ranges, likeness, plural/size/percent: one home for text helpers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

# ---------- recall.frames
#
# The frame of a question about conversations: what is said about the asking, not about what is sought. Pure, linear.
#
# "Can you list the order in which I brought up aspects of the budget tracker across our conversations?" seeks the
# budget tracker. The words around it occur in many messages, and none of them is meant.

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
_FRAME = re.compile("|".join(_FRAMES), re.IGNORECASE)


def unframed(text: str) -> str:
    """The text without what frames it."""
    return _FRAME.sub(" ", text)


# ---------- recall.stem
#
# Porter's stems: the form in which the index knows English words (and does little to others).
#
# The algorithm of 1980, as FTS5 runs it, so that a word found by the index is found again in the text of the message.

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
    """The stem of a folded word."""
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
    """hopping → hop, filing → file: what a cut suffix leaves behind."""
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
    """How many times vowels are followed by consonants."""
    kinds = [_consonant(word, at) for at in range(len(word))]
    return sum(not before and now for before, now in pairwise(kinds))


def _short(word: str) -> bool:
    """Ends consonant, vowel, consonant other than w, x, y."""
    return (
        len(word) > 2
        and _consonant(word, len(word) - 1)
        and not _consonant(word, len(word) - 2)
        and _consonant(word, len(word) - 3)
        and word[-1] not in "wxy"
    )


# ---------- recall.stopwords
#
# Words that carry no content in a question. They are dropped from queries, never from the index: phrases need them.
#
# Our own lists, kept short for languages whose function words are content words elsewhere ("die", "son", "come").

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
"""Without the words of one language that are content in another: a word too many does less harm than one too few."""

NOT_ENGLISH = STOP_WORDS - frozenset(_ENGLISH.split()) - {"die", "es", "en", "la", "no", "me", "de", "son"}
"""Words that nobody uses in an English question."""

NAMES = frozenset(("Go", "May", "Will", "Mark", "Back"))
"""Capitalised inside a sentence these are names, although `go`, `may` and `will` say nothing."""

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
"""Pieces cut out of runs of Chinese, Japanese and Korean, longest first. Single particles (的, は) stay: they glue
words whose borders nobody marks."""


# ---------- recall.stripped
#
# A word without the punctuation around it. Pure, linear.

_STRIPPED_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\uff66-\uff9f\U00020000-\U0003ffff"
HAS_CJK = re.compile(f"[{_STRIPPED_CJK}]")
_LEFT = "([{<)]}>'`,;:!?…¿¡*=|&~^。，、！？；：（）【】「」『』《》〈〉"
RIGHT = "([{<)]}>'`@%$,.;:!?…*=|&~^/\\-。，、！？；：（）【】「」『』《》〈〉"
_ELISION = re.compile(r"^(?:qu|[cdjlmnst])'(?=\w{3})", re.IGNORECASE)


def strip(word: str) -> str:
    """A word without the punctuation around it; what belongs to it (`C#`, `C++`, `.env`, `@me`) stays."""
    word = word.rstrip(RIGHT).lstrip(_LEFT)
    word = _ELISION.sub("", word.removesuffix("'s"))
    return word if any(letter.isalnum() or ord(letter) > 0x2000 for letter in word) else ""


# ---------- skills.terms
#
# Texts as terms: what routing compares. Pure; stems and stop-words are given, because search owns them.

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_TERMS_CJK = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]")
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
                if _TERMS_CJK.search(word):
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


# ---------- late
#
# A pattern that is compiled when it is first needed: most programs that load a module use few of its patterns.


class Late:
    """Like a compiled pattern, as far as it is used here."""

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self._source = pattern, flags

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(*self._source)

    def match(self, text: str) -> re.Match[str] | None:
        return self._compiled.match(text)

    def search(self, text: str) -> re.Match[str] | None:
        return self._compiled.search(text)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        return self._compiled.fullmatch(text)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        return self._compiled.finditer(text)

    def split(self, text: str, maxsplit: int = 0) -> list[str]:
        return self._compiled.split(text, maxsplit=maxsplit)

    def sub(self, new: str | Callable[[re.Match[str]], str], text: str, count: int = 0) -> str:
        return self._compiled.sub(new, text, count=count)
