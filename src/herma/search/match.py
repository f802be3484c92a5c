"""Find query terms in text: for ranking, for marking, and to catch an index that errs; snippets and excerpts.

Works on folded text (lower case, without diacritics, one character for one), so that places in it are places in the
text.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from herma.text import LazyPattern, stem

if TYPE_CHECKING:
    from herma.search.query import Query, Term

Place = tuple[int, int]
MANY = 200
"""Places of one unit in one text that are counted."""
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3105-\u318e\u31a0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97c\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
_AS_THEY_ARE = _UNSPACED.replace("\u3105-\u318e", "\u3105-\u312f").replace(
    "\uf900-\ufaff\U00020000-\U0003ffff", "\U00020000-\U0002f7ff\U0002fa20-\U0003ffff"
)
_FOLDABLE = LazyPattern(f"[^\x00-\x7f{_AS_THEY_ARE}、。，！？；：「」『』【】《》（）…—]")
"""Characters that need more than lower case; Chinese, Japanese and Korean text mostly has none."""
_RUN = LazyPattern(f"[{_UNSPACED}]+")
_PIECE = LazyPattern(f"[{_UNSPACED}]+|[^\\W_{_UNSPACED}]+")
_TO_END = LazyPattern(f"[^\\W_{_UNSPACED}]*")
SEAM = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])")
_SIGNED = re.compile(r"[A-Za-z](?:#|\+\+)|\.net", re.IGNORECASE)
_SIGN_OF_IT = LazyPattern(
    "[\u0300-\u036f\u1100-\u11ff\u3099\u309a\ua960-\ua97c\ud7b0-\ud7fb\ufb00-\ufdff\ufe70-\ufefc\uff66-\uff9f]"
)
_WRITTEN_OTHERWISE = LazyPattern(
    ".[\u0300-\u036f\u3099\u309a]+"  # a letter and its accents
    "|[\u1100-\u11ff\ua960-\ua97c\ud7b0-\ud7fb]+"  # syllables of Korean, letter by letter
    "|[\ufb00-\ufb4f\ufb50-\ufdff\ufe70-\ufefc]+"  # ligatures, and forms of Arabic letters
    "|[\uff66-\uff9f]+"  # narrow katakana
)
_JOINT = re.compile("[_-]+")
_SIGN = {"sharp": "#", "plusplus": "++", "dotnet": ".net"}
_SIGNS = re.compile("(?<=^[a-z])(?:sharp|plusplus)$|^dotnet$")
_LONGEST_NAME = 48
_NAMES_READ = 100_000
"""Characters in which names are taken apart to be marked."""


class _Folding(dict[int, str]):
    """Character → the one it is compared as; filled as needed."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        if _RUN.match(letter):  # never take a Korean syllable apart
            plain = unicodedata.normalize("NFKC", letter)
        elif unicodedata.category(letter)[0] in "LMN":
            plain = unicodedata.normalize("NFKD", letter)[:1].lower().replace("ς", "σ")
        else:  # ™ is not a letter of the word before it
            plain = letter
        self[code] = plain if len(plain) == 1 else letter
        return self[code]


_FOLDING = _Folding()


def fold(text: str) -> str:
    """Return text as it is compared, with the same length."""
    lower = text.lower()
    if text.isascii() or (len(lower) == len(text) and _FOLDABLE.search(lower) is None):
        return lower
    return text.translate(_FOLDING)


def legible(text: str) -> str:
    """Return the text as the index reads it: one character for what is written as several (é, 한, ガ), no ligatures."""
    if text.isascii() or _SIGN_OF_IT.search(text) is None:  # searching a set of characters is ten times as fast
        return text
    return _WRITTEN_OTHERWISE.sub(lambda found: unicodedata.normalize("NFKC", found[0]), text)


@dataclass(frozen=True, slots=True)
class Unit:
    """A word, a phrase, or a pair of characters to find.

    `find` gives its places; `part` is a piece of every text that has it, inside identifiers too.
    """

    name: str
    find: Callable[[str, int], list[Place]]
    part: str


def units(query: Query) -> list[Unit]:
    """Return what to look for, each once. A run of Chinese, Japanese or Korean is its pairs, as in the index."""
    found: dict[str, Unit] = {}
    for term in query.any_of:
        for unit in _units(term):
            found.setdefault(unit.name, unit)
    return list(found.values())


