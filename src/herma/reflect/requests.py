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
    r"(?:(?:can|could|will|would) you (?:please )?)?"
    r"(?:please )?"
    r"(?:(?:always )?remember|keep in mind|don'?t (?:ever )?forget|do not forget|make a note|take note"
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
        match = None if _NOT_ASKING.search(sentence) else _ASKS.match(sentence) or _ASIAN.match(sentence)
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
