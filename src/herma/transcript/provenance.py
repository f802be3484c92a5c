"""Record which text of a conversation came from outside, and test if an entry repeats it.

A message says with spans which of its text came from outside (`Message.outside`). An entry is compared with all of that
text, statement by statement: how many of its content words stand close together there. Words weigh by what they tell: a
number, a name or an address more than an everyday word. Outside wins over inside: a statement stays the agent's own
only when the person typed, in one place, everything that it has in common with the text from outside.

Every step is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise

from herma.safety.fold import fold
from herma.text import STOP_WORDS, LazyPattern, stem
from herma.transcript.log import Transcripts, origins
from herma.transcript.messages import outside_parts, text_of, typed_text, without
from herma.types import Message, Origin, OutsideSpan

LEAST_SHARE, LEAST_WEIGHT = 0.6, 2.5
"""Share of a statement's weight that must stand together in a text from outside, and how much that must be at least."""
_CHUNK, _STRIDE = 8, 4
"""Long statements are compared piece by piece, so that a repeated part cannot hide between other words."""
_STRONG, _PLAIN, _EVERYDAY = 2.0, 1.0, 0.5
_NEGATION = "\0not"
_CJK = "぀-ヿ㐀-䶿一-鿿가-힯"
_TOKEN = LazyPattern(rf"[{_CJK}]+|[^\W_{_CJK}]+")
_TAGS = re.compile(r"<[^<>]{0,300}>")
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|[nrtbf"/\\])')
_COMPOUND = LazyPattern(rf"(?<![^\W_{_CJK}])[^\W_{_CJK}]++(?:[._/:@\\]++[^\W_{_CJK}]++)+")
_ADDRESS = LazyPattern(
    r"(?:https?|ftp|ssh|git|wss?)://[^\s\"'<>“”`|)\]]{3,200}"
    r"|[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}"
    r"|(?<![\w.@/-])(?:[a-z0-9-]{1,63}\.){1,4}[a-z]{2,24}(?![\w-])"
    r"|(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.])"
)
_FILE_ENDINGS_WORDS = """
bat bin c cc cfg cjs conf cpp cs css csv db env exe gif go gz h hpp html htm ini ipynb java jpeg jpg js json jsonl
jsx kt lock log lua md mdx mjs pdf php pl png po py pyi rb rs rst scss sh sql sqlite svg swift tar toml ts tsv tsx
txt vue wasm webp whl xml yaml yml zip zsh
"""
_FILE_ENDINGS = frozenset(_FILE_ENDINGS_WORDS.split())
_RUN, _STEP = 8, 4
"""Words of a run that is not an accident; at every fourth word of a marked text one is remembered."""
_EDGE = 200
"""Characters to both sides of such a run that are compared one by one."""
_RUN_TOKEN = LazyPattern(rf"[{_CJK}]|[^\W_{_CJK}]+")
_ENDS = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；])|\n+")
_QUOTED = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
_NEGATIONS_WORDS = """
no not never none nor without cannot cant dont doesnt didnt isnt arent wasnt wont wouldnt shouldnt couldnt nicht
kein keine nie jamais pas sin nunca
"""
_NEGATIONS = frozenset(_NEGATIONS_WORDS.split())
_CJK_NEGATIONS = ("不", "没", "沒", "别", "ない", "ません", "않", "지 마")
_CJK_EMPTY = frozenset("的了是在和与也就都我你您他她它们这那有及着过吗呢吧啊请把被给会要")
_FILLING = frozenset(
    map(
        stem,
        (
            *("user", "agent", "assistant", "project", "fact", "note", "preference", "prefer", "wish", "asked", "ask"),
            *("currently", "called", "done", "via", "etc", "eg", "ie", "http", "https", "www"),
        ),
    )
)
_COMMON_WORDS = """
mail able answer app application base best better big build call case change check clear code command commit common
company config configuration contain create current data day default develop development different document easy
edit english error example fast feature file first fix folder follow format free full function general good group
hand high home hour host idea important include information install issue item job keep language large latest learn
level library life line link list little live local long machine main manage matter meet member message method
minute model module money month morning move name network new next nice night number office often old open option
order package page part path people person phone place plan point port prefer problem process product program public
question quick read real report request require response result review right root rule run safe second section send
server service session set setup several short show side simple single site size small software source special stand
standard start state step stop store style subject support system table task team test text time tip title today
tool top total type update usual value version view visit wait watch water web week weekend white whole word work
world write written year young always every friend family love make note via like user topic thank welcome help
hello
"""
_COMMON = frozenset(map(stem, _COMMON_WORDS.split()))


