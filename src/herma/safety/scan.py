"""Scan text that may be kept in memory or reach a prompt: scan(text) → findings.

`scan` runs on every write to memory and on every load, and any finding blocks the write. It reads all of the text, in
linear time, and must leave ordinary notes alone, notes about security among them. It looks

1. at the characters: invisible ones, and letters that imitate others;
2. for credentials, in the text as it stands (`secrets.py`);
3. for the rules (`rules.txt`), in the folded text (`fold.py`);
4. for veiled requests: harmless words that together ask for a model's rules;
5. for the same rules in hidden text: base64, look-alikes, spaced-out letters and so on.

Patterns are a first fence, not the only one: where a note came from, and who approved it, is the second.
"""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

from herma.errors import UsageError
from herma.safety.fold import LOOKALIKES, RESEMBLING, fold
from herma.safety.secrets import find_secrets, read_rules
from herma.types import Finding


def scan(text: str) -> list[Finding]:
    """Return everything objectionable in `text`, in reading order. An empty list means clean."""
    if not isinstance(text, str):
        raise UsageError(f"scan() takes text, not {type(text).__name__}.", hint='For example: scan("a note").')
    return list(_remembered(text) if len(text) <= _SHORT else _scan(text))


def _scan(text: str) -> tuple[Finding, ...]:
    kept: list[Finding] = []
    reached: dict[str, int] = {}
    for finding in sorted(set(_findings(text)), key=_reading_order):
        if finding.span[1] > reached.get(finding.rule, -1):  # else a longer one of the same rule covers it
            reached[finding.rule] = finding.span[1]
            kept.append(finding)
    return tuple(kept)


# Entries are scanned at every load and seldom change; a process that loads often need not read them again.
_SHORT = 4_000
_remembered = lru_cache(maxsize=1_024)(_scan)


def _reading_order(finding: Finding) -> tuple[int, int, str, str]:
    start, end = finding.span
    return start, -end, finding.rule, finding.why


def _findings(text: str) -> Iterator[Finding]:
    yield from find_controls(text)
    if not text.isascii():
        yield from find_hidden(text)
        yield from find_lookalikes(text)
    yield from find_secrets(text)
    folded = fold(text)
    page = read(folded.text)
    in_the_open: set[str] = set()
    for rule, start, end in _rules().matches(page):
        in_the_open.add(rule.id)
        yield Finding(rule.id, folded.span(start, end), rule.severity, rule.why)
    for start, end in _find_veiled(page):
        yield Finding("veiled_request", folded.span(start, end), "medium", "works on a model's rules in veiled words")
    for plain, span, how in disguised(text, page):
        for rule, _, _ in _rules().matches(read(plain)):
            if rule.id not in in_the_open:  # a place is more use than "somewhere in here"
                yield Finding(rule.id, span, "high", f"{rule.why}, hidden as {how}")


# ── rules ──

_BETWEEN = r"(?:(?![.!?] )[^\w\n]|_){1,3}"
_START = r"(?<![a-z0-9])"
_END = r"(?![a-z0-9])"
_ANY_WORD = r"[\w'.-]{1,20}"
_GAPS = {"..": 30, "...": 80}
_BAR = re.compile(r" ?\| ?")
_SPACE = re.compile(r" (?![^()]*\))")
_PIECE = re.compile(r"\{([A-Z]\w*)\}")
_ONLY_LETTERS = bytes(code if chr(code).islower() or code == 10 else 32 for code in range(128)) + b" " * 128


class Rule(NamedTuple):
    """Describe a match. `order`: not a finding where a sentence only speaks of it; `imperative`: see rules.txt."""

    id: str
    why: str
    severity: Literal["high", "medium"]
    order: bool
    imperative: bool


class _Candidate(NamedTuple):
    """A phrase or an expression of a rule, tried on a line that meets all `needs` and has one of the pieces `also`."""

    rule: Rule
    source: str
    is_phrase: bool
    needs: frozenset[int]
    also: tuple[str, ...] = ()


class FoldedLine(NamedTuple):
    """One line of folded text: its offset, its text, and its a-z words."""

    start: int
    text: str
    words: set[str]


class FoldedText(NamedTuple):
    """Folded text in lines."""

    text: str
    lines: list[FoldedLine]
    words: set[str]


