"""The frame of a question about conversations: what is said about the asking, not about what is sought. Pure, linear.

"Can you list the order in which I brought up aspects of the budget tracker across our conversations?" seeks the budget
tracker. The words around it occur in many messages, and none of them is meant.
"""

from __future__ import annotations

import re

_TALKS = r"(?:conversations?|chats?|sessions?|discussions?|messages|interactions)"
_ALIKE = r"(?:aspects?|topics?|things?|points?|kinds?|types?|ways?)"
_SPOKE = r"(?:brought up|talked about|discussed|mentioned|raised|covered|touched on|asked about|told you about)"
_SPEAK = r"(?:bring up|talk(?:ed)? about|discuss(?:ed)?|mention(?:ed)?|raised?|cover(?:ed)?|say|said|tell|told|asked)"
_SHORT = r"(?:clear|comprehensive|complete|detailed|brief|short|full|thorough|concise|quick)"
_WHERE = r"(?:throughout|across|during|over|in|from|between|based on|according to)"
_FRAMES = (
    r"\bmention only(?: and only)? (?:\w{1,12} )?(?:items?|things?|points?|topics?|events?|aspects?)\b",
    r"\b(?:list|give me|tell me|show me|walk me through|what (?:is|was)) the (?:chronological )?order of\b",
    r"\b(?:list |walk me through )?the (?:chronological )?order (?:in which|that|of (?:how|when))\b",
    r"\bin (?:chronological |the right |the correct )?order\b(?! (?:to|for|of|that))",
    rf"\b(?:i|we|you) (?:have |had )?{_SPOKE}\b",
    rf"\b(?:did|have|had) (?:i|we|you) {_SPEAK}\b",
    rf"\b{_WHERE}(?: the course of)?(?: all)?(?: of)? (?:our|my|these|the|those)(?: \w{{1,16}})? {_TALKS}\b",
    rf"\bin (?:an?|any|one)(?: \w{{1,16}})? {_TALKS}\b",
    rf"\b(?:an? |the )?(?:{_SHORT} )?(?:summary|overview|recap|rundown) of\b",
    r"\b(?:summari[sz]e|recap)\b",
    rf"\b(?:different|various|several|all(?: of)? the) {_ALIKE} (?:of|related to|about)\b",
)
_FRAME = re.compile("|".join(_FRAMES), re.IGNORECASE)


def unframed(text: str) -> str:
    """The text without what frames it."""
    return _FRAME.sub(" ", text)