@dataclass(frozen=True, slots=True)
class EntryPart:
    """A piece of an entry: its content words with their weights, its addresses, and whether it denies something."""

    text: str
    weights: Mapping[str, float]
    addresses: frozenset[str]
    negated: bool

    @property
    def total(self) -> float:
        return sum(self.weights.values())

    @property
    def window(self) -> int:
        """Content words among which its own are looked for together."""
        return max(8, 2 * len(self.weights) + 2)


class MarkedTexts:
    """Texts that were marked as untrusted, to be found again in messages: whole, or in runs of words."""

    def __init__(self) -> None:
        self.all: list[tuple[str, Origin]] = []
        self._runs: dict[tuple[str, ...], tuple[int, int, int]] = {}
        self._short: list[int] = []

    def add(self, text: str, origin: Origin) -> None:
        number = len(self.all)
        self.all.append((text, origin))
        runs = {run: (number, start, end) for run, start, end in _runs(text, _STEP)}
        self._runs |= runs
        if not runs:
            self._short.append(number)

    def find(self, text: str) -> list[OutsideSpan]:
        """Return where a text repeats one of them. Linear in this text, however many were marked."""
        if not self.all:
            return []
        spans: list[OutsideSpan] = []
        done = 0
        for run, start, end in _runs(text):
            if end > done and (place := self._runs.get(run)) is not None:
                number, first, last = place
                page, origin = self.all[number]
                before = _common(text[max(0, start - _EDGE) : start][::-1], page[max(0, first - _EDGE) : first][::-1])
                done = end + _common(text[end : end + _EDGE], page[last : last + _EDGE])
                spans.append(OutsideSpan(start - before, done, origin))
        for number in self._short:
            whole, origin = self.all[number][0].strip(), self.all[number][1]
            at = text.find(whole) if whole else -1
            while at >= 0:
                spans.append(OutsideSpan(at, at + len(whole), origin))
                at = text.find(whole, at + len(whole))
        return merged(spans)


def _common(one: str, other: str) -> int:
    """Return how many characters two texts have in common at their beginning."""
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return min(len(one), len(other))


def _runs(text: str, step: int = 1) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """Yield the runs of words in a text that are long enough to be no accident, and where each begins and ends."""
    words = [(match.group().casefold(), match.start(), match.end()) for match in _RUN_TOKEN.finditer(text)]
    for at in range(0, len(words) - _RUN + 1, step):
        run = words[at : at + _RUN]
        if not text.isascii() and any(_is_cjk(word) for word, _, _ in run):
            run = words[at : at + 2 * _RUN]
            if len(run) < 2 * _RUN:
                continue
        yield tuple(word for word, _, _ in run), run[0][1], run[-1][2]


class _Source:
    """One text that the conversation has seen. Its words are looked up when an entry is compared for the first time."""

    def __init__(self, text: str, origin: Origin) -> None:
        self.text = text
        self.origin = origin

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(tokens(self.text))