class Spelled:
    """A text that answers, as the index would, whether something is in it."""

    __slots__ = ("_apart", "_squeezed", "folded", "text")

    def __init__(self, text: str) -> None:
        self.text = legible(text)
        self.folded = fold(self.text)
        self._apart: str | None = None
        self._squeezed: str | None = None

    def has(self, unit: Unit) -> bool:
        """Return whether the text has the unit as a word, as a part of a name, or as a whole name."""
        if unit.part in self.folded:
            if unit.find(self.folded, 1):
                return True
            if self._apart is None:
                self._apart = "_".join(SEAM.split(self.text)) if SEAM.search(self.text) else ""
                self._apart = fold(self._apart)
            if unit.find(self._apart, 1):
                return True
        if not _is_name(unit.name):
            return False
        if self._squeezed is None:
            self._squeezed = _squeezed(self.folded)
        return unit.name in self._squeezed and _whole_name(unit.name).search(self.folded) is not None


@lru_cache(4_096)
def of_word(word: str) -> Unit:
    """Return the unit of a folded word: all forms with its stem."""
    return _spaced([word], prefix=False)


def holds(term: Term, there: Spelled) -> bool:
    """Return whether the text contains all of the term."""
    return all(there.has(unit) for unit in _units(term))


def _units(term: Term) -> list[Unit]:
    text = unicodedata.normalize("NFKC", term.text)
    pieces = _PIECE.findall(text)
    if _SIGNED.fullmatch(text):
        return [_signed(fold(text))]
    if not pieces:
        return [Unit(text, _literal(fold(text)), fold(text))]
    if term.kind == "phrase" and (" " in text.strip() or _RUN.search(text)):
        parts = [[fold(part) for part in SEAM.split(piece)] for piece in pieces]
        return [Unit(text, _side_by_side(parts, stems=True), parts[0][0][:2])]
    made: list[Unit] = []
    spaced = [part for piece in pieces if not _RUN.match(piece) for part in SEAM.split(piece)]
    if spaced:
        made.append(_spaced([fold(part) for part in spaced], prefix=term.kind == "prefix"))
    for piece in pieces:
        if _RUN.match(piece):
            run = fold(piece)
            made += [Unit(pair, _literal(pair), pair) for pair in _pairs(run)]
    return made


def _signed(text: str) -> Unit:
    """Return the unit of `C#` and its name without the sign."""
    name = "dotnet" if text == ".net" else text[0] + {sign: said for said, sign in _SIGN.items()}[text[1:]]
    end = r"(?!\w)" if text == ".net" else "(?![#+])"
    compiled = re.compile(rf"(?<!\w)(?:{re.escape(text)}{end}|{name}(?!\w))")

    def find(folded: str, most: int = MANY) -> list[Place]:
        return [found.span() for found in islice(compiled.finditer(folded), most)]

    return Unit(text, find, "net" if text == ".net" else text[0])


def _spaced(parts: Sequence[str], *, prefix: bool) -> Unit:
    if len(parts) > 1:
        return Unit(" ".join(parts), _side_by_side([parts], stems=False), parts[0])
    word = parts[0]
    return Unit(word + "*", _beginning(word), word) if prefix else Unit(stem(word), _word(word), _shared(word))


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)] or [run]


def inside_names(text: str, folded: str, units: Sequence[Unit]) -> list[tuple[Place, str]]:
    """Find units in identifiers: as a part (`tip` in getTip), or as the whole without its joints (`dryrun`)."""
    text, folded = text[:_NAMES_READ], folded[:_NAMES_READ]
    squeezed = _squeezed(folded)
    units = [unit for unit in units if unit.part in folded or unit.part in squeezed]
    if not units:
        return []
    seams = [found.start() for found in SEAM.finditer(text)]
    apart = "_".join(folded[start:end] for start, end in pairwise([0, *seams, len(folded)])) if seams else ""
    at = [seam + number for number, seam in enumerate(seams)]  # where the seams are in it
    found: list[tuple[Place, str]] = []
    for unit in units:
        places = unit.find(apart, MANY) if unit.part in apart else []
        if places:
            found += [
                ((start - bisect_left(at, start), end - bisect_left(at, end)), unit.name) for start, end in places
            ]
        elif unit.part in squeezed and _is_name(unit.name):
            found += [(one.span(), unit.name) for one in islice(_whole_name(unit.name).finditer(folded), MANY)]
    return found


def _is_name(name: str) -> bool:
    return name.isalnum() and 2 < len(name) <= _LONGEST_NAME


def _whole_name(name: str) -> re.Pattern[str]:
    """Match a name with its joints, or the sign that it stands for."""
    signed = _SIGNS.sub(lambda found: _SIGN[found[0]], name)
    inside = re.escape(signed) if signed != name else "[_-]{0,2}".join(name)
    return re.compile(rf"(?<![^\W_]){inside}(?![^\W_])")


def _squeezed(folded: str) -> str:
    for name, sign in _SIGN.items():
        folded = folded.replace(sign, name)
    return _JOINT.sub("", folded)


