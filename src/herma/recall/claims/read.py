"""What a message claims: which thing is said to be, to have become, or to be no longer what. Pure and linear.

A claim is read where a sentence plainly says so: "the staging db runs on port 5432", "I live in Lyon now", "we switched
from MySQL to Postgres". Questions, plans, doubts, quotations and what somebody else is said to have said claim nothing,
and neither does what only tells how something is ("the build is slow"): rather silent than wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from herma.recall.claims import words as vocabulary
from herma.recall.claims.abroad import TELLS_ABROAD, abroad
from herma.recall.claims.claim import SINGLE_WORDS, Claim, Kind, Words
from herma.recall.claims.english import english

READ = 2_000
READ_OF_ASSISTANTS = 600
"""Characters of a message that are looked at. What an assistant did it says first; then it explains."""
_MOST = 20
"""Claims of one message."""
_LONGEST = 300
_SENTENCE = re.compile(r"[.。！？!?\n](?:(?<!\.)|(?<=\w\.)(?=\s|$))")
_QUOTED = re.compile(
    r"```.{0,2000}?(?:```|\Z)|(?m:^)>[^\n]*|[\"“„«「『][^\"“”»」』\n]{1,400}[\"”“»」』]",
    re.DOTALL,
)
_MARKS = ('"', "“", "„", "«", "「", "『", "```", ">")
_TITLES = re.compile(r"\b(dr|mr|mrs|ms|prof|st)\. ")
_SIGNS = ',.;:!?()*"'
_BLANKED = str.maketrans(dict.fromkeys(_SIGNS, " "))
_SIGN = re.compile(f"[{re.escape(_SIGNS)}]")
_TELLING_PHRASES = ("any more", "these days", "nicht mehr")
Gate = Callable[[str], bool]


def claims(text: str, role: str = "user", gate: Gate = bool) -> list[Claim]:
    """What a folded text claims, each thing once: what it says last. `gate` says which sentences are worth reading,
    and first whether the whole text is.
    """
    found: dict[tuple[Words, Kind, Words], Claim] = {}
    text = text[: READ_OF_ASSISTANTS if role == "assistant" else READ]
    if not gate(text):
        return []
    text = text.replace("’", "'")
    if any(mark in text for mark in _MARKS):
        text = _QUOTED.sub(_unless_a_name, text)
    if ". " in text:
        text = _TITLES.sub(r"\1 ", text)
    for sentence, asked in _sentences(text):
        if asked or not 4 < len(sentence) <= _LONGEST or not gate(sentence):
            continue
        for claim in (*abroad(sentence), *english(sentence, role)):
            if claim.value or claim.former:
                found[claim.thing, claim.kind, claim.former] = claim
        if len(found) > _MOST:
            break
    return list(found.values())


def tells(text: str) -> bool:
    """Whether a text may say that something is otherwise now, or what has but one value. Quick: most text does not."""
    if not text.isascii() and TELLS_ABROAD.search(text):
        return True
    words = _words(text)
    if not vocabulary.TELLING.isdisjoint(words) or any(map(text.__contains__, _TELLING_PHRASES)):
        return True
    return not SINGLE_WORDS.isdisjoint(words) and not vocabulary.SPEAKING.isdisjoint(words)


def tells_of_a_change(text: str) -> bool:
    """The same of what an assistant says: what has but one value it only repeats."""
    return not vocabulary.TELLING.isdisjoint(_words(text)) or bool(not text.isascii() and TELLS_ABROAD.search(text))


def _words(text: str) -> list[str]:
    """Beyond ASCII, `translate` takes eight times as long, and longer than the expression."""
    return (text.translate(_BLANKED) if text.isascii() else _SIGN.sub(" ", text)).split()


def _unless_a_name(found: re.Match[str]) -> str:
    """A quotation is somebody else's words; one of a few words is a name."""
    inside = found[0][1:-1]
    return inside if len(inside.split()) < 4 and not found[0].startswith((">", "```")) else " "


def _sentences(text: str) -> Iterator[tuple[str, bool]]:
    """Sentences, each with whether it is a question."""
    start = 0
    for end in _SENTENCE.finditer(text):
        yield text[start : end.start()].strip(), end[0] in "?？"
        start = end.end()
    yield text[start:].strip(), False