class _Rules:
    """The content of rules.txt, and an index of what each rule needs.

    A need is a number; any of several words, or of several pieces of text in other scripts, meets it. A phrase needs a
    word for each of its parts and is tried only on a line that has them all: ordinary notes cost a few set operations,
    and few expressions are ever compiled.
    """

    def __init__(self) -> None:
        sections = read_rules("rules.txt")
        self.families = {name: value.split(", ") for name, value in _pairs(sections, "families")}
        self.words = {name: frozenset(value.split()) for name, value in _pairs(sections, "words")}
        self.joined = dict(_pairs(sections, "joined"))
        self.points: dict[str, dict[str, int]] = {}
        for name, value in _pairs(sections, "veiled"):
            family, worth = name.split()
            for word in value.split():
                self.points.setdefault(word, {}).setdefault(family, int(worth))
        for word in self.words["guarding"]:
            self.points.setdefault(word, {})["guard"] = -2
        self.speaking = self.points.keys() - self.words["guarding"]
        self.shifted = frozenset(word.translate(_SHIFTED) for word in self.words["telling"])
        self.reversed = frozenset(word[::-1] for word in self.words["telling"])
        self.pieces: dict[str, str] = {}
        for entry in _take(sections, "pieces"):
            name, _, value = entry.partition(" = ")
            self.pieces[name] = self._filled(value)
        self.candidates: list[_Candidate] = []
        self._numbers: dict[frozenset[str], int] = {}
        self._by_word: dict[str, set[int]] = {}
        self._by_piece: dict[str, set[int]] = {}
        for heading, entries in sections:
            self._add_rule(heading, entries)
        self._words = frozenset(self._by_word)
        sizes = {number: len(need) for need, number in self._numbers.items()}
        self._by_need: dict[int, list[int]] = {}
        for place, candidate in enumerate(self.candidates):
            self._by_need.setdefault(min(candidate.needs, key=lambda need: sizes[need]), []).append(place)

    def _add_rule(self, heading: str, entries: list[str]) -> None:
        head, _, why = heading.partition("] ")
        name, *flags = head.removeprefix("rule ").split()
        rule = Rule(name, why, "medium" if "medium" in flags else "high", "order" in flags, "imperative" in flags)
        needs: frozenset[int] = frozenset()
        also: tuple[str, ...] = ()
        for entry in entries:
            if entry.startswith("@ "):
                words, _, pieces = entry[2:].partition(" & ")
                needs, also = frozenset((self._number(frozenset(words.split())),)), tuple(pieces.split())
            elif entry.startswith("= "):
                self.candidates.append(_Candidate(rule, self._filled(entry[2:]), False, needs, also))
            else:
                self.candidates.append(_Candidate(rule, entry, True, frozenset(map(self._number, self._needs(entry)))))

    def _filled(self, expression: str) -> str:
        return _PIECE.sub(lambda found: self.pieces[found[1]], expression)

    def _number(self, need: frozenset[str]) -> int:
        if need not in self._numbers:
            number = self._numbers[need] = len(self._numbers)
            for one in need:
                table = self._by_word if one.isascii() and one.isalpha() else self._by_piece
                table.setdefault(one, set()).add(number)
        return self._numbers[need]

    def _choices(self, word: str) -> Iterator[str]:
        for choice in word.strip("()").split("|"):
            yield from self.families[choice.strip("<>")] if choice.startswith("<") else (choice,)

    def _needs(self, phrase: str) -> Iterator[frozenset[str]]:
        """Yield the words of which a text must have one: the longest a-z word of each choice."""
        for word, optional in _tokens(phrase):
            if not optional and word not in _GAPS and word != "_" and not word.startswith("!"):
                yield frozenset(max(_WORDS.findall(choice), key=len) for choice in self._choices(word))

    def expression(self, phrase: str) -> str:
        """Return the regular expression of a phrase, without the word border before its first word."""
        parts: list[str] = []
        apart = ""
        for word, optional in _tokens(phrase):
            if word.startswith("!"):
                parts.append(rf"(?!{_BETWEEN}(?:" + "|".join(map(_spell, self._choices(word[1:]))) + f"){_END})")
            elif word in _GAPS:
                parts.append(rf"[^\n]{{0,{_GAPS[word]}}}?")
                apart = _START
            else:
                one = _ANY_WORD if word == "_" else "(?:" + "|".join(map(_spell, self._choices(word))) + f"){_END}"
                parts.append(f"(?:{apart}{one})?" if optional else apart + one)
                apart = r"(?:[^\w\n]|_){0,3}" + _START if optional and apart == _START else _BETWEEN
        return "".join(parts)

    def matches(self, page: FoldedText) -> Iterator[tuple[Rule, int, int]]:
        """Yield each match of each rule: the rule, start and end."""
        pieces = [] if page.text.isascii() else [piece for piece in self._by_piece if piece in page.text]
        met_by_line = [self._met_by(line, pieces) for line in page.lines]
        candidates = self._possible(set().union(*met_by_line))
        for line, met in zip(page.lines, met_by_line, strict=True):
            for one in [one for one in candidates if one.needs <= met]:
                if not one.also or any(piece in line.text for piece in one.also):
                    for start, end in _spans(one, line.text):
                        if one.rule.order and self._only_spoken_of(line, start, end):
                            continue
                        if one.rule.imperative and one.is_phrase and not self._found("ORDERING", line, start, 20):
                            continue
                        yield one.rule, line.start + start, line.start + end

    def _possible(self, met: set[int]) -> list[_Candidate]:
        """Return the candidates whose needs are met somewhere; each is filed under its most particular need."""
        places = sorted(place for need in met & self._by_need.keys() for place in self._by_need[need])
        return [self.candidates[place] for place in places if self.candidates[place].needs <= met]

    def _met_by(self, line: FoldedLine, pieces: list[str]) -> set[int]:
        met: set[int] = set()
        for word in line.words & self._words:
            met |= self._by_word[word]
        for piece in pieces:
            if piece in line.text:
                met |= self._by_piece[piece]
        return met

    def _found(self, piece: str, line: FoldedLine, start: int, before: int) -> re.Match[str] | None:
        return _plain(self.pieces[piece]).search(line.text, max(0, start - before), start)

    def _only_spoken_of(self, line: FoldedLine, start: int, end: int) -> bool:
        """Return whether a sentence speaks of an order without giving it: negated, reported, or quoted."""
        report = self._found("TOLD", line, start, 60)
        if self._found("NEGATED", line, start, 60) or (report and report[1].endswith(("s", "ed", "told"))):
            return True
        if line.words.isdisjoint(self.words["discussing"]):
            return False
        return report is not None or _is_quoted(line.text, start, end)