def named(text: str, units: Sequence[Unit]) -> bool:
    """Return whether any of these is in the text, however it is written."""
    folded = fold(unicodedata.normalize("NFKC", text))
    squeezed = _squeezed(folded)
    return any(unit.part in squeezed or unit.part in folded for unit in units)


def _shared(word: str) -> str:
    """Return the beginning that all words with the same stem share."""
    root = stem(word)
    shared = root if word.startswith(root) and root[-1:] not in "eiy" else root[:-1] or root
    return shared if word.startswith(shared) else word[:2]


def _word(word: str) -> Callable[[str, int], list[Place]]:
    root = stem(word)
    return _begun(_shared(word), lambda found: found == word or stem(found) == root)


def _beginning(start: str) -> Callable[[str, int], list[Place]]:
    return _begun(start, lambda _: True)


def _begun(start: str, right: Callable[[str], bool]) -> Callable[[str, int], list[Place]]:
    """Find words that begin with `start` and satisfy `right`."""

    def find(folded: str, most: int = MANY) -> list[Place]:
        places: list[Place] = []
        at = folded.find(start)
        while at >= 0 and len(places) < most:
            found = _TO_END.match(folded, at)
            end = found.end() if found else at
            if (at == 0 or not _in_word(folded[at - 1])) and right(folded[at:end]):
                places.append((at, end))
            at = folded.find(start, max(end, at + 1))
        return places

    return find


def _literal(text: str) -> Callable[[str, int], list[Place]]:
    def find(folded: str, most: int = MANY) -> list[Place]:
        places: list[Place] = []
        at = folded.find(text)
        while at >= 0 and len(places) < most:
            places.append((at, at + len(text)))
            at = folded.find(text, at + len(text))
        return places

    return find


def _side_by_side(words: Sequence[Sequence[str]], *, stems: bool) -> Callable[[str, int], list[Place]]:
    """Find words one after another with only punctuation between them; the parts of one (getTip) also with nothing.

    `stems`: in all forms with the same stem.
    """
    pattern, roots = [], list[tuple[str, str]]()
    for at, parts in enumerate(words):
        if at:
            plain = stems and not _RUN.match(parts[0]) and not _RUN.match(words[at - 1][-1])
            pattern.append(r"[\W_]{1,8}" if plain else r"[\W_]{0,8}")
        for place, part in enumerate(parts):
            if place:
                pattern.append(r"[\W_]{0,8}")
            if stems and len(part) > 2 and not _RUN.match(part):
                pattern.append(rf"({re.escape(_shared(part))}[^\W_]{{0,7}})")
                roots.append((part, stem(part)))
            else:
                pattern.append(re.escape(part))
    if stems and not _RUN.match(words[-1][-1]):
        pattern.append(r"(?![^\W_])")
    compiled = re.compile("".join(pattern))
    first = words[0][0][:2] if stems else words[0][0]

    def right(found: re.Match[str]) -> bool:
        return all(one == word or stem(one) == root for one, (word, root) in zip(found.groups(), roots, strict=True))

    def find(folded: str, most: int = MANY) -> list[Place]:
        if first not in folded:
            return []
        return [
            found.span()
            for found in islice(compiled.finditer(folded), most)
            if (_RUN.match(found[0]) or found.start() == 0 or not _in_word(folded[found.start() - 1])) and right(found)
        ]

    return find


def _in_word(letter: str) -> bool:
    return letter.isalnum() and not _RUN.match(letter)


# ── a line around the match, with the words that matched between `>>>` and `<<<` ──

SNIPPET_LONGEST = 240
_BODY = 176
"""Characters of text; the rest of the line is for marks."""
_MARKS = (">>>", "<<<")


def snippet(text: str, places: Sequence[tuple[Place, str]], longest: int = SNIPPET_LONGEST) -> str:
    """Return the part of the text with the most different units, on one line of at most `longest` characters."""
    start, end = _window(text, [place for place, _ in places], [name for _, name in places], min(_BODY, longest))
    marked = _merged([place for place, _ in places if place[0] >= start and place[1] <= end])
    dots = ("…" if start else "", "…" if end < len(text) else "")
    body = _line(text[start:end])
    room = (longest - len(body) - 2) // len("".join(_MARKS))
    return dots[0] + _marked(text, start, end, marked[:room]).strip() + dots[1]


def matches(text: str, folded: str, units: Sequence[Unit]) -> list[tuple[Place, str]]:
    """Find units, in order, with their names; inside identifiers if they do not occur on their own."""
    found, elsewhere = list[tuple[Place, str]](), list[Unit]()
    for unit in units:
        places = unit.find(folded, MANY) if unit.part in folded else []
        found += [(_with_marks(folded, place), unit.name) for place in places]
        if not places:
            elsewhere.append(unit)
    return sorted(found + inside_names(text, folded, elsewhere) if elsewhere else found)


