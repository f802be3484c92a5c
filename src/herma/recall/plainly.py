"""Whether a text plainly asks for something that was told before: "which port does staging use?". Pure and linear."""

from __future__ import annotations

import re
from typing import Literal

Asked = Literal["", "plain", "own", "run on"]
"""Not so; plainly; for the asker's own ("which tiles did we choose?"); in a script without spaces, where the pairs of
characters that are looked for are no words, and many of them never said.
"""
_LONGEST, _WORDS = 120, 18
_OPENERS = re.compile(
    r"(?:(?:hi|hey|so|ok|okay|and|please|sorry|tell me|do you (?:know|remember)|und|also|sag mal)[\s,:!]+){0,4}",
    re.IGNORECASE,
)
_ENGLISH = (
    r"(?:what|which|who|whose|when|where|how (?:many|much|long|old|often|far|big|do (?:i|we)|did (?:i|we))"
    r"|(?:in|on|at|from|until|by|for|to) (?:which|what|when|whom)|remind me)\b"
)
_GERMAN = (
    r"(?:was|wer|wann|wo|wohin|woher|wie (?:heißt|heisst|hieß|viele?|lange|oft)"
    r"|(?:(?:in|auf|über|bis|von|mit|an) )?(?:welche[rsmn]?|wann|wem|wen))\b"
)
_ASKS = re.compile(f"{_ENGLISH}|{_GERMAN}", re.IGNORECASE)
_ASKS_RUN_ON = re.compile("什么|什麼|哪|多少|几|幾|谁|誰|いつ|どこ|何|誰|언제|어디|무엇|뭐|누구")
_RUN_ON = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_GENERAL = re.compile(
    r"\b(?:an?|eine?[nmrs]?|good|best|better|should|could|would|mean|means|meant|meaning|examples?|difference"
    r"|general(?:ly)?|exactly|usually|you|your|people|default|invented|first|[a-z]{3,12}est)\b"
    r"|什么是|什麼是|为什么|為什麼|意思|怎么样|怎麼樣|最|你|您",
    re.IGNORECASE,
)
"""Of anything of its kind, or of nobody's in particular: what the world knows, and not what was told here."""
_OWN = re.compile(r"\b(?:i|my|we|our|us|mein\w{0,3}|unser\w{0,3}|ich|wir|uns)\b", re.IGNORECASE)
_HOW_TO = re.compile(r"how do (?:i|we)\b", re.IGNORECASE)


def plainly(text: str) -> Asked:
    """How a text asks."""
    said = text.strip()
    if len(said) > _LONGEST or len(said.split()) > _WORDS:
        return ""
    said = _OPENERS.sub("", said, count=1)
    if _GENERAL.search(said):
        return ""
    if _RUN_ON.search(said):
        return "run on" if _ASKS_RUN_ON.search(said) else ""
    if not _ASKS.match(said):
        return ""
    return "own" if _OWN.search(said) and not _HOW_TO.match(said) else "plain"