@cache
def _rules() -> _Rules:
    return _Rules()


def _take(sections: list[tuple[str, list[str]]], heading: str) -> list[str]:
    """Remove a section and return its entries."""
    place = next(place for place, section in enumerate(sections) if section[0] == heading)
    return sections.pop(place)[1]


def _pairs(sections: list[tuple[str, list[str]]], heading: str) -> Iterator[tuple[str, str]]:
    for entry in _take(sections, heading):
        name, _, value = entry.partition(": ")
        yield name, value


def _tokens(phrase: str) -> Iterator[tuple[str, bool]]:
    """Yield each word of the phrase, and whether it may be absent."""
    for token in _SPACE.split(_BAR.sub("|", phrase)):
        yield token.removesuffix("?"), token.endswith("?")


def _spell(choice: str) -> str:
    return re.escape(choice).replace(r"\ ", _BETWEEN).replace(r"\-", "[ -]?")


def _spans(candidate: _Candidate, line: str) -> Iterator[tuple[int, int]]:
    """Yield each match. An expression is compiled without the word border it starts with: a search for letters is much
    faster, and the border is checked here."""
    expression, at_border = _compiled(candidate.source, candidate.is_phrase)
    match = expression.search(line)
    while match:
        start, end = match.span()
        inside_word = at_border and start and line[start - 1].isalnum()
        if not inside_word:
            yield start, end
        match = expression.search(line, start + 1 if inside_word else max(end, start + 1))


@cache
def _compiled(source: str, is_phrase: bool) -> tuple[re.Pattern[str], bool]:
    if is_phrase:
        return re.compile(_rules().expression(source)), True
    bare = source.removeprefix(r"\b")
    return re.compile(bare), bare != source


_plain = cache(re.compile)


def _is_quoted(line: str, start: int, end: int) -> bool:
    for quote in "\"'`":
        opened = line.rfind(quote, max(0, start - 40), start)
        if opened >= 0 and not line[opened - 1 : opened].isalnum():
            closed = line.find(quote, end, end + 80)
            if closed >= 0 and not line[closed + 1 : closed + 2].isalnum():
                return True
    return False


def read(plain: str) -> FoldedText:
    """Split folded text into lines and words. Blanking out all but letters and splitting is the fastest way."""
    letters = plain.encode("ascii", "replace").translate(_ONLY_LETTERS).decode("ascii")
    lines: list[FoldedLine] = []
    start = 0
    for text, words in zip(plain.split("\n"), letters.split("\n"), strict=True):
        lines.append(FoldedLine(start, text, set(words.split())))
        start += len(text) + 1
    return FoldedText(plain, lines, set().union(*[line.words for line in lines]))