class SeenText:
    """Everything that one conversation has seen: what came from outside, and what the person typed.

    `earlier` gives the stored messages that are not added one by one, each with whether its session was imported. It is
    called when an entry is compared for the first time.
    """

    def __init__(self, earlier: Callable[[], Iterable[tuple[Message, bool]]] = tuple) -> None:
        self._earlier: Callable[[], Iterable[tuple[Message, bool]]] | None = earlier
        self._outside: list[_Source] = []
        self._inside: list[_Source] = []
        self._known: set[int] = set()
        self._calls: dict[str, str] = {}
        self.marked = MarkedTexts()

    def mark(self, text: str, origin: Origin) -> None:
        """Take in a text from outside that messages may contain: text that repeats it there is not the person's."""
        self.add(text, origin)
        self.marked.add(text, origin)

    def add(self, text: str, origin: Origin) -> None:
        """Take in a text that came from outside or, with a trusted origin, that the person typed."""
        if text.strip():
            (self._inside if origin.trusted else self._outside).append(_Source(text, origin))

    def add_messages(self, messages: Iterable[Message], *, imported: bool = False) -> None:
        """Take in stored messages, each once."""
        for message in messages:
            if message.id and message.id in self._known:
                continue
            self._known.add(message.id)
            self._add_message(message, imported)

    def add_prompt(self, prompt: str, spans: Iterable[OutsideSpan]) -> None:
        """Take in the parts of a system prompt that came from outside."""
        for span in spans:
            self.add(prompt[span.start : span.end], span.origin)

    def outsider(self, contents: Iterable[str], known: Iterable[str] = ()) -> Origin | None:
        """Return the origin of the text that one of these entries repeats; None where they repeat nothing from outside.

        A statement of an entry that is `known` already, word for word, repeats nothing.
        """
        self._load()
        letters = [_letters(text) for text in known]
        for content in contents:
            new = [one for one in _ENDS.split(content) if not any(_letters(one) in text for text in letters)]
            found = self._repeated(statements("\n".join(new))) or next(filter(None, map(self._copied, new)), None)
            if found is not None:
                return found
        return None

    def typed(self, message: Message) -> str:
        """Return what the person typed of a message: nothing that stands in a text that was marked."""
        text = typed_text(message)
        return without(text, self.marked.find(text))

    def quotes(self, sentence: str) -> bool:
        """Return whether a sentence stands word for word in text from outside: then a person has pasted it."""
        self._load()
        if self.marked.find(sentence):
            return True
        wanted = list(tokens(sentence))
        run = " ".join(wanted)
        if len(wanted) < 2:
            return False
        return any(
            source.words.issuperset(wanted) and f" {run} " in f" {' '.join(tokens(source.text))} "
            for source in list(self._outside)
        )

    # ── steps ──

    def _copied(self, sentence: str) -> Origin | None:
        """Return the origin of the text in which a sentence stands letter for letter, however short, unless the person
        typed its words in one message."""
        wanted, letters = set(tokens(sentence)), _letters(sentence)
        if len(wanted) < 2 or not wanted - _FILLING or any(wanted - _FILLING <= one.words for one in self._inside):
            return None
        outside = (one for one in list(self._outside) if wanted <= one.words and letters in _letters(one.text))
        return next((one.origin for one in outside), None)

    def _load(self) -> None:
        earlier, self._earlier = self._earlier, None
        for message, imported in earlier() if earlier is not None else ():
            self.add_messages([message], imported=imported)

    def _add_message(self, message: Message, imported: bool) -> None:
        self._calls |= {str(call.get("id")): _called(call) for call in message.tool_calls}
        asked = self._calls.get(message.tool_call_id or "", message.tool_name or "")
        if imported:
            self.add(text_of(message.content), Origin.IMPORT)
            return
        if message.role == "tool" and asked == "memory":  # it answers with entries, which are known
            return
        for text, origin in outside_parts(message):
            self.add(text, origin)
        if message.role == "user" and message.hidden != "rewound":
            self.add(_QUOTED.sub(" ", typed_text(message)), Origin.USER_SAID)

    def _repeated(self, parts: Sequence[EntryPart]) -> Origin | None:
        holders: dict[str, list[int]] = {}
        for at, one in enumerate(parts):
            for word in one.weights:
                holders.setdefault(word, []).append(at)
        found: dict[int, tuple[Origin, set[str], set[str]]] = {}
        for source in list(self._outside):
            close = _close(parts, holders, source.words)
            if not close:
                continue
            hits = _hits(source.text, {word for at in close for word in parts[at].weights})
            folded = source.text.casefold() if any(parts[at].addresses for at in close) else ""
            for at in close:
                matched = _matched(parts[at], hits)
                named = {address for address in parts[at].addresses if address in folded}
                if matched or named:
                    origin, words, addresses = found.get(at, (source.origin, set(), set()))
                    found[at] = (origin, words | matched, addresses | named)
        for at, (origin, words, addresses) in found.items():
            if not self._typed(parts[at], words, addresses):
                return origin
        return None

    def _typed(self, one: EntryPart, words: set[str], addresses: set[str]) -> bool:
        """Return whether the person typed all of this in one place, and denies it where the statement does."""
        wanted = {word for word in words if one.weights[word] > 0}
        for source in list(self._inside):
            if not source.words.issuperset(wanted):
                continue
            text = without(source.text, self.marked.find(source.text))
            folded = text.casefold()
            if all(address in folded for address in addresses) and _together(one, wanted, text):
                return True
        return False


