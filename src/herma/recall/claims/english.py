"""What one English sentence claims: its parts, and how each is meant. Pure and linear."""

from __future__ import annotations

from collections.abc import Iterator

from herma.late import Late
from herma.recall.claims import words as vocabulary
from herma.recall.claims.claim import Claim
from herma.recall.claims.of_things import of_a_thing
from herma.recall.claims.of_us import of_us
from herma.recall.claims.parts import Manner, named

_SAID = (
    *(("isn't", "is not"), ("aren't", "are not"), ("doesn't", "does not"), ("don't", "do not"), ("i'm ", "i am ")),
    *(
        ("we're ", "we are "),
        ("i've ", "i have "),
        ("we've ", "we have "),
        ("it's ", "it is "),
        ("they're ", "they are "),
    ),
    *(("that's ", "that is "), ("wasn't", "was not"), ("can't", "can not"), ("won't", "will not")),
)
_MOST_PARTS = 8
_PARTS = Late(
    r"; | [—–-] |: |\b(?:by the way|just so you know|for the record|in the meantime)\b,? ?|,? because |, since "
    r"| and (?=(?:i|we|my|our|the) )|,? but (?=(?:i|we|my|our|the|it) )"
    r"|,? so (?:that )?(?=(?:i|we|my|our|the|it) )|, (?=(?:i|we|my|our|the|so|then) )"
    r"|\b(?:know|note|remember|mind|realised|realized|decided) that "
)
_WHICH = Late(
    r"\b(?:my|our|the) (?P<thing>[\w/ -]{2,40}?), which (?P<said>(?:has|is|was|now|moved|changed|went) [^,]{3,80})"
)
"""What is told in passing of a thing that is named last."""
_CONTRAST = Late(
    r"^(?P<head>.{2,80}? (?:is|are|was|were)) (?:not|no longer) (?P<old>[^,]{1,60}?)(?: any ?more| any longer)?"
    r"(?:,? but(?: rather| now)?|,? (?:it|they|that) (?:is|are)(?: now)?|,? instead(?: it is)?) (?P<rest>.{1,80})$"
)
_NOT = Late(
    r"^(?P<head>.{2,80}? (?:is|are)) (?P<rest>[^,]{1,60}), not (?P<old>[^,]{1,60}?)(?: any ?more| any longer)?$"
)
"""`THING is B, not A`."""
_IT = Late(
    r"(?:\b(?:i|we) (?:have )?(?:just )?(?:changed|rotated|updated|replaced|renamed|moved|switched|reset|swapped) "
    r"(?P<thing>(?:the|my|our) [\w' -]{2,40}?)|(?P<too>(?:the|my|our) [\w' -]{2,40}?) (?:has |have )?(?:just )?changed)"
    r",? (?:and |so )?(?:it|they) (?:is|are) (?P<rest>[^,]{1,60})"
)
"""What changed is named, and then what it is."""
_MAY = Late(
    r"(?<!\d )(?<!of )(?<!in )(?<!by )(?<!is )(?<!to )(?<!until )\bmay(?! \d)\b(?= \w)"
    r"|(?<!my )(?<!our )(?<!the )\bplans? (?:to|on)\b|\bplan is to\b"
)
_LATER = Late(
    r",? ?\b(?<!right )(?:from now on|as of (?:today|now|this \w+)|these days|since then|by now|nowadays|now"
    r"|any ?more|any longer)\b"
)


def english(sentence: str, role: str) -> Iterator[Claim]:
    words = set(sentence.replace(",", " ").split())
    if not words & vocabulary.LINKS and "'" not in sentence:
        return
    if words & vocabulary.ELSEWHERE:
        return
    if "'" in sentence:
        for short, long in _SAID:
            sentence = sentence.replace(short, long)
    if ", which " in sentence and (passing := _WHICH.search(sentence)):
        yield from _part(
            f"the {passing['thing'].split(' the ')[-1].split(' my ')[-1]} {passing['said']}", role, Manner()
        )
    if (" it is " in sentence or " they are " in sentence) and (it := _IT.search(sentence)):
        yield from _part(f"{it['thing'] or it['too']} is {it['rest']}", role, Manner(new=True))
    opened = False
    for part in _PARTS.split(sentence, maxsplit=_MOST_PARTS):
        manner = Manner(new=opened)
        rest = _opened(part.strip(" -*•\t"), manner)
        if not rest:
            opened = opened or manner.new
            continue
        yield from _part(rest, role, manner)


def _opened(part: str, manner: Manner) -> str:
    """The part without the words that only open it."""
    words = part.split(" ")
    at = 0
    while at < len(words) and (word := words[at].strip(",.:!")) in vocabulary.OPENERS:
        if vocabulary.OPENERS[word] and not (word == "turns" and words[at + 1 : at + 2] != ["out"]):
            manner.new = True
        at += 1
    return " ".join(words[at:])


def _part(part: str, role: str, manner: Manner) -> Iterator[Claim]:
    if found := _CONTRAST.match(part) or (", not " in part and _NOT.match(part)):
        manner.new = True
        manner.former = named(found["old"])
        part = f"{found['head']} {found['rest']}"
    later = _LATER.sub(" ", part)
    if later != part:
        part, manner.new = later, True
    words = [word for word in part.strip(" ,").replace(",", " ,").split() if word not in vocabulary.PASSING]
    manner.new = manner.new or " actually " in part
    if len(words) < 3 or words[0] in vocabulary.NO_START:
        return
    if (told := set(words)) & vocabulary.DOUBTS or _MAY.search(part):
        return
    manner.weak = bool(told & (vocabulary.ADDING | vocabulary.FLEETING)) or " as well" in part
    if words[0] in vocabulary.CHANGED - vocabulary.PLURAL:
        words = ["we", *words]  # "bumped the timeout to 60"
    if words[0] in ("i", "we"):
        yield from of_us(words, manner)
    else:
        yield from of_a_thing(words, role, manner)