# ── veiled requests ──
#
# Requests for a model's rules in veiled words: hint at the hidden rules, weave in a quiet instruction. Each word is
# harmless in most notes. Within a few words of each other, words of concealment, of disclosure, of story-telling, and
# words for a model and its rules are not. Each family counts once: two points for a telling word, else one.

_WINDOW = 30  # words
_ENOUGH = 6  # points, of sixteen
_WORDS = re.compile(r"[a-z]+")


def _find_veiled(page: FoldedText) -> Iterator[tuple[int, int]]:
    points = _rules().points
    speaking = _rules().speaking
    if _score(map(points.__getitem__, page.words & speaking)) < _ENOUGH:
        return
    for line in page.lines:
        if _score(map(points.__getitem__, line.words & speaking)) >= _ENOUGH:
            near: deque[tuple[int, int, dict[str, int]]] = deque()
            for position, match in enumerate(_WORDS.finditer(line.text)):
                if match[0] not in points:
                    continue
                near.append((position, match.start(), points[match[0]]))
                while near[0][0] < position - _WINDOW:
                    near.popleft()
                if _score(families for _, _, families in near) >= _ENOUGH:
                    yield line.start + near[0][1], line.start + match.end()
                    near.clear()


def _score(found: Iterable[dict[str, int]]) -> int:
    """Return the points of words that ask for something, name a subject, and give it away; else 0."""
    best: dict[str, int] = {}
    for families in found:
        for family, worth in families.items():
            best[family] = max(worth, best.get(family, worth))
    if "task" not in best or not {"rules", "inside"} & best.keys() or not {"veil", "disclosure"} & best.keys():
        return 0
    return sum(best.values())


# ── characters ──
#
# Characters that hide text from a reader or pass for others. Joiners between emoji and in Persian or Indic words,
# direction marks in Arabic and Hebrew text, variation selectors and flags are let through.

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")


def find_controls(text: str) -> Iterator[Finding]:
    """Yield control characters other than tab and line breaks: they can rewrite what a terminal shows."""
    for match in _CONTROL.finditer(text):
        yield Finding("control_character", match.span(), "medium", f"control character {code_point(match.group())}")


def code_point(char: str) -> str:
    """Return the usual way of naming a character that cannot be shown."""
    return f"U+{ord(char):04X}"


_SUSPECT = re.compile(
    "[\u200b-\u200f\u061c\u180e\u2060-\u2064\u2066-\u206f\ufeff\u202a-\u202e\u115f\u1160\u3164\uffa0\ufff9-\ufffb"
    "\ufe00-\ufe0f\U000e0000-\U000e01ef\x80-\x84\x86-\x9f]"
)
# Runs of letters, without the scripts that write no spaces between words.
_CHARACTERS_WORD = re.compile("[^\\W\\d_\u0e00-\u0eff\u1780-\u17ff\u3000-\u9fff\uac00-\ud7a3]+")
_OVERRIDES = "\u202d\u202e"
_OPENERS = "\u202a\u202b\u2066\u2067\u2068"
_CLOSERS = "\u202c\u2069"
_JOINERS = "\u200c\u200d"
_MARKS = "\u200e\u200f\u061c"

# Scripts whose writing uses joiners, or marks word borders with a zero-width space.
_JOINING = re.compile(
    "[\u0600-\u08ff\u0900-\u0dff\u0e00-\u0eff\u0f00-\u109f\u1780-\u17ff\u1800-\u18af\u1a20-\u1aaf\u1b00-\u1c4f"
    "\ua800-\uaaff\ufb50-\ufdff\ufe70-\ufeff\U00010a00-\U00011fff\U0001e900-\U0001e95f]"
)
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]")
_FOREIGN = re.compile("[\u0370-\u03ff\u0400-\u052f\u0531-\u058f\u13a0-\u13ff\uff21-\uff5a\U0001d400-\U0001d7ff]")
_STYLED = re.compile("[\uff21-\uff3a\uff41-\uff5a\U0001d400-\U0001d7cb]")
_GREEK = re.compile("[\u0370-\u03ff]")
_GREEK_TRAPS = frozenset("ονιυΑΒΕΖΗΙΚΜΝΟΡΤΥΧ")
_ACCENTED = re.compile("[\u00c0-\u024f\u0250-\u02af\u1e00-\u1eff]")
_MOST_ACCENTED = 90
"""Kinds of accented letters; Vietnamese has the most, 67 small ones. A text with more is decorated: nobody takes it for
plain, and the rules read it as look-alike letters.
"""


