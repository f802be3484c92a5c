"""What is embedded of a text: pure, bounded, and the same whenever it is asked for, so that a digest tells what is new.

A message stands with the end of what was said before it: an answer is about its question, and "yes, that one" is about
nothing by itself. It never stands with what follows: then every new message would change the one before. A long message
is cut into parts at paragraphs, lines, sentences or words, the first that divides it; what comes after the last part is
found by its words. Tool calls and results are not embedded at all: they are most of the bytes and little of the
meaning, and what mattered in them is in the reply.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from herma.ports.vectors import MESSAGE, SESSION, Embeddable, Outline, Said, Spot

PART = 1_200
"""Characters of a part: models for retrieval read 512 tokens, and say most about the first 300."""
MOST_PARTS = 8
BEFORE = 160
"""Characters of what was said before."""
EDGE = 2
"""Messages at either end of a session that are in its gist."""
EDGE_TEXT = 320
_LEAST = PART // 2
_BREAKS = ("\n\n", "\n", ". ", "。", "! ", "? ", "; ", ", ", "、", " ")
RECIPE = "1"
"""Changes with everything here that changes what is embedded of the same text; then everything is compared anew."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A text to be embedded, and what its vector will belong to."""

    spot: Spot
    text: str

    @property
    def digest(self) -> int:
        found = blake2b(self.text.encode("utf-8", "surrogatepass"), digest_size=8, key=RECIPE.encode()).digest()
        return int.from_bytes(found, "big", signed=True)


def of_message(said: Said) -> list[Passage]:
    before = _squeezed(said.before)
    if len(before) >= BEFORE:
        before = before.partition(" ")[2] or before  # the first word was cut
    lead = f"{before}\n" if before else ""
    return [
        Passage(Spot(MESSAGE, said.id, number, said.session_id), (lead if number == 0 else "") + part)
        for number, part in enumerate(parts(said.text))
    ]


def of_session(outline: Outline) -> list[Passage]:
    """Its title, how it began and how it ended. Nothing when nobody said anything."""
    first = [_squeezed(text)[:EDGE_TEXT] for _, text in outline.first]
    last = [_squeezed(text)[:EDGE_TEXT] for _, text in outline.last]
    said = list(dict.fromkeys((*first, *last)))
    if not said:
        return []
    text = "\n".join([line for line in (_squeezed(outline.title), *said) if line])
    return [Passage(Spot(SESSION, outline.session_id, 0, outline.session_id), text)]


def of_text(kind: str, given: Embeddable) -> list[Passage]:
    return [Passage(Spot(kind, given.key, n, "", given.scope), part) for n, part in enumerate(parts(given.text))]


def readable(text: str, *, is_multilingual: bool) -> bool:
    """Whether a model can make anything of it: one for English reads no other script, and all its vectors of such
    text are near each other.
    """
    if is_multilingual or text.isascii():
        return True
    letters = [character for character in text if character.isalpha()]
    return 2 * sum(character < "\u0250" for character in letters) >= len(letters)


def of_title(title: str) -> int:
    """What a title is remembered by; never 0."""
    return Passage(Spot(SESSION, ""), title).digest or 1


def parts(text: str) -> list[str]:
    """At most so many pieces of at most so many characters each; white space at the ends goes."""
    found: list[str] = []
    for part in _cut(text):
        if len(found) == MOST_PARTS:
            break
        if part.strip():
            found.append(part.strip())
    return found


def _cut(text: str) -> Iterator[str]:
    at = 0
    while len(text) - at > PART:
        end = at + PART
        for mark in _BREAKS:
            found = text.rfind(mark, at + _LEAST, end)
            if found >= 0:
                end = found + len(mark)
                break
        yield text[at:end]
        at = end
    yield text[at:]


def _squeezed(text: str) -> str:
    return " ".join(text.split())


def at_most() -> int:
    """As much of a message as is ever looked at."""
    return PART * (MOST_PARTS + 1)


def changed(
    passages: Sequence[Passage], stored: Mapping[tuple[int | str, int], int]
) -> tuple[list[Passage], list[int | str], list[int | str]]:
    """Compare with what is stored. → what is to be embedded, keys that are as they should be, keys to be replaced.

    A key is replaced as a whole, so that it never has parts of two texts.
    """
    wanted: dict[int | str, dict[int, int]] = {}
    for passage in passages:
        wanted.setdefault(passage.spot.key, {})[passage.spot.part] = passage.digest
    have: dict[int | str, dict[int, int]] = {}
    for (key, part), digest in stored.items():
        have.setdefault(key, {})[part] = digest
    met = [key for key, digests in wanted.items() if have.get(key) == digests]
    same = set(met)
    stale = [key for key in have if key not in same]
    return [passage for passage in passages if passage.spot.key not in same], met, stale
