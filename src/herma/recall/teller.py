"""Who would have told what is asked, and how that sounds. Pure, linear.

What somebody did is mostly told by themselves, and in the first person: "What did Ann paint?" is answered by what Ann
said of herself, less by what she was told or asked. And what happened when is told with a time. By their words alone
such messages look like all the others about the same thing, and there are many more of those.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from herma.recall.match import fold
from herma.recall.rank import Candidate

BY_THEMSELVES = 0.6
"""What a message gains by being said by somebody whom the question names: six points of the first places on LoCoMo, on
conversations that were not learnt from; nothing elsewhere, where nobody is named."""
OF_ONESELF = 0.3
"""What a user's message gains by speaking of oneself, where the question is about somebody: four points there, one on
BEAM."""
WITH_A_TIME = 0.3
"""What a message gains by naming a time, where the question is when: two points there."""
_LONGEST_NAME = 32
_BEGINNING = 500
"""Characters that are looked at: who goes on for longer speaks of much else."""
_SELVES = (
    *(" i ", " i'", " i’", " my ", " we ", " we'", " we’", " our ", " ich ", " mein", " wir ", " unser"),
    *(" je ", " j'", " j’", " mon ", " ma ", " mes ", " nous ", " yo ", " mi ", " mis "),
)
_FAR_SELVES = ("我", "私", "僕", "俺", "저는", "나는", "우리")
_TIMES = (
    *("yesterday", "today", "tonight", "tomorrow", " ago", " last ", " next ", " week", " month", " year", " morning"),
    *(" since ", " recently", " monday", " tuesday", " wednesday", " thursday", " friday", " saturday", " sunday"),
    *(" january", " february", " march", " april", " may", " june", " july", " august", " september", " october"),
    *(" november", " december", " 19", " 20", " gestern", " heute", " letzte", " aujourd", " dernier", " ayer"),
)
_FAR_TIMES = ("昨", "今天", "今日", "去年", "今年", "上周", "上週", "先週", "先月", "年", "月", "어제", "오늘", "작년")
_WHEN = re.compile(
    r"^\W{0,8}(?:when|wann|quand|cuándo)\b|\b(?:what|which) (?:date|day|month|year|time)\b|\bhow long ago\b"
    r"|什么时候|什麼時候|何时|何時|哪天|哪一天|哪年|いつ|언제",
    re.IGNORECASE,
)
_SOMEBODY = re.compile(
    r"\b(?:[Ii]|[Mm]e|[Mm]y|[Mm]ine|[Ww]e|us|[Oo]ur|[Hh]e|him|[Hh]is|[Ss]he|[Hh]er|[Ii]ch|[Mm]eine?|[Ww]ir|[Jj]e|[Mm]on)\b"
    r"|\w\W{1,4}[A-Z]|我|私の|私は"
)
"""A pronoun, or a name: a capital that begins no sentence."""
_WORD = re.compile(r"[^\W_]+")


def gains(question: str, candidates: Sequence[Candidate], roles: Mapping[int, str]) -> dict[int, float]:
    """What each candidate gains, by its id; those that gain nothing are not in it."""
    asks_when, about_somebody = _WHEN.search(question) is not None, _SOMEBODY.search(question) is not None
    speakers = _speakers(candidates, fold(question))
    if not (asks_when or about_somebody or speakers):
        return {}
    found = {}
    for one in candidates:
        gain = BY_THEMSELVES if one.id in speakers else 0.0
        beginning = " " + one.folded[:_BEGINNING] if asks_when or about_somebody else ""
        if about_somebody and roles.get(one.id) == "user" and _has_any(beginning, _SELVES, _FAR_SELVES):
            gain += OF_ONESELF
        if asks_when and _has_any(beginning, _TIMES, _FAR_TIMES):
            gain += WITH_A_TIME
        if gain:
            found[one.id] = gain
    return found


def _has_any(text: str, words: Sequence[str], far: Sequence[str]) -> bool:
    """`far`: those of other scripts, which most texts need not be searched for."""
    for word in words:  # a loop: `any` takes twice as long, and this is asked of hundreds of messages
        if word in text:
            return True
    return not text.isascii() and any(word in text for word in far)


def _speakers(candidates: Sequence[Candidate], question: str) -> Collection[int]:
    """Messages that begin with a name and a colon, where the question has that name and the conversation has others
    that begin so: "note:" stands alone.
    """
    said = [(one.id, one.group, name) for one in candidates if (name := _speaker(one.folded))]
    if not said:
        return ()
    words = set(_WORD.findall(question))
    asked = {
        name: bool(words & set(_WORD.findall(name)) if name.isascii() else name in question)
        for name in {name for _, _, name in said}
    }
    times = Counter((group, name) for _, group, name in said if asked[name])
    return {id_ for id_, group, name in said if times[group, name] > 1}


def _speaker(folded: str) -> str:
    """`ann` of "ann: i was there"; empty where nobody is named."""
    end = folded.find(":", 0, _LONGEST_NAME)
    if end < 0 and not folded[:_LONGEST_NAME].isascii():
        end = folded.find("：", 0, _LONGEST_NAME)
    name = folded[:end] if end > 1 else ""
    return name if name and name.replace(" ", "").isalpha() and name.count(" ") < 3 else ""