def find_hidden(text: str) -> Iterator[Finding]:
    """Yield invisible characters, direction overrides, tag characters and smuggled selectors."""
    for match in _SUSPECT.finditer(text):
        at, char = match.start(), match.group()
        if char in _OVERRIDES or char in _OPENERS or char in _CLOSERS:
            if not _direction_is_honest(text, at, char):
                yield Finding(
                    "bidi_control", (at, at + 1), "high", f"direction control {code_point(char)} reorders text"
                )
        elif "\U000e0000" <= char <= "\U000e007f":
            if not _in_flag(text, at):
                yield Finding("tag_character", (at, at + 1), "high", "invisible tag characters can carry hidden text")
        elif _is_selector(char):
            if at and _is_selector(text[at - 1]):
                yield Finding("invisible_character", (at, at + 1), "high", "repeated variation selectors hide data")
        elif not _has_a_use(text, at, char):
            yield Finding("invisible_character", (at, at + 1), "high", f"invisible character {code_point(char)}")


def _has_a_use(text: str, at: int, char: str) -> bool:
    before, after = text[max(0, at - 1) : at], text[at + 1 : at + 2]
    if char == "\ufeff":
        return at == 0
    if char in _JOINERS:
        return _joins(before) or _joins(after)
    if char == "\u200b":
        around = (text[max(0, at - 4) : at].rstrip(char)[-1:], text[at + 1 : at + 5].lstrip(char)[:1])
        return all(side.isalpha() and not side.isascii() for side in around)
    if char in _MARKS:
        return not (before.isascii() and after.isascii() and before.isalpha() and after.isalpha())
    return False


def _joins(char: str) -> bool:
    """Return whether a joiner next to this character is part of ordinary writing."""
    if not char or char.isascii():
        return False
    return bool(_JOINING.match(char)) or _is_selector(char) or unicodedata.category(char) in ("So", "Sk", "Mn", "Mc")


def _is_selector(char: str) -> bool:
    return "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef"


def _in_flag(text: str, at: int) -> bool:
    """Return whether the tag at `at` belongs to a flag: a black flag, up to eight tags, and the closing tag."""
    flag = text.rfind("\U0001f3f4", max(0, at - 8), at)
    close = text.find("\U000e007f", at, at + 8)
    return flag >= 0 <= close and all("\U000e0000" <= char <= "\U000e007f" for char in text[flag + 1 : close])


def _direction_is_honest(text: str, at: int, char: str) -> bool:
    """Accept balanced embeddings and isolates around right-to-left text, and around numbers."""
    if char in _OVERRIDES:
        return False
    before = text[max(0, at - 400) : at].rsplit("\n", 1)[-1]
    line = before + text[at : at + 400].split("\n", 1)[0]
    opened = sum(line.count(mark) for mark in _OPENERS)
    closed = sum(line.count(mark) for mark in _CLOSERS)
    if opened != closed:
        return False
    return bool(_RIGHT_TO_LEFT.search(line)) or not any(letter.isalpha() for letter in line)


def find_lookalikes(text: str) -> Iterator[Finding]:
    """Yield words that mix Latin letters with letters of another script that pass for Latin ones."""
    if not _FOREIGN.search(text) or len(set(_ACCENTED.findall(text))) > _MOST_ACCENTED:
        return
    words = list(_CHARACTERS_WORD.finditer(text))
    native = any(_is_native(match.group()) for match in words)
    for match in words:
        word = match.group()
        if not word.isascii() and _FOREIGN.search(word) and _is_mixed(word, native):
            yield Finding("lookalike_letters", match.span(), "high", "letters of several scripts imitate one word")


def _is_native(word: str) -> bool:
    """Return whether a word is of a foreign script, not merely made of look-alikes."""
    return all(_FOREIGN.match(char) and not _STYLED.match(char) for char in word) and any(
        char not in LOOKALIKES for char in word.lower()
    )