def sources_of(transcripts: Transcripts, session_id: str) -> Iterator[tuple[Message, bool]]:
    """Yield every stored message of a conversation and of those it branched off, hidden ones too; and if it was
    imported."""
    for member in sorted(origins(transcripts, session_id)):
        info = transcripts.get(member)
        imported = info is not None and info.imported is not None
        for message in transcripts.messages(member, include_hidden=True) if info is not None else ():
            yield message, imported


def check_origin(origin: object) -> Origin:
    """Return an origin that text from outside can have. ValueError, in words, for anything else."""
    try:
        known = Origin(origin)  # type: ignore[arg-type]
    except ValueError:
        known = None
    if known is None or known.trusted:
        allowed = ", ".join(each.value for each in Origin if not each.trusted)
        raise ValueError(f"origin: unknown value {origin!r:.60}. Allowed: {allowed}.")
    return known


def merged(spans: Iterable[OutsideSpan]) -> list[OutsideSpan]:
    """Return spans in order, those that overlap as one."""
    kept: list[OutsideSpan] = []
    for span in sorted(spans, key=lambda one: (one.start, -one.end)):
        if kept and span.start < kept[-1].end:
            last = kept.pop()
            kept.append(OutsideSpan(last.start, max(last.end, span.end), last.origin))
        elif span.end > span.start:
            kept.append(span)
    return kept


def says_the_same(one: str, other: str) -> bool:
    """Return whether two entries have the same content words, numbers and denials, in whatever order and form."""
    if _letters(one) == _letters(other):
        return True
    mine, theirs = set(tokens(one)) - _FILLING, set(tokens(other)) - _FILLING
    return len(mine) > 1 and mine == theirs


# ── words ──


def tokens(text: str) -> Iterator[str]:
    """Yield the content words of a text as stems, in their order: pairs of characters of scripts without spaces, a mark
    for each denial. Linear."""
    if "\\" in text:
        text = _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else " ", text)
    if "<" in text:
        text = _TAGS.sub(" ", text)
    plain = fold(text, lookalikes=True).text.replace("'", "").replace("’", "")
    stop = _stop_words()
    for word in _TOKEN.findall(plain):
        if word.isascii():
            if word in _NEGATIONS:
                yield _NEGATION
            elif word not in stop and (len(word) > 1 or word.isdigit()):
                yield stem(word[:64])
        elif _is_cjk(word):
            if any(mark in word for mark in _CJK_NEGATIONS):
                yield _NEGATION
            kept = [sign for sign in word if sign not in _CJK_EMPTY]
            yield from (map("".join, pairwise(kept)) if len(kept) > 1 else kept)
        elif word not in stop:
            yield stem(word[:64])


def statements(content: str) -> list[EntryPart]:
    """Cut an entry into what is compared on its own: its sentences, and pieces of long ones."""
    found: list[EntryPart] = []
    for sentence in filter(None, map(str.strip, _ENDS.split(content))):
        weights = _weights(sentence)
        addresses = frozenset(_addresses(sentence))
        negated = _NEGATION in set(tokens(sentence))
        if not weights and not addresses:
            continue
        found.append(EntryPart(sentence, weights, addresses, negated))
        order = list(weights)
        for at in range(0, len(order) - _CHUNK + _STRIDE, _STRIDE) if len(order) > _CHUNK else ():
            piece = {word: weights[word] for word in order[at : at + _CHUNK]}
            found.append(EntryPart(sentence, piece, frozenset(), negated))
    if len(found) > 1:
        found.append(EntryPart(content, _weights(content), frozenset(), any(one.negated for one in found)))
    return found