def _with_marks(folded: str, place: Place) -> Place:
    """Extend a place over signs that belong to its last letter, such as vowels in Hindi."""
    start, end = place
    while end < len(folded) and folded[end] > "\u02ff" and unicodedata.category(folded[end])[0] == "M":
        end += 1
    return start, end


def _window(text: str, places: Sequence[Place], names: Sequence[str], size: int) -> Place:
    """Return the stretch with the most different names (the first of equals), widened to whole words."""
    if not places:
        return 0, _back_to_space(text, size) if len(text) > size else len(text)
    best, best_worth = 0, (-1, -1)
    first = 0
    inside: dict[str, int] = {}
    for last, (_, end) in enumerate(places):
        inside[names[last]] = inside.get(names[last], 0) + 1
        while first < last and end - places[first][0] > size * 3 // 4:
            inside[names[first]] -= 1
            if not inside[names[first]]:
                del inside[names[first]]
            first += 1
        worth = (len(inside), last - first)
        if worth > best_worth:
            best, best_worth = first, worth
    start = max(0, min(places[best][0] - size // 6, len(text) - size))
    if start:
        start = _on_to_space(text, start, places[best][0])
    end = min(len(text), max(start + size, min(places[best][1], start + SNIPPET_LONGEST)))
    return start, end if end == len(text) else max(_back_to_space(text, end), min(places[best][1], end))


def _back_to_space(text: str, end: int) -> int:
    """Move `end` before the word that it cuts, if that is not too long; scripts without spaces are cut anywhere."""
    if text[end].isspace() or text[end - 1].isspace():
        return end
    space = max(text.rfind(" ", end - 24, end), text.rfind("\n", end - 24, end))
    return space if space > 0 else end


def _on_to_space(text: str, start: int, latest: int) -> int:
    for at in range(start, min(start + 24, latest)):
        if text[at].isspace():
            return at + 1
    return start


def _merged(places: Sequence[Place]) -> list[Place]:
    """Join overlapping and touching places."""
    merged: list[Place] = []
    for start, end in places:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _marked(text: str, start: int, end: int, places: Sequence[Place]) -> str:
    pieces = []
    at = start
    for first, last in places:
        pieces += [text[at:first], _MARKS[0], text[first:last], _MARKS[1]]
        at = last
    return _line("".join([*pieces, text[at:end]]))


def _line(text: str) -> str:
    return " ".join(text.split())


# ── the sentences of a message that matter for a question, on one line ──

LONGEST = 280
READ = 20_000
"""Characters of a message that are read."""
_END = re.compile(r"[.!?…](?=\s)|[。！？]|\n")


def excerpt(text: str, units: Sequence[Unit], longest: int = LONGEST) -> str:
    """Return the sentence with the most different units, and as many after and before it as there is room for."""
    text = legible(text[:READ])
    spans = _sentences(text)
    if not spans:
        return ""
    places = matches(text, fold(text), units)
    found: list[set[str]] = [set() for _ in spans]
    at = 0
    for (start, _), name in places:
        while at + 1 < len(spans) and spans[at][1] <= start:
            at += 1
        found[at].add(name)
    best = max(range(len(spans)), key=lambda number: (len(found[number]), -number))
    start, end = spans[best]
    if end - start > longest:
        return _cut(text, spans[best], [place for place, _ in places if start <= place[0] < end], longest)
    first = last = best
    while last + 1 < len(spans) and spans[last + 1][1] - spans[first][0] <= longest:
        last += 1
    while first and spans[last][1] - spans[first - 1][0] <= longest:
        first -= 1
    dots = ("… " if first else "", " …" if last + 1 < len(spans) else "")
    return dots[0] + " ".join(text[spans[first][0] : spans[last][1]].split()) + dots[1]


def _sentences(text: str) -> list[tuple[int, int]]:
    """Return where each sentence begins and ends, without blank ones."""
    ends = [found.end() for found in _END.finditer(text)]
    if not ends or ends[-1] < len(text):
        ends.append(len(text))
    spans, start = [], 0
    for end in ends:
        if text[start:end].strip():
            spans.append((start, end))
        start = end
    return spans


def _cut(text: str, span: tuple[int, int], places: Sequence[tuple[int, int]], longest: int) -> str:
    """Return a part of a long sentence, around its first match."""
    start = max(span[0], min((places[0][0] if places else span[0]) - longest // 4, span[1] - longest))
    end = min(span[1], start + longest)
    dots = ("… " if start else "", " …" if end < len(text) else "")
    return dots[0] + " ".join(text[start:end].split()) + dots[1]