def _is_mixed(word: str, native: bool) -> bool:
    foreign = [bool(_FOREIGN.match(char)) for char in word]
    if all(foreign) or not any(char.isascii() for char in word):
        return False
    strangers = [char for char in word if _FOREIGN.match(char)]
    switches = sum(one != other for one, other in pairwise(foreign))
    if any(_STYLED.match(char) for char in strangers):
        return len(word) > 2
    if all(_GREEK.match(char) for char in strangers):
        # A Greek letter at either end is how units, genes and mathematics are written: μm, TNFα, Δt.
        return any(char in _GREEK_TRAPS for char in strangers) or (switches > 1 and len(word) > 3)
    if switches > 1:
        return True
    # "PDFка" is a Latin word with a Russian ending; a lone look-alike in otherwise Latin text is not.
    return not native and all(char in LOOKALIKES for char in strangers)


# ── disguises ──
#
# Hidden text: the same words encoded, reversed, spelled in digits, spaced out or written in look-alikes. Each
# disguise is undone once, and only if the text shows signs of it.

_LEET = bytes.maketrans(b"013457@$!|", b"oieastasii")
_LONG = 20
_PLUS = re.compile(r"""["'] ?\+ ?["']""")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz")
_CODED = re.compile(r"[A-Za-z0-9+/_-]{20,}={0,2}")
_SPACED = re.compile(r"(?:(?<![a-z])[a-z][ ._*|/-]{1,3}){8,600}[a-z](?![a-z])")
_BETWEEN_LETTERS = re.compile(r"[ ._*|/-]{1,3}")
_SHIFTED = str.maketrans("abcdefghijklmnopqrstuvwxyz", "nopqrstuvwxyzabcdefghijklm")

Disguised = tuple[str, tuple[int, int], str]


def disguised(text: str, page: FoldedText) -> Iterator[Disguised]:
    """Yield each hidden text, folded; where it stands in `text`; and how it was hidden."""
    whole = (0, len(text))
    plain, words = page.text, page.words
    if not text.isascii() and RESEMBLING.search(text):
        yield fold(text, lookalikes=True).text, whole, "look-alike letters"
    rules = _rules()
    if not words.isdisjoint(rules.shifted):
        yield plain.translate(_SHIFTED), whole, "rot13"
    if not words.isdisjoint(rules.reversed):
        yield plain[::-1], whole, "reversed text"
    spelled = plain.encode("utf-8", "surrogatepass").translate(_LEET).decode("utf-8", "surrogatepass")
    if any(word in spelled and word not in plain for word in rules.words["telling_in_digits"]):
        yield spelled, whole, "digits for letters"
    if len(words & _LETTERS) > 4:
        yield from _spaced(text, plain)
    if "' + '" in plain or '" + "' in plain or "'+'" in plain or '"+"' in plain:
        yield _PLUS.sub("", plain), whole, "joined strings"
    yield from _escaped(text)
    at = 0
    for word in text.split():
        if len(word) >= _LONG:
            at = text.index(word, at)
            yield from _encoded(word, at)
            at += len(word)


def _spaced(text: str, plain: str) -> Iterator[Disguised]:
    for match in _SPACED.finditer(plain):
        joined = _BETWEEN_LETTERS.sub("", match.group())
        for phrase, meaning in _rules().joined.items():
            if phrase in joined:
                yield meaning, (0, len(text)), "spaced-out letters"


def _escaped(text: str) -> Iterator[Disguised]:
    """Yield text with character references of HTML, URLs and programming languages undone."""
    if text.count("&#") > 4:
        from html import unescape

        yield fold(unescape(text)).text, (0, len(text)), "character references"
    if text.count("%") > 4:
        from urllib.parse import unquote

        decoded = unquote(text)
        if decoded != text:
            yield fold(decoded).text, (0, len(text)), "percent encoding"
    if text.count("\\x") > 4 or text.count("\\u") > 4:
        yield fold(_ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)).text, (0, len(text)), "escapes"


_ESCAPE = re.compile(r"\\(?:x|u00)([0-9a-fA-F]{2})")


def _encoded(word: str, at: int) -> Iterator[Disguised]:
    """Yield what a long word without spaces says, if it is base64 or hexadecimal for readable text."""
    for match in _CODED.finditer(word):
        decoded = _from_hex(match.group()) or _from_base64(match.group())
        if decoded:
            yield fold(decoded).text, (at + match.start(), at + match.end()), "encoded text"


def _from_hex(word: str) -> str:
    try:
        return _readable(bytes.fromhex(word))
    except ValueError:
        return ""


def _from_base64(word: str) -> str:
    from base64 import b64decode

    word = word.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return _readable(b64decode(word + "=" * (-len(word) % 4)))
    except ValueError:
        return ""


def _readable(data: bytes) -> str:
    """Return the bytes as text, if they are text."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return ""
    return text if text.isprintable() or "\n" in text else ""