def _weights(sentence: str) -> dict[str, float]:
    compounds = {word for match in _COMPOUND.finditer(sentence) for word in tokens(match.group())}
    names = {word for match in _NAME.finditer(sentence) for word in tokens(match.group())}
    weights: dict[str, float] = {}
    for word in tokens(sentence):
        if word == _NEGATION or word in _FILLING:
            continue
        if (
            (any(sign.isdigit() for sign in word) and len(word) > 1)
            or word in compounds
            or (word in names and word not in _COMMON)
        ):
            weights[word] = _STRONG
        elif word in _COMMON or _is_cjk(word) or len(word) == 1:
            weights[word] = _EVERYDAY
        else:
            weights[word] = _PLAIN
    return weights


_NAME = re.compile(r"(?<=[a-z,] )[A-Z][\w-]+(?: [A-Z][\w-]+)*")
"""A word written large in the middle of a sentence."""


def _addresses(sentence: str) -> Iterator[str]:
    for match in _ADDRESS.finditer(sentence.casefold()):
        address = match.group().rstrip(".,;:)/")
        if "/" in address or "@" in address or address.rpartition(".")[2] not in _FILE_ENDINGS:
            yield address


def _close(parts: Sequence[EntryPart], holders: Mapping[str, Sequence[int]], words: frozenset[str]) -> list[int]:
    """Return which statements a text with these words may repeat."""
    weights: dict[int, float] = {}
    for word in holders.keys() & words:
        for at in holders[word]:
            weights[at] = weights.get(at, 0.0) + parts[at].weights[word]
    return [
        at
        for at, weight in sorted(weights.items())
        if (weight >= LEAST_WEIGHT and weight >= LEAST_SHARE * parts[at].total) or parts[at].addresses
    ]


def _hits(text: str, wanted: set[str]) -> list[tuple[int, str]]:
    return [(at, word) for at, word in enumerate(tokens(text)) if word in wanted]


def _matched(one: EntryPart, hits: Sequence[tuple[int, str]]) -> set[str]:
    """Return the words of a statement that stand together in a text often enough to repeat it: of all such places."""
    matched: set[str] = set()
    inside: dict[str, int] = {}
    own = [(at, word) for at, word in hits if word in one.weights]
    first = 0
    weight = 0.0
    for at, word in own:
        weight += one.weights[word] if not inside.get(word) else 0.0
        inside[word] = inside.get(word, 0) + 1
        while at - own[first][0] > one.window:
            left = own[first][1]
            inside[left] -= 1
            weight -= one.weights[left] if not inside[left] else 0.0
            first += 1
        if weight >= LEAST_WEIGHT and weight >= LEAST_SHARE * one.total and len(matched) < len(one.weights):
            here = {each for each, count in inside.items() if count}
            if _tells(here, one) and (len(here) > 2 or weight >= 3.0 or len(here) == len(one.weights)):
                matched |= here
    return matched


def _tells(words: set[str], one: EntryPart) -> bool:
    """Return whether these are more than everyday words: two others, one that is strong, or characters of a script
    whose words are not split.
    """
    weights = [one.weights[word] for word in words]
    return max(weights) >= _STRONG or sum(weight >= _PLAIN for weight in weights) > 1 or any(map(_is_cjk, words))


def _together(one: EntryPart, wanted: set[str], text: str) -> bool:
    """Return whether all of `wanted` stands in one place of a text, which denies it where the statement does."""
    last: dict[str, int] = {}
    denied = -1
    for at, word in enumerate(tokens(text)):
        if word == _NEGATION:
            denied = at
        if word not in wanted:
            continue
        last[word] = at
        if len(last) == len(wanted):
            first = min(last.values())
            if at - first <= 2 * one.window and (denied >= max(0, first - 3)) == one.negated:
                return True
    return not wanted


def _called(call: Mapping[str, object]) -> str:
    function = call.get("function")
    return str(function.get("name")) if isinstance(function, Mapping) else ""


@cache
def _stop_words() -> frozenset[str]:
    return frozenset(word.replace("'", "") for word in STOP_WORDS) - _NEGATIONS


def _is_cjk(word: str) -> bool:
    return re.match(f"[{_CJK}]", word) is not None


def _letters(text: str) -> str:
    return "".join(_TOKEN.findall(text.casefold()))
