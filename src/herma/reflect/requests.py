"""Did the user ask for something to be remembered? Then it has to be saved, whatever the model made of it.

Only plain requests count: a question about remembering, a quotation or a negation is none. Pure and linear.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from herma.late import Late

_ASKS = Late(
    r"^(?:(?:ok(?:ay)?|hey|hi|also|and|please|pls|so|yes|no|by the way|btw|for (?:the )?(?:future|next time)"
    r"|from now on)[,:;!.\s]+){0,3}"
    r"(?:(?:can|could|will|would) you (?:please )?|(?:i want|i need|i'd like|i would like) you to "
    r"|you (?:should|must) )?"
    r"(?:please |just )?"
    r"(?:(?:always )?remember|for (?:future|later) reference|note to self|store (?:this|that)(?=:)"
    r"|keep in mind|don'?t (?:ever )?forget|do not forget|make a note|take note"
    r"|note(?= that\b| down\b|:)"
    r"|memori[sz]e|save (?:this|that|it)?(?: to| in)? ?(?:your )?memory|add (?:this |that |it )?to (?:your )?memory)"
    r"(?: (?:this|that|the following|for (?:the future|next time|later)))?"
    r"\b[\s:,–—-]*(?P<what>.*)$",
    re.IGNORECASE,
)
_ASIAN = Late(
    r"^(?:请|麻烦|帮我|另外|还有|以后)?[，,\s]{0,3}(?:你要|你|要)?(?:记住|记一下|记下来?|记得|别忘了|不要忘记)[：:，,\s]{0,3}(?P<what>.*)$"
    r"|^(?P<ja>.{2,300}?)(?:を|って|と)?(?:覚えておいて|覚えて|記憶して|忘れないで)(?:ください|ね|下さい)?[。.!！]?$"
    r"|^(?P<ko>.{2,300}?)(?:을|를|라고)? ?(?:기억해|잊지 마)[^\s]{0,4}[.!]?$"
)
_OTHERS = Late(
    r"^(?:(?:bitte|und|also|ok(?:ay)?|s'il te pla[iî]t|por favor|per favore|пожалуйста|prosz[ęe])[,:;!.\s]+){0,2}"
    r"(?:merke? dir|vergiss (?:bitte )?nicht|nicht vergessen|denke? (?:bitte )?daran|notiere? dir"
    r"|retiens|souviens-toi|rappelle-toi|n'oublie pas|m[ée]morise|recuerda|acu[ée]rdate|no (?:te )?olvides"
    r"|ten en cuenta|ricorda(?:ti)?|non dimenticare|lembra-te|lembre-se|n[ãa]o (?:te )?esque[çc]as?"
    r"|onthoud|vergeet niet|запомни(?:те)?|не забудь(?:те)?|имей(?:те)? в виду|zapami[ęe]taj|pami[ęe]taj)\b"
    r"(?: bitte| bien)?[\s:,–—-]+(?:(?:dass|que|de que|che|dat|что|[żz]e)\b[\s:,]*)?(?P<what>.*)$"
    r"|^(?:覚えておいて|覚えて|忘れないで)(?:ください|下さい|ね)?[、,：:\s]+(?P<ja>.*)$"
    r"|^(?:기억해|잊지 마)(?: ?(?:줘|주세요|둬|세요))?[,：:\s]+(?P<ko>.*)$",
    re.IGNORECASE,
)
_AFTERWARDS = Late(
    r"^(?P<what>.{6,400}?)[,;–—-]{1,2} ?(?:(?:and|so|but) )?(?:please )?"
    r"(?:remember (?:that|this|it)|don'?t forget (?:that|this|it)|keep (?:that|this|it) in mind)(?:,? please)?[.!]*$",
    re.IGNORECASE,
)
"""What is to be kept comes first: "We deploy on Tuesdays, remember that."."""
_PATTERNS = (_ASKS, _ASIAN, _OTHERS, _AFTERWARDS)
_NOT_ASKING = Late(
    r"^(?:do|did|don't|didn't|what|when|who|where|why|how|if|whether)\b[^?]{0,80}\bremember(?:ed)?\b"
    r"|\bremember(?:s|ed|ing)? (?:when|how|why|the (?:time|day)|if|whether|me)\b"
    r"|\bi (?:can'?t |don'?t |do )?remember\b",
    re.IGNORECASE,
)
_ABBREVIATED = Late(
    r"(?:^|[\s(])(?:\w|\w\.\w|dr|mr|mrs|ms|prof|st|vs|etc|e\.g|i\.e|approx|no|nr|tel|inc|ltd|bzw|ca)\.$", re.IGNORECASE
)
_SHORTEST, _LONGEST = 6, 600
_POINTING = frozenset(
    {"", "this", "that", "it", "these", "the above", "all this", "all of this", "这个", "这些", "これ"}
)


@dataclass(frozen=True, slots=True)
class RememberThis:
    """What the user wants to be kept; nothing where they only point at what was said before."""

    what: str


def remember_request(text: str) -> RememberThis | None:
    """The request in a message of the user, if there is one: a line or a sentence that asks for it."""
    for sentence in sentences(text):
        if sentence.endswith(("?", "？")) and not sentence.lower().startswith(
            ("can you", "could you", "will", "would")
        ):
            continue
        found = (pattern.match(sentence) for pattern in _PATTERNS)
        match = None if _NOT_ASKING.search(sentence) else next(filter(None, found), None)
        if match is None:
            continue
        what = " ".join(next((part for part in match.groups() if part), "").split()).strip(" ?？")
        if what.casefold().strip(".!。！") in _POINTING:
            return RememberThis("")
        if len(what) >= _SHORTEST or not what.isascii():
            return RememberThis(what[:_LONGEST])
    return None


def sentences(text: str) -> list[str]:
    """Lines, and the sentences in them; quoted lines and code are not the user's own words."""
    found: list[str] = []
    fenced = False
    for row in text[:20_000].split("\n"):
        line = row.strip()
        if line.startswith("```"):
            fenced = not fenced
        elif line and not fenced and not line.startswith((">", '"', "“")):
            found += _split(line)
    return found


def _split(line: str) -> list[str]:
    """The sentences of a line: the point of an abbreviation or of an initial ends none."""
    found: list[str] = []
    open_ = False
    for part in re.split(r"(?<=[.!?。！？])\s+", line):
        if not part:
            continue
        if open_:
            found[-1] += f" {part}"
        else:
            found.append(part)
        open_ = _ABBREVIATED.search(part[-12:]) is not None
    return found
