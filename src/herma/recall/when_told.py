"""Whether a sentence says when something was told, and which of its words only do that. Pure, linear."""

from __future__ import annotations

import re
from dataclasses import replace

from herma.recall.dates import Span, spoken_dates
from herma.recall.frames import unframed
from herma.recall.stopwords import STOP_WORDS
from herma.recall.stripped import strip

_TALK = """
asked chat chats chatted conversation conversations discuss discussed discussion mention mentioned said spoke talk
talked talking told besprochen gesagt gesprochen parlé dit hablamos dijo 聊了 聊 讨论 討論 说了 說了 我们 我們
"""
_ABOUT_TALK = frozenset(_TALK.split())
"""Words that make a date in the same sentence mean the time of the conversation, not of something told in it.

Not "did": "what did I paint last year" was mostly told at another time than it happened.
"""
_DOING = "debugged decided did do doing fixed message messages session sessions work worked working gemacht"
_ABOUT_DOING = frozenset(_DOING.split())
"""Words that say as little about what is sought, where nothing else is said but when."""
_IDLE_CJK = re.compile(
    "我们|我們|我|你|您|在|和|跟|与|與|都|又|还|還|聊|谈|談|讨论|討論|说|說|提到|分享|了|过|過|的|什么|什麼|甚麼|哪些|话题|話題"
    "|内容|內容|事情|那天|这天|這天|当天|當天|很多|一些|些|呢|吗|嗎|吧|话した|話した|した|しました|について|何を|何|か|を|に|は|の"
)
_TALK_CJK = re.compile("聊|讨论|討論|说了|說了")


def spoken(plain: str, now: float, *, filtered: bool) -> tuple[list[Span], set[str]]:
    """Dates in plain language, and the words that are spent on them."""
    found = spoken_dates(plain, now)
    if not found or filtered:
        return [], set()
    rest = plain
    for span in sorted(found, key=lambda span: span.at, reverse=True):
        rest = rest[: span.at[0]] + " " + rest[span.at[1] :]
    left = [strip(word).casefold() for word in rest.split()]
    alone = all(word in STOP_WORDS or word in _ABOUT_TALK or word in _ABOUT_DOING or _is_idle(word) for word in left)
    about_talk = any(word in _ABOUT_TALK for word in left) or bool(_TALK_CJK.search(rest))
    spent = {strip(word).casefold() for span in found if span.relative for word in span.words.split()}
    hard = len(found) == 1 and (alone or (about_talk and found[0].relative))
    if hard:  # the sentence is about when we talked: neither the date nor the talking is its subject
        spent |= _ABOUT_TALK | {span.words for span in found}
    if hard and alone:
        named = {strip(word).casefold() for span in found for word in span.words.split()}
        spent |= _ABOUT_DOING | named | {word for word in left if word}
    return [replace(span, hard=hard) for span in found], spent


def _is_idle(word: str) -> bool:
    """Whether nothing is left of a word but talk about talking: "我们聊了哪些话题"."""
    return not _IDLE_CJK.sub("", word)


def framing(plain: str) -> set[str]:
    """Words that occur only in what frames the question."""
    rest = unframed(plain)
    if rest == plain:
        return set()
    kept = {strip(word).casefold() for word in rest.split()}
    return {word for word in (strip(word).casefold() for word in plain.split()) if word not in kept}
